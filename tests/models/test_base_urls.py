"""The base URL of a model's service: refused with a reason, and no password of it is repeated."""

import pytest

from infinity_agents.adapters.anthropic import AnthropicModel
from infinity_agents.adapters.bedrock import BedrockModel
from infinity_agents.adapters.openai import OpenAIModel
from infinity_agents.errors import Misconfigured


@pytest.mark.parametrize("kind", [AnthropicModel, BedrockModel, OpenAIModel])
def test_a_base_url_of_another_scheme_is_refused_without_its_password(kind, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with pytest.raises(Misconfigured, match=r"the base URL .*host.* is no URL of http or https") as refused:
        kind("some-model", base_url="ftp://me:pass-word@host/path").check()
    assert "pass-word" not in str(refused.value)
