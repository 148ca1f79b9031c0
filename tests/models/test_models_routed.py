"""Several providers as one: a thread keeps its model, its children inherit it, and an unknown one is told apart."""

import pytest

from infinity_agents.adapters.demo_model import DemoModel
from infinity_agents.adapters.openai import OpenAIModel
from infinity_agents.conversation.events import Failed
from infinity_agents.errors import Misconfigured
from infinity_agents.runtime.models import RoutedModels
from infinity_agents.testing.scenarios import by_last_words, spawns
from infinity_agents.testing.scripted_model import ScriptedModel, says
from infinity_agents.testing.world import World
from tests.embeddings import in_memory

RULES = {"ask one": spawns("first task"), "Started the child": says("It is at work."), "first task": says("Working.")}


def scripted(name, window):
    return ScriptedModel(by_last_words(RULES), name=name, window=window, images=False)


async def begun_with(default, providers):
    world = World(in_memory(), RoutedModels(providers, default))
    await world.boot()
    return world


async def test_a_thread_keeps_its_model_and_its_children_inherit_it():
    one, two = scripted("one:a", 1000), scripted("two:b:c", 2000)
    providers = {"one": one, "two": two}
    world = await begun_with("one:a", providers)
    await world.say("t", "hello")
    await world.settle()
    world.model = RoutedModels(providers, "two:b:c")
    await world.boot()
    await world.say("t", "ask one")
    await world.say("new", "hello")
    await world.settle()
    models = [overview.thread.model for overview in await world.adapters.conversations.threads()]
    assert sorted(models) == ["one:a", "one:a", "two:b:c"]
    assert {request.model for request in one.requests} == {"one:a"}
    assert {request.model for request in two.requests} == {"two:b:c"}
    assert {outcome.context_window for _, outcome in world.outcomes} == {1000, 2000}


async def test_a_thread_whose_provider_is_gone_fails_with_what_there_is():
    world = await begun_with("one:a", {"one": scripted("one:a", 1000)})
    await world.say("t", "hello")
    await world.settle()
    world.model = RoutedModels({"demo": DemoModel(), "openai": OpenAIModel("gpt-5")}, "demo")
    await world.boot()
    await world.say("t", "are you there?")
    await world.settle()
    failed = [outcome for _, outcome in world.outcomes if isinstance(outcome, Failed)]
    assert {str(outcome.error) for outcome in failed} == {
        "there is no model 'one:a' here: a model is one of demo, openai:NAME"
    }


@pytest.mark.parametrize("name", ["three:a", "openai", "openai:", "gpt-5", "", ":", "demo2"])
def test_a_default_that_there_is_not(name):
    with pytest.raises(Misconfigured, match="a model is one of demo, openai:NAME"):
        RoutedModels({"demo": DemoModel(), "openai": OpenAIModel("gpt-5")}, name)


def test_it_is_the_model_that_it_is_asked_about():
    models = RoutedModels({"demo": DemoModel(), "openai": OpenAIModel("gpt-5")}, "demo")
    assert models.name == "demo"
    assert not models.reads_images("demo")
    assert models.reads_images("openai:gpt-4.1")
    assert models.context_window("openai:gpt-4.1") == 1_047_576
