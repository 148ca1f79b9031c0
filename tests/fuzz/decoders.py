"""What is decoded: messages, results, manifests, tokens, timers, outputs, arguments, stored forms."""

import base64
import json
from contextlib import asynccontextmanager
from random import Random

from infinity_agents.errors import Misconfigured, Reject, TellModel, Undecodable
from infinity_agents.rap.callbacks import BadCallback, CallbackClaims, callback_url, read_token, receive, token_in
from infinity_agents.rap.toolsets import parse_tools_config
from infinity_agents.runtime.arguments import check_arguments, read_arguments
from infinity_agents.wire import history, inputs, outputs, rap, timers
from infinity_agents.wire.callbacks import parse_callback
from infinity_agents.wire.codecs import mended_json
from infinity_agents.wire.keys import Keyring
from infinity_agents.wire.traces import trace_of
from tests.fuzz.mutation import ODD_TEXTS, mixed, mutated, odd_text, spelt
from tests.fuzz.running import Check, Target

KEYRING = Keyring({"k": b"a secret of more than 16 characters"})
BASE = "https://tools.example.com"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()
SHA256 = "a" * 64

TEXT = {"type": "text", "text": "What time is it in Tokyo?"}
IMAGE = {"type": "image", "data": PNG, "media_type": "image/png"}
DOCUMENT = {"type": "document", "data": PNG, "media_type": "application/pdf", "name": "a.pdf"}
BLOB = {"type": "blob", "sha256": SHA256, "size": 300_000, "of": "text"}
RESULT = {
    "type": "tool_result",
    "id": "call-1",
    "call_id": "c1",
    "content": [TEXT, IMAGE],
    "is_error": False,
    "tool_set": "tools",
}
CHOICE = {
    "type": "user_choice_required",
    "id": "call-1",
    "prompt": "Which?",
    "choices": ["a", "b"],
    "default": 1,
    "response_url": f"{BASE}/choice/1",
}
EMPTY = {"type": "text", "text": ""}
MESSAGES = (
    {"content": TEXT, "group_id": "c", "metadata": {"user_id": "U1", "deep": [1, {"a": None}]}},
    {"content": {"type": "parts", "parts": [TEXT, IMAGE, DOCUMENT, BLOB]}, "group_id": "c", "message_id": "m1"},
    {"content": DOCUMENT, "group_id": "c", "trace": {"traceparent": f"00-{'1' * 32}-{'a' * 16}-01"}},
    {"content": BLOB, "group_id": "c"},
    {"content": {"type": "control", "action": "stop"}, "group_id": "c"},
    {"content": {"type": "user_choice_response", "choice_id": "call-1", "selected": 1}, "group_id": "c"},
    {"content": RESULT, "group_id": "c", "subscription": True, "display_as": [{"type": "text", "content": "x"}]},
    {"content": {"type": "oauth_required", "id": "call-1", "auth_url": f"{BASE}/auth"}, "group_id": "c"},
    {"content": CHOICE, "group_id": "c"},
    {"content": TEXT, "group_id": "c", "synthetic": {"type": "subscription_event", "tool_call_id": "call-1"}},
    {"content": TEXT, "group_id": "c", "synthetic": "call-1"},
    {
        "content": TEXT,
        "group_id": "c",
        "synthetic": {"type": "thread_report", "tool_call_id": "call-1", "child_thread_id": "c.1"},
    },
    {
        "content": EMPTY,
        "group_id": "c",
        "synthetic": {"type": "compaction_complete", "up_to": 3, "summary": "s", "child_thread_id": "c.1"},
    },
    {"content": EMPTY, "group_id": "c", "synthetic": {"type": "call_deadline", "tool_call_id": "call-1"}},
    {"content": EMPTY, "group_id": "c", "synthetic": {"type": "nudge"}},
)
CALLBACKS = (
    {"type": "tool_result", "group_id": "c", "id": "call-1", "text": "done", "is_error": True},
    {
        "type": "tool_result",
        "group_id": "c",
        "id": "call-1",
        "call_id": "c1",
        "content": [{"type": "text", "text": "x"}, {"type": "image", "data": PNG, "mediaType": "image/png"}],
        "display_as": [{"type": "diff", "content": {"path": "a", "patch": "b"}}],
        "subscription": True,
    },
    {"type": "subscription_event", "group_id": "c", "tool_call_id": "call-1", "text": "x", "event_id": "e1"},
    {"type": "oauth", "group_id": "c", "id": "call-1", "auth_url": f"{BASE}/auth"},
    {
        "type": "user_choice",
        "group_id": "c",
        "id": "call-1",
        "prompt": "Which?",
        "choices": ["a", "b"],
        "default": 0,
        "response_url": f"{BASE}/choice/1",
    },
    {"type": "view_update", "group_id": "c", "view_type": "plan", "content": {"steps": [1, 2]}},
)
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "pattern": "^[A-Z]", "description": "Where"},
        "days": {"type": "integer", "minimum": 1, "enum": [1, 2, 3]},
        "more": {"type": "array", "items": {"$ref": "#/$defs/one"}, "uniqueItems": True},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"one": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/one"}]}},
}
ARGUMENTS = {"city": "Oslo", "days": 2, "more": [None]}
MANIFEST = {
    "name": "weather-tools",
    "description": "Weather",
    "endpoint": f"{BASE}/invoke",
    "needsMigration": False,
    "tools": [
        {
            "name": "get_weather",
            "description": "Tell the weather.",
            "inputSchema": SCHEMA,
            "annotations": {"readOnly": True, "requiresAuth": "GitHub", "x-odd": 1},
            "displayScript": '"Weather for " + args.city',
        }
    ],
}
INVOCATION = {
    "operation": "get_weather",
    "arguments": ARGUMENTS,
    "id": "call-1",
    "call_id": None,
    "callback_url": f"{BASE}/callback/token",
    "group_id": "c",
    "thread_ancestors": ["c"],
    "user_id": "U1",
}
NOTICES = {
    rap.CloseThread: {"thread_id": "c"},
    rap.CancelToolCall: {"thread_id": "c", "tool_call_id": "call-1"},
    rap.Migrate: {"session_id": "c", "destination_url": BASE},
    rap.ChoiceAnswer: {"id": "call-1", "selected": 1},
}
SEGMENTS = [
    {"type": "unheard of"},
    {"type": "image", "content": {"data": PNG, "mediaType": "image/png"}},
    {"type": "diff", "content": {"path": "a", "patch": "b"}},
    {"type": "text", "content": "x"},
]
TOOLS_CONFIG = {
    "tool_sets": [
        {"type": "toolset_server", "server_url": BASE, "id": "a", "auth": "sigv4", "call_timeout": 60},
        {"type": "toolset_server", "server_url": BASE, "id": "b", "auth": {"bearer_secret_arn": "arn:aws:x"}},
    ]
}
ENTRIES = (
    {"kind": "user", "content": [TEXT, IMAGE, DOCUMENT, BLOB]},
    {
        "kind": "assistant",
        "content": [
            {"type": "reasoning", "text": "hm", "signature": "s", "model": "m"},
            {"type": "text", "text": "Yes."},
        ],
    },
    {"kind": "tool_call", "call": {"id": "call-1", "name": "look", "arguments": ARGUMENTS, "call_id": "c1"}},
    {"kind": "tool_result", "result": {"id": "call-1", "content": [TEXT, IMAGE], "is_error": True}},
)


def steady(check) -> Target:
    """Make a target of a plain function that checks, named after it; its attribute ``make`` makes the inputs."""

    @asynccontextmanager
    async def opened():
        yield check

    return Target(check.__name__, check.make, opened)


def made_by(make):
    def decorated(check: Check) -> Check:
        check.make = make
        return check

    return decorated


def signed(text: str, keyring: Keyring = KEYRING) -> str:
    """Return the JSON object ``text`` with a proof of ours, where it is an object that can be read."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(fields, dict) or not text.rstrip().endswith("}"):
        return text
    fields.pop("mac", None)
    try:
        proof = keyring.sign(inputs._PURPOSE, inputs._canonical(fields))
    except RecursionError:
        return text
    comma = "," if fields else ""
    return f'{text.rstrip()[:-1]}{comma}"mac":"{proof}"}}'


def a_message(random: Random) -> str:
    text = mutated(random, random.choice(MESSAGES))
    return signed(text) if random.randrange(4) else text


def group_of(text: str) -> str:
    """Return the group that the queue would name, so that more than the group is looked at."""
    try:
        named = json.loads(text)["group_id"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return "c"
    return named if isinstance(named, str) else "c"


@made_by(a_message)
def input_messages(text: str) -> None:
    body = text
    for body in (text, inputs.redriven(text, "queue-1")):
        try:
            delivery = inputs.decode(body, keyring=KEYRING, queue_id="queue-1", group_id=group_of(body))
        except Reject as error:
            assert error.reason.isprintable() or error.reason.encode(), "a reason must be told"
            assert len(error.reason) < 2_000, f"a reason of {len(error.reason)} characters"
            continue
        again = inputs.decode(
            inputs.encode(delivery.message, KEYRING), keyring=KEYRING, queue_id="queue-1", group_id=delivery.thread_id
        )
        assert again.message == delivery.message
        assert again.proven
        assert history.deliveries.decode(history.deliveries.encode(delivery)) == delivery
        trace_of(delivery.message.trace)
        rap.first_known_segment(delivery.message.display_as or ())


CLAIMS = CallbackClaims("c", "call-1", "tools")


@made_by(lambda random: mutated(random, random.choice(CALLBACKS)).encode())
def callbacks(body: bytes) -> None:
    try:
        parse_callback(body)
    except Undecodable:
        pass
    else:
        parsed = parse_callback(body)
        again = parse_callback(json.dumps(parsed.to_json()).encode())
        assert again == parsed
    try:
        receive(body, CLAIMS, 500_000)
    except BadCallback as error:
        assert error.status in {400, 403, 413}


@made_by(lambda random: mutated(random, MANIFEST).encode())
def manifests(body: bytes) -> None:
    try:
        manifest = rap.parse_manifest(body, BASE)
    except Misconfigured as error:
        assert len(str(error)) < 3_000, f"a refusal of {len(str(error))} characters"
        return
    # What is discovered is kept, and read again.
    assert rap.read_manifest(json.loads(json.dumps(manifest.to_json())), BASE) == manifest
    for tool in manifest.tools:
        json.dumps(tool.input_schema).encode()


@made_by(lambda random: mutated(random, INVOCATION).encode())
def invocations(body: bytes) -> None:
    try:
        invocation = rap.parse_invocation(body)
    except Undecodable:
        return
    assert rap.parse_invocation(json.dumps(invocation.to_json()).encode()) == invocation


@made_by(lambda random: mutated(random, random.choice(list(NOTICES.values()))).encode())
def notices(body: bytes) -> None:
    for kind in NOTICES:
        try:
            notice = rap.parse_notice(body, kind)
        except Undecodable:
            continue
        assert rap.parse_notice(json.dumps(notice.to_json()).encode(), kind) == notice


@made_by(lambda random: mutated(random, SEGMENTS))
def display_segments(text: str) -> None:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(read, list):
        rap.first_known_segment([each for each in read if isinstance(each, dict)])


@made_by(lambda random: (spelt_schema(random), mutated(random, ARGUMENTS)))
def arguments(made: tuple[str, str]) -> None:
    """A schema that discovery lets through never makes checking fail in a way that the model is not told."""
    schema, text = made
    try:
        read = read_arguments(text)
    except TellModel:
        return
    json.dumps(read).encode()
    try:
        offered = {**MANIFEST, "tools": [{**MANIFEST["tools"][0], "inputSchema": json.loads(schema)}]}
        (tool,) = rap.parse_manifest(json.dumps(offered).encode(), BASE).tools
    except (ValueError, RecursionError, Misconfigured):
        return
    try:
        check_arguments("get_weather", tool.input_schema, read)
    except TellModel as error:
        assert len(str(error)) < 3_000, f"the model is told {len(str(error))} characters"


KEYWORDS = (
    '"$ref":"#"',
    '"$ref":"#/properties/city"',
    '"$ref":"#/nothing"',
    '"$ref":"#/$defs/%E4"',
    '"$dynamicRef":"#meta"',
    '"$anchor":"a"',
    '"$id":"https://example.com/s"',
    '"$id":"http://["',
    '"$schema":"http://json-schema.org/draft-07/schema#"',
    '"$schema":"http://json-schema.org/draft-04/schema#"',
    '"$schema":"http://json-schema.org/draft-03/schema#"',
    '"definitions":{"a":{"$ref":"#/definitions/a"}}',
    '"pattern":"["',
    '"pattern":"\\\\p{L}"',
    '"patternProperties":{"(":{}}',
    '"multipleOf":0.1',
    '"multipleOf":1e-320',
    '"multipleOf":1e308',
    '"not":{"$ref":"#"}',
    '"unevaluatedProperties":false',
    '"propertyNames":{"$ref":"#/$defs/one"}',
    '"contains":{},"minContains":2',
    '"dependentSchemas":{"city":false}',
    '"if":true,"then":false',
    '"extends":{"$ref":"#"}',
    '"disallow":[{"$ref":"#"}]',
    '"divisibleBy":0',
)


def spelt_schema(random: Random) -> str:
    text = mutated(random, SCHEMA)
    while random.randrange(2) and text.startswith("{") and len(text) > 2:
        text = f"{{{random.choice(KEYWORDS)},{text[1:]}"
    if random.randrange(4) == 0:
        text = text.replace('"minLength"', f'{random.choice(KEYWORDS)},"minLength"', 1)
    return text


URL = callback_url(BASE, KEYRING, "c", "call-1", "tools")


@made_by(lambda random: odd_text(random, random.choice((URL, URL.partition(".k.")[0], URL[-90:]))))
def tokens(url: str) -> None:
    read_token(KEYRING, token_in(url))
    read_token(KEYRING, url)
    KEYRING.proves("callback", b"x", url)


@made_by(lambda random: mixed(random, ("k1", ":", ",", " ", "0123456789abcdef", "a b", "\u00e4", *ODD_TEXTS)))
def keyrings(setting: str) -> None:
    try:
        keyring = Keyring.parse(setting)
    except Misconfigured:
        return
    assert keyring.proves("a", b"x", keyring.sign("a", b"x"))


@made_by(lambda random: mutated(random, {"traceparent": f"00-{'1' * 32}-{'a' * 16}-01", "tracestate": "a=1"}))
def traces(text: str) -> None:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(fields, dict):
        for value in (trace_of(fields) or {}).values():
            assert value.isascii()
            assert value.isprintable()


@made_by(lambda random: mutated(random, {"body": spelt(MESSAGES[0]), "group_id": "c", "dedup_id": "d"}))
def delayed_messages(text: str) -> None:
    try:
        delayed = timers.decode(text)
    except Undecodable:
        return
    assert timers.decode(timers.encode(delayed)) == delayed


OUTPUT = {
    "type": "message",
    "text": "Yes.",
    "metadata": {"user_id": "U1"},
    "group_id": "c",
    "thread_id": "c",
    "output_id": "o1",
    "seq": [3, 1],
    "id": "call-1",
    "choices": ["a"],
}


@made_by(lambda random: mutated(random, OUTPUT))
def output_messages(text: str) -> None:
    try:
        output = outputs.decode(text)
    except Undecodable:
        return
    told = outputs.encode(output)
    assert told.isascii()
    again = outputs.decode(told)
    assert outputs.encode(again) == told
    assert again.text == mended_json(output.text)


@made_by(lambda random: mutated(random, TOOLS_CONFIG))
def tools_configurations(text: str) -> None:
    try:
        tool_sets = parse_tools_config(text, "a place")
    except Misconfigured as error:
        assert "a place" in str(error)
        return
    for tool_set in tool_sets:
        assert tool_set.call_timeout is None or tool_set.call_timeout.total_seconds() > 0


@made_by(lambda random: mutated(random, random.choice(ENTRIES)))
def stored_entries(text: str) -> None:
    """Whatever an entry is made of, what is stored of it can be encoded, and is read again as it is."""
    try:
        entry = history.entries.decode(text)
    except ValueError:
        return
    stored = history.entries.encode(entry)
    stored.encode()
    again = history.entries.decode(stored)
    assert history.entries.decode(history.entries.encode(again)) == again
    assert history.decode_entries([stored]) == [again]


TARGETS = tuple(
    map(
        steady,
        (
            input_messages,
            callbacks,
            manifests,
            invocations,
            notices,
            display_segments,
            arguments,
            tokens,
            keyrings,
            traces,
            delayed_messages,
            output_messages,
            tools_configurations,
            stored_entries,
        ),
    )
)
