"""Two leaders on one thread (P3), whichever I/O call of the first the second comes between."""

from functools import partial

import pytest

from infinity_agents.conversation.content import plain_text
from infinity_agents.conversation.history import UserEntry
from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.scenarios import SCENARIOS
from infinity_agents.testing.scripted_model import ScriptedModel, heard, says
from tests.aws.lambdas import HandlerWorld
from tests.aws.playing import same_with_overlaps, settled_with_a_second
from tests.embeddings import in_memory, in_postgres


def by_name(scenario):
    return scenario.name


@pytest.mark.parametrize("scenario", SCENARIOS, ids=by_name)
async def test_p3_two_leaders_that_overlap_change_nothing(scenario, covered):
    covered(
        "overlaps of two leaders through the handler (sample)", await same_with_overlaps(scenario, in_memory, every=17)
    )


async def test_p3_what_the_second_leader_heard_besides_is_kept(covered):
    """A slice that repeats another's work hides a lost fence; one that knows less does not."""
    number = 1
    while await stands_still(number):
        number += 1
    assert number > 10
    covered("overlaps in which the second leader heard more", number - 1)


async def stands_still(number):
    """Play with a leader that stands still at boundary ``number``; tell whether there is such a boundary."""
    world, injector = HandlerWorld(in_memory(), ScriptedModel(echo)), FaultInjector(pause_at=number)
    await world.boot(injector)
    await world.say("t", "one")
    stood_still = await settled_with_a_second(world, injector, partial(world.say, "t", "two"))
    said = [plain_text(entry.content) for entry in await world.history("t") if isinstance(entry, UserEntry)]
    assert said == (["one", "two"] if stood_still else ["one"])
    told = [output.text for output in (await world.outputs()).values()]
    assert told[-1] == f"You said: {said[-1]}"
    await world.ended()
    return stood_still


def echo(request):
    return says(f"You said: {heard(request)}")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=by_name)
async def test_p3_two_leaders_that_overlap_at_any_boundary_change_nothing(scenario, covered):
    covered("overlaps of two leaders through the handler", await same_with_overlaps(scenario, in_memory))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=by_name)
async def test_p3_two_leaders_that_overlap_change_nothing_on_postgres(scenario, postgres_url, covered):
    count = await same_with_overlaps(scenario, partial(in_postgres, postgres_url), every=5)
    covered("overlaps of two leaders through the handler on PostgreSQL", count)
