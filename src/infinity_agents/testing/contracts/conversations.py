# ruff: noqa: S101 - a contract speaks by assertions, and the name of a test says what it checks
"""What every conversation store must do."""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ...conversation.content import Blob, Document, Image, Text
from ...conversation.effects import (
    AnswerChoice,
    CancelTimer,
    CopyState,
    Dispatch,
    NotifyCancelled,
    NotifyClosed,
    PlannedEffect,
    SendInput,
    SendOutput,
)
from ...conversation.history import (
    AssistantEntry,
    CallBody,
    Entry,
    EventEntry,
    Reasoning,
    ResultBody,
    SaidText,
    Summary,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from ...conversation.ledger import CallState
from ...conversation.lineage import Lineage
from ...conversation.messages import Delivery, InputMessage, SubscriptionEvent, ThreadReport, ToolResult
from ...conversation.outputs import Output
from ...conversation.threads import Choice, Thread
from ...errors import FenceLost
from ...ports.conversations import Commit, ConversationStore, LoadRequest, Snapshot
from ..doubles import START
from .samples import after, call, child, delivery, exchange, following, heard, numbered, root, said, spawned

ODD_TEXT = "NUL \x00, emoji \N{FACE WITH TEARS OF JOY}, accents äé, line\u2028separator, quote ' \" \\, tab \t"


class ConversationStoreContract:
    """Inherit it, and say how a store is made and reopened."""

    @abstractmethod
    async def make(self) -> ConversationStore:
        """Return an empty store."""

    @abstractmethod
    async def reopen(self) -> ConversationStore:
        """Return a fresh store over what the one that ``make`` made last has kept."""

    # ------------------------------------------------------------------------------------------------- the fence

    async def test_an_unknown_thread_is_none(self) -> None:
        store = await self.make()
        assert await store.load(LoadRequest("nobody")) is None

    async def test_a_new_thread_is_as_committed(self) -> None:
        store = await self.make()
        commit = following(root(metadata={"user_id": "u", "deep": {"x": [1, None, "y"]}}), [heard("hello"), said("hi")])
        await store.commit(commit)
        assert await store.load(LoadRequest("root")) == Snapshot(
            thread=commit.thread,
            lineage=Lineage(),
            summary=None,
            entries=(heard("hello"), said("hi")),
            entries_from=0,
            calls=(),
            heard=frozenset(),
            effects=(),
            deferred=(),
            deferred_more=False,
            choices=(),
            children=(),
            root_metadata={"user_id": "u", "deep": {"x": [1, None, "y"]}},
            recent_slices=0,
        )

    async def test_the_record_follows_each_commit(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), [heard("a")])
        changed = replace(
            thread, model="other", paused_at=after(4), closed=True, compacting_since=after(5), metadata={"new": True}
        )
        thread = await _grow(store, changed, [said("b")])
        assert (await _load(store)).thread == thread
        assert thread.version == 2
        assert thread.length == 2

    async def test_another_writer_of_the_same_version_fails_and_writes_nothing(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), [heard("hello")], deferred=(delivery("kept"),))
        await store.commit(following(thread, [said("first")], writer="first"))
        before = await _everything(store)
        with pytest.raises(FenceLost):
            await store.commit(_rich(thread, writer="second"))
        assert await _everything(store) == before
        assert await store.load(LoadRequest("root.child")) is None

    async def test_the_loser_is_told_which_thread_and_version(self) -> None:
        store = await self.make()
        await store.commit(following(root(), writer="first"))
        with pytest.raises(FenceLost, match=r"root.*version 1"):
            await store.commit(following(root(), writer="second"))

    async def test_a_repeat_by_the_same_writer_is_harmless(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), [heard("hello")], deferred=(delivery("kept"),))
        commit = _rich(thread, writer="first")
        await store.commit(commit)
        before = await _everything(store)
        await store.commit(commit)
        assert await _everything(store) == before

    async def test_a_repeat_of_an_older_commit_undoes_nothing(self) -> None:
        store = await self.make()
        commit = _rich(await _grow(store, root(), [heard("hello")]), writer="first")
        await store.commit(commit)
        await _grow(
            store,
            commit.thread,
            [said("later")],
            calls=(call("c1", CallState.ANSWERED),),
            choices_closed=("c1",),
            all_undeferred=True,
            forget_effects_to=commit.thread.version,
        )
        before = await _everything(store)
        await store.commit(commit)
        assert await _everything(store) == before

    async def test_two_first_commits_of_a_thread_make_one(self) -> None:
        store = await self.make()
        await store.commit(following(root(), [heard("first")], writer="first"))
        with pytest.raises(FenceLost):
            await store.commit(following(root(), [heard("second")], writer="second"))
        assert (await _load(store)).entries == (heard("first"),)

    async def test_of_two_commits_at_once_one_goes_through(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), [heard("hello")])
        outcomes = await asyncio.gather(
            *(store.commit(following(thread, [said(writer)], writer=writer)) for writer in ("a", "b", "c")),
            return_exceptions=True,
        )
        lost = [outcome for outcome in outcomes if outcome is not None]
        assert [type(outcome) for outcome in lost] == [FenceLost, FenceLost]
        assert len((await _load(store)).entries) == 2

    async def test_a_version_cannot_be_skipped(self) -> None:
        store = await self.make()
        thread = await _grow(store, root())
        with pytest.raises(FenceLost):
            await store.commit(following(replace(thread, version=2)))

    async def test_an_unknown_thread_must_be_new(self) -> None:
        store = await self.make()
        with pytest.raises(FenceLost):
            await store.commit(following(root(), is_new=False))
        assert await store.load(LoadRequest("root")) is None

    async def test_a_spawned_thread_is_not_new(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), [heard("hello")])
        born = spawned(thread, "root.child")
        await _grow(store, thread, spawned=(born,))
        with pytest.raises(FenceLost):
            await store.commit(following(root("root.child"), writer="stray"))
        await _grow(store, born.thread, [heard("to the child")])
        assert (await _load(store, "root.child")).thread.version == 1

    async def test_a_thread_that_is_there_already_is_not_spawned_over(self) -> None:
        store = await self.make()
        await _grow(store, root("root.child"), [heard("I was first")])
        thread = await _grow(store, root())
        await _grow(store, thread, [heard("spawn")], spawned=(spawned(thread, "root.child"),))
        assert (await _load(store, "root.child")).entries == (heard("I was first"),)
        assert (await _load(store)).entries == (heard("spawn"),)

    async def test_everything_survives(self) -> None:
        store = await self.make()
        await store.commit(_rich(await _grow(store, root(), [heard("hello")])))
        before = await _everything(store)
        assert before.calls
        assert await _everything(await self.reopen()) == before

    # --------------------------------------------------------------------------------------- entries and lineage

    async def test_every_kind_of_entry_comes_back(self) -> None:
        store = await self.make()
        entries = _all_kinds()
        await _grow(store, root(), entries)
        assert (await _load(store)).entries == tuple(entries)
        assert await (await self.reopen()).history("root") == list(enumerate(entries))

    async def test_odd_texts_come_back(self) -> None:
        store = await self.make()
        entries: list[Entry] = [heard(ODD_TEXT), said(""), heard("x" * 300_000)]
        await _grow(store, root(metadata={ODD_TEXT: ODD_TEXT}), entries)
        snapshot = await _load(store)
        assert snapshot.entries == tuple(entries)
        assert snapshot.root_metadata == {ODD_TEXT: ODD_TEXT}

    async def test_lone_surrogates_are_mended(self) -> None:
        store = await self.make()
        broken = "half \ud83d of a pair"
        await _grow(
            store,
            root(metadata={"name": broken}),
            [heard(broken)],
            calls=(call("c1", tool_set=broken),),
            deferred=(delivery(broken),),
            summaries=(Summary("root", 0, broken),),
            effects=(PlannedEffect(1, 0, Dispatch("c1", broken)),),
        )
        snapshot = await _load(store)
        mended = "half \N{REPLACEMENT CHARACTER} of a pair"
        assert snapshot.entries == (heard(mended),)
        assert snapshot.root_metadata == {"name": mended}
        assert snapshot.calls[0].tool_set == mended
        assert snapshot.deferred[0].message.content == Text(mended)
        assert snapshot.summary == Summary("root", 0, mended)
        assert snapshot.effects[0].effect == Dispatch("c1", mended)

    async def test_only_entries_newer_than_those_known_are_read(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), numbered(4))
        await _grow(store, thread, numbered(3, 4))
        snapshot = await _load(store, known_to=4)
        assert snapshot.entries == tuple(numbered(3, 4))
        assert snapshot.entries_from == 4
        snapshot = await _load(store, known_to=7)
        assert snapshot.entries == ()
        assert snapshot.entries_from == 7
        assert (await _load(store, known_to=0)).entries == tuple(numbered(7))

    async def test_five_thousand_entries(self) -> None:
        store = await self.make()
        thread = root()
        for start in range(0, 5000, 1000):
            thread = await _grow(store, thread, numbered(1000, start))
        await _grow(store, thread, numbered(2, 5000))
        assert (await _load(store)).entries == tuple(numbered(5002))
        assert (await _load(store, known_to=4999)).entries == tuple(numbered(3, 4999))

    async def test_a_summary_stands_for_what_came_before_it(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), numbered(6))
        thread = await _grow(store, thread, summaries=(Summary("root", 2, "two"),))
        await _grow(store, thread, numbered(1, 6), summaries=(Summary("root", 4, ODD_TEXT.replace("\x00", "")),))
        snapshot = await _load(store)
        assert snapshot.summary == Summary("root", 4, ODD_TEXT.replace("\x00", ""))
        assert snapshot.entries == tuple(numbered(3, 4))
        assert snapshot.entries_from == 4
        assert len(await store.history("root")) == 7

    async def test_entries_known_from_before_a_summary_are_not_asked_for_again(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), numbered(6))
        await _grow(store, thread, numbered(2, 6), summaries=(Summary("root", 4, "four"),))
        snapshot = await _load(store, known_to=6)
        assert (snapshot.entries_from, snapshot.entries) == (6, tuple(numbered(2, 6)))
        assert snapshot.summary == Summary("root", 4, "four")
        snapshot = await _load(store, known_to=2)
        assert (snapshot.entries_from, snapshot.entries) == (4, tuple(numbered(4, 4)))

    async def test_a_child_sees_its_parent_up_to_where_it_was_spawned(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), numbered(3))
        born = spawned(thread, "root.child")
        thread = await _grow(store, thread, numbered(2, 3), spawned=(born,))
        young = await _grow(store, born.thread, [heard("child 3")])
        await _grow(store, thread, numbered(2, 5))
        await _grow(store, young, [said("child 4")])
        snapshot = await _load(store, "root.child")
        assert snapshot.entries == (*numbered(3), heard("child 3"), said("child 4"))
        assert snapshot.lineage == born.lineage
        assert snapshot.thread.end == 5
        assert await store.history("root.child") == [(3, heard("child 3")), (4, said("child 4"))]
        assert (await _load(store, "root.child", known_to=1)).entries == snapshot.entries[1:]
        assert (await _load(store, "root.child", known_to=4)).entries == (said("child 4"),)

    async def test_a_child_may_see_its_parent_up_to_an_earlier_point(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), numbered(4))
        await _grow(store, thread, spawned=(spawned(thread, "root.child", stop=2),))
        assert (await _load(store, "root.child")).entries == tuple(numbered(2))

    async def test_a_grandchild_sees_the_whole_line(self) -> None:
        store = await self.make()
        young = await _family(store)
        entries = [*numbered(3), heard("child 3"), heard("child 4"), heard("grandchild 5")]
        snapshot = await _load(store, young.id)
        assert snapshot.entries == tuple(entries)
        assert [segment.thread_id for segment in snapshot.lineage.segments] == ["root", "root.child"]
        for known_to in range(7):
            snapshot = await _load(store, young.id, known_to=known_to)
            assert snapshot.entries == tuple(entries[known_to:])
            assert snapshot.entries_from == known_to

    async def test_a_child_inherits_the_summary_that_stood_when_it_was_spawned(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), numbered(5))
        early = Summary("root", 2, "early")
        thread = await _grow(store, thread, summaries=(early,))
        born = spawned(thread, "root.child", summary=early)
        thread = await _grow(store, thread, spawned=(born,))
        await _grow(store, born.thread, [heard("child 5")])
        await _grow(store, thread, numbered(3, 5), summaries=(Summary("root", 7, "late"),))
        snapshot = await _load(store, "root.child")
        assert snapshot.summary == early
        assert snapshot.entries == (*numbered(3, 2), heard("child 5"))
        assert snapshot.entries_from == 2

    async def test_a_thread_compacts_what_it_inherits_for_itself_alone(self) -> None:
        store = await self.make()
        young = await _family(store)
        young = await _grow(store, young, summaries=(Summary(young.id, 2, "inside the root's part"),))
        snapshot = await _load(store, young.id)
        assert snapshot.summary == Summary(young.id, 2, "inside the root's part")
        assert snapshot.entries == (*numbered(1, 2), heard("child 3"), heard("child 4"), heard("grandchild 5"))
        young = await _grow(store, young, summaries=(Summary(young.id, 4, "inside the child's part"),))
        assert (await _load(store, young.id)).entries == (heard("child 4"), heard("grandchild 5"))
        await _grow(store, young, summaries=(Summary(young.id, 6, "all of it"),))
        snapshot = await _load(store, young.id)
        assert (snapshot.entries_from, snapshot.entries) == (6, ())
        assert (await _load(store)).summary is None
        assert len((await _load(store, "root.child")).entries) == 6

    async def test_an_unknown_thread_has_no_history(self) -> None:
        store = await self.make()
        with pytest.raises(KeyError):
            await store.history("nobody")

    async def test_values_are_not_shared(self) -> None:
        store = await self.make()
        metadata: dict[str, Any] = {"tags": ["a"]}
        await _grow(store, root(metadata=metadata))
        metadata["tags"].append("b")
        snapshot = await _load(store)
        assert snapshot.root_metadata == {"tags": ["a"]}
        snapshot.root_metadata["tags"].append("c")
        assert (await _load(store)).root_metadata == {"tags": ["a"]}

    # ---------------------------------------------------------------------------------------------------- ledger

    async def test_active_calls_and_those_named_are_read(self) -> None:
        store = await self.make()
        calls = [call(f"call-{state}", state) for state in CallState]
        thread = await _grow(store, root(), calls=tuple(calls))
        await _grow(store, root("other"), calls=(call("elsewhere"),))
        active = {"call-open", "call-detached", "call-subscribed"}
        assert {item.id for item in (await _load(store)).calls} == active
        named = frozenset({"call-failed", "call-open", "elsewhere", "unheard of", "nul \x00"})
        assert {item.id for item in (await _load(store, call_ids=named)).calls} == {*active, "call-failed"}
        assert await store.calls("root") == calls
        await _grow(store, thread, calls=(call("call-open", CallState.ANSWERED),))
        assert {item.id for item in (await _load(store)).calls} == active - {"call-open"}
        assert await store.calls("nobody") == []

    async def test_calls_that_a_deferred_message_names_are_read(self) -> None:
        store = await self.make()
        calls = [call(f"call-{number}", CallState.FAILED) for number in range(4)]
        late = InputMessage(ToolResult("call-0", (Text("late"),)), "root")
        about = InputMessage(Text("done"), "root", synthetic=ThreadReport("call-1", "root.child"))
        over = InputMessage(ToolResult("call-2", (Text("late"),)), "root")
        waiting = tuple(Delivery(message, f"q{number}") for number, message in enumerate((late, about, over)))
        await _grow(store, root(), calls=tuple(calls), deferred=waiting)
        assert {item.id for item in (await _load(store, deferred_limit=2)).calls} == {"call-0", "call-1"}
        named = frozenset({"call-3"})
        assert {item.id for item in (await _load(store, call_ids=named)).calls} == {item.id for item in calls}

    async def test_a_call_keeps_all_that_is_known_of_it(self) -> None:
        store = await self.make()
        whole = call(
            "c1",
            call_id="toolu_1",
            tool_set="weather",
            is_passive=True,
            user_id="u",
            time_left=timedelta(hours=5, microseconds=7),
            wakes_at=after(60.5),
        )
        timed = call("c2", deadline_at=after(3600))
        await _grow(store, root(), calls=(whole, timed))
        assert (await _load(store)).calls == (whole, timed)

    async def test_calls_keep_the_order_in_which_they_were_made(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), calls=tuple(call(f"call-1-{ordinal}") for ordinal in range(12)))
        thread = await _grow(store, thread, calls=(call("another"),))
        await _grow(store, thread, calls=(call("call-1-3", CallState.ANSWERED), call("a third")))
        made = [f"call-1-{ordinal}" for ordinal in range(12)] + ["another", "a third"]
        assert [item.id for item in await store.calls("root")] == made

    async def test_overdue_calls_of_all_threads_longest_overdue_first(self) -> None:
        store = await self.make()
        late = call("late", deadline_at=after(20))
        later = call("later", CallState.DETACHED, deadline_at=after(10))
        await _grow(
            store,
            root(),
            calls=(
                late,
                call("in time", deadline_at=after(31)),
                call("waits for a person", time_left=timedelta(seconds=1)),
                call("settled", deadline_at=after(1)).now(CallState.ANSWERED),
            ),
        )
        other = await _grow(store, root("other"), calls=(later, call("passive")))
        assert await store.overdue_calls(after(30), 10) == [("other", later), ("root", late)]
        assert await store.overdue_calls(after(30), 1) == [("other", later)]
        assert await store.overdue_calls(after(9.999999), 10) == []
        assert await store.overdue_calls(after(10), 10) == [("other", later)]
        await _grow(store, other, calls=(later.now(CallState.FAILED),))
        assert await store.overdue_calls(after(30), 10) == [("root", late)]

    # ---------------------------------------------------------------------------------------------------- inbox

    async def test_the_inbox_knows_what_its_thread_has_heard(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), heard=("m1", "said:\x00 odd äé"))
        await _grow(store, root("other"), heard=("m3",))
        await _grow(store, thread, heard=("m1", "m2"))
        asked = frozenset({"m1", "m2", "m3", "m4", "said:\x00 odd äé"})
        assert (await _load(store, message_ids=asked)).heard == asked - {"m3", "m4"}
        assert (await _load(store)).heard == frozenset()

    async def test_the_inbox_forgets_only_what_is_old(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), heard=("m1", "m2"))
        await _grow(store, root("other"), heard=("m1",), at=after(10))
        await _grow(store, thread, heard=("m3",), at=after(20))
        asked = frozenset({"m1", "m2", "m3"})
        assert await store.prune_inbox(START) == 0
        assert await store.prune_inbox(after(10)) == 2
        assert (await _load(store, message_ids=asked)).heard == {"m3"}
        assert (await _load(store, "other", message_ids=asked)).heard == {"m1"}
        assert await store.prune_inbox(after(10)) == 0

    # -------------------------------------------------------------------------------------------------- effects

    async def test_every_kind_of_effect_comes_back_in_order(self) -> None:
        store = await self.make()
        effects = _all_effects()
        thread = await _grow(store, root(), effects=_planned(1, effects))
        await _grow(store, thread, effects=_planned(2, effects[:2]))
        assert (await _load(store)).effects == (*_planned(1, effects), *_planned(2, effects[:2]))

    async def test_performed_effects_are_forgotten_with_the_next_commit(self) -> None:
        store = await self.make()
        effect = NotifyClosed()
        thread = await _grow(store, root(), effects=_planned(1, [effect, effect]))
        thread = await _grow(store, thread, effects=_planned(2, [effect]))
        thread = await _grow(store, thread, effects=_planned(3, [effect]), forget_effects_to=1)
        assert (await _load(store)).effects == (*_planned(2, [effect]), *_planned(3, [effect]))
        await _grow(store, root("other"), effects=_planned(1, [effect]))
        await store.forget_effects("root", 2)
        assert (await _load(store)).effects == _planned(3, [effect])
        await store.forget_effects("root", 9)
        await store.forget_effects("nobody", 9)
        assert (await _load(store)).effects == ()
        assert (await _load(store, "other")).effects == _planned(1, [effect])

    async def test_effects_left_behind_are_found_by_thread(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), effects=_planned(1, [NotifyClosed()]))
        thread = await _grow(store, thread, effects=_planned(2, [NotifyClosed()] * 2), at=after(10))
        await _grow(store, thread, effects=_planned(3, [NotifyClosed()]), at=after(20))
        await _grow(store, root("other"), effects=_planned(1, [NotifyClosed()]), at=after(10))
        await _grow(store, root("done"))
        assert await store.unperformed(START, 10) == {}
        assert await store.unperformed(after(10), 10) == {"root": 1}
        assert await store.unperformed(after(11), 10) == {"root": 2, "other": 1}
        assert await store.unperformed(after(99), 10) == {"root": 3, "other": 1}
        assert len(await store.unperformed(after(99), 1)) == 1

    # -------------------------------------------------------------------------------------------------- deferred

    async def test_deferred_messages_are_read_oldest_first(self) -> None:
        store = await self.make()
        many = [delivery(f"m{number}") for number in range(11)]
        thread = await _grow(store, root(), deferred=tuple(many[:10]))
        await _grow(store, thread, deferred=tuple(many[10:]))
        await _grow(store, root("other"), deferred=(delivery("elsewhere", "other"),))
        snapshot = await _load(store)
        places = [*((1, ordinal) for ordinal in range(10)), (2, 0)]
        assert snapshot.deferred == tuple(
            replace(item, deferred_as=place) for item, place in zip(many, places, strict=True)
        )
        assert not snapshot.deferred_more

    async def test_only_so_many_deferred_messages_are_read(self) -> None:
        store = await self.make()
        await _grow(store, root(), deferred=tuple(delivery(f"m{number}") for number in range(4)))
        for limit, more in ((0, True), (3, True), (4, False), (5, False)):
            snapshot = await _load(store, deferred_limit=limit)
            assert len(snapshot.deferred) == min(limit, 4)
            assert snapshot.deferred_more is more

    async def test_a_deferred_message_keeps_all_that_is_known_of_it(self) -> None:
        store = await self.make()
        message = InputMessage(
            ToolResult("c1", (Text(ODD_TEXT), Image("aGk=", "image/png")), is_error=True, tool_set="weather"),
            "root",
            message_id="result:1",
            metadata={"user_id": "u"},
            synthetic=SubscriptionEvent("c1", associative=True),
            display_as=({"type": "text", "content": "x"},),
            subscription=True,
            trace={"traceparent": "00-1"},
        )
        whole = Delivery(message, "q1", dedup_id="d1", proven=True, sent_at=after(0.000001), deferred_as=(7, 7))
        await _grow(store, root(), deferred=(whole,))
        assert (await _load(store)).deferred == (replace(whole, deferred_as=(1, 0)),)

    async def test_a_deferred_message_that_was_folded_goes(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), deferred=tuple(delivery(f"m{number}") for number in range(3)))
        thread = await _grow(store, thread, undeferred=((1, 0), (1, 2), (9, 9)), deferred=(delivery("new"),))
        assert [item.deferred_as for item in (await _load(store)).deferred] == [(1, 1), (2, 0)]
        await _grow(store, root("other"), deferred=(delivery("elsewhere", "other"),))
        await _grow(store, thread, all_undeferred=True, deferred=(delivery("last"),))
        assert [item.deferred_as for item in (await _load(store)).deferred] == [(3, 0)]
        assert len((await _load(store, "other")).deferred) == 1

    # ---------------------------------------------------------------------------------------- choices, children

    async def test_choices_are_open_until_closed(self) -> None:
        store = await self.make()
        first = Choice("c1", "Which?", ("a", "b"), 1, "https://tools.example/choose", START, "u")
        second = replace(first, id="c2", user_id=None)
        thread = await _grow(store, root(), choices_opened=(first, second))
        assert (await _load(store)).choices == (first, second)
        again = replace(first, prompt="Which, then?")
        thread = await _grow(store, thread, choices_closed=("c2", "c9"), choices_opened=(again,))
        assert (await _load(store)).choices == (again,)
        await _grow(store, thread, choices_closed=("c1",), choices_opened=(first,))
        assert (await _load(store)).choices == (first,)

    async def test_open_children_are_listed(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), numbered(1))
        one, two = spawned(thread, "root.one"), spawned(thread, "root.two")
        await _grow(store, thread, spawned=(one, two))
        assert set((await _load(store)).children) == {"root.one", "root.two"}
        grandchild = spawned(one.thread, "root.grandchild", lineage=one.lineage)
        young = await _grow(store, one.thread, spawned=(grandchild,))
        assert set((await _load(store)).children) == {"root.one", "root.two"}
        assert (await _load(store, "root.one")).children == ("root.grandchild",)
        await _grow(store, replace(young, closed=True))
        assert (await _load(store)).children == ("root.two",)
        assert (await _load(store, "root.one")).thread.closed

    async def test_paused_threads_of_the_family_are_listed(self) -> None:
        store = await self.make()
        thread = await _grow(store, root())
        one, two = spawned(thread, "root.one"), spawned(thread, "root.two")
        thread = await _grow(store, thread, spawned=(one, two))
        deep = spawned(one.thread, "root.deep", lineage=one.lineage)
        young = await _grow(store, one.thread, spawned=(deep,))
        assert (await _load(store)).paused == ()
        grown = await _grow(store, replace(deep.thread, paused_at=after(5)))
        await _grow(store, replace(young, paused_at=after(5), closed=True))
        await _grow(store, replace(root("other"), paused_at=after(5)))
        assert (await _load(store)).paused == ("root.deep",)
        assert (await _load(store, "root.two")).paused == ("root.deep",)
        assert (await _load(store, "root.deep")).paused == ()
        await _grow(store, replace(thread, paused_at=after(5)))
        assert (await _load(store)).paused == ("root.deep",)
        assert set((await _load(store, "root.two")).paused) == {"root", "root.deep"}
        await _grow(store, replace(grown, paused_at=None))
        assert (await _load(store, "root.two")).paused == ("root",)

    async def test_metadata_are_the_roots(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(metadata={"channel": 1}), numbered(1))
        born = spawned(thread, "root.child")
        thread = await _grow(store, thread, spawned=(born,))
        assert (await _load(store, "root.child")).root_metadata == {"channel": 1}
        await _grow(store, replace(thread, metadata={"channel": 2}))
        assert (await _load(store, "root.child")).root_metadata == {"channel": 2}
        await _grow(store, root("plain"))
        assert (await _load(store, "plain")).root_metadata is None

    # ------------------------------------------------------------------------------------------------- counting

    async def test_recent_slices_are_those_in_which_the_model_spoke(self) -> None:
        store = await self.make()
        thread = root()
        for seconds, spoke in ((0, True), (10, True), (20, False), (30, True)):
            thread = await _grow(store, thread, at=after(seconds), spoke=spoke)
        await _grow(store, root("other"), at=after(40), spoke=True)
        assert (await _load(store)).recent_slices == 3
        assert (await _load(store)).person_heard_at is None
        assert (await _load(store, count_since=START)).recent_slices == 2
        assert (await _load(store, count_since=after(9.999999))).recent_slices == 2
        assert (await _load(store, count_since=after(10))).recent_slices == 1

    async def test_recent_slices_are_counted_from_the_last_that_heard_a_person(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), at=START, spoke=True)
        thread = await _grow(store, thread, at=after(10), spoke=True, personal=True)
        assert (await _load(store)).recent_slices == 0
        assert (await _load(store, count_since=after(99))).person_heard_at == after(10)
        thread = await _grow(store, thread, at=after(20), spoke=True)
        assert (await _load(store)).recent_slices == 1
        thread = await _grow(store, thread, at=after(30), personal=True)
        assert (await _load(store)).recent_slices == 0
        await _grow(store, thread, at=after(40), spoke=True)
        assert (await _load(store, count_since=START)).recent_slices == 1
        assert (await _load(store, count_since=after(40))).recent_slices == 0

    async def test_recent_slices_are_counted_over_the_roots_whole_family(self) -> None:
        store = await self.make()
        thread = await _grow(store, root(), at=START, spoke=True, personal=True)
        born = spawned(thread, "root.child")
        thread = await _grow(store, thread, at=after(10), spoke=True, spawned=(born,))
        young = await _grow(store, born.thread, at=after(20), spoke=True)
        for thread_id in ("root", "root.child"):
            assert (await _load(store, thread_id)).recent_slices == 2
        await _grow(store, young, at=after(30), personal=True)
        await _grow(store, thread, at=after(40), spoke=True)
        for thread_id in ("root", "root.child"):
            snapshot = await _load(store, thread_id)
            assert (snapshot.recent_slices, snapshot.person_heard_at) == (1, after(30))

    # -------------------------------------------------------------------------------------------------- overview

    async def test_threads_are_listed_roots_first_and_newest_first(self) -> None:
        store = await self.make()
        thread = await _grow(store, root("old"), at=after(1), calls=(call("done", CallState.ANSWERED),))
        one = child(thread, "old.child")
        thread = await _grow(
            store,
            thread,
            at=after(2),
            spawned=(spawned(thread, "old.child"),),
            calls=(call("waits"),),
            deferred=(delivery("m", "old"),),
        )
        new = await _grow(store, root("new"), at=after(3))
        listed = await store.threads()
        assert [item.thread for item in listed] == [new, thread, one]
        assert [item.pending for item in listed] == [None, call("waits"), None]
        assert [item.deferred for item in listed] == [0, 1, 0]
        assert [item.last_commit_at for item in listed] == [after(3), after(2), None]
        assert [item.thread for item in await store.threads(root_id="old")] == [thread, one]
        assert [item.thread for item in await store.threads(limit=2)] == [new, thread]
        assert await store.threads(root_id="nobody") == []


async def _grow(store: ConversationStore, thread: Thread, entries: Iterable[Entry] = (), **fields: Any) -> Thread:
    commit = following(thread, list(entries), **fields)
    await store.commit(commit)
    return commit.thread


async def _load(store: ConversationStore, thread_id: str = "root", **fields: Any) -> Snapshot:
    snapshot = await store.load(LoadRequest(thread_id, **fields))
    assert snapshot is not None
    return snapshot


async def _everything(store: ConversationStore) -> Snapshot:
    asked = frozenset({"m1", "m2", "c1", "c2"})
    return await _load(store, message_ids=asked, call_ids=asked)


async def _family(store: ConversationStore) -> Thread:
    """Commit a root with 3 entries, its child with 2 and a grandchild with 1, each followed by more of its parent."""
    thread = await _grow(store, root(), numbered(3))
    born = spawned(thread, "root.child")
    thread = await _grow(store, thread, numbered(2, 3), spawned=(born,))
    parent = await _grow(store, born.thread, [heard("child 3"), heard("child 4")])
    grandchild = spawned(parent, "root.grandchild", lineage=born.lineage)
    await _grow(store, parent, [heard("child 5")], spawned=(grandchild,))
    return await _grow(store, grandchild.thread, [heard("grandchild 5")])


def _rich(thread: Thread, writer: str = "writer") -> Commit:
    """Return a commit of ``thread`` that writes something of every kind."""
    version = thread.version + 1
    return following(
        thread,
        [said("rich"), *exchange("c1")],
        writer=writer,
        at=after(5),
        calls=(call("c1", deadline_at=after(50)), call("c2", CallState.ANSWERED)),
        heard=("m1", "m2"),
        spawned=(spawned(thread, "root.child"),),
        summaries=(Summary(thread.id, 1, "so far"),),
        deferred=(delivery("m3"),),
        undeferred=((1, 0),),
        effects=(PlannedEffect(version, 0, NotifyClosed()), PlannedEffect(version, 1, CancelTimer("c1"))),
        choices_opened=(Choice("c1", "Which?", ("a", "b"), 0, "https://tools.example/choose", START),),
        spoke=True,
    )


def _planned(version: int, effects: Iterable[Any]) -> tuple[PlannedEffect, ...]:
    return tuple(PlannedEffect(version, ordinal, effect) for ordinal, effect in enumerate(effects))


def _all_kinds() -> list[Entry]:
    segments = ({"type": "diff", "content": {"path": "a", "patch": "b"}},)
    injected = CallBody("e1", "receive_event__injected", {"original_args": {"x": None}})
    return [
        UserEntry(
            (Text("look"), Image("aGk=", "image/png"), Document("aGk=", "text/plain", "a"), Blob("f0", 3, "image"))
        ),
        AssistantEntry((Reasoning("so", "sig", None, "model"), Reasoning(redacted="aGk="), SaidText("I see"))),
        ToolCallEntry(CallBody("c1", "look", {"deep": {"er": [1, 2.5, None, True]}}, "toolu_1"), "look(it)"),
        ToolResultEntry(ResultBody("c1", (Text("no"),), "toolu_1", is_error=True), segments),
        EventEntry(injected, ResultBody("e1", (Text("ding"),)), "c1", "root.child", segments),
    ]


def _all_effects() -> list[Any]:
    message = InputMessage(Text("hi"), "root.child", message_id="m", metadata={"user_id": "u"})
    output = Output("tool_call", ODD_TEXT, "root", "root", "root:1:2", (1, 2), {"a": None}, {"call_id": "c1"})
    return [
        Dispatch("c1", "look"),
        SendInput(message),
        SendOutput(output),
        CancelTimer("c2"),
        NotifyCancelled("c1", None),
        NotifyClosed(),
        AnswerChoice("c1", "https://tools.example/choose", 1, "weather"),
        CopyState("choice", "c1", {"prompt": "Which?"}),
        CopyState("choice", "c1", None),
        CopyState("metadata", "metadata", {}),
    ]
