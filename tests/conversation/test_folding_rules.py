"""What is said below the folding table: order, bursts, ends, pauses, choices, clocks, limits, whose turn it is."""

from dataclasses import replace
from datetime import timedelta

import pytest

from infinity_agents.conversation.content import Blob, Document, Image, Text
from infinity_agents.conversation.folding import fold_batch
from infinity_agents.conversation.history import faults
from infinity_agents.conversation.messages import (
    Compaction,
    CompactionComplete,
    Control,
    Delivery,
    InputMessage,
    Nudge,
    OauthRequired,
    ParentMessage,
    Parts,
    SubscriptionEvent,
    ThreadReport,
    ToolResult,
    UserChoiceRequired,
    UserChoiceResponse,
)
from infinity_agents.conversation.threads import ThreadKind
from infinity_agents.settings import AgentSettings
from tests.conversation.building import (
    CHILD,
    HOUR,
    NOW,
    ROOT,
    SERVER,
    a_slice,
    answers,
    call,
    called,
    effects,
    entries,
    expires,
    happens,
    kept,
    nap,
    notes,
    ours,
    outputs,
    result,
    says,
    sent,
    states,
    theirs,
    timed_nap,
    user,
    words,
)

STOP = Control("stop")
CLOSE = Control("close")


def nudge():
    return ours(Text(""), synthetic=Nudge())


def report(text="found it", about="spawning"):
    return ours(Text(text), synthetic=ThreadReport(about, "root.child"))


def fold(slice_, *deliveries):
    fold_batch(slice_, deliveries)
    assert list(faults(slice_.history)) == []
    return slice_


class TestOrder:
    def test_the_result_of_the_pending_call_is_folded_before_anything_else(self):
        slice_ = fold(a_slice(pending=call("c")), says("and?"), report(), answers("c", "sunny"))
        assert entries(slice_) == ["result of c: sunny", "user: and", "event about spawning: found it"]

    def test_user_text_does_not_detach_a_call_whose_result_is_in_the_batch(self):
        slice_ = fold(a_slice(pending=call("c")), says("and?"), answers("c"))
        assert states(slice_) == {"c": "answered"}

    def test_deferred_messages_come_right_after_the_settlement_oldest_first(self):
        waiting = kept(report("one"), report("two"))
        slice_ = fold(a_slice(pending=call("c"), waiting=waiting), says("and?"), answers("c", "sunny"))
        assert entries(slice_) == [
            "result of c: sunny",
            "event about spawning: one",
            "event about spawning: two",
            "user: and",
        ]
        assert slice_.undeferred == [(2, 0), (2, 1)]
        assert slice_.deferred == []

    def test_they_come_before_the_next_delivery_when_a_person_settles_the_call(self):
        slice_ = fold(a_slice(pending=call("c"), waiting=kept(report("one"))), says("hi"), says("still there?"))
        assert entries(slice_)[1:] == ["user: hi", "event about spawning: one", "user: still there"]

    def test_what_was_deferred_in_the_same_batch_comes_too(self):
        slice_ = fold(a_slice(pending=call("c")), report("one"), says("hi"))
        assert entries(slice_)[1:] == ["user: hi", "event about spawning: one"]
        assert slice_.deferred == []
        assert slice_.undeferred == []

    def test_a_person_who_was_kept_back_does_not_come_before_the_settlement(self):
        slice_ = fold(a_slice(pending=call("c"), waiting=kept(says("hi"))), answers("c", "sunny"))
        assert entries(slice_) == ["result of c: sunny", "user: hi"]

    def test_a_result_that_was_kept_back_comes_before_what_was_kept_with_it(self):
        slice_ = fold(a_slice(pending=call("c"), waiting=kept(says("hi"), answers("c", "sunny"))), nudge())
        assert entries(slice_) == ["result of c: sunny", "user: hi"]

    def test_stop_takes_back_what_came_before_it(self):
        slice_ = fold(a_slice(), says("book it"), theirs(STOP))
        assert entries(slice_) == ["user: book it"]
        assert not slice_.respond

    def test_text_after_stop_restores_it(self):
        assert fold(a_slice(), theirs(STOP), says("book it")).respond

    def test_stop_takes_back_the_response_to_what_was_deferred(self):
        slice_ = fold(a_slice(pending=call("c"), waiting=kept(report("one"))), theirs(STOP))
        assert entries(slice_) == ["result of c: stopped by the user", "event about spawning: one"]
        assert not slice_.respond

    def test_stop_reaches_every_child(self):
        slice_ = fold(a_slice(children=["root.a", "root.b"]), theirs(STOP))
        assert effects(slice_) == ["stop to root.a", "stop to root.b"]
        assert len({message.message_id for message in sent(slice_)}) == 2

    def test_a_result_after_stop_is_absorbed(self):
        slice_ = fold(a_slice(pending=call("c")), theirs(STOP))
        fold_batch(slice_, [answers("c", "too late")])
        assert entries(slice_) == ["result of c: stopped by the user"]
        assert not slice_.respond


class TestSubscriptions:
    def test_a_confirming_result_registers_the_subscription(self):
        slice_ = fold(a_slice(pending=call("c")), answers("c", "subscribed", subscription=True))
        assert states(slice_) == {"c": "subscribed"}
        assert effects(slice_) == ["keep subscription"]

    @pytest.mark.parametrize("state", ["detached", "failed"])
    def test_a_late_confirming_result_registers_it(self, state):
        slice_ = fold(a_slice(calls=[call("c", state)]), answers("c", "subscribed", subscription=True))
        assert states(slice_) == {"c": "subscribed"}
        assert entries(slice_) == ["event about c: subscribed"]
        assert slice_.respond

    def test_an_error_result_registers_nothing(self):
        slice_ = fold(a_slice(pending=call("c")), answers("c", "no", subscription=True, is_error=True))
        assert states(slice_) == {"c": "answered"}

    def test_events_that_came_before_it_follow_at_once(self):
        waiting = kept(happens("c", "first", associative=True))
        slice_ = fold(a_slice(pending=call("c"), waiting=waiting), answers("c", "subscribed", subscription=True))
        assert entries(slice_) == ["result of c: subscribed", "event about c: first"]

    def test_events_are_dropped_where_the_result_confirms_nothing(self):
        waiting = kept(happens("c", "first", associative=True))
        slice_ = fold(a_slice(pending=call("c"), waiting=waiting), answers("c", "done"))
        assert entries(slice_) == ["result of c: done"]
        assert effects(slice_) == ["cancel notice for c"]
        assert notes(slice_)

    def test_a_final_event_ends_it(self):
        slice_ = fold(a_slice(calls=[call("c", "subscribed")]), happens("c", final=True), happens("c", "after the end"))
        assert states(slice_) == {"c": "ended"}
        assert len(slice_.spawned) == 1
        assert effects(slice_) == ["drop subscription", "cancel notice for c", "first to an event thread"]

    def test_a_final_event_does_not_end_it_before_its_earlier_events_are_heard(self):
        slice_ = a_slice(pending=call("busy"), calls=[call("c", "subscribed")])
        fold(slice_, happens("c", "first", associative=True), happens("c", "last", final=True))
        assert len(slice_.deferred) == 2
        fold_batch(slice_, [answers("busy")])
        assert entries(slice_) == ["result of busy: done", "event about c: first"]
        assert states(slice_)["c"] == "ended"
        assert len(slice_.spawned) == 1

    def test_an_event_of_another_tool_set_is_dropped_and_never_kept(self):
        slice_ = fold(a_slice(calls=[call("c", "detached")]), happens("c", tool_set="another"))
        assert slice_.deferred == []
        assert notes(slice_)


class TestBursts:
    def burst(self, count, **settings):
        slice_ = a_slice(calls=[call("c", "subscribed"), call("d", "subscribed")], settings=AgentSettings(**settings))
        return fold(slice_, *(happens("c", f"event-{number}.") for number in range(count)))

    def test_one_event_has_a_thread_of_its_own(self):
        slice_ = self.burst(1)
        ((child, _),) = slice_.spawned
        assert child.kind is ThreadKind.EVENT
        (first,) = sent(slice_)
        assert first.group_id == child.id
        assert "event-0." in words(first)
        assert "close_thread" in words(first)
        assert slice_.new_entries == []
        assert not slice_.respond

    def test_up_to_25_share_one(self):
        slice_ = self.burst(25)
        assert len(slice_.spawned) == 1
        assert all(f"event-{number}." in words(sent(slice_)[0]) for number in range(25))

    def test_60_events_make_3_threads(self):
        slice_ = self.burst(60, deliveries_per_slice=100)
        assert len(slice_.spawned) == 3
        assert len({child.id for child, _ in slice_.spawned}) == 3
        told = [words(message) for message in sent(slice_)]
        assert [sum(f"event-{number}." in text for text in told) for number in range(60)] == [1] * 60
        assert [text.count("event-") for text in told] == [25, 25, 10]

    def test_each_subscription_has_its_own(self):
        slice_ = a_slice(calls=[call("c", "subscribed"), call("d", "subscribed")])
        fold(slice_, happens("c", "one"), happens("d", "two"), happens("c", "three"))
        assert [child.born_of for child, _ in slice_.spawned] == ["c", "d"]

    def test_pictures_go_with_them(self):
        image = Image("aGk=", "image/png")
        slice_ = a_slice(calls=[call("c", "subscribed")])
        fold(slice_, happens("c", content=Parts((Text("look"), image))), happens("c", "plain"))
        (first,) = sent(slice_)
        assert image in first.content.parts
        assert Text("look") in first.content.parts
        assert Text("plain") in first.content.parts

    def test_the_child_acts_for_whoever_subscribed(self):
        slice_ = a_slice(calls=[call("c", "subscribed", user_id="ada")])
        fold(slice_, happens("c"), says("hi", user_id="ben"))
        assert sent(slice_)[0].user_id == "ada"
        assert slice_.acting_for == "ben"

    def test_the_id_is_that_of_the_message(self):
        event = happens("c")
        first, second = (fold(a_slice(calls=[call("c", "subscribed")]), event) for _ in range(2))
        assert first.spawned[0][0].id == second.spawned[0][0].id


class TestClosing:
    def close(self, *before, **fields):
        return fold(a_slice(thread=CHILD, history=[], **fields), *before, ours(CLOSE, to=CHILD.id))

    def test_everything_that_runs_is_cancelled_and_children_are_told(self):
        slice_ = self.close(
            pending=call("c"),
            calls=[call("d", "detached"), timed_nap("t", "detached"), call("s", "subscribed"), call("a", "answered")],
            children=["root.x", "root.y"],
        )
        assert slice_.thread.closed
        assert states(slice_) == dict.fromkeys(("c", "d", "t", "s"), "cancelled")
        assert sorted(effects(slice_)) == sorted(
            [
                "cancel notice for c",
                "cancel notice for d",
                "cancel timer of t",
                "cancel notice for s",
                "drop subscription",
                "close to root.x",
                "close to root.y",
                "close notice",
            ]
        )
        assert not slice_.respond
        assert [text.partition(":")[0] for text in entries(slice_)] == ["result of c"]

    def test_its_deferred_messages_go(self):
        slice_ = self.close(report(), pending=call("c"), waiting=kept(report()))
        assert slice_.deferred == []
        assert not slice_.respond

    def test_what_came_before_in_the_batch_is_not_answered(self):
        assert not self.close(says("hi", to=CHILD.id)).respond

    def test_events_that_came_with_it_leave_no_orphan(self):
        slice_ = self.close(happens("s", to=CHILD.id), calls=[call("s", "subscribed")])
        assert slice_.spawned == []
        assert "first to an event thread" not in effects(slice_)

    def test_what_comes_after_it_in_the_batch_is_absorbed(self):
        slice_ = a_slice(thread=CHILD, settings=AgentSettings(deliveries_per_slice=2))
        fold(slice_, ours(CLOSE), *(says(f"{number}") for number in range(5)), happens("stray"))
        assert entries(slice_) == []
        assert slice_.deferred == []
        assert len(slice_.heard) == 7
        assert effects(slice_) == ["close notice", "cancel notice for stray"]

    @pytest.mark.parametrize(
        "delivery",
        [
            says("anybody?"),
            answers("c"),
            report(),
            expires("c"),
            nudge(),
            theirs(STOP),
            ours(CLOSE),
            ours(Text(""), synthetic=Compaction()),
            ours(Text(""), synthetic=CompactionComplete(1, "short", "root.c")),
            ours(OauthRequired("c", "https://login.example", tool_set=SERVER)),
            ours(UserChoiceRequired("c", "?", ("a",), 0, "https://tools.example", tool_set=SERVER)),
        ],
        ids=lambda delivery: getattr(delivery.message.synthetic or delivery.message.content, "type", ""),
    )
    def test_a_closed_thread_absorbs(self, delivery):
        slice_ = fold(a_slice(thread=replace(CHILD, closed=True), calls=[call("c", "detached")]), delivery)
        assert entries(slice_) == []
        assert effects(slice_) == []
        assert slice_.deferred == []
        assert not slice_.respond
        assert slice_.heard == [delivery.identity]

    @pytest.mark.parametrize("kind", [{}, {"associative": True}, {"final": True}])
    def test_a_closed_thread_answers_a_stray_event_with_a_cancellation(self, kind):
        slice_ = fold(a_slice(thread=replace(CHILD, closed=True)), happens("s", **kind))
        assert effects(slice_) == ["cancel notice for s"]
        assert slice_.spawned == []

    def test_a_closed_thread_is_not_paused(self):
        slice_ = fold(a_slice(thread=replace(CHILD, closed=True), recent_slices=10_000), answers("c"))
        assert effects(slice_) == []
        assert slice_.thread.paused_at is None

    def test_a_root_is_closed_like_any_other(self):
        assert fold(a_slice(), ours(CLOSE)).thread.closed

    def test_a_compaction_child_has_no_servers_to_tell(self):
        slice_ = fold(a_slice(thread=replace(CHILD, kind=ThreadKind.COMPACTION)), ours(CLOSE))
        assert effects(slice_) == []


class TestPauses:
    paused = replace(ROOT, paused_at=NOW - timedelta(minutes=5))

    def test_too_many_slices_without_a_person_pause_the_thread(self):
        slice_ = fold(a_slice(pending=call("c"), recent_slices=200), answers("c", "again"))
        assert slice_.thread.paused_at == NOW
        assert [output.type for output in outputs(slice_)] == ["limit_reached"]
        assert len(slice_.deferred) == 1
        assert not slice_.respond
        assert entries(slice_) == []

    def test_one_fewer_does_not(self):
        assert fold(a_slice(pending=call("c"), recent_slices=199), answers("c")).respond

    def test_a_person_counts_as_one(self):
        slice_ = fold(a_slice(pending=call("c"), recent_slices=200), answers("c"), says("go on"))
        assert slice_.thread.paused_at is None
        assert slice_.respond

    def test_a_person_who_was_kept_back_counts_too(self):
        slice_ = fold(a_slice(waiting=kept(says("hi")), recent_slices=200), report())
        assert slice_.thread.paused_at is None
        assert slice_.respond

    def test_nothing_to_do_is_no_reason(self):
        assert fold(a_slice(recent_slices=200), nudge()).thread.paused_at is None

    @pytest.mark.parametrize(
        "delivery",
        [answers("d"), answers("c"), expires("d"), report(), happens("s"), happens("s", associative=True)],
        ids=["late result", "result", "deadline", "report", "plain event", "associative event"],
    )
    def test_a_paused_thread_defers(self, delivery):
        calls = [call("d", "detached", deadline_at=NOW), call("s", "subscribed")]
        slice_ = fold(a_slice(thread=self.paused, pending=call("c"), calls=calls), delivery)
        assert slice_.deferred == [delivery]
        assert entries(slice_) == []
        assert effects(slice_) == []
        assert not slice_.respond

    def test_a_first_message_from_above_waits_too(self):
        slice_ = fold(a_slice(thread=replace(CHILD, paused_at=NOW)), ours(Text("do it")))
        assert len(slice_.deferred) == 1

    def test_it_still_stops(self):
        slice_ = fold(a_slice(thread=self.paused, pending=call("c")), theirs(STOP))
        assert states(slice_) == {"c": "cancelled"}
        assert slice_.thread.paused_at is not None

    def test_it_still_closes(self):
        assert fold(a_slice(thread=replace(CHILD, paused_at=NOW)), ours(CLOSE)).thread.closed

    def test_it_still_takes_its_summary(self):
        slice_ = a_slice(thread=self.paused)
        fold(slice_, ours(Text(""), synthetic=CompactionComplete(1, "short", "root.c")))
        assert slice_.summary is not None

    def test_a_person_starts_it_again_and_finds_nothing_lost(self):
        waiting = kept(report("one"), answers("c", "sunny"), happens("s"))
        slice_ = a_slice(
            thread=self.paused,
            pending=call("c"),
            calls=[call("s", "subscribed")],
            waiting=waiting,
            children=["root.child", "root.other"],
            paused=("root.child",),
            recent_slices=200,
        )
        fold(slice_, says("go on"))
        assert slice_.thread.paused_at is None
        assert entries(slice_) == ["result of c: sunny", "event about spawning: one", "user: go on"]
        assert len(slice_.spawned) == 1
        assert [done for done in effects(slice_) if done.startswith("nudge")] == ["nudge to root.child"]
        assert sorted(slice_.undeferred) == [(2, 0), (2, 1), (2, 2)]
        assert slice_.respond

    def test_a_person_who_spoke_to_the_family_starts_a_child_again(self):
        thread = replace(CHILD, paused_at=NOW - HOUR)
        slice_ = a_slice(thread=thread, pending=call("c"), waiting=kept(answers("c")), person_heard_at=NOW)
        fold(slice_, nudge())
        assert slice_.thread.paused_at is None
        assert entries(slice_) == ["result of c: done"]
        assert slice_.respond

    def test_a_person_wakes_whoever_of_the_family_is_paused(self):
        # The root that they speak to may never have been paused itself.
        slice_ = fold(a_slice(paused=("root.child", "root.deep")), says("go on"))
        assert effects(slice_) == ["nudge to root.child", "nudge to root.deep"]

    def test_nothing_but_a_person_does(self):
        assert effects(fold(a_slice(paused=("root.child",)), report())) == []

    def test_one_who_spoke_before_does_not(self):
        slice_ = a_slice(thread=self.paused, waiting=kept(report()), person_heard_at=NOW - HOUR)
        fold(slice_, nudge())
        assert entries(slice_) == []
        assert effects(slice_) == []

    def test_a_paused_thread_does_not_wake_itself(self):
        slice_ = a_slice(thread=self.paused, waiting=kept(*(report() for _ in range(50))), waiting_more=True)
        fold(slice_, nudge())
        assert effects(slice_) == []


class TestInterruptByCancelling:
    settings = AgentSettings(interrupt="cancel")

    def test_user_text_cancels_the_running_call(self):
        slice_ = fold(a_slice(pending=call("c"), settings=self.settings), says("never mind"))
        assert states(slice_) == {"c": "cancelled"}
        assert effects(slice_) == ["cancel notice for c"]
        assert [text.partition(":")[0] for text in entries(slice_)] == ["result of c", "user"]
        assert slice_.respond

    def test_its_late_result_is_absorbed(self):
        slice_ = fold(a_slice(pending=call("c"), settings=self.settings), says("never mind"))
        fold_batch(slice_, [answers("c")])
        assert len(entries(slice_)) == 2

    def test_a_passive_call_is_interrupted_as_ever(self):
        slice_ = fold(a_slice(pending=timed_nap("t"), settings=self.settings), says("hi"))
        assert states(slice_) == {"t": "detached"}
        assert effects(slice_) == []


class TestNoDeferral:
    @pytest.mark.parametrize(
        ("delivery", "heard"),
        [
            (report(), "event about spawning: found it"),
            (happens("s", associative=True), "event about s: news"),
            (answers("d", "late"), "event about d: late"),
            (answers("f", "late"), "event about f: late"),
            (ours(Text("hurry"), synthetic=ParentMessage("up")), "event about up: hurry"),
        ],
        ids=["report", "associative event", "late result", "failed result", "parent's message"],
    )
    def test_an_event_detaches_the_running_call(self, delivery, heard):
        calls = [call("s", "subscribed"), call("d", "detached"), call("f", "failed")]
        slice_ = fold(a_slice(pending=call("c"), calls=calls, defers=False), delivery)
        running = "result of c: still running its result will come as an event about the call c"
        assert entries(slice_) == [running, heard]
        assert states(slice_)["c"] == "detached"
        assert slice_.deferred == []
        assert slice_.respond

    def test_an_event_of_an_unconfirmed_subscription_waits_all_the_same(self):
        slice_ = fold(a_slice(pending=call("c"), defers=False), happens("c"))
        assert len(slice_.deferred) == 1
        assert states(slice_) == {}

    def test_a_paused_thread_keeps_what_comes(self):
        slice_ = a_slice(thread=replace(ROOT, paused_at=NOW), pending=call("c"), defers=False)
        fold(slice_, report())
        assert len(slice_.deferred) == 1

    def test_what_the_limit_kept_back_detaches_the_running_call_too(self):
        slice_ = fold(a_slice(pending=call("c"), waiting=kept(report("one")), defers=False), nudge())
        assert entries(slice_)[1:] == ["event about spawning: one"]
        assert slice_.respond


class TestTheLimit:
    def test_fifty_deliveries_at_most_and_the_rest_wakes_the_thread_again(self):
        slice_ = fold(a_slice(), *(says(f"{number}") for number in range(60)))
        assert entries(slice_) == [f"user: {number}" for number in range(50)]
        assert [words(delivery.message) for delivery in slice_.deferred] == [f"{number}" for number in range(50, 60)]
        assert len(slice_.heard) == 60
        assert effects(slice_) == ["nudge to root"]

    def test_fifty_need_no_nudge(self):
        assert effects(fold(a_slice(), *(says(f"{number}") for number in range(50)))) == []

    def test_deferred_messages_count(self):
        waiting = kept(*(report(f"{number}") for number in range(50)))
        slice_ = fold(a_slice(waiting=waiting), says("hi"))
        assert len(entries(slice_)) == 50
        assert len(slice_.undeferred) == 50
        assert [words(delivery.message) for delivery in slice_.deferred] == ["hi"]
        assert effects(slice_) == ["nudge to root"]

    def test_more_that_was_not_read_wakes_the_thread_again(self):
        waiting = kept(*(report(f"{number}") for number in range(49)))
        slice_ = fold(a_slice(waiting=waiting, waiting_more=True), nudge())
        assert effects(slice_) == ["nudge to root"]

    def test_a_busy_thread_is_not_woken_for_what_must_wait(self):
        slice_ = fold(a_slice(pending=call("c")), *(report(f"{number}") for number in range(60)))
        assert len(slice_.deferred) == 60
        assert effects(slice_) == []

    def test_a_busy_thread_is_woken_for_a_person_who_was_kept_back(self):
        # People come first: they do not wait for the running tool because fifty events came before them.
        slice_ = a_slice(pending=call("c"), calls=[call("s", "subscribed")])
        fold(slice_, *(happens("s", f"{number}") for number in range(50)), says("hello?"))
        assert len(slice_.deferred) == 1
        assert "nudge to root" in effects(slice_)

    def test_a_busy_thread_is_woken_for_the_deadline_of_its_call(self):
        slice_ = a_slice(pending=call("c", deadline_at=NOW), calls=[call("s", "subscribed")])
        fold(slice_, *(happens("s", f"{number}") for number in range(50)), expires("c"))
        assert "nudge to root" in effects(slice_)

    def test_a_thread_does_not_wake_itself_for_ever(self):
        # Fifty events at the head of the queue wait for a confirming result: no nudge brings it.
        waiting = kept(*(happens("d", f"{number}") for number in range(50)))
        slice_ = fold(a_slice(calls=[call("d", "detached")], waiting=waiting, waiting_more=True), nudge())
        assert effects(slice_) == []

    def test_the_nudge_of_another_version_is_another_message(self):
        many = [says(f"{number}") for number in range(60)]
        (first,), (second,) = (sent(fold(a_slice(thread=replace(ROOT, version=version)), *many)) for version in (4, 5))
        assert first.message_id != second.message_id


class TestWhoseTurnItIs:
    def test_a_person_is_acted_for(self):
        assert fold(a_slice(), says("hi", user_id="ada")).acting_for == "ada"

    def test_a_result_acts_for_whoever_asked_for_the_call(self):
        assert fold(a_slice(pending=call("c", user_id="ada")), answers("c")).acting_for == "ada"

    def test_not_for_the_one_who_spoke_last(self):
        slice_ = a_slice(calls=[call("d", "detached", user_id="ada")], root_metadata={"user_id": "ben"})
        assert fold(slice_, answers("d")).acting_for == "ada"

    def test_a_call_for_nobody_acts_for_nobody(self):
        slice_ = a_slice(pending=call("c"), root_metadata={"user_id": "ben"})
        assert fold(slice_, answers("c")).acting_for is None

    def test_a_person_of_the_same_batch_comes_first(self):
        slice_ = a_slice(calls=[call("d", "detached", user_id="ada")])
        assert fold(slice_, says("hi", user_id="ben"), answers("d")).acting_for == "ben"

    def test_a_child_acts_for_whoever_it_was_told(self):
        slice_ = fold(a_slice(thread=CHILD, history=[]), ours(Text("do it"), metadata={"user_id": "ada"}))
        assert slice_.acting_for == "ada"

    def test_a_person_who_was_named_before_needs_no_name(self):
        thread = replace(ROOT, metadata={"user_id": "ada"})
        assert fold(a_slice(thread=thread, root_metadata={"user_id": "ada"}), says("hi")).acting_for == "ada"

    def test_a_name_that_is_no_text_is_none(self):
        assert fold(a_slice(), theirs(Text("hi"), metadata={"user_id": 7})).acting_for is None

    def test_a_report_acts_for_whoever_had_the_child_made(self):
        calls = [call("spawning", "answered", tool="spawn_thread", tool_set=None, user_id="ada")]
        assert fold(a_slice(calls=calls), report()).acting_for == "ada"


class TestChoices:
    asked = UserChoiceRequired("c", "Sure?", ("yes", "no"), 1, "https://tools.example/c", tool_set=SERVER)

    def slice(self, **fields):
        pending = call("c", user_id="ada", deadline_at=NOW + HOUR, **fields)
        return fold(a_slice(pending=pending), ours(self.asked))

    def test_people_are_told_what_there_is_to_choose(self):
        (output,) = outputs(self.slice())
        assert output.type == "user_choice_required"
        assert output.details == {
            "id": "c",
            "prompt": "Sure?",
            "choices": ["yes", "no"],
            "default": 1,
            "user_id": "ada",
        }
        assert "Sure?" in output.text
        assert "yes" in output.text

    def test_the_person_asked_answers(self):
        slice_ = self.slice()
        fold_batch(slice_, [theirs(UserChoiceResponse("c", 0, user_id="ada"))])
        assert "answer c with 0" in effects(slice_)
        assert slice_.choices == {}
        assert not slice_.respond

    def test_the_name_may_stand_in_the_metadata(self):
        slice_ = self.slice()
        fold_batch(slice_, [theirs(UserChoiceResponse("c", 0), metadata={"user_id": "ada"})])
        assert "answer c with 0" in effects(slice_)

    @pytest.mark.parametrize("who", ["ben", None])
    def test_nobody_else_does(self, who):
        slice_ = self.slice()
        fold_batch(slice_, [theirs(UserChoiceResponse("c", 0, user_id=who))])
        assert "answer c with 0" not in effects(slice_)
        assert "c" in slice_.choices

    def test_anybody_does_where_nobody_is_known(self):
        slice_ = fold(a_slice(pending=call("c")), ours(self.asked))
        fold_batch(slice_, [theirs(UserChoiceResponse("c", 0, user_id="ben"))])
        assert "answer c with 0" in effects(slice_)

    def test_a_choice_that_there_is_not_leaves_the_question_open(self):
        slice_ = self.slice()
        fold_batch(slice_, [theirs(UserChoiceResponse("c", 2, user_id="ada"))])
        assert "c" in slice_.choices
        assert not [text for text in effects(slice_) if text.startswith("answer")]
        assert outputs(slice_)[-1].type == "error"

    def test_a_second_answer_is_absorbed(self):
        slice_ = self.slice()
        fold_batch(slice_, [theirs(UserChoiceResponse("c", index, user_id="ada")) for index in (0, 1)])
        assert [text for text in effects(slice_) if text.startswith("answer")] == ["answer c with 0"]
        assert [output.type for output in outputs(slice_)][1:] == ["user_choice_complete"] * 2
        assert [output.details for output in outputs(slice_)[1:]] == [
            {"choice_id": "c", "user_id": "ada"},
            {"choice_id": "c"},
        ]

    def test_a_second_question_of_one_call_replaces_the_first(self):
        slice_ = self.slice()
        fold_batch(slice_, [ours(replace(self.asked, prompt="Really?", choices=("a", "b", "c")))])
        assert slice_.choices["c"].prompt == "Really?"
        fold_batch(slice_, [theirs(UserChoiceResponse("c", 2, user_id="ada"))])
        assert "answer c with 2" in effects(slice_)

    def test_an_open_question_does_not_settle_the_call(self):
        slice_ = self.slice()
        assert states(slice_) == {"c": "open"}
        assert entries(slice_) == []

    @pytest.mark.parametrize(
        "ending",
        [
            answers("c"),
            answers("c", subscription=True),
            answers("c", is_error=True),
            theirs(STOP),
            ours(CLOSE),
        ],
        ids=["result", "confirming result", "error", "stop", "close"],
    )
    def test_the_end_of_the_call_dismisses_it(self, ending):
        slice_ = self.slice()
        fold_batch(slice_, [ending])
        assert slice_.choices == {}
        assert slice_.choices_opened == {}
        assert slice_.choices_closed == ["c"]
        assert "drop choice" in effects(slice_)
        assert outputs(slice_)[-1].type == "user_choice_complete"

    def test_a_call_that_is_detached_keeps_its_question(self):
        slice_ = self.slice()
        fold_batch(slice_, [says("wait")])
        assert "c" in slice_.choices
        assert states(slice_) == {"c": "detached"}

    @pytest.mark.parametrize(("choices", "default"), [((), 0), (("a",), 1), (("a",), -1)])
    def test_a_question_that_makes_no_sense_is_dropped(self, choices, default):
        slice_ = fold(a_slice(pending=call("c")), ours(replace(self.asked, choices=choices, default=default)))
        assert slice_.choices == {}
        assert effects(slice_) == []
        assert notes(slice_)

    def test_what_tools_say_is_cleaned_for_people(self):
        asked = replace(self.asked, prompt="\x1b[31mSure?\x1b[0m", choices=("\u202eyes", "no\x07"))
        (output,) = outputs(fold(a_slice(pending=call("c")), ours(asked)))
        assert output.details["prompt"] == "Sure?"
        assert output.details["choices"] == ["yes", "no"]

    def test_an_authorization_link_names_the_person_it_is_for(self):
        slice_ = a_slice(pending=call("c", user_id="ada"))
        (output,) = outputs(fold(slice_, ours(OauthRequired("c", "https://login.example", tool_set=SERVER))))
        assert output.details == {"auth_url": "https://login.example", "user_id": "ada"}


class TestTheClock:
    asked = TestChoices.asked

    @pytest.mark.parametrize("what", [asked, OauthRequired("c", "https://login.example", tool_set=SERVER)])
    def test_it_stops_while_something_is_open(self, what):
        slice_ = fold(a_slice(pending=call("c", deadline_at=NOW + HOUR)), ours(what), expires("c"))
        assert slice_.calls["c"].deadline_at is None
        assert slice_.calls["c"].time_left == HOUR
        assert entries(slice_) == []

    def test_it_runs_again_after_the_answer(self):
        slice_ = fold(a_slice(pending=call("c", deadline_at=NOW + HOUR)), ours(self.asked))
        slice_.now = NOW + 10 * HOUR
        fold_batch(slice_, [theirs(UserChoiceResponse("c", 0))])
        assert slice_.calls["c"].deadline_at == NOW + 11 * HOUR
        assert slice_.calls["c"].time_left is None

    def test_a_second_question_leaves_what_is_left(self):
        slice_ = fold(a_slice(pending=call("c", deadline_at=NOW + HOUR)), ours(self.asked), ours(self.asked))
        assert slice_.calls["c"].time_left == HOUR

    def test_time_that_was_over_is_none(self):
        slice_ = fold(a_slice(pending=call("c", deadline_at=NOW - HOUR)), ours(self.asked))
        assert slice_.calls["c"].time_left == timedelta()

    def test_it_goes_on_after_user_text(self):
        slice_ = fold(a_slice(pending=call("c", deadline_at=NOW + HOUR)), says("hi"))
        assert slice_.calls["c"].deadline_at == NOW + HOUR

    def test_the_deadline_of_a_detached_call_waits_for_the_pending_one(self):
        calls = [call("d", "detached", deadline_at=NOW)]
        slice_ = fold(a_slice(pending=call("c"), calls=calls), expires("d"), answers("c", "sunny"))
        assert [text.partition(":")[0] for text in entries(slice_)] == ["result of c", "error event about d"]
        assert slice_.changed_calls["d"].deadline_at is None


class TestMetadata:
    def test_a_person_replaces_it(self):
        slice_ = fold(a_slice(thread=replace(ROOT, metadata={"a": 1})), theirs(Text("hi"), metadata={"b": 2}))
        assert slice_.thread.metadata == {"b": 2}
        assert effects(slice_) == ["keep metadata"]

    def test_the_same_is_not_written_again(self):
        slice_ = fold(a_slice(thread=replace(ROOT, metadata={"a": 1})), theirs(Text("hi"), metadata={"a": 1}))
        assert effects(slice_) == []

    def test_none_at_all_leaves_it(self):
        thread = replace(ROOT, metadata={"a": 1})
        assert fold(a_slice(thread=thread), says("hi")).thread.metadata == {"a": 1}

    def test_our_own_messages_leave_it(self):
        slice_ = fold(a_slice(thread=replace(ROOT, metadata={"a": 1})), ours(Text("hi"), metadata={"user_id": "x"}))
        assert slice_.thread.metadata == {"a": 1}

    def test_a_child_has_none(self):
        slice_ = fold(a_slice(thread=CHILD), theirs(Text("hi"), metadata={"a": 1}))
        assert slice_.thread.metadata is None
        assert effects(slice_) == []

    def test_outputs_echo_it(self):
        slice_ = a_slice(pending=call("c"), root_metadata={"channel": "x"})
        (output,) = outputs(fold(slice_, ours(OauthRequired("c", "https://login.example", tool_set=SERVER))))
        assert output.metadata == {"channel": "x"}

    def test_a_childs_text_says_who_speaks(self):
        slice_ = a_slice(thread=CHILD, pending=call("c"))
        (output,) = outputs(fold(slice_, ours(OauthRequired("c", "https://login.example", tool_set=SERVER))))
        assert output.text.startswith("[root.child] ")
        assert (output.group_id, output.thread_id) == ("root", "root.child")


class TestIdentity:
    def delivery(self, message_id=None, *, proven=False, dedup_id=None, content=None):
        message = InputMessage(content or Text("hi"), "root", message_id=message_id)
        return Delivery(message, "queue-1", dedup_id=dedup_id, proven=proven)

    def test_without_a_name_of_its_own_a_message_is_its_queue_id(self):
        assert self.delivery().identity == "queue-1"
        assert self.delivery(proven=True).identity == "queue-1"

    def test_ours_is_its_message_id(self):
        assert self.delivery("m", proven=True).identity == "m"

    def test_nobody_can_take_the_name_of_a_message_of_ours(self):
        assert self.delivery("m").identity != self.delivery("m", proven=True).identity
        assert self.delivery("m").identity == self.delivery("m").identity

    def test_a_redrive_is_known_by_its_deduplication_id(self):
        assert self.delivery(dedup_id="queue-0").known_as == ("queue-1", "queue-0")

    def test_a_deduplication_id_that_says_nothing_new(self):
        assert self.delivery("m", proven=True, dedup_id="m").known_as == ("m",)

    def test_only_user_content_of_a_person_is_personal(self):
        contents = (
            Text("a"),
            Image("", "image/png"),
            Document("", "text/plain", "a.txt"),
            Parts((Text("a"),)),
            Blob("0" * 64, 1, "text"),
        )
        assert all(self.delivery(content=content).is_personal for content in contents)
        assert not any(self.delivery(content=content, proven=True).is_personal for content in contents)
        others = (STOP, UserChoiceResponse("c"), ToolResult("c", ()))
        assert not any(self.delivery(content=content).is_personal for content in others)

    def test_a_synthetic_message_is_not(self):
        message = InputMessage(Text("a"), "root", synthetic=SubscriptionEvent("c"))
        assert not Delivery(message, "q").is_personal


class TestCompaction:
    def test_the_child_sees_a_fixed_range(self):
        history = [user("one"), called("c"), result("c"), user("two")]
        slice_ = fold(a_slice(history=history, pending=call("d")), ours(Text(""), synthetic=Compaction()))
        ((child, lineage),) = slice_.spawned
        assert child.kind is ThreadKind.COMPACTION
        assert child.compacts_to == child.base == 4
        assert lineage.segments[-1].stop == 4
        assert slice_.thread.compacting_since == NOW

    def test_one_at_a_time(self):
        slice_ = fold(a_slice(), *(ours(Text(""), synthetic=Compaction()) for _ in range(2)))
        assert len(slice_.spawned) == 1

    def test_one_that_never_answered_is_not_waited_for(self):
        slice_ = a_slice(thread=replace(ROOT, compacting_since=NOW - 2 * HOUR))
        assert len(fold(slice_, ours(Text(""), synthetic=Compaction())).spawned) == 1

    def test_nothing_to_summarise(self):
        slice_ = fold(a_slice(history=[], pending=call("c")), ours(Text(""), synthetic=Compaction()))
        assert slice_.spawned == []
        assert slice_.thread.compacting_since is None

    def test_what_does_not_fit_the_window_is_left_for_later(self):
        history = [user("x" * 3000) for _ in range(10)]
        slice_ = fold(a_slice(history=history, window=4000), ours(Text(""), synthetic=Compaction()))
        ((child, _),) = slice_.spawned
        assert 0 < child.compacts_to < 4

    @pytest.mark.parametrize("up_to", [0, 1, 9])
    def test_a_summary_that_stands_for_nothing_new_is_absorbed(self, up_to):
        slice_ = a_slice(history=[user()], history_from=1, thread=replace(ROOT, base=1, compacting_since=NOW))
        fold(slice_, ours(Text(""), synthetic=CompactionComplete(up_to, "short", "root.c")))
        assert slice_.summaries == []
        assert slice_.thread.compacting_since is None

    def test_a_summary_never_cuts_between_a_call_and_its_result(self):
        slice_ = a_slice(history=[user(), called("c"), result("c"), user()])
        fold(slice_, ours(Text(""), synthetic=CompactionComplete(2, "short", "root.c")))
        assert slice_.summaries == []

    def test_an_empty_summary_stands_for_nothing(self):
        slice_ = fold(a_slice(), ours(Text(""), synthetic=CompactionComplete(1, " \n", "root.c")))
        assert slice_.summaries == []
        assert len(slice_.history) == 1

    def test_a_call_that_a_summary_swallowed_is_still_answered(self):
        slice_ = a_slice(calls=[call("d", "detached"), call("s", "subscribed")])
        complete = ours(Text(""), synthetic=CompactionComplete(1, "short", "root.c"))
        fold(slice_, complete, answers("d", "late"), happens("s", associative=True))
        assert entries(slice_) == ["event about d: late", "event about s: news"]


def test_the_same_slice_and_batch_give_the_same_slice():
    batch = [
        says("hi", user_id="ada"),
        report(),
        answers("d"),
        happens("s"),
        happens("s", associative=True),
        theirs(STOP),
        says("again"),
    ]

    def once():
        return fold(
            a_slice(pending=call("c"), calls=[call("d", "detached"), call("s", "subscribed"), nap("n", "answered")]),
            *batch,
        )

    assert once() == once()
