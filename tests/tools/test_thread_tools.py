"""The tools that touch threads, calls and subscriptions: what each stages, and what it refuses."""

from dataclasses import replace

import pytest

from infinity_agents.conversation import ids
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.ledger import Call, CallState
from infinity_agents.conversation.messages import ParentMessage, ThreadReport
from infinity_agents.conversation.threads import ThreadKind
from infinity_agents.errors import TellModel
from infinity_agents.runtime.arguments import check_arguments
from infinity_agents.runtime.complete import _Staging
from infinity_agents.tools.subscriptions import CancelSubscription, CancelToolCall
from infinity_agents.tools.threads import CloseThread, ReportToParent, SendMessageToChild, SpawnThread
from tests.conversation.building import (
    CHILD,
    NOW,
    a_slice,
    call,
    called,
    effects,
    sent,
    states,
    timed_nap,
)

GRANDCHILD = replace(CHILD, id="root.deep", ancestors=("root", "root.child"), born_of="spawning-deep")


async def use(tool, slice_, id="c1", **arguments):
    """Have the model call ``tool``, as the completion does it; return the answer."""
    check_arguments(tool.spec.name, tool.spec.input_schema, arguments)
    made = Call(id, tool.spec.name, arguments, CallState.OPEN, NOW)
    slice_.append(called(id, tool.spec.name))
    return await tool.execute_synchronous(made, _Staging(slice_))


def text(answer):
    return answer.content[0].text


class TestSpawnThread:
    async def test_the_child_and_its_first_message_are_staged(self):
        slice_ = a_slice(acting_for="ada")
        answer = await use(SpawnThread(), slice_, instructions="watch the door", child_of=["root"])
        ((child, lineage),) = slice_.spawned
        assert not answer.is_error
        assert child.id in text(answer)
        assert child.id == ids.child_id("root", "root", "c1")
        assert child.kind is ThreadKind.CHILD
        assert child.ancestors == ("root",)
        assert child.born_of == "c1"
        (first,) = sent(slice_)
        assert first.group_id == child.id
        assert first.content == Text("watch the door")
        assert first.user_id == "ada"
        assert [(segment.start, segment.stop) for segment in lineage.segments] == [(0, 1)]

    async def test_a_replay_spawns_the_same_child(self):
        first, second = a_slice(), a_slice()
        for slice_ in (first, second):
            await use(SpawnThread(), slice_, instructions="go", child_of=["root"])
        assert first.spawned == second.spawned
        assert sent(first) == sent(second)

    async def test_two_calls_spawn_two(self):
        slice_ = a_slice()
        for id in ("c1", "c2"):
            await use(SpawnThread(), slice_, id, instructions="go", child_of=["root"])
        assert len({child.id for child, _ in slice_.spawned}) == 2

    async def test_a_grandchild(self):
        slice_ = a_slice(thread=CHILD)
        await use(SpawnThread(), slice_, instructions="go", child_of=["root", "root.child"])
        ((child, _),) = slice_.spawned
        assert child.ancestors == ("root", "root.child")
        assert child.root_id == "root"
        assert child.id.startswith("root")

    @pytest.mark.parametrize(
        "child_of",
        [[], ["root"], ["root.child"], ["root.child", "root"], ["root", "root.child", "x"], ["ROOT", "root.child"]],
    )
    async def test_a_stack_that_is_not_the_callers_own(self, child_of):
        slice_ = a_slice(thread=CHILD)
        answer = await use(SpawnThread(), slice_, instructions="go", child_of=child_of)
        assert answer.is_error
        assert "own task" in text(answer)
        assert "root.child" in text(answer)
        assert slice_.spawned == []
        assert effects(slice_) == []

    async def test_blank_instructions(self):
        slice_ = a_slice()
        assert (await use(SpawnThread(), slice_, instructions=" \n", child_of=["root"])).is_error
        assert slice_.spawned == []

    @pytest.mark.parametrize(
        "arguments", [{"instructions": "go"}, {"child_of": ["root"]}, {"instructions": "", "child_of": []}]
    )
    async def test_what_is_missing(self, arguments):
        with pytest.raises(TellModel):
            await use(SpawnThread(), a_slice(), **arguments)


class TestReportToParent:
    async def test_the_parent_hears_it_about_the_call_that_made_the_child(self):
        slice_ = a_slice(thread=GRANDCHILD)
        assert not (await use(ReportToParent(), slice_, report="done")).is_error
        (message,) = sent(slice_)
        assert message.group_id == "root.child"
        assert message.content == Text("done")
        assert message.synthetic == ThreadReport("spawning-deep", "root.deep")

    async def test_two_reports_are_two_messages(self):
        slice_ = a_slice(thread=CHILD)
        for id in ("c1", "c2"):
            await use(ReportToParent(), slice_, id, report="done")
        assert len({message.message_id for message in sent(slice_)}) == 2

    async def test_nobody_is_above_a_root(self):
        slice_ = a_slice()
        assert (await use(ReportToParent(), slice_, report="done")).is_error
        assert effects(slice_) == []


class TestSendMessageToChild:
    async def test_a_direct_child_hears_it(self):
        slice_ = a_slice(children=["root.a"], acting_for="ada")
        assert not (await use(SendMessageToChild(), slice_, thread_id="root.a", message="hurry")).is_error
        (message,) = sent(slice_)
        assert message.group_id == "root.a"
        assert message.content == Text("hurry")
        assert message.synthetic == ParentMessage("c1")
        assert message.user_id == "ada"

    @pytest.mark.parametrize("thread_id", ["root.b", "root", "", "root.a.x", "root.A"])
    async def test_nobody_else_does(self, thread_id):
        slice_ = a_slice(children=["root.a"])
        answer = await use(SendMessageToChild(), slice_, thread_id=thread_id, message="hurry")
        assert answer.is_error
        assert "root.a" in text(answer)
        assert effects(slice_) == []

    async def test_a_child_that_was_spawned_in_this_slice(self):
        slice_ = a_slice()
        await use(SpawnThread(), slice_, instructions="go", child_of=["root"])
        child = slice_.spawned[0][0].id
        assert not (await use(SendMessageToChild(), slice_, "c2", thread_id=child, message="hurry")).is_error


class TestCloseThread:
    async def test_it_ends_its_own_thread(self):
        calls = [timed_nap("t", "detached"), call("s", "subscribed"), call("a", "answered")]
        slice_ = a_slice(thread=CHILD, calls=calls, children=["root.x"])
        assert not (await use(CloseThread(), slice_, thread_id="root.child")).is_error
        assert slice_.thread.closed
        assert states(slice_) == {"t": "cancelled", "s": "cancelled"}
        assert effects(slice_) == [
            "cancel timer of t",
            "cancel notice for s",
            "drop subscription",
            "close to root.x",
            "close notice",
        ]

    async def test_with_a_last_report(self):
        slice_ = a_slice(thread=CHILD)
        await use(CloseThread(), slice_, thread_id="root.child", report_to_parent="all is well")
        (message,) = sent(slice_)
        assert message.group_id == "root"
        assert message.content == Text("all is well")
        assert message.synthetic == ThreadReport("spawning", "root.child")

    async def test_a_blank_report_is_none(self):
        slice_ = a_slice(thread=CHILD)
        await use(CloseThread(), slice_, thread_id="root.child", report_to_parent=" ")
        assert sent(slice_) == []
        assert slice_.thread.closed

    @pytest.mark.parametrize("thread_id", ["root", "root.x", ""])
    async def test_no_other_thread(self, thread_id):
        slice_ = a_slice(thread=CHILD, children=["root.x"])
        answer = await use(CloseThread(), slice_, thread_id=thread_id)
        assert answer.is_error
        assert "root.child" in text(answer)
        assert not slice_.thread.closed

    async def test_never_a_root(self):
        slice_ = a_slice()
        answer = await use(CloseThread(), slice_, thread_id="root", report_to_parent="bye")
        assert answer.is_error
        assert not slice_.thread.closed
        assert effects(slice_) == []


class TestCancelling:
    async def test_a_detached_call(self):
        slice_ = a_slice(calls=[call("d", "detached")])
        assert not (await use(CancelToolCall(), slice_, tool_call_id="d")).is_error
        assert states(slice_) == {"d": "cancelled"}
        assert effects(slice_) == ["cancel notice for d"]

    async def test_a_reminder(self):
        slice_ = a_slice(calls=[timed_nap("t", "detached")])
        assert not (await use(CancelToolCall(), slice_, tool_call_id="t")).is_error
        assert effects(slice_) == ["cancel timer of t"]

    async def test_a_subscription(self):
        slice_ = a_slice(calls=[call("s", "subscribed")])
        assert not (await use(CancelSubscription(), slice_, tool_call_id="s")).is_error
        assert states(slice_) == {"s": "cancelled"}
        assert effects(slice_) == ["cancel notice for s", "drop subscription"]

    @pytest.mark.parametrize(
        ("tool", "state"),
        [
            *((CancelToolCall, state) for state in CallState if state is not CallState.DETACHED),
            *((CancelSubscription, state) for state in CallState if state is not CallState.SUBSCRIBED),
        ],
    )
    async def test_nothing_else(self, tool, state):
        slice_ = a_slice(calls=[call("x", state)])
        answer = await use(tool(), slice_, tool_call_id="x")
        assert answer.is_error
        assert states(slice_) == {}
        assert effects(slice_) == []

    @pytest.mark.parametrize("tool", [CancelToolCall, CancelSubscription])
    async def test_a_call_of_nobody(self, tool):
        assert (await use(tool(), a_slice(), tool_call_id="c9")).is_error

    async def test_a_call_cannot_cancel_itself(self):
        assert (await use(CancelToolCall(), a_slice(), tool_call_id="c1")).is_error
