"""What model services answer: whatever it is, a turn comes of it, or an error that the runtime knows."""

import asyncio
import contextlib
import json
import os
from contextlib import asynccontextmanager
from random import Random

from botocore.eventstream import EventStreamBuffer

from infinity_agents.adapters.anthropic import AnthropicModel
from infinity_agents.adapters.bedrock import BedrockModel
from infinity_agents.adapters.openai import OpenAIModel
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.history import AssistantEntry, UserEntry
from infinity_agents.conversation.turn import TurnBuffer
from infinity_agents.errors import ModelError, TellModel
from infinity_agents.ports.model import ModelRequest
from infinity_agents.ports.tool import ToolSpec
from infinity_agents.runtime.arguments import read_arguments
from infinity_agents.testing.model_servers import KEY, AnthropicProtocol, BedrockProtocol, OpenAIProtocol
from infinity_agents.testing.model_servers.bedrock import encoded
from infinity_agents.testing.model_servers.serving import Refused
from infinity_agents.testing.scripted_model import calls, says
from infinity_agents.wire import history
from tests.fuzz.mutation import broken_bytes, mutated
from tests.fuzz.requests import AWS
from tests.fuzz.running import Target

REPLIES = (says("Yes."), calls("search", {"at": "it"}, text="Well.", reasoning="I wonder."))
ASKED = {
    "model": "m",
    "modelId": "us.anthropic.claude-sonnet-4-6",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
    "stream_options": {"include_usage": True},
}
TOOL = ToolSpec("search", "Search.", {"type": "object"})
REFUSAL = Refused(429, "slow down", "rate_limit_exceeded")


class Answering:
    """A server on loopback that answers every request with the same status, media type and bytes."""

    def __init__(self) -> None:
        self.answer: tuple[int, str, bytes] = (200, "text/plain", b"")
        self.url = ""

    @asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0].partition(b":")[2]) if lengths else 0)
            status, media_type, body = self.answer
            said = f"HTTP/1.1 {status} So\r\nContent-Type: {media_type}\r\nConnection: close\r\n\r\n"
            writer.write(said.encode() + body)
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()


def opened(make):
    """Give what checks how the model that ``make`` makes of a base URL reads an answer."""

    @asynccontextmanager
    async def checking():
        before = dict(os.environ)
        os.environ.update(AWS)
        async with Answering().running() as server:
            model = make(server.url)

            async def check(made: tuple[int, str, bytes]) -> None:
                server.answer = made
                request = ModelRequest(model.name, "Be brief.", (UserEntry((Text("hello"),)),), (TOOL,), ("t",))
                buffer = TurnBuffer(model.name)
                try:
                    async for event in model.stream(request):
                        buffer.hear(event)
                except ModelError as error:
                    str(error).encode("utf-8", "surrogatepass")
                    return
                _is_a_turn(buffer.whole())

            # The first request imports the SDK.
            await check((500, "text/plain", b""))
            yield check
            await model.aclose()
        os.environ.clear()
        os.environ.update(before)

    return checking


def _is_a_turn(turn) -> None:
    """Every field is of its type, and the turn can be stored."""
    assert isinstance(turn.reason, str)
    counts = (turn.usage.input, turn.usage.output, turn.usage.cache_read, turn.usage.cache_write)
    assert all(isinstance(count, int) for count in counts), counts
    if turn.said:
        stored = history.entries.encode(AssistantEntry(turn.said))
        assert history.entries.encode(history.entries.decode(stored)) == stored
    if turn.call is not None:
        assert isinstance(turn.call.name, str)
        assert isinstance(turn.call.call_id, str | None)
        assert isinstance(turn.call.arguments, str)
        with contextlib.suppress(TellModel):
            read_arguments(turn.call.arguments)


def changed_events(random: Random, events: list[tuple[str, str]], change) -> list[tuple[str, str]]:
    """Return the events with some of them changed, left out, doubled, or moved."""
    made = list(events)
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        place = random.randrange(len(made)) if made else 0
        match random.randrange(8) if made else 9:
            case 0:
                del made[place]
            case 1:
                made.insert(random.randrange(len(made) + 1), made[place])
            case 2:
                made[place:place] = [made[place]] * 200
            case 9:
                break
            case _:
                head, payload = made[place]
                try:
                    made[place] = head, mutated(random, json.loads(payload), random.choice((1, 1, 2)))
                except ValueError:
                    made[place] = head, change
    return made


def an_sse_answer(protocol):
    def make(random: Random) -> tuple[int, str, bytes]:
        if random.randrange(10) == 0:
            refusal = mutated(random, protocol().refusal(REFUSAL)).encode("utf-8", "surrogatepass")
            return random.choice((200, 400, 401, 404, 413, 429, 500, 529)), "application/json", refusal
        spoken = protocol()
        told = "".join(spoken.spell(random.choice(REPLIES), ASKED, None))
        if random.randrange(6) == 0:
            told += spoken.spell_error(REFUSAL)
        events = []
        for event in told.split("\n\n"):
            head, _, payload = event.rpartition("data: ")
            if payload:
                events.append((f"{head}data: ", payload))
        body = "".join(f"{head}{payload}\n\n" for head, payload in changed_events(random, events, "{garbage"))
        data = body.encode("utf-8", "surrogatepass")
        kind = (
            random.choice(("text/event-stream", "text/event-stream; charset=utf-16", "text/html", "x"))
            if (random.randrange(15) == 0)
            else "text/event-stream"
        )
        return 200, kind, broken_bytes(random, data) if random.randrange(6) == 0 else data

    return make


def a_bedrock_answer(random: Random) -> tuple[int, str, bytes]:
    protocol = BedrockProtocol()
    if random.randrange(10) == 0:
        refusal = mutated(random, protocol.refusal(REFUSAL)).encode("utf-8", "surrogatepass")
        return random.choice((200, 400, 403, 404, 413, 424, 429, 500, 503)), "application/json", refusal
    buffer = EventStreamBuffer()
    buffer.add_data(b"".join(protocol.spell(random.choice(REPLIES), ASKED, None)))
    if random.randrange(6) == 0:
        buffer.add_data(protocol.spell_error(REFUSAL))
    events = [(json.dumps(message.headers), message.payload.decode()) for message in buffer]
    made = []
    for head, payload in changed_events(random, events, "{garbage"):
        headers = json.loads(head)
        if random.randrange(60) == 0:
            headers[random.choice((":event-type", ":message-type", ":content-type", ":exception-type"))] = (
                random.choice(
                    ("", "exception", "error", "messageStop", "contentBlockDelta", "internalServerException", "x" * 300)
                )
            )
        made.append(encoded(headers, payload.encode("utf-8", "surrogatepass")))
    data = b"".join(made)
    return 200, "application/vnd.amazon.eventstream", broken_bytes(random, data) if random.randrange(5) == 0 else data


TARGETS = (
    Target(
        "anthropic",
        an_sse_answer(AnthropicProtocol),
        opened(lambda url: AnthropicModel("claude-sonnet-4-6", api_key=KEY, base_url=url)),
    ),
    Target("openai", an_sse_answer(OpenAIProtocol), opened(lambda url: OpenAIModel("m", api_key=KEY, base_url=url))),
    Target(
        "bedrock",
        a_bedrock_answer,
        opened(lambda url: BedrockModel("us.anthropic.claude-sonnet-4-6", base_url=url, region="us-east-1")),
    ),
)
