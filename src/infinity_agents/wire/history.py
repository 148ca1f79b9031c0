"""The stored forms: one JSON text for each entry, call, effect and message that a store keeps in a row.

A text that cannot be encoded (a lone surrogate) is mended on its way into the store.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field, TypeAdapter
from pydantic_core import PydanticSerializationError

from ..conversation.effects import Effect
from ..conversation.history import Entry
from ..conversation.ledger import Call
from ..conversation.lineage import Lineage
from ..conversation.messages import Delivery
from ..conversation.threads import Choice, Thread
from .inputs import mended_json

T = TypeVar("T")


@dataclass(frozen=True)
class Codec(Generic[T]):
    """Turns values of one kind into JSON text and back."""

    adapter: TypeAdapter[T]

    def encode(self, value: T) -> str:
        """Return ``value`` as JSON text without what is absent or default."""
        try:
            return self.adapter.dump_json(value, exclude_none=True).decode()
        except PydanticSerializationError:
            fields = mended_json(self.adapter.dump_python(value, exclude_none=True))
            return json.dumps(fields, default=str)

    def decode(self, text: str | bytes) -> T:
        """Return the value that ``encode`` gave this text."""
        return self.adapter.validate_json(text)


_Entry = Annotated[Entry, Field(discriminator="kind")]
_all_entries: TypeAdapter[list[Entry]] = TypeAdapter(list[_Entry])
entries: Codec[Entry] = Codec(TypeAdapter(_Entry))
effects: Codec[Effect] = Codec(TypeAdapter(Annotated[Effect, Field(discriminator="kind")]))
calls: Codec[Call] = Codec(TypeAdapter(Call))
threads: Codec[Thread] = Codec(TypeAdapter(Thread))
lineages: Codec[Lineage] = Codec(TypeAdapter(Lineage))
choices: Codec[Choice] = Codec(TypeAdapter(Choice))
deliveries: Codec[Delivery] = Codec(TypeAdapter(Delivery))
values: Codec[Any] = Codec(TypeAdapter(Any))


def decode_entries(texts: Sequence[str]) -> list[Entry]:
    """Return the entries of these texts, in one pass, which costs half of one call for each."""
    return _all_entries.validate_json(f"[{','.join(texts)}]")
