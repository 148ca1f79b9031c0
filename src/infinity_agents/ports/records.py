"""Small records of tool servers, grouped, which other processes find and which are forgotten after a time."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

Record = Mapping[str, Any]
"""What JSON has as an object, and small: a few kilobytes."""


class RecordTable(Protocol):
    """Keeps records under a group and a key, each for ``kept`` at least. All methods raise ``StoreUnavailable``."""

    async def put(self, group: str, key: str, record: Record, *, kept: timedelta) -> None:
        """Keep ``record``, in place of what was there."""
        ...

    async def put_new(self, group: str, key: str, record: Record, *, kept: timedelta) -> Record | None:
        """Keep ``record`` unless there is one; return the one that there is. Of two at once, one is kept."""
        ...

    async def get(self, group: str, key: str) -> Record | None:
        """Return the record, or ``None``."""
        ...

    async def all(self, group: str) -> Mapping[str, Record]:
        """Return the records of a group, by key."""
        ...

    async def delete(self, group: str, key: str) -> None:
        """Forget the record, if there is one."""
        ...
