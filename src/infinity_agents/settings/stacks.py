"""The outputs of a stack: what it tells of the agents in it."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Self

from ..errors import Misconfigured


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOutputs:
    """What a stack tells of one agent in it: each field is an output whose key is the agent's id and a suffix.

    The suffix is the field's name in camel case: ``SupportInputQueueUrl`` is of the agent ``Support``. Without
    ``database_endpoint``, the agent's database is a PostgreSQL that the stack does not own.
    """

    input_queue_url: str
    output_queue_url: str
    dead_letter_queue_url: str
    state_table_name: str
    blob_bucket_name: str
    migrate_function_name: str
    leader_function_name: str
    database_endpoint: str | None = None

    @classmethod
    def suffixes(cls) -> Mapping[str, str]:
        """Return how the key of each output ends, by the field's name."""
        return {told.name: told.name.title().replace("_", "") for told in fields(cls)}

    @classmethod
    def read(cls, outputs: Mapping[str, str], agent: str | None = None) -> Self:
        """Return what ``outputs`` say of ``agent``; of the only agent there is, where none is named.

        Raises:
            Misconfigured: there is no such agent, or several; the text names those there are.
        """
        suffixes = cls.suffixes()
        first = suffixes["input_queue_url"]
        agents = sorted(key.removesuffix(first) for key in outputs if key.endswith(first))
        chosen = agents if agent is None else [name for name in agents if name == agent]
        if len(chosen) != 1:
            known = f"; it has {', '.join(agents)}" if agents else "; it has none: deploy one with the constructs"
            wrong = "there is no agent" if agent is None and not agents else "there are several agents"
            raise Misconfigured(f"{wrong if agent is None else f'there is no agent {agent!r}'} in this stack{known}")
        named = {name: outputs.get(f"{chosen[0]}{suffix}") for name, suffix in suffixes.items()}
        missing = [
            f"{chosen[0]}{suffixes[told.name]}"
            for told in fields(cls)
            if told.default is MISSING and not named[told.name]
        ]
        if missing:
            raise Misconfigured(f"the stack lacks the outputs {', '.join(missing)}; deploy it with this release")
        return cls(**{name: value for name, value in named.items() if value})

    def written(self, agent: str) -> dict[str, str]:
        """Return the outputs of ``agent`` of which ``read`` makes the same again; what is ``None`` is left out."""
        told = {f"{agent}{suffix}": getattr(self, name) for name, suffix in self.suffixes().items()}
        return {key: value for key, value in told.items() if value is not None}
