"""The scripted model, by which the others are judged, keeps the contract itself."""

from contextlib import asynccontextmanager

from infinity_agents.testing.contracts import ModelContract, Provided
from infinity_agents.testing.scripted_model import ScriptedModel
from tests.embeddings import in_memory


class TestScriptedModel(ModelContract):
    @asynccontextmanager
    async def provided(self, script, *, window=200_000):
        # In pieces of another size than the reference.
        yield Provided(ScriptedModel(script, window=window, chunk=7))

    def embedding(self):
        return in_memory()
