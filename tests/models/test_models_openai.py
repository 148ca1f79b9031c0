"""The OpenAI adapter keeps the contract of models, over HTTP, against a service that enforces its protocol."""

from contextlib import asynccontextmanager

import pytest

from infinity_agents.adapters.openai import OpenAIModel
from infinity_agents.testing.contracts import Provided, ServedModelContract
from infinity_agents.testing.model_servers import KEY, ModelServer, OpenAIProtocol, serving
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

    def provided(self, script, *, window=200_000):
        return opened(script, windows={"gpt-4.1": window})

    def opened(self, *, api_key=None, base_url=None):
        return OpenAIModel("gpt-4.1", api_key=api_key, base_url=base_url)

    def embedding(self):
        return in_memory()
