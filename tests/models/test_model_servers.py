"""The stand-ins refuse what the services refuse: otherwise the adapters' tests would prove nothing."""

import copy

import pytest

from infinity_agents.testing.contracts.models import PNG
from infinity_agents.testing.model_servers import KEY, AnthropicProtocol, OpenAIProtocol, Refused

ANTHROPIC = {
    "model": "claude-sonnet-4-6",
    "max_tokens": 100,
    "stream": True,
    "system": [{"type": "text", "text": "Be brief."}],
    "tools": [{"name": "search", "description": "", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "search", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "found"}]},
                {"type": "text", "text": "go on"},
            ],
        },
    ],
}
TEXT = {"type": "text", "text": "x"}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": [TEXT]}
CALL = {"type": "tool_use", "id": "c1", "name": "search", "input": {}}


def said(*blocks, after=()):
    return {"messages": [ANTHROPIC["messages"][0], {"role": "assistant", "content": [*blocks]}, *after]}


def heard(*blocks):
    return {"messages": [*ANTHROPIC["messages"][:2], {"role": "user", "content": [*blocks]}]}


def image(**source):
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG} | source}


USER = {"role": "user", "content": [TEXT]}

ANTHROPIC_REFUSES = {
    "another key": ({"top_k": 3}, "Extra inputs"),
    "no limit": ({"max_tokens": None}, "max_tokens"),
    "unknown model": ({"model": "claude-2"}, "claude-2"),
    "no messages": ({"messages": []}, "at least one"),
    "the model first": ({"messages": ANTHROPIC["messages"][1:]}, "alternate"),
    "the model last": ({"messages": ANTHROPIC["messages"][:2]}, "prefill"),
    "twice the user": ({"messages": [USER, USER]}, "alternate"),
    "empty content": ({"messages": [{"role": "user", "content": []}]}, "not empty"),
    "empty text": ({"messages": [{"role": "user", "content": [TEXT | {"text": ""}]}]}, "non-empty"),
    "blank text": ({"messages": [{"role": "user", "content": [TEXT | {"text": " \n"}]}]}, "non-whitespace"),
    "no result": (heard(TEXT), "without `tool_result`"),
    "two results": (heard(RESULT, RESULT), "single result"),
    "a result of nothing": (heard(RESULT, RESULT | {"tool_use_id": "c2"}), "unexpected"),
    "text before the result": (heard(TEXT, RESULT), "before anything else"),
    "an empty result": (heard(RESULT | {"content": []}), "not be empty"),
    "an id twice": ({"messages": [*ANTHROPIC["messages"], *ANTHROPIC["messages"][1:]]}, "unique"),
    "a bad name": (said(CALL | {"name": "no such!"}, after=[{"role": "user", "content": [RESULT]}]), "pattern"),
    "a bad id": (
        said(CALL | {"id": "c.1"}, after=[{"role": "user", "content": [RESULT | {"tool_use_id": "c.1"}]}]),
        "pattern",
    ),
    "arguments of text": (said(CALL | {"input": "{}"}, after=[{"role": "user", "content": [RESULT]}]), "dictionary"),
    "no tools": ({"tools": []}, "must define tools"),
    "a tool twice": ({"tools": ANTHROPIC["tools"] * 2}, "unique"),
    "alternatives": (
        {"tools": [{"name": "search", "input_schema": {"type": "object", "anyOf": []}}]},
        "top level",
    ),
    "no object": ({"tools": [{"name": "search", "input_schema": {}}]}, "object"),
    "a choice of nothing": ({"tools": [], "tool_choice": {"type": "auto"}, "messages": [USER]}, "tool_choice"),
    "five breakpoints": (
        {"messages": [{"role": "user", "content": [TEXT | {"cache_control": {"type": "ephemeral"}}] * 5}]},
        "maximum of 4",
    ),
    "a signature of nobody": (
        said({"type": "thinking", "thinking": "hm", "signature": "s"}, TEXT, after=[USER]),
        "signature",
    ),
    "reasoning at the end": (
        said({"type": "thinking", "thinking": "hm", "signature": "s"}, after=[USER]),
        "final block",
    ),
    "what the model cannot say": (said(image(), after=[USER]), "turn of assistant"),
    "a picture of a type": ({"messages": [{"role": "user", "content": [image(media_type="image/bmp")]}]}, "media_type"),
    "a wrong label": ({"messages": [{"role": "user", "content": [image(media_type="image/gif")]}]}, "labelled"),
    "no base64": ({"messages": [{"role": "user", "content": [image(data=PNG[:30] + "?")]}]}, "base64"),
}


def read_anthropic(more):
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    return AnthropicProtocol().read("/v1/messages", headers, copy.deepcopy(ANTHROPIC) | more)


@pytest.mark.parametrize(("more", "why"), ANTHROPIC_REFUSES.values(), ids=ANTHROPIC_REFUSES.keys())
def test_anthropic_refuses(more, why):
    with pytest.raises(Refused) as raised:
        read_anthropic(more)
    assert why in raised.value.message


def test_anthropic_takes_what_is_right():
    assert [entry.kind for entry in read_anthropic({}).entries] == ["user", "tool_call", "tool_result", "user"]


OPENAI = {
    "model": "gpt-4.1",
    "stream": True,
    "tools": [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "user", "content": "go on"},
    ],
}
SYSTEM, PERSON, CALLS, ANSWER, GO_ON = OPENAI["messages"]


def messages(*more):
    return {"messages": [SYSTEM, *more]}


def calling(**function):
    call = CALLS["tool_calls"][0]
    return {"role": "assistant", "tool_calls": [call | {"function": call["function"] | function}]}


def parts(*content):
    return messages({"role": "user", "content": [*content]})


OPENAI_REFUSES = {
    "another field": ({"top_q": 1}, "Unrecognized"),
    "unknown model": ({"model": "gpt-0"}, "does not exist"),
    "no messages": ({"messages": []}, "too short"),
    "no system": ({"messages": [PERSON]}, "system"),
    "twice the user": (messages(PERSON, PERSON), "alternate"),
    "the model last": (messages(PERSON, {"role": "assistant", "content": "hi"}), "last message"),
    "no result": (messages(PERSON, CALLS, GO_ON), "must be followed by tool messages"),
    "no result at the end": (messages(PERSON, CALLS), "last message"),
    "two results": (messages(PERSON, CALLS, ANSWER, ANSWER), "preceding message"),
    "a result of nothing": (messages(PERSON, ANSWER), "preceding message"),
    "an empty result": (messages(PERSON, CALLS, ANSWER | {"content": ""}), "says something"),
    "an id twice": (messages(PERSON, CALLS, ANSWER, CALLS, ANSWER), "unique"),
    "no calls": (messages(PERSON, {"role": "assistant", "tool_calls": []}, GO_ON), "too short"),
    "an empty assistant": (messages(PERSON, {"role": "assistant", "content": ""}, GO_ON), "says something"),
    "a bad name": (messages(PERSON, calling(name="a" * 65), ANSWER), "must match"),
    "arguments of an object": (messages(PERSON, calling(arguments={}), ANSWER), "in a string"),
    "broken arguments": (messages(PERSON, calling(arguments="{"), ANSWER), "in a string"),
    "no tools": ({"tools": []}, "1 to 128"),
    "a long tool": (
        {"tools": [{"type": "function", "function": {"name": "a" * 65, "parameters": {}}}]},
        "function.name",
    ),
    "no properties": (
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}]},
        "missing properties",
    ),
    "parallel nothing": ({"tools": None, "parallel_tool_calls": False}, "parallel_tool_calls"),
    "blank text": (parts({"type": "text", "text": " "}), "say something"),
    "no parts": (parts(), "content"),
    "a part of a kind": (parts({"type": "video"}), "Supported values"),
    "an address": (parts({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}), "data URL"),
    "a picture of a type": (
        parts({"type": "image_url", "image_url": {"url": "data:image/bmp;base64,AA=="}}),
        "media_type",
    ),
    "reasoning of nobody": (
        messages(PERSON, {"role": "assistant", "content": "hi", "reasoning_content": "hm"}, GO_ON),
        "reasoning_content",
    ),
}


def read_openai(more):
    headers = {"authorization": f"Bearer {KEY}"}
    return OpenAIProtocol().read("/v1/chat/completions", headers, copy.deepcopy(OPENAI) | more)


@pytest.mark.parametrize(("more", "why"), OPENAI_REFUSES.values(), ids=OPENAI_REFUSES.keys())
def test_openai_refuses(more, why):
    with pytest.raises(Refused) as raised:
        read_openai(more)
    assert why in raised.value.message


def test_openai_takes_what_is_right():
    assert [entry.kind for entry in read_openai({}).entries] == ["user", "tool_call", "tool_result", "user"]


@pytest.mark.parametrize("protocol", [AnthropicProtocol(), OpenAIProtocol()])
def test_nobody_is_answered_without_the_key(protocol):
    path = "/v1/messages" if isinstance(protocol, AnthropicProtocol) else "/v1/chat/completions"
    with pytest.raises(Refused) as raised:
        protocol.read(path, {}, {})
    assert raised.value.status == 401
