"""A sleep counts from the moment at which the model asked for it, however long the model spoke."""

from datetime import timedelta

from infinity_agents.ports.model import ModelRequest
from infinity_agents.testing.doubles import START
from infinity_agents.testing.scripted_model import Reply, ScriptedModel, calls
from infinity_agents.testing.world import World
from tests.embeddings import in_memory


async def test_the_time_that_the_model_takes_is_not_taken_off_the_sleep():
    def slowly(request: ModelRequest) -> Reply:
        world.clock.advance(45)
        return calls("sleep", {"seconds": 30})

    world = World(in_memory(), ScriptedModel(slowly))
    await world.boot()
    await world.say("t", "wait")
    await world.turn()
    assert await world.adapters.timers.next_due_at() == START + timedelta(seconds=45 + 30)
