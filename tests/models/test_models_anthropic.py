"""The Anthropic adapter keeps the contract of models, over HTTP, against a service that enforces its protocol."""

from contextlib import asynccontextmanager

import pytest

from infinity_agents.adapters.anthropic import AnthropicModel
from infinity_agents.testing.contracts import Provided, ServedModelContract
from infinity_agents.testing.model_servers import KEY, AnthropicProtocol, ModelServer, serving
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

    def provided(self, script, *, window=200_000):
        return opened(script, windows={"claude-sonnet-4-6": window})

    def opened(self, *, api_key=None, base_url=None):
        return AnthropicModel("claude-sonnet-4-6", api_key=api_key, base_url=base_url)

    def embedding(self):
        return in_memory()
