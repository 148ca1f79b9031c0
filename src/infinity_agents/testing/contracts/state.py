# ruff: noqa: S101 - a contract speaks by assertions, and the name of a test says what it checks
"""What every state store must do."""

from abc import abstractmethod

from ...ports.state import StateStore


class StateStoreContract:
    """Inherit it, and say how a store is made and reopened."""

    @abstractmethod
    async def make(self) -> StateStore:
        """Return an empty store."""

    @abstractmethod
    async def reopen(self) -> StateStore:
        """Return a fresh store over what the one that ``make`` made last has kept."""

    async def test_nothing_is_performed_at_first(self) -> None:
        assert await (await self.make()).performed_through("t") == 0

    async def test_what_was_performed_never_goes_back(self) -> None:
        store = await self.make()
        for version, expected in ((3, 3), (2, 3), (3, 3), (0, 3), (10, 10)):
            await store.set_performed_through("t", version)
            assert await store.performed_through("t") == expected
        assert await store.performed_through("other") == 0
        assert await (await self.reopen()).performed_through("t") == 10

    async def test_copies_are_kept_by_thread_item_and_key(self) -> None:
        store = await self.make()
        await store.copy("t", "choice", "c1", {"prompt": "\x00 äé", "default": None}, 1)
        await store.copy("t", "choice", "c2", {}, 1)
        await store.copy("t", "subscription", "c1", {"tool": "look"}, 1)
        await store.copy("other", "choice", "c3", {"n": [1, 2.5, True]}, 1)
        for read in (store, await self.reopen()):
            assert await read.copies("t", "choice") == {"c1": {"prompt": "\x00 äé", "default": None}, "c2": {}}
            assert await read.copies("t", "subscription") == {"c1": {"tool": "look"}}
            assert await read.copies("other", "choice") == {"c3": {"n": [1, 2.5, True]}}
            assert await read.copies("t", "metadata") == {}

    async def test_a_copy_of_a_newer_version_stays(self) -> None:
        store = await self.make()
        await store.copy("t", "metadata", "metadata", {"version": 5}, 5)
        await store.copy("t", "metadata", "metadata", {"version": 4}, 4)
        assert await store.copies("t", "metadata") == {"metadata": {"version": 5}}
        await store.copy("t", "metadata", "metadata", None, 4)
        assert await store.copies("t", "metadata") == {"metadata": {"version": 5}}
        await store.copy("t", "metadata", "metadata", {"version": 6}, 6)
        assert await store.copies("t", "metadata") == {"metadata": {"version": 6}}

    async def test_within_one_version_the_last_write_counts(self) -> None:
        store = await self.make()
        await store.copy("t", "choice", "c1", {"open": True}, 2)
        await store.copy("t", "choice", "c1", None, 2)
        assert await store.copies("t", "choice") == {}
        await store.copy("t", "choice", "c1", {"open": "again"}, 2)
        assert await store.copies("t", "choice") == {"c1": {"open": "again"}}

    async def test_a_late_write_does_not_bring_back_what_was_taken_away(self) -> None:
        store = await self.make()
        await store.copy("t", "choice", "c1", {"open": True}, 1)
        await store.copy("t", "choice", "c1", None, 3)
        await store.copy("t", "choice", "c1", {"open": True}, 2)
        assert await store.copies("t", "choice") == {}
        await store.copy("t", "choice", "never there", None, 3)
        assert await store.copies("t", "choice") == {}

    async def test_the_newest_view_of_a_type_counts(self) -> None:
        store = await self.make()
        await store.put_view("t", "map", {"zoom": 1}, 100.5)
        await store.put_view("t", "map", {"zoom": 0}, 100.25)
        await store.put_view("t", "list", ["a", None, 2], 1.0)
        await store.put_view("t", "nothing", None, 1.0)
        await store.put_view("other", "map", "elsewhere", 999.0)
        assert await store.views("t") == {"map": {"zoom": 1}, "list": ["a", None, 2], "nothing": None}
        await store.put_view("t", "map", {"zoom": 2}, 100.5)
        assert (await (await self.reopen()).views("t"))["map"] == {"zoom": 2}
        assert await store.views("nobody") == {}

    async def test_manifests_are_cached_by_session(self) -> None:
        store = await self.make()
        assert await store.manifests("s") is None
        await store.put_manifests("s", {"weather": {"tools": []}, "maps": {"error": None}})
        await store.put_manifests("other", {})
        assert await (await self.reopen()).manifests("s") == {"weather": {"tools": []}, "maps": {"error": None}}
        await store.put_manifests("s", {"weather": {}})
        assert await store.manifests("s") == {"weather": {}}
        assert await store.manifests("other") == {}

    async def test_the_latest_manifest_of_a_tool_set_is_kept(self) -> None:
        store = await self.make()
        assert await store.latest_manifest("weather") is None
        await store.put_latest_manifest("weather", {"name": "old"})
        await store.put_latest_manifest("weather", {"name": "new", "tools": [{"name": "look"}]})
        await store.put_latest_manifest("maps", {"name": "maps"})
        assert await (await self.reopen()).latest_manifest("weather") == {"name": "new", "tools": [{"name": "look"}]}

    async def test_values_are_not_shared(self) -> None:
        store = await self.make()
        tools = ["look"]
        await store.put_view("t", "map", {"tools": tools}, 1.0)
        await store.copy("t", "choice", "c1", {"tools": tools}, 1)
        await store.put_manifests("s", {"weather": {"tools": tools}})
        tools.append("leap")
        assert await store.views("t") == {"map": {"tools": ["look"]}}
        assert await store.copies("t", "choice") == {"c1": {"tools": ["look"]}}
        assert await store.manifests("s") == {"weather": {"tools": ["look"]}}
