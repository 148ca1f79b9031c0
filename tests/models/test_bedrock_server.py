"""The stand-in for Bedrock refuses what the service refuses: otherwise the adapter's tests would prove nothing."""

import base64
import copy
import json
import zlib

import pytest
from botocore.eventstream import EventStreamBuffer

from infinity_agents.testing.contracts.models import PNG
from infinity_agents.testing.model_servers import KEY, BedrockProtocol, Refused
from infinity_agents.testing.model_servers.bedrock import encoded
from infinity_agents.testing.scripted_model import calls

MODEL = "global.anthropic.claude-sonnet-4-6"
NOVA = "us.amazon.nova-pro-v1:0"
MICRO = "us.amazon.nova-micro-v1:0"
MISTRAL = "mistral.mistral-large-2407-v1:0"
SIGNATURE = BedrockProtocol().sign(MODEL, "hm", "anything")
POINT = {"cachePoint": {"type": "default"}}
TEXT = {"text": "x"}
PDF = base64.b64encode(b"%PDF-1.7").decode()


def use(**more):
    return {"toolUse": {"toolUseId": "c:1.a", "name": "search", "input": {}} | more}


def result(**more):
    return {"toolResult": {"toolUseId": "c:1.a", "content": [TEXT]} | more}


def image(**more):
    return {"image": {"format": "png", "source": {"bytes": PNG}} | more}


def document(**more):
    return {"document": {"format": "pdf", "name": "Report (1)", "source": {"bytes": PDF}} | more}


def thinking(**more):
    return {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"} | more}}


USER = {"role": "user", "content": [TEXT]}
SPEC = {"name": "search", "description": "d", "inputSchema": {"json": {"type": "object"}}}
BODY = {
    "system": [{"text": "Be brief."}],
    "toolConfig": {"tools": [{"toolSpec": SPEC}]},
    "messages": [
        USER,
        {"role": "assistant", "content": [use()]},
        {"role": "user", "content": [result(), TEXT, POINT]},
    ],
}


def said(*blocks, after=USER):
    return {"messages": [USER, {"role": "assistant", "content": [*blocks]}, after]}


def heard(*blocks):
    return {"messages": [*BODY["messages"][:2], {"role": "user", "content": [*blocks]}]}


def hears(*blocks):
    return {"messages": [{"role": "user", "content": [*blocks]}]}


def tool(**more):
    return {"toolConfig": {"tools": [{"toolSpec": SPEC | more}]}}


def extra(**fields):
    return {"additionalModelRequestFields": fields}


ANSWER = {"role": "user", "content": [result()]}
CHOICE = {"type": "auto", "disable_parallel_tool_use": True}

REFUSES = {
    "another field": ({"top_k": 3}, "extraneous key"),
    "no messages": ({"messages": []}, "at least one"),
    "the model first": ({"messages": BODY["messages"][1:]}, "must start with a user message"),
    "the model last": ({"messages": BODY["messages"][:2]}, "must end with a user message"),
    "twice the user": ({"messages": [USER, USER]}, "must alternate"),
    "empty content": ({"messages": [{"role": "user", "content": []}]}, "is empty"),
    "empty text": (hears({"text": ""}), "is blank"),
    "blank text": (hears({"text": " \n"}), "is blank"),
    "blank text of the model": (said({"text": " "}), "is blank"),
    "blank text in a result": (heard(result(content=[{"text": " "}])), "is blank"),
    "a blank system prompt": ({"system": [{"text": " "}]}, "is blank"),
    "no result": (heard(TEXT), "Expected toolResult blocks"),
    "two results": (heard(result(), result()), "exceeds the number of toolUse blocks"),
    "a result of nothing": (hears(result()), "exceeds the number of toolUse blocks"),
    "another result": (heard(result(toolUseId="c2")), "Expected toolResult blocks"),
    "text before the result": (heard(TEXT, result()), "before anything else"),
    "an empty result": (heard(result(content=[])), "is empty"),
    "an odd status": (heard(result(status="failed")), "status"),
    "an id twice": ({"messages": [*BODY["messages"], *BODY["messages"][1:]]}, "unique"),
    "a bad name": (said(use(name="no such!"), after=ANSWER), "toolUse.name"),
    "a long name": (said(use(name="a" * 65), after=ANSWER), "toolUse.name"),
    "a bad id": (said(use(toolUseId="c~1"), after=heard(result(toolUseId="c~1"))["messages"][2]), "toolUseId"),
    "a long id": (
        said(use(toolUseId="c" * 65), after=heard(result(toolUseId="c" * 65))["messages"][2]),
        "toolUseId",
    ),
    "arguments of text": (said(use(input="{}"), after=ANSWER), "json object"),
    "calls without tools": ({"toolConfig": None}, "toolConfig field must be defined"),
    "no tools": ({"toolConfig": {"tools": []}}, "toolConfig.tools"),
    "a tool twice": ({"toolConfig": {"tools": BODY["toolConfig"]["tools"] * 2}}, "unique"),
    "a tool with a bad name": (tool(name="a.b"), "name"),
    "a tool without a description": (tool(description=""), "description"),
    "a tool of no object": (tool(inputSchema={"json": {}}), "object"),
    "a tool of alternatives": (tool(inputSchema={"json": {"type": "object", "anyOf": []}}), "top level"),
    "what the model cannot say": (said(image()), "turn of the assistant"),
    "what people cannot say": (hears(thinking()), "turn of the user"),
    "two in one block": (hears(TEXT | image()), "exactly one member"),
    # Reasoning.
    "a signature of nobody": (said(thinking(), TEXT), "signature"),
    "no signature": (said(thinking(signature=None), TEXT), "Field required"),
    "no text of reasoning": (said(thinking(text=None), TEXT), "must not be null"),
    "redacted by another": (said({"reasoningContent": {"redactedContent": "AAAA"}}, TEXT), "redacted_thinking"),
    "reasoning at the end": (said(TEXT, thinking()), "final block"),
    # Pictures and documents.
    "a picture of a type": (hears(image(format="bmp")), "media_type"),
    "a type in capitals": (hears(image(format="PNG")), "media_type"),
    "a wrong label": (hears(image(format="gif")), "labelled"),
    "no base64": (hears(image(source={"bytes": "?"})), "base64"),
    "a large picture": (hears(image(source={"bytes": "A" * 5_300_000})), "3.75 MB"),
    "many pictures": (hears(*[image()] * 21), "too many images"),
    "a document alone": (hears(document()), "text block must be included"),
    "a document's name": (hears(TEXT, document(name="a_b.pdf")), "file name"),
    "two spaces": (hears(TEXT, document(name="a  b")), "consecutive"),
    "the same name": (hears(TEXT, document(), document()), "duplicate"),
    "a document's format": (hears(TEXT, document(format="pptx")), "format"),
    "a document's label": (hears(TEXT, document(source={"bytes": "AAAA"})), "PDF"),
    "an empty document": (hears(TEXT, document(source={"bytes": ""})), "empty"),
    "a large document": (hears(TEXT, document(source={"bytes": "A" * 6_400_000})), "4.5 MB"),
    "many documents": (hears(TEXT, *(document(name=f"n{n}") for n in range(6))), "too many documents"),
    # Cache points.
    "five cache points": (hears(*[TEXT, POINT] * 5), "maximum of 4"),
    "nothing to cache": (hears(POINT, TEXT), "nothing available"),
    "a cache point after reasoning": (said(thinking(signature=SIGNATURE), POINT, TEXT), "after reasoning block"),
    "a cache point after a document": (hears(TEXT, document(), POINT), "Field required"),
    "a cache point in a result": (heard(result(content=[TEXT, POINT])), "cannot be in a toolResult"),
    "a cache point of a type": (hears(TEXT, {"cachePoint": {"type": "long"}}), "default"),
    # Fields of models.
    "a field of no model": (extra(top_q=1), "extraneous key"),
    "a field of another model": (extra(inferenceConfig={}), "extraneous key"),
    "too many tokens": ({"inferenceConfig": {"maxTokens": 64_001}}, "model limit"),
    "a setting of no model": ({"inferenceConfig": {"topK": 1}}, "extraneous key"),
    "a choice without a type": (extra(tool_choice={"disable_parallel_tool_use": True}), "Field required"),
    "a choice of nothing": ({**extra(tool_choice=CHOICE), "toolConfig": None, **hears(TEXT)}, "providing tools"),
    "two choices": (
        {**extra(tool_choice=CHOICE), "toolConfig": BODY["toolConfig"] | {"toolChoice": {"auto": {}}}},
        "twice",
    ),
    "binding without its beta": (extra(thinking={"type": "adaptive", "block_binding": {}}), "Extra inputs"),
}


def read(more, model=MODEL, key=KEY, **served):
    credential = f"AWS4-HMAC-SHA256 Credential={key}/20260101/us-east-1/bedrock/aws4_request, Signature=0"
    body = {name: value for name, value in (copy.deepcopy(BODY) | copy.deepcopy(more)).items() if value is not None}
    path = f"/model/{model.replace(':', '%3A')}/converse-stream"
    return BedrockProtocol(**served).read(path, {"authorization": credential}, body)


@pytest.mark.parametrize(("more", "why"), REFUSES.values(), ids=REFUSES.keys())
def test_it_refuses(more, why):
    with pytest.raises(Refused) as raised:
        read(more)
    assert why in raised.value.message
    assert raised.value.status == 400


@pytest.mark.parametrize(
    ("model", "more", "why"),
    [
        (MISTRAL, {}, "did not allow prompt caching"),
        (NOVA, {"toolConfig": {"tools": [*BODY["toolConfig"]["tools"], POINT]}}, "did not allow prompt caching"),
        (NOVA, extra(tool_choice=CHOICE), "extraneous key"),
        (NOVA, {"inferenceConfig": {"maxTokens": 32_000}}, "model limit"),
        (MICRO, hears(image()), "image content block"),
        (MICRO, hears(TEXT, document()), "documents"),
        (MISTRAL, heard(result(status="error")), "status field"),
        ("anthropic.claude-2", {}, "model identifier is invalid"),
    ],
)
def test_what_one_model_takes_another_may_refuse(model, more, why):
    with pytest.raises(Refused) as raised:
        read(more, model=model)
    assert why in raised.value.message


def test_it_takes_what_is_right():
    assert [entry.kind for entry in read({}).entries] == ["user", "tool_call", "tool_result", "user"]
    content = [result(status="error"), TEXT, image(), document(), TEXT, POINT]
    assert [entry.kind for entry in read(heard(*content)).entries][1:3] == ["tool_call", "tool_result"]
    read(extra(tool_choice=CHOICE), model=MODEL)


def test_signed_reasoning_is_bound_to_its_model_and_on_some_to_what_came_before():
    read(said(thinking(signature=SIGNATURE), TEXT))
    with pytest.raises(Refused, match="signature"):
        read(said(thinking(signature=SIGNATURE), TEXT), model="global.anthropic.claude-opus-4-8")
    bound = "global.anthropic.claude-fable-5-1"
    signature = BedrockProtocol().sign(bound, "hm", "anything")
    with pytest.raises(Refused, match="bound to a different conversation"):
        read(said(thinking(signature=signature), TEXT), model=bound)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer another"}])
def test_nobody_is_answered_without_credentials(headers):
    for ask in (BedrockProtocol().models, lambda path, headers: BedrockProtocol().read(path, headers, {})):
        with pytest.raises(Refused) as raised:
            ask("/foundation-models", headers)
        assert (raised.value.status, raised.value.code) == (403, "UnrecognizedClientException")
    with pytest.raises(Refused):
        read({}, key="another")


def test_there_is_nothing_elsewhere():
    headers = {"authorization": f"Bearer {KEY}"}
    for ask in (BedrockProtocol().models, lambda path, headers: BedrockProtocol().read(path, headers, {})):
        with pytest.raises(Refused) as raised:
            ask("/nowhere", headers)
        assert raised.value.status == 404


def test_the_encoding_is_the_services():
    events = list(BedrockProtocol().spell(calls("search", text="Hi"), {"modelId": MODEL, "messages": []}, None))
    buffer = EventStreamBuffer()
    for byte in b"".join(events):
        buffer.add_data(bytes([byte]))
    messages = list(buffer)
    assert [message.headers[":event-type"] for message in messages[:2]] == ["messageStart", "contentBlockDelta"]
    assert json.loads(messages[1].payload)["delta"] == {"text": "Hi"}
    message = encoded({"a": "bc"}, b"{}")
    assert message[:8] == (16 + 7 + 2).to_bytes(4) + (7).to_bytes(4)
    assert message[12:19] == b"\x01a\x07\x00\x02bc"
    assert message[-4:] == zlib.crc32(message[:-4]).to_bytes(4)
