"""The Anthropic adapter keeps the contract of models, over HTTP, against a service that enforces its protocol."""

import json
import re
import sys
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from infinity_agents.adapters.anthropic import AnthropicModel
from infinity_agents.conversation.content import Document, Image, Text
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
from infinity_agents.errors import Misconfigured, ModelInvalid
from infinity_agents.ports.model import ModelRequest
from infinity_agents.testing.contracts import Provided, ServedModelContract
from infinity_agents.testing.contracts.models import PNG, SEARCH, Watched, heard_from
from infinity_agents.testing.model_servers import KEY, AnthropicProtocol, ModelServer, serving
from infinity_agents.testing.scenarios import CANCELLED_CALL, COMPACTION, DETACHED_CALL, SPAWN_AND_REPORT
from infinity_agents.testing.scripted_model import calls, says
from infinity_agents.testing.world import World
from tests.embeddings import in_memory


@asynccontextmanager
async def opened(script, *, model="claude-sonnet-4-6", protocol=None, **given):
    server = ModelServer(protocol or AnthropicProtocol(), script)
    async with serving(server) as url:
        adapter = AnthropicModel(model, api_key=KEY, base_url=url, **given)
        yield Provided(adapter, server)
        await adapter.aclose()


class TestAnthropicModel(ServedModelContract):
    key_variable = "ANTHROPIC_API_KEY"
    path = ""

    def provided(self, script, *, window=200_000):
        return opened(script, windows={"claude-sonnet-4-6": window})

    def opened(self, *, api_key=None, base_url=None):
        return AnthropicModel("claude-sonnet-4-6", api_key=api_key, base_url=base_url)

    def embedding(self):
        return in_memory()


BOUND = "claude-fable-5-1"
HELLO = UserEntry((Text("hello"),))


def asked(model, *entries, tools=(SEARCH,), name=None, system="Be brief."):
    return ModelRequest(name or model.name, system, entries or (HELLO,), tools, ("t",))


def after(turn):
    """Return the history in which ``turn`` was said, up to the result of its call."""
    call = CallBody("call-1", "search", {})
    result = ResultBody("call-1", (Text("found"),))
    return HELLO, AssistantEntry(turn.said), ToolCallEntry(call), ToolResultEntry(result)


# Reasoning.


async def test_reasoning_goes_back_signed_and_in_order():
    async with opened(lambda _: calls("search", reasoning="I wonder.", text="Well.")) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
        await heard_from(provided.model, asked(provided.model, *after(turn)))
        await heard_from(provided.model, asked(provided.model, *after(turn), name="anthropic:claude-opus-4-6"))
    kinds = [[block["type"] for block in body["messages"][1]["content"]] for body in provided.server.bodies[1:]]
    assert kinds == [["thinking", "redacted_thinking", "text", "tool_use"], ["text", "tool_use"]]
    assert [block.signature is not None for block in turn.said[:2]] == [True, False]
    assert provided.server.refused == []


async def test_reasoning_that_the_service_refuses_is_left_out():
    async with opened(lambda _: says("Yes.")) as provided:
        said = AssistantEntry((Reasoning("I wonder.", "of another account", model=provided.model.name), SaidText("A")))
        turn = await heard_from(provided.model, asked(provided.model, HELLO, said, HELLO))
    assert turn.text == "Yes."
    assert len(provided.server.refused) == 1


async def test_reasoning_that_is_bound_to_what_came_before_is_dropped_by_the_service():
    async with opened(lambda _: calls("search", reasoning="I wonder."), model=BOUND) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
        await heard_from(provided.model, asked(provided.model, *after(turn)))
        assert provided.server.protocol.dropped == []
        await heard_from(provided.model, asked(provided.model, *after(turn), system="You are a child."))
        assert provided.server.protocol.dropped == ["I wonder."]
    assert provided.server.refused == []


async def test_a_gateway_that_does_not_know_of_binding():
    protocol = AnthropicProtocol(knows_binding=False)
    async with opened(lambda _: says("Yes."), model=BOUND, protocol=protocol) as provided:
        for _ in range(2):
            assert (await heard_from(provided.model, asked(provided.model))).text == "Yes."
    assert len(provided.server.bodies) == 3


@pytest.mark.parametrize(
    "scenario", [SPAWN_AND_REPORT, COMPACTION, DETACHED_CALL, CANCELLED_CALL], ids=lambda scenario: scenario.name
)
async def test_threads_live_with_a_model_that_always_reasons(scenario):
    def script(request):
        return replace(scenario.script(request), reasoning="Let me think.")

    async with opened(script, model=BOUND, windows={BOUND: scenario.window}) as provided:
        world = World(in_memory(), Watched(provided.model), tools=scenario.tools, settings=scenario.settings)
        await world.boot()
        for stage in scenario.stages:
            await stage(world)
            await world.settle()
        await scenario.finish(world)
    assert provided.server.refused == []


# What is sent.


async def test_the_cache_is_told_where_to_end():
    async with opened(lambda _: says("Yes.")) as provided:
        await heard_from(provided.model, asked(provided.model, HELLO, AssistantEntry((SaidText("Hi."),)), HELLO))
        await heard_from(provided.model, asked(provided.model, tools=()))
    long, short = provided.server.bodies
    assert "cache_control" in long["tools"][-1]
    assert "cache_control" in long["system"][-1]
    assert ["cache_control" in message["content"][-1] for message in long["messages"]] == [True, False, True]
    assert json.dumps(long).count("cache_control") == 4
    assert "tools" not in short
    assert long["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


async def test_pictures_and_files():
    async with opened(lambda _: says("Yes.")) as provided:
        parts = (Image(PNG, "image/jpeg"), Document("JVBERi0xLjcK", "application/pdf", "a.pdf"))
        await heard_from(provided.model, asked(provided.model, UserEntry(parts)))
    (request,) = provided.server.requests
    assert [entry.content[0] for entry in request.entries] == [Image(PNG, "image/png"), parts[1]]


async def test_a_picture_that_is_too_large_is_described():
    async with opened(lambda _: says("Yes.")) as provided:
        picture = Image(PNG[:-4] + "A" * 6_000_000, "image/png")
        await heard_from(provided.model, asked(provided.model, UserEntry((picture,))))
    assert provided.server.requests[0].entries == [UserEntry((Text("[image, image/png]"),))]


async def test_options_are_fields_of_every_request():
    options = {"max_tokens": 100, "thinking": {"type": "disabled"}}
    async with opened(lambda _: says("Yes."), options=options) as provided:
        await heard_from(provided.model, asked(provided.model))
    assert provided.server.bodies[0]["max_tokens"] == 100
    assert provided.server.bodies[0]["thinking"] == {"type": "disabled"}


# What is heard.


async def test_a_refusal_is_told():
    async with opened(lambda _: says("", reason="refusal")) as provided:
        assert (await heard_from(provided.model, asked(provided.model))).text == "[The model declined to answer.]"


async def test_a_call_that_was_refused_is_not_made():
    async with opened(lambda _: calls("search", text="So", reason="refusal")) as provided:
        turn = await heard_from(provided.model, asked(provided.model))
    assert (turn.text, turn.call) == ("So", None)


@pytest.mark.parametrize("reason", ["pause_turn", "stop_sequence"])
async def test_other_reasons_to_stop(reason):
    async with opened(lambda _: says("So far.", reason=reason)) as provided:
        assert (await heard_from(provided.model, asked(provided.model))).reason == reason


# Names, windows, want of something.


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("claude-haiku-4-5-20251001", 200_000),
        ("claude-sonnet-4-20250514", 200_000),
        ("claude-3-5-haiku-20241022", 200_000),
        ("claude-opus-4-6", 1_000_000),
        ("claude-sonnet-5", 1_000_000),
        ("claude-haiku-5-5", 1_000_000),
        ("of-my-own", 50_000),
        ("unheard-of", 200_000),
    ],
)
def test_windows(model, window):
    adapter = AnthropicModel("claude-sonnet-5", windows={"of-my-own": 50_000})
    assert adapter.context_window(f"anthropic:{model}") == window


def test_the_sdk_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(Misconfigured, match=re.escape("pip install 'infinity-agents[anthropic]'")):
        AnthropicModel("claude-sonnet-5", api_key="k").check()


async def test_a_model_that_there_is_not():
    async with opened(lambda _: says("Yes."), model="claude-unheard-of") as provided:
        with pytest.raises(ModelInvalid, match=r"claude-unheard-of.*Is there such a model"):
            await heard_from(provided.model, asked(provided.model))
