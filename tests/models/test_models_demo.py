"""The demo model makes a whole stream of everything that the scenarios ask a model."""

import json

import pytest

from infinity_agents.adapters.demo_model import DemoModel
from infinity_agents.conversation.folding import COMPACTION_PROMPT
from infinity_agents.conversation.turn import Usage
from infinity_agents.testing.contracts.models import Watched, heard_from
from infinity_agents.testing.scenarios import SCENARIOS
from infinity_agents.testing.scripted_model import heard
from tests.embeddings import in_memory


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
async def test_it_answers_whatever_a_scenario_asks(scenario):
    world = await scenario.world(in_memory())
    await world.boot()
    for stage in scenario.stages:
        await stage(world)
        await world.settle()
    for request in world.model.requests:
        turn = await heard_from(Watched(DemoModel()), request)
        assert turn.usage != Usage()
        assert turn == await heard_from(DemoModel(), request), "the same history has the same answer"
        if turn.text:
            assert turn.text.startswith("(demo model) ")
        if turn.call is not None:
            assert turn.call.name in {tool.name for tool in request.tools}
            assert isinstance(json.loads(turn.call.arguments), dict)
        if heard(request) == COMPACTION_PROMPT:
            assert "Summary of" in turn.text
            assert turn.call is None
