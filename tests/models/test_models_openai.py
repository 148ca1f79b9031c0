"""The OpenAI adapter keeps the contract of models, over HTTP, against a service that enforces its protocol."""

import json
import re
import sys
from contextlib import asynccontextmanager

import pytest

from infinity_agents.adapters.openai import OpenAIModel
from infinity_agents.conversation.content import Image, Text
from infinity_agents.conversation.history import (
    AssistantEntry,
    CallBody,
    ResultBody,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from infinity_agents.conversation.turn import Usage
from infinity_agents.errors import Misconfigured, ModelForbidden, ModelInvalid
from infinity_agents.ports.model import ModelRequest
from infinity_agents.testing.contracts import Provided, ServedModelContract
from infinity_agents.testing.contracts.models import PNG, SEARCH, heard_from
from infinity_agents.testing.model_servers import KEY, ModelServer, OpenAIProtocol, serving
from infinity_agents.testing.model_servers.serving import require
from infinity_agents.testing.scripted_model import calls, says
from tests.embeddings import in_memory


@asynccontextmanager
async def opened(script, *, model="gpt-4.1", protocol=None, **given):
    server = ModelServer(protocol or OpenAIProtocol(), script)
    async with serving(server) as url:
        adapter = OpenAIModel(model, api_key=KEY, base_url=f"{url}/v1", **given)
        yield Provided(adapter, server)
        await adapter.aclose()


class TestOpenAIModel(ServedModelContract):
    key_variable = "OPENAI_API_KEY"
    path = "/v1"

    def provided(self, script, *, window=200_000):
        return opened(script, windows={"gpt-4.1": window})

    def opened(self, *, api_key=None, base_url=None):
        return OpenAIModel("gpt-4.1", api_key=api_key, base_url=base_url)

    def embedding(self):
        return in_memory()


def asked(model, *entries, tools=(SEARCH,), name=None):
    return ModelRequest(name or model.name, "Be brief.", entries or (UserEntry((Text("hello"),)),), tools, ("t",))


# What endpoints do not take.


@pytest.mark.parametrize("refused", ["parallel_tool_calls", "stream_options", "reasoning_effort"])
async def test_what_an_endpoint_refuses_is_left_out_from_then_on(refused):
    protocol = OpenAIProtocol(refuses=frozenset({refused}))
    async with opened(lambda _: calls("search"), protocol=protocol) as provided:
        for _ in range(2):
            assert (await heard_from(provided.model, asked(provided.model))).call is not None
        assert len(provided.server.bodies) == 3
        assert len(provided.server.refused) == 1


async def test_everything_optional_at_once():
    refuses = frozenset({"parallel_tool_calls", "stream_options", "reasoning_effort"})
    async with opened(lambda _: says("Yes."), protocol=OpenAIProtocol(refuses=refuses)) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
    assert (turn.text, turn.usage) == ("Yes.", Usage())


async def test_what_was_asked_for_is_not_left_out():
    protocol = OpenAIProtocol(refuses=frozenset({"reasoning_effort"}))
    async with opened(lambda _: says("Yes."), protocol=protocol, options={"reasoning_effort": "high"}) as provided:
        with pytest.raises(ModelInvalid, match="reasoning_effort"):
            await heard_from(provided.model, asked(provided.model))


@pytest.mark.parametrize("told", [{"protocol": OpenAIProtocol(tells_usage=False)}, {}])
async def test_an_endpoint_that_tells_no_usage(told):
    async with opened(lambda _: says("Yes."), **told) as provided:
        provided.server.faults.append("no usage")
        assert (await heard_from(provided.model, asked(provided.model))).usage == Usage()


# Reasoning.


async def test_reasoning_goes_back_to_the_model_that_gave_it_and_to_no_other():
    async with opened(lambda _: calls("search", reasoning="I wonder.")) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
        entries = (
            UserEntry((Text("hello"),)),
            AssistantEntry(turn.said),
            ToolCallEntry(CallBody("call-1", "search", {})),
            ToolResultEntry(ResultBody("call-1", (Text("found"),))),
        )
        await heard_from(provided.model, asked(provided.model, *entries))
        await heard_from(provided.model, asked(provided.model, *entries, name="openai:local"))
    _, same, other = provided.server.bodies
    assert same["messages"][2]["reasoning_content"] == "I wonder."
    assert "reasoning_content" not in other["messages"][2]


# What is sent.


async def test_pictures_go_as_data_urls_and_those_of_a_result_follow_it():
    async with opened(lambda _: says("Yes.")) as provided:
        picture = Image(PNG, "image/jpeg")
        await heard_from(
            provided.model,
            asked(
                provided.model,
                UserEntry((Text("see"), picture)),
                ToolCallEntry(CallBody("call-1", "search", {})),
                ToolResultEntry(ResultBody("call-1", (Text("here"), picture))),
            ),
        )
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    _, person, _, result, follows = provided.server.bodies[0]["messages"]
    assert person["content"] == [{"type": "text", "text": "see"}, url]
    assert result["content"] == "here\n[image, image/jpeg]"
    assert follows == {"role": "user", "content": [url]}


# Streams of endpoints that are only nearly compatible.


class Nearly(OpenAIProtocol):
    def __init__(self, *deltas, reason="stop"):
        super().__init__()
        self.deltas, self.reason = deltas, reason

    def spell(self, reply, asked, fault):
        for delta in self.deltas:
            yield f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n"
        yield 'data: {"choices": null}\n\n: a comment\n\ndata: 7\n\n'
        yield f"data: {json.dumps({'choices': [{'delta': None, 'finish_reason': self.reason}]})}\n\n"


def call(name, arguments, **more):
    return {"tool_calls": [{"function": {"name": name, "arguments": arguments}, **more}]}


@pytest.mark.parametrize(
    ("deltas", "reason"),
    [
        ([call("search", '{"q": 1}', index=0, id="a"), call("other", "{}", index=0, id="b")], "stop"),
        ([call("search", '{"q": 1}'), call("other", "{}", index=1)], "tool_calls"),
        ([call("search", '{"q": 1}', index=0, id="a"), call("other", "{}", index=1, id="b")], "length"),
        ([call("search", '{"q"', index=0, id="a"), call(None, ": 1}", index=0, id="a")], "anything"),
        ([call("search", None, index=0, id=""), call("", '{"q": 1}', index=0, id=None)], "stop"),
        ([call("search", '{"q": 1}', index=0, id="a"), {"content": "and now", "reasoning": "hm"}], "stop"),
    ],
)
async def test_calls_as_endpoints_send_them(deltas, reason):
    async with opened(lambda _: says(""), protocol=Nearly(*deltas, reason=reason)) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
    assert (turn.call.name, json.loads(turn.call.arguments)) == ("search", {"q": 1})
    assert turn.said == ()


async def test_fields_as_endpoints_send_them():
    deltas = [{"reasoning": "I see", "reasoning_content": "I see"}, {"content": 5}, {"refusal": "No."}, {"role": "x"}]
    async with opened(lambda _: says(""), protocol=Nearly(*deltas)) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
    assert [block.text for block in turn.said] == ["I see", "No."]


# Names, windows, want of something.


def test_names_and_windows():
    model = OpenAIModel("llama3.2:3b", provider="ollama", windows={"llama3.2:3b": 8192})
    assert model.name == "ollama:llama3.2:3b"
    assert OpenAIModel("openai:gpt-5").name == "openai:gpt-5"
    assert model.context_window("ollama:llama3.2:3b") == 8192
    assert model.context_window("ollama:unheard-of") == 32_768
    assert model.context_window("ollama:gpt-oss:20b") == 131_072
    hosted = OpenAIModel("gpt-5")
    assert hosted.context_window("openai:gpt-5-mini") == 272_000
    assert hosted.context_window("openai:maker/gpt-5.6-luna-2026") == 400_000
    assert hosted.reads_images("openai:gpt-5")
    assert not OpenAIModel("local", images=False).reads_images("openai:local")


def test_the_sdk_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(Misconfigured, match=re.escape("pip install 'infinity-agents[openai]'")):
        OpenAIModel("gpt-5", api_key="k").check()


def test_an_endpoint_of_ones_own_needs_no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    OpenAIModel("local", base_url="http://127.0.0.1:11434/v1").check()


async def test_a_wrong_path_and_a_wrong_model_say_so():
    async with opened(lambda _: says("Yes."), model="gpt-unheard-of") as provided:
        with pytest.raises(ModelInvalid, match=r"does not exist.*Is there such a model\?"):
            await heard_from(provided.model, asked(provided.model))
        wrong = OpenAIModel("gpt-4.1", api_key=KEY, base_url=provided.server.url)
        with pytest.raises(ModelInvalid, match=r"Most end in /v1"):
            await heard_from(wrong, asked(wrong))
        await wrong.aclose()


async def test_a_quota_that_is_used_up_is_no_reason_to_wait():
    async with opened(lambda _: says("Yes.")) as provided:
        provided.server.protocol.read = lambda *_: require(False, "pay", status=429, code="insufficient_quota")
        with pytest.raises(ModelForbidden):
            await heard_from(provided.model, asked(provided.model))
