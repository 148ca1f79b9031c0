"""The stored forms: one JSON text for each entry, call, effect and message that a store keeps in a row."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from ..conversation.effects import Effect
from ..conversation.history import Entry
from ..conversation.ledger import Call
from ..conversation.lineage import Lineage
from ..conversation.messages import Delivery
from ..conversation.threads import Choice, Thread
from .codecs import Codec

_Entry = Annotated[Entry, Field(discriminator="kind")]
_all_entries: Codec[list[Entry]] = Codec(list[_Entry])
entries: Codec[Entry] = Codec(_Entry)
effects: Codec[Effect] = Codec(Annotated[Effect, Field(discriminator="kind")])
calls: Codec[Call] = Codec(Call)
threads: Codec[Thread] = Codec(Thread)
lineages: Codec[Lineage] = Codec(Lineage)
choices: Codec[Choice] = Codec(Choice)
deliveries: Codec[Delivery] = Codec(Delivery)


def decode_entries(texts: Sequence[str]) -> list[Entry]:
    """Return the entries of these texts, in one pass, which costs half of one call for each."""
    return _all_entries.decode(f"[{','.join(texts)}]")
