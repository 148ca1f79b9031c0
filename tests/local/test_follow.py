"""A conversation is followed until nothing more happens in it without a person."""

import asyncio

from infinity_agents.testing.scripted_model import ScriptedModel, calls, says


async def followed(agent, **options):
    async with asyncio.timeout(20):
        return [output.text async for _, output in agent.follow("c", **options)]


async def test_a_conversation_that_nobody_began_is_at_rest(open_agent):
    assert await followed(open_agent()) == []


async def test_what_people_are_told_is_yielded_up_to_the_last_word(open_agent):
    agent = open_agent(model=ScriptedModel([calls("sleep", {"seconds": 0.3}), says("awake"), says("again")]))
    async with agent.hosted():
        await agent.send("c", "sleep")
        assert await followed(agent) == ["sleep 0.3 s", "awake"]
        place = await agent.outputs_log.last_place()
        await agent.send("c", "again")
        assert await followed(agent, after=place) == ["again"]


async def test_children_are_waited_for_and_other_conversations_are_not(open_agent):
    def script(request):
        if request.thread_stack == ("other",):
            return calls("sleep", {"seconds": 600})
        if len(request.thread_stack) > 1:
            slept = request.entries[-1].kind == "tool_result"
            me = {"thread_id": request.thread_stack[-1], "report_to_parent": "done"}
            return calls("close_thread", me) if slept else calls("sleep", {"seconds": 0.3})
        match request.entries[-1].kind:
            case "user":
                return calls("spawn_thread", {"instructions": "sleep", "child_of": ["c"]})
            case "event":
                return says("my child is done")
        return says("I have a child")

    agent = open_agent(model=ScriptedModel(script))
    async with agent.hosted():
        await agent.send("other", "sleep")
        await agent.send("c", "spawn")
        told = await followed(agent)
    assert (told[0], told[-1]) == ("I have a child", "my child is done")


async def test_who_only_waits_for_people_is_at_rest(open_agent):
    agent = open_agent(model=ScriptedModel([calls("sleep_until_event_or_input", text="I wait")]))
    async with agent.hosted():
        await agent.send("c", "wait")
        assert await followed(agent) == ["I wait", "sleep until something happens"]
