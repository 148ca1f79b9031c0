"""The Bedrock adapter keeps the contract of models, through the real SDK, against a service that enforces its rules."""

import asyncio
import base64
import json
import os
import re
import sys
import threading
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from botocore.session import Session

from infinity_agents.adapters.bedrock import CATALOGUE, DEFAULT_MODEL, UNKNOWN, BedrockModel
from infinity_agents.conversation.content import Blob, Document, Image, Text
from infinity_agents.conversation.history import (
    AssistantEntry,
    CallBody,
    Reasoning,
    ResultBody,
    SaidText,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from infinity_agents.conversation.turn import TextDelta, Usage
from infinity_agents.errors import (
    ContextTooLong,
    Misconfigured,
    ModelForbidden,
    ModelInterrupted,
    ModelInvalid,
    ModelOverloaded,
    ModelThrottled,
)
from infinity_agents.local.models import models_for
from infinity_agents.ports.model import ModelRequest
from infinity_agents.testing.contracts import Provided, ServedModelContract
from infinity_agents.testing.contracts.models import PNG, SEARCH, Watched, heard_from
from infinity_agents.testing.model_servers import KEY, BedrockProtocol, ModelServer, Refused, serving
from infinity_agents.testing.model_servers.bedrock import encoded
from infinity_agents.testing.model_servers.serving import require
from infinity_agents.testing.scenarios import CANCELLED_CALL, COMPACTION, DETACHED_CALL, SPAWN_AND_REPORT
from infinity_agents.testing.scripted_model import calls, says
from infinity_agents.testing.world import World
from tests.embeddings import in_memory

# The descriptions of services are large: they are read but once.
DESCRIPTIONS = Session().get_component("data_loader")


def session(key=KEY):
    made = Session()
    made.register_component("data_loader", DESCRIPTIONS)
    made.set_config_variable("region", "us-east-1")
    made.set_credentials(key, "secret")
    return made


SESSION = session()


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@asynccontextmanager
async def opened(script, *, model=DEFAULT_MODEL, protocol=None, **given):
    server = ModelServer(protocol or BedrockProtocol(), script)
    async with serving(server) as url:
        adapter = BedrockModel(model, base_url=url, session=SESSION, **given)
        yield Provided(adapter, server)
        await adapter.aclose()


class TestBedrockModel(ServedModelContract):
    key_variable = "AWS_ACCESS_KEY_ID"
    path = ""

    def provided(self, script, *, window=200_000):
        return opened(script, traits={DEFAULT_MODEL: replace(CATALOGUE["anthropic.claude-sonnet-4-6"], window=window)})

    def opened(self, *, api_key=None, base_url=None):
        return BedrockModel(base_url=base_url, session=session(api_key) if api_key else None)

    def embedding(self):
        return in_memory()


BOUND = "global.anthropic.claude-fable-5-1"
OTHER = "global.anthropic.claude-opus-4-8"
NOVA = "us.amazon.nova-pro-v1:0"
MICRO = "us.amazon.nova-micro-v1:0"
MISTRAL = "mistral.mistral-large-2407-v1:0"
HELLO = UserEntry((Text("hello"),))
PICTURE = Image(PNG, "image/jpeg")
CACHE_POINT = {"cachePoint": {"type": "default"}}


def asked(model, *entries, tools=(SEARCH,), name=None, system="Be brief."):
    return ModelRequest(name or model.name, system, entries or (HELLO,), tools, ("t",))


def after(turn):
    """Return the history in which ``turn`` was said, up to the result of its call."""
    return HELLO, AssistantEntry(turn.said), *called(Text("found"))


def called(*parts, is_error=False):
    return ToolCallEntry(CallBody("call-1", "search", {})), ToolResultEntry(
        ResultBody("call-1", parts, is_error=is_error)
    )


# Reasoning.


async def test_reasoning_goes_back_signed_and_in_order_to_the_model_that_signed_it():
    async with opened(lambda _: calls("search", reasoning="I wonder.", text="Well.")) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
        await heard_from(provided.model, asked(provided.model, *after(turn)))
        await heard_from(provided.model, asked(provided.model, *after(turn), name=DEFAULT_MODEL))
        await heard_from(provided.model, asked(provided.model, *after(turn), name=f"bedrock:{OTHER}"))
    kinds = [[next(iter(block)) for block in body["messages"][1]["content"]] for body in provided.server.bodies[1:]]
    whole = ["reasoningContent", "reasoningContent", "text", "toolUse"]
    assert kinds == [whole, whole, ["text", "toolUse"]]
    text, redacted = (block["reasoningContent"] for block in provided.server.bodies[1]["messages"][1]["content"][:2])
    assert text["reasoningText"]["text"] == "I wonder."
    assert base64.b64decode(redacted["redactedContent"]).startswith(b"redacted-")
    assert provided.server.refused == []


async def test_reasoning_that_the_service_refuses_is_left_out_of_this_request_alone():
    async with opened(lambda _: says("Yes.")) as provided:
        said = AssistantEntry((Reasoning("I wonder.", "of another account", model=provided.model.name), SaidText("A")))
        for _ in range(2):
            turn = await heard_from(provided.model, asked(provided.model, HELLO, said, HELLO))
            assert turn.text == "Yes."
    assert len(provided.server.refused) == 2


async def test_a_signature_without_a_text_goes_back():
    async with opened(lambda _: says("Yes.")) as provided:
        signature = provided.server.protocol.sign(DEFAULT_MODEL, "", "")
        said = AssistantEntry((Reasoning("", signature, model=provided.model.name), SaidText("A")))
        await heard_from(provided.model, asked(provided.model, HELLO, said, HELLO))
    assert provided.server.refused == []


async def test_reasoning_that_is_bound_to_what_came_before_is_dropped_by_the_service():
    async with opened(lambda _: calls("search", reasoning="I wonder."), model=BOUND) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
        await heard_from(provided.model, asked(provided.model, *after(turn)))
        assert provided.server.protocol.dropped == []
        await heard_from(provided.model, asked(provided.model, *after(turn), system="You are a child."))
        assert provided.server.protocol.dropped == ["I wonder."]
    assert provided.server.refused == []


@pytest.mark.parametrize(
    "scenario", [SPAWN_AND_REPORT, COMPACTION, DETACHED_CALL, CANCELLED_CALL], ids=lambda scenario: scenario.name
)
@pytest.mark.parametrize("refuses", [frozenset(), frozenset({"anthropic_beta"})])
async def test_threads_live_with_a_model_that_always_reasons(scenario, refuses):
    def script(request):
        return replace(scenario.script(request), reasoning="Let me think.")

    traits = {BOUND: replace(CATALOGUE["anthropic.claude-fable-5-1"], window=scenario.window)}
    async with opened(script, model=BOUND, protocol=BedrockProtocol(refuses=refuses), traits=traits) as provided:
        world = World(in_memory(), Watched(provided.model), tools=scenario.tools, settings=scenario.settings)
        await world.boot()
        for stage in scenario.stages:
            await stage(world)
            await world.settle()
        await scenario.finish(world)
    assert refuses or provided.server.refused == []


# What an endpoint does not take.


@pytest.mark.parametrize("refused", ["tool_choice", "cachePoint", "anthropic_beta"])
async def test_what_an_endpoint_refuses_is_left_out_from_then_on(refused):
    protocol = BedrockProtocol(refuses=frozenset({refused}))
    async with opened(lambda _: calls("search"), model=BOUND, protocol=protocol) as provided:
        for _ in range(2):
            assert (await heard_from(provided.model, asked(provided.model))).call is not None
    assert len(provided.server.bodies) == 3


async def test_what_was_asked_for_is_not_left_out():
    options = {"additionalModelRequestFields": {"tool_choice": {"type": "any"}}}
    protocol = BedrockProtocol(refuses=frozenset({"tool_choice"}))
    async with opened(lambda _: says("Yes."), protocol=protocol, options=options) as provided:
        with pytest.raises(ModelInvalid, match="tool_choice"):
            await heard_from(provided.model, asked(provided.model))


# What is sent.


async def test_the_cache_is_told_where_to_end():
    async with opened(lambda _: says("Yes.")) as provided:
        await heard_from(provided.model, asked(provided.model, HELLO, *called(Text("found")), HELLO))
        await heard_from(provided.model, asked(provided.model, tools=()))
        await heard_from(provided.model, asked(provided.model, name=f"bedrock:{NOVA}"))
        await heard_from(provided.model, asked(provided.model, name=f"bedrock:{MISTRAL}"))
    long, short, nova, mistral = provided.server.bodies
    assert long["toolConfig"]["tools"][-1] == CACHE_POINT
    assert long["system"][-1] == CACHE_POINT
    assert [message["content"][-1] == CACHE_POINT for message in long["messages"]] == [True, False, True]
    assert json.dumps(long).count("cachePoint") == 4
    assert "toolConfig" not in short
    assert CACHE_POINT not in nova["toolConfig"]["tools"]
    assert json.dumps(nova).count("cachePoint") == 2
    assert "cachePoint" not in json.dumps(mistral)
    assert provided.server.refused == []


async def test_the_fields_of_each_kind_of_model():
    async with opened(lambda _: says("Yes.")) as provided:
        for name in (DEFAULT_MODEL, BOUND, NOVA, MISTRAL):
            await heard_from(provided.model, asked(provided.model, name=f"bedrock:{name}"))
    claude, bound, nova, mistral = provided.server.bodies
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert claude["additionalModelRequestFields"] == {"tool_choice": choice}
    assert claude["inferenceConfig"] == {"maxTokens": 32_000}
    assert bound["additionalModelRequestFields"]["thinking"]["block_binding"]["prefix_mismatch_behavior"]
    assert bound["additionalModelRequestFields"]["tool_choice"] == choice
    assert nova["additionalModelRequestFields"] == {"inferenceConfig": {"topK": 1}}
    assert nova["inferenceConfig"] == {"temperature": 0}
    assert not {"additionalModelRequestFields", "inferenceConfig"} & set(mistral)


async def test_options_are_fields_of_every_request():
    options = {
        "inferenceConfig": {"maxTokens": 100},
        "additionalModelRequestFields": {"thinking": {"type": "adaptive", "display": "summarized"}},
        "requestMetadata": {"team": "blue"},
    }
    async with opened(lambda _: says("Yes."), model=BOUND, options=options) as provided:
        await heard_from(provided.model, asked(provided.model))
    (body,) = provided.server.bodies
    assert body["inferenceConfig"] == {"maxTokens": 100}
    assert body["requestMetadata"] == {"team": "blue"}
    thinking = body["additionalModelRequestFields"]["thinking"]
    assert (thinking["display"], set(thinking)) == ("summarized", {"type", "display", "block_binding"})


@pytest.mark.parametrize("model", [MICRO, MISTRAL])
async def test_a_model_that_takes_text_alone(model):
    entries = (
        UserEntry((PICTURE, Document("JVBERi0xLjcK", "application/pdf", "a.pdf"))),
        *called(Text("no such thing"), PICTURE, is_error=True),
    )
    async with opened(lambda _: says("Yes."), model=model) as provided:
        await heard_from(provided.model, asked(provided.model, *entries, tools=()))
        assert not provided.model.reads_images(provided.model.name)
    assert provided.server.refused == []
    first, _, last = provided.server.bodies[0]["messages"]
    assert first["content"][:2] == [{"text": "[image, image/jpeg]"}, {"text": "[document 'a.pdf', application/pdf]"}]
    result = last["content"][0]["toolResult"]
    assert result.get("status") == ("error" if model == MICRO else None)
    assert [part["text"] for part in result["content"]][-2:] == ["no such thing", "[image, image/jpeg]"]


async def test_pictures_and_documents():
    parts = (
        PICTURE,
        Document("JVBERi0xLjcK", "application/pdf", "Q3 report_(final).pdf"),
        Document("YSxi", "text/csv; charset=utf-8", "Q3 report_(final).pdf"),
        Document("AAAA", "application/pdf", "no.pdf"),
        Document("AAAA", "video/mp4", "film.mp4"),
        Document("?", "text/csv", "broken.csv"),
        Blob("0" * 64, 5, "image"),
    )
    async with opened(lambda _: says("Yes.")) as provided:
        await heard_from(provided.model, asked(provided.model, UserEntry(parts)))
        await heard_from(provided.model, asked(provided.model, UserEntry((Text("see"), *parts[1:3]))))
        await heard_from(provided.model, asked(provided.model, UserEntry(parts[1:2])))
    assert provided.server.refused == []
    content, mixed, alone = (body["messages"][0]["content"] for body in provided.server.bodies)
    assert content[0]["image"]["format"] == "png"
    assert [block["document"]["name"] for block in content[1:3]] == [
        "Q3 report (final) pdf",
        "Q3 report (final) pdf (2)",
    ]
    assert [block["document"]["format"] for block in content[1:3]] == ["pdf", "csv"]
    assert [next(iter(block)) for block in content[3:]] == ["text"] * 4 + ["cachePoint"]
    assert [next(iter(block)) for block in mixed] == ["text", "cachePoint", "document", "document"]
    assert alone[1] == {"text": "[document 'Q3 report_(final).pdf', application/pdf]"}


async def test_what_is_too_large_or_too_much_is_described():
    async with opened(lambda _: says("Yes.")) as provided:
        large = Image(base64.b64encode(base64.b64decode(PNG) + bytes(3_932_160)).decode(), "image/png")
        await heard_from(provided.model, asked(provided.model, UserEntry((large,))))
        many = [PICTURE] * 21 + [Document("YQ==", "text/plain", "a")] * 6
        await heard_from(provided.model, asked(provided.model, UserEntry(tuple(many))))
    assert provided.server.refused == []
    size = len(base64.b64decode(PNG)) + 3_932_160
    note = f"[image, image/png: its {size} bytes are more than the 3932160 that the model takes]"
    assert provided.server.bodies[0]["messages"][0]["content"][0] == {"text": note}
    content = provided.server.bodies[1]["messages"][0]["content"]
    assert sum("image" in block for block in content) == 20
    assert sum("document" in block for block in content) == 5


async def test_a_tool_without_a_description_and_no_system_prompt():
    async with opened(lambda _: says("Yes.")) as provided:
        await heard_from(provided.model, asked(provided.model, tools=(replace(SEARCH, description=" "),), system=" "))
    (body,) = provided.server.bodies
    assert body["toolConfig"]["tools"][0]["toolSpec"]["description"] == "search"
    assert "system" not in body


# What is heard.


@pytest.mark.parametrize("reason", ["refusal", "content_filtered", "guardrail_intervened"])
async def test_a_refusal_is_told_and_a_call_that_was_refused_is_not_made(reason):
    async with opened(lambda _: says("", reason=reason)) as provided:
        assert (await heard_from(provided.model, asked(provided.model))).text == "[The model declined to answer.]"
        provided.server.script = lambda _: calls("search", text="So", reason=reason)
        turn = await heard_from(provided.model, asked(provided.model))
    assert (turn.text, turn.call) == ("So", None)


@pytest.mark.parametrize("reason", ["stop_sequence", "malformed_model_output", "tomorrows_reason"])
async def test_other_reasons_to_stop(reason):
    async with opened(lambda _: says("So far.", reason=reason)) as provided:
        assert (await heard_from(provided.model, asked(provided.model))).reason == reason


async def test_a_call_that_fills_the_window_is_not_made():
    reason = "model_context_window_exceeded"
    async with opened(lambda _: calls("search", reason=reason)) as provided:
        assert (await heard_from(provided.model, asked(provided.model))).call is None


async def test_a_stream_that_tells_no_usage():
    async with opened(lambda _: says("Yes.")) as provided:
        provided.server.faults.append("no usage")
        assert (await heard_from(provided.model, asked(provided.model))).usage == Usage()


class Spelt(BedrockProtocol):
    """Answers with events as they are given."""

    def __init__(self, *events):
        super().__init__()
        self.events = events

    def spell(self, reply, asked, fault):
        for kind, fields in self.events:
            headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
            yield encoded(headers, json.dumps(fields).encode())


def block(place, **delta):
    return "contentBlockDelta", {"contentBlockIndex": place, "delta": delta}


def begins(place, **use):
    return "contentBlockStart", {"contentBlockIndex": place, "start": {"toolUse": {"toolUseId": f"u{place}", **use}}}


def ends(place):
    return "contentBlockStop", {"contentBlockIndex": place}


STOP = ("messageStop", {"stopReason": "max_tokens"})


async def test_what_follows_the_call_is_not_said_and_shows_that_it_was_whole():
    events = [begins(0, name="search"), block(0, toolUse={"input": "{}"}), ends(0), block(1, text="And now"), STOP]
    async with opened(lambda _: says(""), protocol=Spelt(*events)) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
    assert (turn.text, turn.call.name, turn.call.arguments) == ("", "search", "{}")


async def test_what_the_service_calls_itself_is_no_call_of_ours():
    events = [begins(0, name="nova_grounding", type="server_tool_use"), block(0, toolUse={"input": "{}"}), ends(0)]
    async with opened(lambda _: says(""), protocol=Spelt(*events, block(1, text="Found."), STOP)) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
    assert (turn.text, turn.call) == ("Found.", None)


# Errors, before the stream and within.


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("ThrottlingException", 429, ModelThrottled),
        ("ServiceQuotaExceededException", 400, ModelThrottled),
        ("ModelErrorException", 424, ModelInterrupted),
        ("ModelStreamErrorException", 424, ModelInterrupted),
        ("ModelTimeoutException", 408, ModelInterrupted),
        ("InternalServerException", 500, ModelOverloaded),
        ("ServiceUnavailableException", 503, ModelOverloaded),
        ("ModelNotReadyException", 429, ModelOverloaded),
        ("AccessDeniedException", 403, ModelForbidden),
        ("ExpiredTokenException", 403, ModelForbidden),
        ("ResourceNotFoundException", 404, ModelInvalid),
        ("ValidationException", 400, ModelInvalid),
    ],
)
async def test_an_error_before_the_stream(code, status, error):
    async with opened(lambda _: says("Yes.")) as provided:
        provided.server.protocol.read = lambda *_: require(False, "no", status=status, code=code)
        with pytest.raises(error) as raised:
            await heard_from(provided.model, asked(provided.model))
    assert type(raised.value) is error


class Failing(BedrockProtocol):
    """Says something, and then fails with the exception ``code``."""

    def __init__(self, code, message="no", *, first=True):
        super().__init__()
        self.code, self.message, self.first = code, message, first

    def spell(self, reply, asked, fault):
        if self.first:
            yield next(super().spell(reply, asked, fault))
        yield self.spell_error(Refused(400, self.message, self.code))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("ThrottlingException", ModelThrottled),
        ("ModelStreamErrorException", ModelInterrupted),
        ("ModelTimeoutException", ModelInterrupted),
        ("TomorrowsException", ModelInterrupted),
        ("InternalServerException", ModelOverloaded),
        ("ServiceUnavailableException", ModelOverloaded),
        ("ValidationException", ModelInvalid),
    ],
)
async def test_an_error_within_the_stream_is_told_by_its_type(code, error, first):
    async with opened(lambda _: says("Yes."), protocol=Failing(code, first=first)) as provided:
        with pytest.raises(error) as raised:
            await heard_from(provided.model, asked(provided.model))
    assert type(raised.value) is error


@pytest.mark.parametrize(
    "message",
    [
        "Input is too long for requested model.",
        "The model returned the following errors: prompt is too long: 200049 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000",
    ],
)
async def test_a_context_that_is_too_long(message):
    async with opened(lambda _: says("Yes."), protocol=Failing("ValidationException", message)) as provided:
        with pytest.raises(ContextTooLong):
            await heard_from(provided.model, asked(provided.model))


async def test_a_complaint_in_the_middle_is_not_answered_by_a_concession():
    protocol = Failing("ValidationException", "thinking")
    async with opened(lambda _: says("Yes."), protocol=protocol) as provided:
        with pytest.raises(ModelInvalid):
            await heard_from(provided.model, asked(provided.model))
    assert len(provided.server.bodies) == 1


async def test_a_model_that_there_is_not_and_one_that_is_not_granted():
    async with opened(lambda _: says("Yes."), model="anthropic.claude-2") as provided:
        with pytest.raises(ModelInvalid, match=r"bedrock:anthropic\.claude-2 at .* model identifier is invalid"):
            await heard_from(provided.model, asked(provided.model))
        provided.server.protocol.read = lambda *_: require(False, "not authorized", status=403)
        with pytest.raises(ModelForbidden, match="InvokeModelWithResponseStream"):
            await heard_from(provided.model, asked(provided.model))


# Cancellation, silence, dead sockets.


class Endless(ModelServer):
    """Says one thing, and then nothing until the client goes."""

    gone = None

    async def __call__(self, scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        self.gone = asyncio.Event()
        media_type = self.protocol.media_type.encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", media_type)]})
        first = Spelt(block(0, text="So far")).spell(None, None, None)
        await send({"type": "http.response.body", "body": b"".join(first), "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.set()


@asynccontextmanager
async def endless(**given):
    server = Endless(BedrockProtocol(), lambda _: says(""))
    async with serving(server) as url:
        adapter = BedrockModel(base_url=url, session=SESSION, **given)
        yield adapter, server
        await adapter.aclose()


def listening():
    return [thread for thread in threading.enumerate() if thread.name == "bedrock"]


async def test_a_stream_that_is_cancelled_is_hung_up_at_once():
    heard = []

    async def hear(model):
        async for event in model.stream(asked(model)):
            heard.append(event)  # noqa: PERF401 - a comprehension would lose what was heard before the end

    async with endless() as (model, server):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hear(model), 0.3)
        assert heard == [TextDelta("So far")]
        await asyncio.wait_for(server.gone.wait(), 2)
        for thread in listening():
            await asyncio.to_thread(thread.join, 2)
        assert listening() == []


async def test_a_service_that_falls_silent():
    async with endless(silence=0.2) as (model, _):
        with pytest.raises(ModelInterrupted, match="the stream broke"):
            await heard_from(model, asked(model))


async def test_a_cancellation_before_the_service_answers():
    async def silent(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        model = BedrockModel(base_url=f"http://127.0.0.1:{port}", session=SESSION, silence=0.5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(heard_from(model, asked(model)), 0.1)
        with pytest.raises(ModelInterrupted, match="cannot be reached"):
            await heard_from(model, asked(model))


@pytest.mark.parametrize("dead", [1, 2])
async def test_a_dead_socket_is_tried_again_once(dead):
    answer = b"".join(BedrockProtocol().spell(says("Yes."), {"modelId": DEFAULT_MODEL, "messages": []}, None))
    seen = []

    async def half_dead(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        seen.append(1)
        if len(seen) > dead:
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {BedrockProtocol.media_type}\r\ncontent-length: {len(answer)}"
            writer.write(f"{head}\r\n\r\n".encode() + answer)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(half_dead, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        model = BedrockModel(base_url=f"http://127.0.0.1:{port}", session=SESSION)
        if dead == 1:
            assert (await heard_from(model, asked(model))).text == "Yes."
        else:
            with pytest.raises(ModelInterrupted, match="cannot be reached"):
                await heard_from(model, asked(model))
        await model.aclose()
    assert len(seen) == 2


async def test_many_at_once_share_a_client():
    async with opened(lambda request: says(request.entries[0].content[0].text)) as provided:
        model = provided.model
        turns = await asyncio.gather(
            *(heard_from(model, asked(model, UserEntry((Text(f"number {n}"),)))) for n in range(20))
        )
    assert [turn.text for turn in turns] == [f"number {n}" for n in range(20)]


# Names, windows, want of something.


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("anthropic.claude-haiku-4-5-20251001-v1:0", 200_000),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", 200_000),
        (DEFAULT_MODEL, 1_000_000),
        ("eu.anthropic.claude-opus-4-6-v1", 1_000_000),
        ("global.anthropic.claude-opus-5-5", 1_000_000),
        ("arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-micro-v1:0", 128_000),
        ("us.amazon.nova-2-lite-v1:0", 1_000_000),
        ("arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc", 50_000),
        ("unheard-of", 128_000),
    ],
)
def test_windows(model, window):
    adapter = BedrockModel(traits={"application-inference-profile/abc": replace(UNKNOWN, window=50_000)})
    assert adapter.context_window(f"bedrock:{model}") == window
    assert adapter.context_window(model) == window


def test_names():
    assert BedrockModel().name == f"bedrock:{DEFAULT_MODEL}"
    assert BedrockModel("bedrock:unheard-of").name == "bedrock:unheard-of"
    assert BedrockModel().reads_images(DEFAULT_MODEL)


def test_the_sdk_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(Misconfigured, match=re.escape("pip install 'infinity-agents[aws]'")):
        BedrockModel().check()


def test_local_agents_take_it_by_its_prefix(monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", KEY)
    models = models_for(f"bedrock:{NOVA}")
    assert (models.name, models.context_window(models.name)) == (f"bedrock:{NOVA}", 300_000)
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(Misconfigured, match="infinity-agents\\[aws\\]"):
        models_for(f"bedrock:{NOVA}")


def test_a_region_is_needed(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(Misconfigured, match="AWS_REGION"):
        BedrockModel().check()
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    BedrockModel().check()
    BedrockModel(region="us-west-2").check()


async def test_the_environment_names_the_endpoint(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    server = ModelServer(BedrockProtocol(), lambda _: says("Yes."))
    async with serving(server) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", url)
        model = BedrockModel()
        assert (await heard_from(model, asked(model))).text == "Yes."
        await model.aclose()


def test_a_key_of_bedrocks_own(monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "two\nlines")
    with pytest.raises(Misconfigured, match="AWS_BEARER_TOKEN_BEDROCK") as raised:
        BedrockModel().check()
    assert "two" not in str(raised.value)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", KEY)
    BedrockModel().check()
