# ruff: noqa: S101 - a contract speaks by assertions, and the name of a test says what it checks
"""What every blob store must do."""

from abc import abstractmethod
from hashlib import sha256

import pytest

from ...ports.blobs import BlobStore


class BlobStoreContract:
    """Inherit it, and say how a store is made and reopened."""

    @abstractmethod
    async def make(self) -> BlobStore:
        """Return an empty store."""

    @abstractmethod
    async def reopen(self) -> BlobStore:
        """Return a fresh store over what the one that ``make`` made last has kept."""

    @pytest.mark.parametrize("value", [b"", b"\x00\xff", bytes(range(256)) * 8192], ids=["empty", "odd", "2 MiB"])
    async def test_a_value_comes_back(self, value: bytes) -> None:
        store = await self.make()
        key = sha256(value).hexdigest()
        await store.put(key, value)
        await store.put(key, value)
        assert await store.get(key) == value
        assert await (await self.reopen()).get(key) == value

    async def test_what_was_never_put_is_a_key_error(self) -> None:
        store = await self.make()
        await store.put(sha256(b"a").hexdigest(), b"a")
        with pytest.raises(KeyError):
            await store.get(sha256(b"b").hexdigest())
