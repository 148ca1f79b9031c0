"""Large values, kept under their hash."""

from typing import Protocol


class BlobStore(Protocol):
    """Keeps large values under their hash."""

    async def put(self, sha256: str, value: bytes) -> None:
        """Keep ``value``; putting it twice is harmless."""
        ...

    async def get(self, sha256: str) -> bytes:
        """Return the value.

        Raises:
            KeyError: it is not there.
        """
        ...
