"""Subscriptions of the server kit: generators, handles that outlive the server, and the hooks that end them."""

import asyncio
import json
import sys

import pytest

from infinity_agents.rap.server import Event, Image, ToolContext, ToolServer, Undelivered, push
from tests.rap.conftest import Answer, finished


@pytest.fixture
def subscribed(kit, serve, invoke, receiver):
    """Offers a generator as a subscription, calls it, and returns the first so many callbacks."""

    async def callbacks(function, count):
        kit.subscription(function)
        await invoke(await serve(kit), function.__name__)
        return [request.json for request in await receiver.heard(count)]

    return callbacks


class TestGenerators:
    async def test_events_come_after_the_confirmation(self, subscribed):
        async def watch():
            """Watch it."""
            yield "one"
            yield Event("two", associative=True, event_id="e2")
            yield {"three": 3}
            yield Event("four", final=True)
            yield "never told"

        result, one, two, three, four = await subscribed(watch, 5)
        assert (result["type"], result["subscription"], result["is_error"]) == ("tool_result", True, False)
        assert one["event_id"]
        assert two == {
            "type": "subscription_event",
            "group_id": "thread-1",
            "tool_call_id": "call-1",
            "text": "two",
            "associative": True,
            "final": False,
            "event_id": "e2",
        }
        assert three["text"] == '{"three": 3}'
        assert (four["text"], four["final"]) == ("four", True)

    async def test_after_a_final_event_there_is_nothing(self, kit, subscribed, receiver):
        closed = []

        async def watch():
            """Watch it."""
            try:
                yield Event("last", final=True)
            finally:
                closed.append(1)

        await subscribed(watch, 2)
        await finished(kit)
        assert (len(receiver.requests), closed) == (2, [1])

    async def test_the_end_is_told(self, kit, subscribed, receiver):
        async def watch():
            """Watch it."""
            yield "only"

        last = (await subscribed(watch, 3))[-1]
        assert (last["text"], last["final"], last["associative"]) == ("The subscription has ended.", True, True)
        await finished(kit)
        assert len(receiver.requests) == 3

    async def test_what_it_refuses_before_it_waits_is_the_calls_error(self, kit, subscribed, receiver):
        async def watch():
            """Watch it."""
            raise ValueError("no such stock")
            yield

        [result] = await subscribed(watch, 1)
        assert (result["is_error"], result["subscription"]) == (True, False)
        assert result["text"] == "ValueError: no such stock"
        await finished(kit)
        assert len(receiver.requests) == 1

    async def test_what_fails_later_is_the_last_event(self, subscribed):
        async def watch():
            """Watch it."""
            await asyncio.sleep(0)
            yield "one"
            raise ValueError("the feed is gone")

        result, _, last = await subscribed(watch, 3)
        assert result["subscription"] is True
        assert (last["final"], last["associative"]) == (True, True)
        assert last["text"] == "The subscription failed: ValueError: the feed is gone"

    async def test_a_picture_is_no_event(self, subscribed):
        async def watch():
            """Watch it."""
            await asyncio.sleep(0)
            yield Image(b"GIF89a")

        assert "an event is text" in (await subscribed(watch, 2))[1]["text"]

    @pytest.mark.parametrize(
        ("path", "notice"),
        [
            ("/cancel_tool_call", {"thread_id": "thread-1", "tool_call_id": "call-1"}),
            ("/close_thread", {"thread_id": "thread-1"}),
        ],
    )
    async def test_a_cancelled_one_ends_where_it_waits(self, kit, serve, client, invoke, receiver, path, notice):
        ended = []

        @kit.subscription
        async def watch():
            """Watch it."""
            yield "one"
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append(asyncio.current_task())
                raise

        url = await serve(kit)
        await invoke(url, "watch")
        await receiver.heard(2)
        await client.post(url + path, json=notice)
        await finished(kit)
        assert len(ended) == 1
        assert len(receiver.requests) == 2

    async def test_a_server_that_stops_says_so(self, kit, subscribed, receiver):
        async def watch():
            """Watch it."""
            yield "one"
            await asyncio.Event().wait()

        await subscribed(watch, 2)
        await kit.aclose()
        last = receiver.requests[-1].json
        assert (last["final"], last["associative"]) == (True, True)
        assert "The tool server stopped" in last["text"]

    async def test_nothing_is_watched_that_nobody_knows_of(self, kit, serve, invoke, raw_server):
        receiver = await raw_server(lambda _: Answer(403))
        reached = []

        @kit.subscription
        async def watch():
            """Watch it."""
            reached.append("begun")
            yield "one"
            reached.append("told")

        await invoke(await serve(kit), "watch", callback_url=receiver.url)
        await receiver.heard(1)
        await finished(kit)
        assert (reached, len(receiver.requests)) == (["begun"], 1)

    async def test_events_wait_for_a_runtime_that_is_down(self, kit, serve, invoke, raw_server, clock):
        answers = [Answer(), *[Answer(503)] * 30, Answer()]
        receiver = await raw_server(lambda _: answers.pop(0))

        @kit.subscription
        async def watch():
            """Watch it."""
            yield Event("one", final=True)

        await invoke(await serve(kit), "watch", callback_url=receiver.url)
        requests = await receiver.heard(32)
        assert len({request.body for request in requests[1:]}) == 1
        assert (clock.slept[:3], clock.slept[-1]) == ([0.5, 1.0, 2.0], 60.0)


class TestHandles:
    @pytest.fixture
    async def handle(self, kit, serve, invoke, receiver):
        kept = []

        @kit.subscription
        async def watch(ctx: ToolContext) -> str:
            """Watch it."""
            kept.append(json.loads(json.dumps(ctx.handle)))
            return "Watching."

        await invoke(await serve(kit), "watch")
        [confirmed] = [request.json for request in await receiver.heard(1)]
        assert (confirmed["text"], confirmed["subscription"]) == ("Watching.", True)
        return kept[0]

    async def test_the_server_pushes(self, kit, handle, receiver):
        await kit.push(handle, "one")
        await kit.push(handle, "two", final=True, associative=True, event_id="e2")
        _, one, two = [request.json for request in receiver.requests]
        assert (one["text"], one["final"], one["associative"]) == ("one", False, False)
        assert (two["text"], two["final"], two["associative"], two["event_id"]) == ("two", True, True, "e2")
        assert two["tool_call_id"] == "call-1"

    async def test_another_server_pushes_after_a_restart(self, kit, handle, receiver):
        await kit.aclose()
        await ToolServer(name="its-successor").push(handle, "one")
        assert receiver.requests[-1].json["text"] == "one"

    async def test_another_process_pushes(self, handle, receiver):
        program = (
            "import asyncio, sys; from infinity_agents.rap.server import push; asyncio.run(push(sys.argv[1], 'hello'))"
        )
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, handle)
        assert await process.wait() == 0
        assert receiver.requests[-1].json["text"] == "hello"

    async def test_what_is_no_handle_says_so_and_is_not_repeated(self, kit):
        for text in ("secret-token", "{}", '"secret-token"'):
            with pytest.raises(ValueError, match=r"pass the text that ctx\.handle gave") as caught:
                await push(text, "one")
            assert "secret-token" not in str(caught.value)

    async def test_an_event_may_be_refused(self, kit, handle, receiver, clock):
        receiver.answer = lambda _: Answer(403, b"no")
        with pytest.raises(Undelivered, match="subscription_event: HTTP 403 no") as caught:
            await kit.push(handle, "one")
        assert (caught.value.status, clock.slept) == (403, [])
        with pytest.raises(ValueError, match="send less"):
            await kit.push(handle, "x" * 7_000_000)

    async def test_a_push_gives_up_after_minutes(self, kit, handle, receiver, clock):
        receiver.answer = lambda _: Answer(503)
        with pytest.raises(Undelivered, match="HTTP 503"):
            await kit.push(handle, "one")
        assert 200 < sum(clock.slept) < 300

    async def test_a_function_that_fails_subscribes_to_nothing(self, kit, serve, result_of):
        @kit.subscription
        def watch(stock: str) -> str:
            """Watch it."""
            raise ValueError(f"no such stock: {stock}")

        told = await result_of(await serve(kit), "watch", {"stock": "X"})
        assert (told["is_error"], told["subscription"]) == (True, False)


class TestHooks:
    async def test_they_hear_of_calls_that_only_they_remember(self, kit, serve, client):
        told = asyncio.Queue()

        @kit.on_cancel
        async def forget(thread_id: str, call_id: str) -> None:
            await told.put((thread_id, call_id))

        loop = asyncio.get_running_loop()

        @kit.on_close
        def forget_all(thread_id: str) -> None:
            loop.call_soon_threadsafe(told.put_nowait, thread_id)

        url = await serve(kit)
        await client.post(url + "/cancel_tool_call", json={"thread_id": "t1", "tool_call_id": "c1"})
        assert await asyncio.wait_for(told.get(), 2) == ("t1", "c1")
        await client.post(url + "/close_thread", json={"thread_id": "t1"})
        assert await asyncio.wait_for(told.get(), 2) == "t1"

    async def test_one_that_fails_does_not_keep_the_others_from_hearing(self, kit, serve, client, caplog):
        told = asyncio.Queue()

        @kit.on_close
        async def fails(thread_id: str) -> None:
            raise ValueError("the file is gone")

        kit.on_close(told.put)
        answer = await client.post(await serve(kit) + "/close_thread", json={"thread_id": "t1"})
        assert answer.json() == {"ok": True}
        assert await asyncio.wait_for(told.get(), 2) == "t1"
        assert "the hook fails failed" in caplog.text
