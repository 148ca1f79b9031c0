"""The folding table, cell by cell: what each kind of message does beside each kind of pending call."""

import itertools
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import pytest

from infinity_agents.conversation.content import Image, Text
from infinity_agents.conversation.folding import fold_batch
from infinity_agents.conversation.history import faults
from infinity_agents.conversation.messages import (
    Compaction,
    CompactionComplete,
    Control,
    Nudge,
    OauthRequired,
    ParentMessage,
    Parts,
    ThreadReport,
    UserChoiceRequired,
    UserChoiceResponse,
)
from infinity_agents.conversation.threads import Choice
from tests.conversation.building import (
    HOUR,
    NOW,
    SERVER,
    a_slice,
    answers,
    call,
    effects,
    entries,
    expires,
    happens,
    nap,
    notes,
    ours,
    says,
    states,
    theirs,
    timed_nap,
)

NONE = "no pending call"
PASSIVE = "pending passive call"
TIMED = "pending passive call with a timer"
ACTIVE = "pending active call"
PENDING = {NONE: None, PASSIVE: nap("pending"), TIMED: timed_nap("pending"), ACTIVE: call("pending", deadline_at=NOW)}

DUE = {"deadline_at": NOW}
LEDGER = (
    call("detached", "detached", **DUE),
    call("failed", "failed"),
    timed_nap("interrupted", "detached"),
    call("answered", "answered"),
    call("subscribed", "subscribed"),
    call("ended", "ended"),
    call("cancelled", "cancelled"),
    call("asking", "detached"),
    call("spawning", "answered", tool="spawn_thread", tool_set=None),
)
QUESTION = Choice("asking", "Which one?", ("red", "blue"), 1, "https://tools.example/choose", NOW)
IMAGE = Image("aGk=", "image/png")

INTERRUPTED = {
    NONE: ([], {}),
    PASSIVE: (["result of pending: interrupted by an event"], {"pending": "answered"}),
    TIMED: (["result of pending: interrupted by an event"], {"pending": "detached"}),
}


@dataclass(frozen=True)
class Cell:
    """What a cell of the table says. ``appended`` are patterns; a deferred message leaves the rest as it is."""

    appended: list = field(default_factory=list)
    states: dict = field(default_factory=dict)
    effects: list = field(default_factory=list)
    respond: bool = False
    deferred: bool = False
    logged: bool = False


DEFERRED = Cell(deferred=True)
CELLS = []


def row(name, delivery, cells):
    for column, cell in cells.items():
        CELLS.append(pytest.param(delivery, column, cell, id=f"{name} | {column}"))


def everywhere(cell, columns=(NONE, PASSIVE, TIMED, ACTIVE)):
    return dict.fromkeys(columns, cell)


def event_pair(about, then=None, effects=(), error=False):
    """Return the cells of what becomes an event pair once nothing active is pending."""
    pair = f"{'error event' if error else 'event'} about {about}: *"
    cells = {
        column: Cell([*settled, pair], {**changed, **({about: then} if then else {})}, list(effects), respond=True)
        for column, (settled, changed) in INTERRUPTED.items()
    }
    return {**cells, ACTIVE: DEFERRED}


for what, delivery, heard in (
    ("user text", says("how are you?"), "user: how are you"),
    ("parts", theirs(Parts((Text("look"), IMAGE))), "user: look <image>"),
    ("an image", theirs(IMAGE), "user: <image>"),
):
    by_user = "result of pending: interrupted by the user"
    running = "result of pending: still running its result will come as an event about the call pending"
    row(
        f"user text, parts: {what}",
        delivery,
        {
            NONE: Cell([heard], respond=True),
            PASSIVE: Cell([by_user, heard], {"pending": "answered"}, respond=True),
            TIMED: Cell([by_user, heard], {"pending": "detached"}, respond=True),
            ACTIVE: Cell([running, heard], {"pending": "detached"}, respond=True),
        },
    )

woken = Cell(["result of pending: it is time"], {"pending": "answered"}, respond=True)
row("result of the pending call", answers("pending", "it is time", tool_set=None), {PASSIVE: woken, TIMED: woken})
row(
    "result of the pending call",
    answers("pending", "sunny"),
    {ACTIVE: Cell(["result of pending: sunny"], {"pending": "answered"}, respond=True)},
)
row(
    "error result of the pending call",
    answers("pending", "broken", is_error=True),
    {ACTIVE: Cell(["error of pending: broken"], {"pending": "answered"}, respond=True)},
)
row("result of a detached call", answers("detached", "late"), event_pair("detached", "answered"))
row("result of a failed call", answers("failed", "late"), event_pair("failed", "answered"))
row(
    "result of an interrupted passive call (a timer)",
    answers("interrupted", "it is time", tool_set=None),
    event_pair("interrupted", "answered"),
)
for state in ("answered", "subscribed", "ended", "cancelled"):
    row(f"result of a call that is {state}", answers(state, "again"), everywhere(Cell(logged=True)))

overdue = Cell(["error of pending: *"], {"pending": "failed"}, respond=True)
row("call deadline: of the pending call", expires("pending"), {ACTIVE: overdue})
row("call deadline: of a detached call", expires("detached"), event_pair("detached", "failed", error=True))
for other in ("failed", "answered", "subscribed", "ended", "cancelled", "unknown"):
    row(f"call deadline: of a call that is {other}", expires(other), everywhere(Cell(logged=True)))

row("nudge", ours(Text(""), synthetic=Nudge()), everywhere(Cell()))
row("result of an unknown call", answers("unknown"), everywhere(Cell(logged=True)))
row(
    "result not proven to come from the tool called: the pending one",
    answers("pending", tool_set="another"),
    everywhere(Cell(logged=True), (PASSIVE, TIMED, ACTIVE)),
)
row(
    "result not proven to come from the tool called: a detached one",
    answers("detached", tool_set="another"),
    everywhere(Cell(logged=True)),
)

row("associative event", happens("subscribed", associative=True), event_pair("subscribed"))
row(
    "associative final event",
    happens("subscribed", associative=True, final=True),
    event_pair("subscribed", "ended", effects=["drop subscription"]),
)
row(
    "child's report",
    ours(Text("found it"), synthetic=ThreadReport("spawning", "root.child")),
    event_pair("spawning"),
)
row("parent's message", ours(Text("hurry"), synthetic=ParentMessage("from-above")), event_pair("from-above"))

row("plain subscription event", happens("subscribed"), everywhere(Cell(effects=["first to an event thread"])))
row(
    "plain final subscription event",
    happens("subscribed", final=True),
    everywhere(Cell([], {"subscribed": "ended"}, ["drop subscription", "first to an event thread"])),
)
for kind in ({}, {"associative": True}, {"final": True}):
    named = " ".join(("event", *kind))
    row(
        f"{named} of a subscription whose confirming result has not come",
        happens("detached", **kind),
        everywhere(DEFERRED),
    )
    row(f"{named} of the pending call", happens("pending", **kind), {ACTIVE: DEFERRED})
    for state in ("unknown", "failed", "ended", "cancelled"):
        row(
            f"{named} of a subscription that is {state}",
            happens(state, **kind),
            everywhere(Cell(effects=[f"cancel notice for {state}"], logged=True)),
        )

oauth = OauthRequired("detached", "https://login.example", tool_set=SERVER)
choice = UserChoiceRequired("detached", "Sure?", ("yes", "no"), 0, "https://tools.example/c", tool_set=SERVER)
asked = {"detached": "detached"}
row("oauth of a detached call", ours(oauth), everywhere(Cell([], asked, ["tell oauth_required"])))
row(
    "choice of a detached call", ours(choice), everywhere(Cell([], asked, ["keep choice", "tell user_choice_required"]))
)
asked = {"pending": "open"}
row("oauth of the pending call", ours(replace(oauth, id="pending")), {ACTIVE: Cell([], asked, ["tell oauth_required"])})
row(
    "choice of the pending call",
    ours(replace(choice, id="pending")),
    {ACTIVE: Cell([], asked, ["keep choice", "tell user_choice_required"])},
)
for state in ("answered", "failed", "cancelled", "subscribed", "ended", "unknown"):
    row(f"oauth of a call that is {state}", ours(replace(oauth, id=state)), everywhere(Cell(logged=True)))
    row(f"choice of a call that is {state}", ours(replace(choice, id=state)), everywhere(Cell(logged=True)))
for what in (oauth, choice):
    row(f"{what.type} of another tool set", ours(replace(what, tool_set="another")), everywhere(Cell(logged=True)))

row(
    "choice answered",
    theirs(UserChoiceResponse("asking", 0)),
    everywhere(Cell([], {"asking": "detached"}, ["answer asking with 0", "drop choice", "tell user_choice_complete"])),
)
row(
    "choice dismissed: the default counts",
    theirs(UserChoiceResponse("asking", None)),
    everywhere(Cell([], {"asking": "detached"}, ["answer asking with 1", "drop choice", "tell user_choice_complete"])),
)
for state in ("detached", "answered", "unknown"):
    row(
        f"a second or late answer: the call is {state}",
        theirs(UserChoiceResponse(state, 0)),
        everywhere(Cell(effects=["tell user_choice_complete"])),
    )

ended = {"detached": "cancelled", "interrupted": "cancelled", "asking": "cancelled"}
told = [
    "cancel notice for detached",
    "cancel timer of interrupted",
    "cancel notice for asking",
    "drop choice",
    "tell user_choice_complete",
    "stop to root.child",
]
stopped = ["result of pending: stopped by the user"]
row(
    "stop",
    theirs(Control("stop")),
    {
        NONE: Cell([], ended, told),
        PASSIVE: Cell(stopped, {"pending": "cancelled", **ended}, told),
        TIMED: Cell(stopped, {"pending": "cancelled", **ended}, ["cancel timer of pending", *told]),
        ACTIVE: Cell(stopped, {"pending": "cancelled", **ended}, ["cancel notice for pending", *told]),
    },
)
row(
    "compaction",
    ours(Text(""), synthetic=Compaction()),
    everywhere(Cell(effects=["first to a compaction child"])),
)
row(
    "compaction complete",
    ours(Text(""), synthetic=CompactionComplete(1, "They said hello.", "root.cx")),
    everywhere(Cell()),
)


@pytest.mark.parametrize(("delivery", "column", "cell"), CELLS)
def test_a_cell_of_the_table(delivery, column, cell):
    slice_ = a_slice(pending=PENDING[column], calls=LEDGER, choices={"asking": QUESTION}, children=["root.child"])
    known = list(slice_.history)

    fold_batch(slice_, [delivery])

    appended = entries(slice_)
    assert len(appended) == len(cell.appended), appended
    assert all(map(fnmatchcase, appended, cell.appended)), appended
    assert states(slice_) == cell.states
    assert sorted(effects(slice_)) == sorted(cell.effects)
    assert slice_.respond is cell.respond
    assert slice_.deferred == ([delivery] if cell.deferred else [])
    assert bool(notes(slice_)) is cell.logged
    assert slice_.heard == [delivery.identity]
    assert list(faults([*known, *slice_.new_entries])) == []


def test_every_row_and_column_is_there():
    ids = [str(cell.id) for cell in CELLS]
    assert len(set(ids)) == len(ids)
    for words, column in itertools.product(
        (
            "user text",
            "result of a detached",
            "result of a failed",
            "result of an interrupted",
            "result of a call that is",
            "call deadline: of a detached",
            "nudge",
            "result of an unknown",
            "result not proven",
            "associative event",
            "child's report",
            "parent's message",
            "plain subscription event",
            "confirming result has not come",
            "event of a subscription that is",
            "oauth",
            "choice answered",
            "a second or late answer",
            "stop",
            "compaction",
            "compaction complete",
        ),
        PENDING,
    ):
        assert any(words in id and id.endswith(f"| {column}") for id in ids), (words, column)


class TestWhatTheCellsImply:
    @pytest.mark.parametrize("column", PENDING)
    def test_a_summary_takes_the_place_of_what_it_stands_for(self, column):
        slice_ = a_slice(pending=PENDING[column])
        fold_batch(slice_, [ours(Text(""), synthetic=CompactionComplete(1, "They said hello.", "root.cx"))])
        assert slice_.summary.text == "They said hello."
        assert [summary.up_to for summary in slice_.summaries] == [1]
        assert slice_.history_from == 1
        assert len(slice_.history) == (0 if column == NONE else 1)

    @pytest.mark.parametrize("column", PENDING)
    def test_an_event_thread_starts_from_the_last_safe_point(self, column):
        slice_ = a_slice(pending=PENDING[column], calls=LEDGER)
        fold_batch(slice_, [happens("subscribed")])
        ((child, lineage),) = slice_.spawned
        assert child.base == 1
        assert child.ancestors == ("root",)
        assert child.born_of == "subscribed"
        assert [(segment.thread_id, segment.start, segment.stop) for segment in lineage.segments] == [("root", 0, 1)]

    def test_a_late_result_is_an_event_pair_once(self):
        slice_ = a_slice(calls=LEDGER)
        fold_batch(slice_, [answers("detached", "first"), answers("detached", "second")])
        assert entries(slice_) == ["event about detached: first"]

    def test_a_late_result_after_its_deadline_is_heard_once_more(self):
        slice_ = a_slice(calls=LEDGER)
        fold_batch(slice_, [expires("detached"), answers("detached", "late"), answers("detached", "again")])
        assert [text.partition(":")[0] for text in entries(slice_)] == [
            "error event about detached",
            "event about detached",
        ]

    def test_the_result_of_an_ambiguous_dispatch_leaves_room_for_a_late_one(self):
        slice_ = a_slice(pending=call("pending"))
        fold_batch(slice_, [answers("pending", "no answer", is_error=True, ambiguous=True)])
        assert states(slice_) == {"pending": "failed"}
        assert entries(slice_) == ["error of pending: no answer"]
        fold_batch(slice_, [answers("pending", "here it is")])
        assert entries(slice_)[1:] == ["event about pending: here it is"]

    def test_a_deadline_that_was_put_off_is_absorbed(self):
        slice_ = a_slice(pending=call("pending", deadline_at=NOW + HOUR))
        fold_batch(slice_, [expires("pending")])
        assert entries(slice_) == []
        assert not slice_.respond

    def test_an_event_pair_names_the_original_call(self):
        slice_ = a_slice(calls=LEDGER)
        fold_batch(slice_, [answers("detached", "late")])
        assert slice_.new_entries[0].invocation.arguments == {
            "original_tool_name": "get_weather",
            "original_tool_call_id": "detached",
            "original_args": {"location": "Rome"},
        }
        assert slice_.new_entries[0].invocation.name == "receive_event__injected"
