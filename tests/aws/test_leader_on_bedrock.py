"""Every scenario through ``leader.handler``, the model asked over HTTP by the SDK, under Bedrock's rules."""

from dataclasses import replace

import pytest
from botocore.session import Session

from infinity_agents.adapters.bedrock import CATALOGUE, BedrockModel
from infinity_agents.testing.contracts.models import Watched
from infinity_agents.testing.faults import FaultInjector
from infinity_agents.testing.model_servers import KEY, BedrockProtocol, ModelServer, serving
from infinity_agents.testing.scenarios import SCENARIOS
from tests.aws.lambdas import HandlerWorld
from tests.embeddings import in_memory
from tests.promises.playing import play

MODEL = "anthropic.claude-sonnet-4-6"


@pytest.fixture(scope="module")
def session():
    made = Session()
    made.set_config_variable("region", "us-east-1")
    made.set_credentials(KEY, "secret")
    return made


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_a_scenario_keeps_every_rule_of_converse(scenario, session):
    traits = {MODEL: replace(CATALOGUE[MODEL], window=scenario.window)}
    server = ModelServer(BedrockProtocol(), scenario.script)
    async with serving(server) as url:
        model = BedrockModel(f"global.{MODEL}", base_url=url, session=session, traits=traits)
        world = HandlerWorld(in_memory(), Watched(model), tools=scenario.tools, settings=scenario.settings)
        await play(world, scenario, FaultInjector())
        await world.ended()
    assert server.requests
    assert server.refused == []
