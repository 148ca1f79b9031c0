"""What every agent is told before its own prompt."""

from dataclasses import replace

import pytest

from infinity_agents.conversation.threads import ThreadKind
from infinity_agents.runtime.prompt import system_prompt
from infinity_agents.settings import AgentSettings
from tests.conversation.building import CHILD, ROOT

OWN = AgentSettings(system_prompt="You water the plants.")


def test_base_then_the_threads_then_the_agents_own():
    prompt = system_prompt(CHILD, OWN)
    assert (
        prompt.index("durable agent") < prompt.index('["root", "root.child"]') < prompt.index("You water the plants.")
    )
    assert "receive_event__injected" in prompt


def test_without_a_prompt_of_its_own():
    assert system_prompt(ROOT, AgentSettings(system_prompt=" \n")) == system_prompt(ROOT, AgentSettings())


@pytest.mark.parametrize("kind", ThreadKind)
def test_only_children_are_told_that_they_are(kind):
    is_told = "You are a child thread" in system_prompt(replace(CHILD, kind=kind), OWN)
    assert is_told is (kind in {ThreadKind.CHILD, ThreadKind.EVENT})
