"""P4: a history is valid whatever arrives in whatever order, nothing is lost, and no id is made twice."""

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from infinity_agents.conversation import ids
from infinity_agents.conversation.content import Image, Text
from infinity_agents.conversation.effects import Dispatch, NotifyCancelled, SendInput, SendOutput
from infinity_agents.conversation.folding import fold_batch
from infinity_agents.conversation.history import (
    CallBody,
    EventEntry,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
    faults,
    is_plain,
    readable,
)
from infinity_agents.conversation.ledger import ACTIVE_STATES, Call, CallState
from infinity_agents.conversation.lineage import Lineage
from infinity_agents.conversation.messages import (
    CallDeadline,
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
from infinity_agents.conversation.slice import Slice
from infinity_agents.conversation.threads import Thread, ThreadKind
from infinity_agents.runtime.admit import unheard
from infinity_agents.settings import AgentSettings
from tests.conversation.building import NOW, SERVER, said

SETTINGS = AgentSettings(deliveries_per_slice=6, events_per_thread=3, slices_per_hour=5)
MINUTE = timedelta(minutes=1)
TOKEN = re.compile("<[0-9]+>")


@dataclass
class World:
    """A thread with the rows that a store would keep of it, and a model that does as it is told."""

    kind: ThreadKind
    defers: bool
    interrupt: str
    moves: list
    thread: Thread = None
    entries: list = field(default_factory=list)
    calls: dict = field(default_factory=dict)
    choices: dict = field(default_factory=dict)
    children: list = field(default_factory=list)
    deferred: dict = field(default_factory=dict)
    inbox: set = field(default_factory=set)
    summary: object = None
    commits: list = field(default_factory=list)
    now: object = NOW
    inputs: list = field(default_factory=list)
    delivered: list = field(default_factory=list)
    made: Counter = field(default_factory=Counter)
    tokens: Counter = field(default_factory=Counter)
    excused: list = field(default_factory=list)
    number: int = 0

    def __post_init__(self):
        ancestors = () if self.kind is ThreadKind.ROOT else ("root",)
        id_ = "root" if self.kind is ThreadKind.ROOT else "root.child"
        self.thread = Thread(id_, self.kind, "model-1", NOW, ancestors=ancestors)

    # Messages.

    def text(self):
        self.number += 1
        return f"<{self.number}>"

    def delivery(self, content, *, proven=True, synthetic=None, **fields):
        self.number += 1
        message_id = f"ours-{self.number}" if proven else None
        message = InputMessage(content, self.thread.id, message_id=message_id, synthetic=synthetic, **fields)
        made = Delivery(message, f"queue-{self.number}", proven=proven)
        self.delivered.append(made)
        return made

    def call_at(self, index):
        known = [*self.calls, "unknown"]
        return known[index % len(known)]

    def server_of(self, call_id):
        return self.calls[call_id].tool_set if call_id in self.calls else SERVER

    def make(self, kind, index, flags):
        """Return the delivery that an instruction stands for."""
        return getattr(self, f"make_{kind}")(self.call_at(index), index, flags)

    def make_text(self, about, index, flags):
        metadata = {"user_id": f"u{flags}"} if flags & 1 else None
        return self.delivery(Text(self.text()), proven=False, metadata=metadata)

    def make_parts(self, about, index, flags):
        return self.delivery(Parts((Text(self.text()), Image("aGk=", "image/png"))), proven=False)

    def make_result(self, about, index, flags):
        body = (Text(self.text()),) if flags != 7 else ()
        failed, server = flags == 5, self.server_of(about)
        result = ToolResult(about, body, is_error=failed, tool_set=server, ambiguous=failed)
        return self.delivery(result, subscription=bool(flags & 2))

    def make_stranger(self, about, index, flags):
        return self.delivery(ToolResult(about, (Text("?"),), tool_set="another"))

    def make_event(self, about, index, flags):
        server = self.server_of(about)
        tag = SubscriptionEvent(about, associative=bool(flags & 1), final=flags > 5, tool_set=server)
        return self.delivery(Text(self.text()), synthetic=tag)

    def make_report(self, about, index, flags):
        return self.delivery(Text(self.text()), synthetic=ThreadReport(about, "root.somebody"))

    def make_parent(self, about, index, flags):
        return self.delivery(Text(self.text()), synthetic=ParentMessage("from-above"))

    def make_deadline(self, about, index, flags):
        return self.delivery(Text(""), synthetic=CallDeadline(about))

    def make_oauth(self, about, index, flags):
        return self.delivery(OauthRequired(about, "https://login.example", tool_set=self.server_of(about)))

    def make_choice(self, about, index, flags):
        server = self.server_of(about)
        return self.delivery(UserChoiceRequired(about, "?", ("a", "b"), 0, "https://tools.example", tool_set=server))

    def make_answer(self, about, index, flags):
        user_id = self.calls[about].user_id if about in self.calls else None
        return self.delivery(UserChoiceResponse(about, (None, 0, 1, 2)[flags % 4], user_id=user_id), proven=False)

    def make_stop(self, about, index, flags):
        return self.delivery(Control("stop"), proven=False)

    def make_close(self, about, index, flags):
        return self.delivery(Control("close"))

    def make_compaction(self, about, index, flags):
        return self.delivery(Text(""), synthetic=Compaction())

    def make_complete(self, about, index, flags):
        spawned = [child.compacts_to for child in self.children if child.kind is ThreadKind.COMPACTION]
        up_to = spawned[index % len(spawned)] if spawned else index
        return self.delivery(Text(""), synthetic=CompactionComplete(up_to, "" if flags == 7 else "short", "root.c"))

    def make_nudge(self, about, index, flags):
        return self.delivery(Text(""), synthetic=Nudge())

    def make_again(self, about, index, flags):
        return self.delivered[index % len(self.delivered)]

    def make_redrive(self, about, index, flags):
        # Without a message id of its own, a redrive is known by the queue id of what was heard before.
        heard = [delivery for delivery in self.delivered if delivery.identity in self.inbox]
        self.number += 1
        first = heard[index % len(heard)]
        return replace(first, queue_id=f"queue-{self.number}", dedup_id=first.identity)

    # A step.

    def step(self, batch):
        """Take a batch through one slice, as the phases would, and check what must hold of every slice."""
        new = unheard(batch, frozenset(self.inbox))
        if not new:
            return
        self.now += MINUTE
        slice_ = self.load(new)
        before = len(self.entries)
        fold_batch(slice_, new)
        assert slice_.heard.count(slice_.heard[0]) == 1
        assert sorted(slice_.heard) == sorted(delivery.identity for delivery in new)
        if slice_.respond:
            assert slice_.pending is None, "the model would speak between a call and its result"
            assert not slice_.thread.closed
            self.speak(slice_)
        self.commit(slice_)
        assert len(self.entries) == before + len(slice_.new_entries)
        assert list(faults(self.entries)) == []
        assert list(faults(slice_.history)) == []
        assert slice_.history == [readable(entry) for entry in self.entries[slice_.history_from :]]
        assert slice_.special == [
            place for place, entry in enumerate(self.entries) if place >= slice_.history_from and not is_plain(entry)
        ]
        assert len(slice_.undeferred) == len(set(slice_.undeferred))
        if slice_.thread.closed:
            assert slice_.deferred == []

    def load(self, batch):
        waiting = [replace(delivery, deferred_as=place) for place, delivery in sorted(self.deferred.items())]
        read = waiting[: SETTINGS.deliveries_per_slice]
        named = {call_id for delivery in (*batch, *read) for call_id in _named(delivery)}
        start = self.summary.up_to if self.summary else 0
        heard_at = max((at for at, _, personal in self.commits if personal), default=None)
        return Slice(
            thread=self.thread,
            lineage=Lineage(),
            summary=self.summary,
            history=[readable(entry) for entry in self.entries[start:]],
            history_from=start,
            special=[place for place, entry in enumerate(self.entries) if place >= start and not is_plain(entry)],
            calls={row.id: row for row in self.calls.values() if row.state in ACTIVE_STATES or row.id in named},
            choices=dict(self.choices),
            children=[child.id for child in self.children],
            waiting=read,
            waiting_more=len(waiting) > len(read),
            now=self.now,
            settings=replace(SETTINGS, interrupt=self.interrupt),
            window=400,
            person_heard_at=heard_at,
            recent_slices=sum(spoke and (heard_at is None or at > heard_at) for at, spoke, _ in self.commits),
            defers=self.defers,
        )

    def speak(self, slice_):
        slice_.spoke = True
        for _ in range(4):
            move = self.moves.pop(0) if self.moves else "text"
            slice_.append(said("hm"))
            slice_.tell("message", "hm")
            if move == "text":
                return
            call = Call(
                id=slice_.new_call_id(),
                tool=move,
                arguments={},
                state=CallState.OPEN,
                made_at=self.now,
                user_id=slice_.acting_for,
                tool_set=SERVER if move == "dispatch" else None,
                is_passive=move in {"sleep", "wait"},
                deadline_at=self.now + MINUTE if move == "dispatch" else None,
                wakes_at=self.now + MINUTE if move == "sleep" else None,
            )
            slice_.append(ToolCallEntry(CallBody(call.id, call.tool, {})))
            if move in {"dispatch", "sleep", "wait"}:
                slice_.record(call)
                slice_.plan(Dispatch(call.id, call.tool))
                return
            if move == "spawn":
                slice_.spawn(
                    ThreadKind.CHILD,
                    ids.child_id("root", slice_.thread.id, call.id),
                    born_of=call.id,
                    first=(Text("do it"),),
                )
            if move == "cancel":
                for running in [row for row in slice_.calls.values() if row.state is CallState.DETACHED]:
                    slice_.cancel(running)
            if move == "close" and slice_.thread.ancestors:
                slice_.close()
            slice_.answer(call, (Text("done"),), CallState.ANSWERED)
            if slice_.thread.closed:
                return

    def commit(self, slice_):
        version = slice_.version
        self.thread = replace(slice_.thread, version=version, length=self.thread.length + len(slice_.new_entries))
        self.entries.extend(slice_.new_entries)
        self.calls.update(slice_.changed_calls)
        self.inbox.update(slice_.heard)
        for place in list(self.deferred) if slice_.thread.closed else slice_.undeferred:
            del self.deferred[place]
        self.deferred.update(((version, ordinal), delivery) for ordinal, delivery in enumerate(slice_.deferred))
        for choice_id in slice_.choices_closed:
            self.choices.pop(choice_id, None)
        self.choices.update(slice_.choices_opened)
        assert self.choices == slice_.choices
        self.children.extend(child for child, _ in slice_.spawned)
        self.summary = slice_.summary
        self.commits.append((self.now, slice_.spoke, slice_.personal))
        self.made.update(child.id for child, _ in slice_.spawned)
        self.excused.extend(item.note for item in slice_.events if hasattr(item, "note"))
        for entry in slice_.new_entries:
            self.tokens.update(TOKEN.findall(_text(entry)))
        for planned in slice_.effects:
            match planned.effect:
                case SendInput(message=message):
                    self.made[message.message_id] += 1
                    self.tokens.update(TOKEN.findall(_said(message)))
                    if message.group_id == self.thread.id:
                        self.inputs.append(Delivery(message, f"queue-{message.message_id}", proven=True))
                case SendOutput(output=output):
                    self.made[output.output_id] += 1
                case NotifyCancelled(call_id=call_id):
                    self.excused.append(f"cancelled {call_id}")

    # The end.

    def settle(self):
        """Let everything come that is still expected: a person, the results, what the thread sends to itself."""
        self.moves.clear()
        self.step([self.make("text", 0, 0)])
        for _ in range(60):
            running = [row for row in self.calls.values() if row.state in {CallState.OPEN, CallState.DETACHED}]
            batch, self.inputs = [*self.inputs[:3]], self.inputs[3:]
            batch += [
                self.delivery(ToolResult(row.id, (Text(self.text()),), tool_set=row.tool_set)) for row in running[:2]
            ]
            if not batch and not self.deferred:
                break
            # Whoever waits with nothing under way is woken by the keeper, or by a person.
            self.step(batch or [self.make("text", 0, 0)])
        assert not self.inputs, "the thread wakes itself for ever"
        assert self.thread.closed or not self.deferred, "messages wait for ever"

    def check_nothing_is_lost(self):
        kept = Counter(token for row in self.deferred.values() for token in TOKEN.findall(_said(row.message)))
        notes = " ".join(self.excused)
        for delivery in self.delivered:
            if delivery.identity not in self.inbox:
                continue
            for token in TOKEN.findall(_said(delivery.message)):
                places = self.tokens[token] + kept[token]
                assert places <= 1, f"{token} is heard twice"
                about = next(iter(_named(delivery)), None)
                excused = about is not None and about in notes
                is_owed = isinstance(delivery.message.synthetic, ThreadReport | ParentMessage) or about is None
                assert places == 1 or self.thread.closed or (excused and not is_owed), f"{token} is lost: {delivery}"
        forgotten = [call_id for call_id in self.calls if f"unknown call {call_id}" in notes]
        assert not forgotten, f"the ledger forgot {forgotten}"
        twice = [made for made, count in self.made.items() if count > 1]
        assert not twice, f"made twice: {twice}"


def _named(delivery):
    tag, content = delivery.message.synthetic, delivery.message.content
    if isinstance(tag, SubscriptionEvent | ThreadReport | ParentMessage | CallDeadline):
        yield tag.tool_call_id
    elif isinstance(content, ToolResult | OauthRequired | UserChoiceRequired):
        yield content.id
    elif isinstance(content, UserChoiceResponse):
        yield content.choice_id


def _said(message):
    content = message.content
    parts = content.parts if isinstance(content, Parts) else getattr(content, "content", (content,))
    return " ".join(getattr(part, "text", "") for part in parts)


def _text(entry):
    match entry:
        case UserEntry(content=parts):
            return " ".join(getattr(part, "text", "") for part in parts)
        case ToolResultEntry(result=body) | EventEntry(result=body):
            return " ".join(getattr(part, "text", "") for part in body.content)
    return ""


KINDS = (
    ["text"] * 3
    + ["result"] * 5
    + ["event"] * 5
    + ["report", "report", "deadline", "deadline", "again", "again", "redrive", "choice", "answer", "oauth", "stop"]
    + ["parts", "parent", "compaction", "complete", "nudge", "stranger", "own", "late"]
)
MOVES = ["dispatch"] * 4 + ["sleep", "sleep", "wait", "text", "text", "sync", "spawn", "cancel", "close"]
INSTRUCTION = st.tuples(st.sampled_from(KINDS), st.integers(0, 30), st.integers(0, 7))
BATCHES = st.lists(st.lists(INSTRUCTION, min_size=1, max_size=9), min_size=1, max_size=12)


SETTINGS_OF_A_THREAD = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([ThreadKind.ROOT, ThreadKind.ROOT, ThreadKind.CHILD]),
        "defers": st.sampled_from([True, True, False]),
        "interrupt": st.sampled_from(["detach", "detach", "cancel"]),
        "moves": st.lists(st.sampled_from(MOVES), max_size=30),
    }
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(batches=BATCHES, thread=SETTINGS_OF_A_THREAD, closing=st.sampled_from([None, None, None, 2, 5]))
def test_p4_a_history_is_valid_whatever_arrives(batches, thread, closing):
    world = World(**thread)
    world.step([world.make("text", 0, 1)])
    late = []
    for number, batch in enumerate(batches):
        made = []
        for what, index, flags in batch:
            if what == "own":
                made.extend(world.inputs)
                world.inputs = []
            elif what == "late":
                made.extend(reversed(late))
                late.clear()
            else:
                delivery = world.make(what, index, flags)
                (late if flags == 4 else made).append(delivery)
        if number == closing and world.kind is not ThreadKind.ROOT:
            made.append(world.make("close", 0, 0))
        if made:
            world.step(made)
    if late:
        world.step(late)
    world.settle()
    world.check_nothing_is_lost()
    event(f"closed: {world.thread.closed}")
    event(f"entries: {len(world.entries) // 10 * 10}")
    event(f"compacted: {world.summary is not None}")
