"""The state store: how far effects were performed, and copies for outside readers."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

StateItem = Literal["metadata", "choice", "subscription"]


class StateStore(Protocol):
    """Keeps what can be lost without losing a conversation."""

    async def performed_through(self, thread_id: str) -> int:
        """Return the highest version of the thread whose effects are all performed; 0 where nothing is known."""
        ...

    async def set_performed_through(self, thread_id: str, version: int) -> None:
        """Move it forward; a lower value than the stored one changes nothing."""
        ...

    async def copy(
        self, thread_id: str, item: StateItem, key: str, value: Mapping[str, Any] | None, version: int
    ) -> None:
        """Keep a copy for outside readers, or take it away; one written by a newer version of the thread stays.

        Raises:
            Reject: the store can never keep a value of this size.
        """
        ...

    async def copies(self, thread_id: str, item: StateItem) -> Mapping[str, Mapping[str, Any]]:
        """Return the copies of one thread, by key."""
        ...

    async def put_view(self, thread_id: str, view_type: str, content: Any, at: float) -> None:
        """Keep the newest view of its type; ``at`` is seconds since the epoch, a lower one changes nothing.

        Raises:
            Reject: as for ``copy``.
        """
        ...

    async def views(self, thread_id: str) -> Mapping[str, Any]:
        """Return the newest views, by type."""
        ...

    async def put_manifests(self, session_id: str, manifests: Mapping[str, Any]) -> None:
        """Cache what discovery found for a session: by tool set id, JSON values. A later call replaces the whole.

        Raises:
            Reject: as for ``copy``.
        """
        ...

    async def manifests(self, session_id: str) -> Mapping[str, Any] | None:
        """Return the cached discovery of the session, or ``None``."""
        ...

    async def put_latest_manifest(self, tool_set: str, manifest: Mapping[str, Any]) -> None:
        """Keep the newest manifest of a tool set, whatever the session: it serves when a later fetch fails.

        Raises:
            Reject: as for ``copy``.
        """
        ...

    async def latest_manifest(self, tool_set: str) -> Mapping[str, Any] | None:
        """Return the newest manifest that was ever fetched from the tool set, or ``None``."""
        ...
