"""What the fuzzer found, each with the right value."""

import json
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from infinity_agents.adapters.anthropic import AnthropicModel
from infinity_agents.adapters.bedrock import BedrockModel
from infinity_agents.adapters.openai import OpenAIModel
from infinity_agents.conversation.content import Text
from infinity_agents.conversation.history import UserEntry
from infinity_agents.conversation.turn import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ReasoningDelta,
    Stopped,
    TextDelta,
    Usage,
    Used,
    well_formed,
)
from infinity_agents.errors import Misconfigured, ModelError, ModelInterrupted, TellModel, Undecodable
from infinity_agents.ports.model import ModelRequest
from infinity_agents.rap.callbacks import BadCallback, receive
from infinity_agents.runtime.arguments import check_arguments
from infinity_agents.slack.markdown import length, shown_in_slack
from infinity_agents.slack.posts import posts_of, settled
from infinity_agents.testing.model_servers import KEY
from infinity_agents.testing.model_servers.bedrock import encoded
from infinity_agents.wire import inputs, outputs, rap
from infinity_agents.wire.callbacks import parse_callback
from infinity_agents.wire.keys import Keyring
from tests.fuzz import queues
from tests.fuzz.decoders import BASE, CLAIMS, KEYRING, OUTPUT, TEXT
from tests.fuzz.model_streams import AWS, Answering
from tests.fuzz.requests import CLICK, slack_receiver

# ------------------------------------------------------------------------------------------------- outputs


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("", "not JSON"),
        ("1", "must be a JSON object, not int"),
        ('"x"', "must be a JSON object, not str"),
        ("[]", "must be a JSON object, not list"),
        ("[" * 10_000, "not JSON"),
        (json.dumps({**OUTPUT, "seq": [1]}), "seq"),
        (json.dumps({**OUTPUT, "seq": {"a": 1}}), "seq"),
        (json.dumps({**OUTPUT, "group_id": 7}), "group_id"),
        (json.dumps({**OUTPUT, "metadata": "x"}), "metadata"),
        (json.dumps({name: value for name, value in OUTPUT.items() if name != "output_id"}), "output_id"),
    ],
)
def test_what_is_no_output_is_undecodable_and_the_field_is_named(body, told):
    with pytest.raises(Undecodable, match=told):
        outputs.decode(body)


async def test_what_is_no_output_keeps_no_other_from_being_shown():
    async with queues.responder() as check:
        await check(("1", "[]", "null", json.dumps({**OUTPUT, "group_id": ["unhashable"]})))


# ------------------------------------------------------------------------------------------------ callbacks

RESULT = '{"type": "tool_result", "group_id": "c", "id": "call-1", "text": "x", "display_as": [{"a": %s}]}'


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_cannot_pass_on_is_refused_where_it_comes_in(number):
    with pytest.raises(BadCallback, match="is out of range") as refused:
        receive((RESULT % number).encode(), CLAIMS, 10_000)
    assert refused.value.status == 400


@pytest.mark.parametrize("number", ["1e308", "-0.0", "5e-324", "1" * 100])
def test_the_largest_and_the_smallest_numbers_are_taken_and_can_be_read_by_the_leader(number):
    message = receive((RESULT % number).encode(), CLAIMS, 10_000)
    body = inputs.encode(message, KEYRING)
    assert inputs.decode(body, keyring=KEYRING, queue_id="q", group_id="c").message == message


@pytest.mark.parametrize("kind", ["x" * 100_000, '{"a":' * 9_000])
def test_a_reason_does_not_repeat_all_that_was_sent(kind):
    fields = {"content": {**TEXT, "type": kind}, "group_id": "c"}
    with pytest.raises(Undecodable, match=r"content.*does not match any of the expected tags") as refused:
        inputs.decode(json.dumps(fields), keyring=KEYRING, queue_id="q", group_id="c")
    assert len(refused.value.reason) < 1_000
    with pytest.raises(Undecodable) as refused:
        parse_callback(json.dumps({"type": kind}).encode())
    assert len(refused.value.reason) < 1_000


def test_a_secret_that_is_no_text_is_a_wrong_setting():
    with pytest.raises(Misconfigured, match="the secret of key 'k' must be text in UTF-8"):
        Keyring.parse("k:0123456789abcdef\udcff")


# ---------------------------------------------------------------------------------------------------- Slack


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```html\n<!DOCTYPE html>\n```", "```html\n<!DOCTYPE html>\n```"),
        ("if a <!b and c> d", "if a <!b and c> d"),
        ("<!subteam^S1|@ops> <!subteam^S1> <!everyone|all of you>", "@ops @S1 @all of you"),
        ("<!channel and more> <!here", "< !channel and more> < !here"),
        ("a | b\n--|--\n1 | 2 | 3 | 4", "```\na  b\n-  ---------\n1  2 | 3 | 4\n```"),
    ],
)
def test_what_is_shown_in_slack_loses_no_text_and_rings_for_nobody(text, told):
    assert shown_in_slack(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "<!" + "a" * 100_000,
        "<!here|" * 20_000,
        "<!channel" + "|" * 100_000,
        "<@A|" * 30_000,
        "a|b\n-" + " " * 100_000 + "|x",
        "a|b\n" + "-|" * 50_000 + "x",
        "|" * 5_000 + "\n" + "|-" * 5_000 + "\n" + "|\n" * 20_000,
        "a | b\n--|--\n" + "x" * 3_000 + " | 1\n" + "1 | 2\n" * 3_000,
    ],
)
def test_a_long_text_is_shown_in_time_that_grows_with_it_and_does_not_swell(text):
    # A hang in one call of a regular expression counts no steps: it would end this run.
    assert len(shown_in_slack(text)) < 12 * len(text)


async def test_a_click_with_a_number_that_is_none_is_ignored():
    value = '{"thread": "c", "choice": "call-1", "selected": %s}'
    for spelt in (value % "-Infinity", value % "1e999", value % "NaN", "[" * 10_000, "[]"):
        click = {**CLICK, "actions": [{"action_id": "infinity_choice_0", "value": spelt}]}
        async with slack_receiver() as check:
            await check((True, urlencode({"payload": json.dumps(click)}).encode()))


def test_labels_and_answers_are_cut_as_slack_counts_them():
    face = "\U0001f600"
    choices = [face * 37, face * 38, f"x{face * 60}"]
    details = {"id": "call-1", "prompt": "Which?", "choices": choices, "user_id": "slack:T1:U1"}
    asked = replace(outputs.decode(json.dumps({**OUTPUT, "type": "user_choice_required"})), details=details)
    (post,) = posts_of(asked)
    labels = [button["text"]["text"] for button in post.blocks[-1]["elements"]]
    assert labels == [f"1. {face * 36}", f"2. {face * 36}", f"3. x{face * 35}"]
    assert all(choice in post.blocks[0]["text"] for choice in choices)
    (short,) = posts_of(replace(asked, details={**details, "choices": choices[:1]}))
    assert [button["text"]["text"] for button in short.blocks[-1]["elements"]] == choices[:1]
    _, blocks = settled(replace(asked, type="user_choice_complete", text=face * 2_000))
    assert 1_500 < length(blocks[-1]["text"]["text"]) <= 3_000


def test_a_question_without_an_id_is_shown_by_its_text():
    asked = outputs.decode(json.dumps({**OUTPUT, "type": "user_choice_required", "prompt": "Which?"}))
    (post,) = posts_of(replace(asked, details={"prompt": "Which?", "choices": ["a"]}))
    assert [block["type"] for block in post.blocks] == ["markdown"]


# ------------------------------------------------------------------------------------------------ arguments

SCHEMAS = [
    # Each is a JSON Schema by the book, and what it refers to is none.
    {"$schema": "http://json-schema.org/draft-07/schema#", "$defs": {"a": ["x"]}, "allOf": [{"$ref": "#/$defs/a"}]},
    {"$ref": "#/$defs/one", "$defs": {"one": {"$ref": "#/$defs/one"}}},
    {"$ref": "#/nothing"},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_schema_that_breaks_the_checker_is_told_to_the_model(schema):
    rap.parse_manifest(
        json.dumps(
            {
                "name": "tools",
                "endpoint": f"{BASE}/invoke",
                "tools": [{"name": "look", "description": "Look.", "inputSchema": schema}],
            }
        ).encode(),
        BASE,
    )
    with pytest.raises(TellModel, match="The schema of look cannot be used"):
        check_arguments("look", schema, {"days": 1})


# ------------------------------------------------------------------------------------------------ models


@pytest.mark.parametrize(
    "event",
    [
        TextDelta(5),
        TextDelta(None),
        ReasoningDelta("x", signature=["s"]),
        ReasoningDelta(None),
        CallStarted({"a": 1}),
        CallStarted("look", 7),
        ArgumentsDelta({"a": 1}),
        Used(Usage(input="7")),
        Used(None),
        Stopped(None),
    ],
)
def test_an_event_of_a_turn_has_values_of_its_types(event):
    with pytest.raises(TypeError, match=type(event).__name__):
        well_formed(event)


@pytest.mark.parametrize(
    "event",
    [
        TextDelta(""),
        ReasoningDelta("x", "s", None),
        CallStarted("look"),
        CallStarted("look", "c1"),
        ArgumentsDelta("{"),
        CallFinished(),
        Used(Usage(1, 2, 3, 4)),
        Stopped("end_turn"),
    ],
)
def test_an_event_of_a_turn_is_passed_on_as_it_is(event):
    assert well_formed(event) is event


def sse(*events):
    return "".join(f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def frames(*events):
    headers = {":content-type": "application/json", ":message-type": "event"}
    return b"".join(encoded({":event-type": kind, **headers}, payload.encode()) for kind, payload in events)


DELTA = {"type": "content_block_delta", "index": 0}
CHUNK = {"id": "1", "object": "chat.completion.chunk", "model": "m", "created": 1}
ANSWERS = {
    "anthropic": [
        sse({"type": "message_delta", "delta": None, "usage": {}}),
        sse({"type": "message_delta", "delta": {"stop_reason": ["x"]}, "usage": {}}),
        sse({"type": "message_start"}),
        sse({"type": "content_block_start", "index": 0}),
        sse({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": 5}}),
        sse({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": 7, "name": "a"}}),
        sse({**DELTA, "delta": {"type": "text_delta", "text": {"a": 1}}}),
        sse({**DELTA, "delta": {"type": "input_json_delta"}}, {"type": "message_stop"}),
        b"event: message_start\ndata: " + b"[" * 10_000 + b"\n\n",
    ],
    "openai": [
        sse({**CHUNK, "choices": {"a": 1}}),
        sse({**CHUNK, "choices": 7}),
        sse({**CHUNK, "choices": [{"delta": {"tool_calls": 7}}]}),
        sse({**CHUNK, "choices": [{"delta": {"tool_calls": [{"id": 7, "function": {"name": "a"}}]}}]}),
        b"data: 7\n\ndata: [DONE]\n\n",
        b"data: " + b"[" * 10_000 + b"\n\n",
    ],
    "bedrock": [
        frames(("metadata", '""')),
        frames(("messageStop", "[]")),
        frames(("messageStop", '{"stopReason": null}')),
        frames(("messageStop", '{"stopReason": 7}')),
        frames(("contentBlockDelta", '{"contentBlockIndex": 0, "delta": {"text": 7}}')),
        frames(("contentBlockDelta", '{"contentBlockIndex": 0, "delta": {"reasoningContent": {}}}')),
        frames(("contentBlockDelta", '{"contentBlockIndex": 0, "delta": {"text": "x", "toolUse": {"input": "y"}}}')),
        frames(("contentBlockDelta", "[" * 10_000)),
    ],
}
MODELS = {
    "anthropic": lambda url: AnthropicModel("claude-sonnet-4-6", api_key=KEY, base_url=url),
    "openai": lambda url: OpenAIModel("m", api_key=KEY, base_url=url),
    "bedrock": lambda url: BedrockModel("us.anthropic.claude-sonnet-4-6", base_url=url, region="us-east-1"),
}


@pytest.fixture(params=MODELS)
async def service(request, monkeypatch):
    """A model of each kind, and the server that it asks."""
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    async with Answering().running() as server:
        model = MODELS[request.param](server.url)
        yield request.param, model, server
        await model.aclose()


async def heard(model):
    said = ModelRequest(model.name, "Be brief.", (UserEntry((Text("hello"),)),), (), ("t",))
    return [event async for event in model.stream(said)]


@pytest.mark.slow
async def test_what_is_not_of_the_protocol_breaks_the_stream_and_may_be_asked_again(service):
    kind, model, server = service
    media_type = "application/vnd.amazon.eventstream" if kind == "bedrock" else "text/event-stream"
    for body in ANSWERS[kind]:
        server.answer = (200, media_type, body)
        with pytest.raises(ModelInterrupted):
            await heard(model)


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 429, 500])
async def test_a_refusal_that_cannot_be_read_is_an_error_of_the_model(service, status):
    _, model, server = service
    for body in (
        b"[" * 10_000,
        b'{"error": 7, "__type": {}, "message": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b"\xff",
    ):
        server.answer = (status, "application/json", body)
        with pytest.raises(ModelError):
            await heard(model)


@pytest.mark.slow
async def test_a_list_of_models_that_is_none_is_an_error_of_the_model(service):
    _, model, server = service
    for body in (b'{"data": [{}], "modelSummaries": [{}]}', b'{"data": 7, "modelSummaries": 7}', b"[" * 10_000, b"7"):
        server.answer = (200, "application/json", body)
        with pytest.raises(ModelError):
            await model.list_models()
