"""Every store, queue and timer in memory, for tests and for embedders that need nothing durable.

What would survive a crash is a ``...Data`` object: fresh adapters over the same data are a restarted process. Data
holds JSON texts and immutable values, so nothing is shared with whoever wrote it or reads it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from ..conversation.content import JsonObject, without_surrogates
from ..conversation.effects import PlannedEffect
from ..conversation.history import Entry, Summary
from ..conversation.ledger import ACTIVE_STATES, Call, CallState
from ..conversation.lineage import Lineage, clipped
from ..conversation.outputs import Output
from ..conversation.threads import Thread
from ..errors import FenceLost
from ..ports.clock import Clock
from ..ports.conversations import Commit, LoadRequest, Snapshot, ThreadOverview
from ..ports.queues import DEDUP_WINDOW, DeadLetter, InputSender, Received, refuse_unsendable
from ..ports.state import StateItem
from ..wire import codecs
from ..wire import history as stored
from ..wire import outputs as wire_outputs
from ..wire.inputs import redriven

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CommitRow:
    """One row of the fence."""

    writer: str
    at: datetime
    spoke: bool
    personal: bool


@dataclass(slots=True)
class ThreadRows:
    """All rows of one thread. Dictionaries keep the order in which calls, choices and children came."""

    root_id: str
    record: str
    lineage: str
    entries: dict[int, str] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    inbox: dict[str, datetime] = field(default_factory=dict)
    commits: dict[int, CommitRow] = field(default_factory=dict)
    effects: dict[tuple[int, int], str] = field(default_factory=dict)
    deferred: dict[tuple[int, int], str] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    summaries: dict[int, str] = field(default_factory=dict)
    children: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ConversationData:
    """What a conversation store keeps: rows by thread id."""

    threads: dict[str, ThreadRows] = field(default_factory=dict)


class MemoryConversationStore:
    """A ``ConversationStore`` over ``data``."""

    def __init__(self, data: ConversationData | None = None) -> None:
        self.data = data if data is not None else ConversationData()

    async def load(self, request: LoadRequest) -> Snapshot | None:
        """Return the thread as it is; ``None`` where there is no such thread."""
        rows = self.data.threads.get(request.thread_id)
        if rows is None:
            return None
        thread = stored.threads.decode(rows.record)
        lineage = stored.lineages.decode(rows.lineage)
        summary = self._summary(thread.id, rows, lineage)
        start = max(summary.up_to if summary else 0, request.known_to or 0)
        calls = [stored.calls.decode(text) for text in rows.calls.values()]
        waiting = sorted(rows.deferred.items())
        deferred = tuple(
            replace(stored.deliveries.decode(text), deferred_as=place)
            for place, text in waiting[: request.deferred_limit]
        )
        named = request.call_ids.union(*(delivery.calls_named for delivery in deferred))
        commits = self._family_commits(rows.root_id)
        person_heard_at = max((commit.at for commit in commits if commit.personal), default=None)
        counted_after = max(request.count_since or _LONG_AGO, person_heard_at or _LONG_AGO)
        return Snapshot(
            thread=thread,
            lineage=lineage,
            summary=summary,
            entries=self._visible(thread, rows, lineage, start),
            entries_from=start,
            calls=tuple(call for call in calls if call.state in ACTIVE_STATES or call.id in named),
            heard=request.message_ids & rows.inbox.keys(),
            effects=tuple(
                PlannedEffect(version, ordinal, stored.effects.decode(text))
                for (version, ordinal), text in sorted(rows.effects.items())
            ),
            deferred=deferred,
            deferred_more=len(waiting) > request.deferred_limit,
            choices=tuple(stored.choices.decode(text) for text in rows.choices.values()),
            children=tuple(child for child in rows.children if not self._thread(child).closed),
            root_metadata=self._root_metadata(thread),
            recent_slices=sum(commit.spoke and commit.at > counted_after for commit in commits),
            person_heard_at=person_heard_at,
            paused=tuple(self._paused(rows.root_id, other_than=thread.id)),
        )

    def _thread(self, thread_id: str) -> Thread:
        return stored.threads.decode(self.data.threads[thread_id].record)

    def _summary(self, thread_id: str, rows: ThreadRows, lineage: Lineage) -> Summary | None:
        if rows.summaries:
            up_to = max(rows.summaries)
            return Summary(thread_id, up_to, rows.summaries[up_to])
        if lineage.summary is None:
            return None
        author, up_to = lineage.summary
        return Summary(author, up_to, self.data.threads[author].summaries[up_to])

    def _visible(self, thread: Thread, rows: ThreadRows, lineage: Lineage, start: int) -> tuple[Entry, ...]:
        texts = [
            self.data.threads[segment.thread_id].entries[position]
            for segment in clipped(lineage, start)
            for position in range(segment.start, segment.stop)
        ]
        texts += [rows.entries[position] for position in range(max(start, thread.base), thread.end)]
        return tuple(stored.entries.decode(text) for text in texts)

    def _root_metadata(self, thread: Thread) -> JsonObject | None:
        if thread.parent_id is None:
            return thread.metadata
        return self._thread(thread.root_id).metadata if thread.root_id in self.data.threads else None

    def _paused(self, root_id: str, *, other_than: str) -> Iterator[str]:
        for thread_id, rows in self.data.threads.items():
            if rows.root_id == root_id and thread_id != other_than:
                thread = stored.threads.decode(rows.record)
                if thread.paused_at is not None and not thread.closed:
                    yield thread_id

    def _family_commits(self, root_id: str) -> list[CommitRow]:
        family = [rows for rows in self.data.threads.values() if rows.root_id == root_id]
        return [commit for rows in family for commit in rows.commits.values()]

    async def commit(self, commit: Commit) -> None:
        """Write all of it, or raise ``FenceLost`` and write nothing."""
        if self._is_there(commit):
            return
        # Everything is encoded before anything is written: a value that cannot be encoded leaves no half of a commit.
        record = stored.threads.encode(commit.thread)
        entries = [stored.entries.encode(entry) for entry in commit.entries]
        calls = {call.id: stored.calls.encode(call) for call in commit.calls}
        effects = {(item.version, item.ordinal): stored.effects.encode(item.effect) for item in commit.effects}
        deferred = [stored.deliveries.encode(replace(delivery, deferred_as=None)) for delivery in commit.deferred]
        choices = {choice.id: stored.choices.encode(choice) for choice in commit.choices_opened}
        # A new thread comes before the children that it spawns in the same breath.
        added = [(commit.thread, _rows(commit.thread, Lineage()))] if commit.is_new else []
        added += [(child.thread, _rows(child.thread, child.lineage)) for child in commit.spawned]

        version = commit.thread.version
        for thread, its_rows in added:
            self._add(thread, its_rows)
        rows = self.data.threads[commit.thread.id]
        rows.record = record
        rows.commits[version] = CommitRow(commit.writer, commit.at, commit.spoke, commit.personal)
        rows.entries.update(enumerate(entries, commit.first_position))
        rows.calls.update(calls)
        for message_id in commit.heard:
            rows.inbox.setdefault(message_id, commit.at)
        for summary in commit.summaries:
            self.data.threads[summary.thread_id].summaries[summary.up_to] = without_surrogates(summary.text)
        for place in list(rows.deferred) if commit.all_undeferred else commit.undeferred:
            rows.deferred.pop(place, None)
        rows.deferred.update(((version, ordinal), text) for ordinal, text in enumerate(deferred))
        _forget(rows, commit.forget_effects_to)
        rows.effects.update(effects)
        for choice_id in commit.choices_closed:
            rows.choices.pop(choice_id, None)
        rows.choices.update(choices)

    def _is_there(self, commit: Commit) -> bool:
        thread_id, version = commit.thread.id, commit.thread.version
        rows = self.data.threads.get(thread_id)
        there = rows.commits.get(version) if rows else None
        if there is not None and there.writer == commit.writer:
            return True
        stands_at = stored.threads.decode(rows.record).version if rows else None
        if stands_at != (None if commit.is_new else version - 1):
            raise FenceLost(
                f"thread {thread_id!r} stands at version {stands_at}, so version {version} cannot be committed: "
                "another step was first; deliver the messages again"
            )
        return False

    def _add(self, thread: Thread, rows: ThreadRows) -> None:
        # A thread of that id that is there already stays as it is: a person may have written to it first.
        if self.data.threads.setdefault(thread.id, rows) is rows and thread.parent_id in self.data.threads:
            self.data.threads[thread.parent_id].children.append(thread.id)

    async def overdue_calls(self, now: datetime, limit: int) -> Sequence[tuple[str, Call]]:
        """Return open and detached calls whose deadline has passed, longest overdue first."""
        overdue = [
            (call.deadline_at, thread_id, call)
            for thread_id, rows in self.data.threads.items()
            for call in map(stored.calls.decode, rows.calls.values())
            if call.deadline_at is not None
            and call.deadline_at <= now
            and call.state in {CallState.OPEN, CallState.DETACHED}
        ]
        return [(thread_id, call) for _, thread_id, call in sorted(overdue, key=lambda row: row[:2])[:limit]]

    async def unperformed(self, before: datetime, limit: int) -> Mapping[str, int]:
        """Return the highest version with effect rows of each thread, among commits made before ``before``."""
        found: dict[str, int] = {}
        for thread_id, rows in self.data.threads.items():
            versions = {version for version, _ in rows.effects if rows.commits[version].at < before}
            if versions and len(found) < limit:
                found[thread_id] = max(versions)
        return found

    async def forget_effects(self, thread_id: str, up_to: int) -> None:
        """Delete the effect rows of versions up to ``up_to``."""
        if thread_id in self.data.threads:
            _forget(self.data.threads[thread_id], up_to)

    async def threads(self, *, root_id: str | None = None, limit: int = 1000) -> Sequence[ThreadOverview]:
        """Return threads with their state, roots before children, newest commit first."""
        overviews = [self._overview(rows) for rows in self.data.threads.values()]
        chosen = [item for item in overviews if root_id is None or item.thread.root_id == root_id]
        chosen.sort(key=lambda item: item.thread.id)
        chosen.sort(key=lambda item: item.last_commit_at or item.thread.created_at, reverse=True)
        chosen.sort(key=lambda item: item.thread.parent_id is not None)
        return chosen[:limit]

    def _overview(self, rows: ThreadRows) -> ThreadOverview:
        calls = map(stored.calls.decode, rows.calls.values())
        return ThreadOverview(
            thread=stored.threads.decode(rows.record),
            pending=next((call for call in calls if call.state is CallState.OPEN), None),
            deferred=len(rows.deferred),
            last_commit_at=max((commit.at for commit in rows.commits.values()), default=None),
        )

    async def history(self, thread_id: str) -> Sequence[tuple[int, Entry]]:
        """Return the thread's own entries with their positions."""
        rows = self.data.threads[thread_id]
        return [(position, stored.entries.decode(text)) for position, text in sorted(rows.entries.items())]

    async def calls(self, thread_id: str) -> Sequence[Call]:
        """Return the thread's whole ledger, in the order in which the calls were made."""
        rows = self.data.threads.get(thread_id)
        return [stored.calls.decode(text) for text in rows.calls.values()] if rows else []

    async def prune_inbox(self, before: datetime) -> int:
        """Forget messages heard before ``before``; return how many."""
        pruned = 0
        for rows in self.data.threads.values():
            old = [message_id for message_id, at in rows.inbox.items() if at < before]
            for message_id in old:
                del rows.inbox[message_id]
            pruned += len(old)
        return pruned


def _rows(thread: Thread, lineage: Lineage) -> ThreadRows:
    return ThreadRows(thread.root_id, stored.threads.encode(thread), stored.lineages.encode(lineage))


def _forget(rows: ThreadRows, up_to: int) -> None:
    for place in [place for place in rows.effects if place[0] <= up_to]:
        del rows.effects[place]


@dataclass(slots=True)
class StateData:
    """What a state store keeps: JSON texts, each with what decides whether a later write is newer."""

    performed: dict[str, int] = field(default_factory=dict)
    copies: dict[tuple[str, StateItem], dict[str, tuple[int, str | None]]] = field(default_factory=dict)
    views: dict[str, dict[str, tuple[float, str]]] = field(default_factory=dict)
    manifests: dict[str, str] = field(default_factory=dict)
    latest_manifests: dict[str, str] = field(default_factory=dict)


class MemoryStateStore:
    """A ``StateStore`` over ``data``."""

    def __init__(self, data: StateData | None = None) -> None:
        self.data = data if data is not None else StateData()

    async def performed_through(self, thread_id: str) -> int:
        """Return the highest version whose effects are all performed; 0 where nothing is known."""
        return self.data.performed.get(thread_id, 0)

    async def set_performed_through(self, thread_id: str, version: int) -> None:
        """Move it forward, never back."""
        self.data.performed[thread_id] = max(version, self.data.performed.get(thread_id, 0))

    async def copy(
        self, thread_id: str, item: StateItem, key: str, value: Mapping[str, Any] | None, version: int
    ) -> None:
        """Keep a copy or take it away, unless a newer version of the thread has written it."""
        copies = self.data.copies.setdefault((thread_id, item), {})
        # What was taken away leaves its version behind, so that an older write cannot bring it back.
        if key not in copies or copies[key][0] <= version:
            copies[key] = (version, None if value is None else codecs.values.encode(value))

    async def copies(self, thread_id: str, item: StateItem) -> Mapping[str, Mapping[str, Any]]:
        """Return the copies of one thread, by key."""
        copies = self.data.copies.get((thread_id, item), {})
        return {key: codecs.values.decode(text) for key, (_, text) in copies.items() if text is not None}

    async def put_view(self, thread_id: str, view_type: str, content: Any, at: float) -> None:
        """Keep the newest view of its type."""
        views = self.data.views.setdefault(thread_id, {})
        if view_type not in views or views[view_type][0] <= at:
            views[view_type] = (at, codecs.values.encode(content))

    async def views(self, thread_id: str) -> Mapping[str, Any]:
        """Return the newest views, by type."""
        views = self.data.views.get(thread_id, {})
        return {view_type: codecs.values.decode(text) for view_type, (_, text) in views.items()}

    async def put_manifests(self, session_id: str, manifests: Mapping[str, Any]) -> None:
        """Cache what discovery found for a session."""
        self.data.manifests[session_id] = codecs.values.encode(manifests)

    async def manifests(self, session_id: str) -> Mapping[str, Any] | None:
        """Return the cached discovery of the session, or ``None``."""
        text = self.data.manifests.get(session_id)
        return None if text is None else codecs.values.decode(text)

    async def put_latest_manifest(self, tool_set: str, manifest: Mapping[str, Any]) -> None:
        """Keep the newest manifest of a tool set."""
        self.data.latest_manifests[tool_set] = codecs.values.encode(manifest)

    async def latest_manifest(self, tool_set: str) -> Mapping[str, Any] | None:
        """Return the newest manifest that was ever fetched from the tool set, or ``None``."""
        text = self.data.latest_manifests.get(tool_set)
        return None if text is None else codecs.values.decode(text)


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """``visible_at`` is ``None`` for a message that nobody holds and that waits for nothing."""

    seq: int
    queue_id: str
    group_id: str
    dedup_id: str
    body: str
    sent_at: datetime
    visible_at: datetime | None = None
    receive_count: int = 0

    @property
    def receipt(self) -> str:
        """What gives the message back, until somebody else receives it."""
        return f"{self.seq}:{self.receive_count}"


@dataclass(slots=True)
class QueueData:
    """What an input queue keeps: messages by place, the deduplication ids of the last minutes, and dead letters."""

    last_seq: int = 0
    messages: dict[int, QueuedMessage] = field(default_factory=dict)
    sent: dict[tuple[str, str], datetime] = field(default_factory=dict)
    dead: dict[str, DeadLetter] = field(default_factory=dict)


class MemoryInputQueue:
    """A ``LocalInputQueue`` over ``data``."""

    def __init__(
        self, clock: Clock, data: QueueData | None = None, *, on_arrival: Callable[[], None] = lambda: None
    ) -> None:
        self._clock = clock
        self.data = data if data is not None else QueueData()
        self.on_arrival = on_arrival

    async def send(self, body: str, *, group_id: str, dedup_id: str) -> None:
        """Put a message behind all others of its group, unless its deduplication id was used within 5 minutes.

        Raises:
            Reject: the queue can never take it; the text names the value and the limit.
        """
        refuse_unsendable(body, group_id=group_id, dedup_id=dedup_id)
        now = self._clock.now()
        for key in [key for key, at in self.data.sent.items() if at <= now - DEDUP_WINDOW]:
            del self.data.sent[key]
        if (group_id, dedup_id) in self.data.sent:
            return
        self.data.sent[group_id, dedup_id] = now
        self._append(body, group_id, dedup_id)

    def _append(self, body: str, group_id: str, dedup_id: str) -> None:
        self.data.last_seq += 1
        seq = self.data.last_seq
        self.data.messages[seq] = QueuedMessage(seq, f"queued-{seq}", group_id, dedup_id, body, self._clock.now())
        self.on_arrival()

    async def receive(self, *, groups: int, batch: int, visibility: float) -> Sequence[Sequence[Received]]:
        """Take up to ``batch`` messages from each of up to ``groups`` groups that nobody else holds."""
        now = self._clock.now()
        messages = sorted(self.data.messages.values(), key=attrgetter("seq"))
        blocked = {message.group_id for message in messages if message.visible_at and message.visible_at > now}
        free = [message for message in messages if message.group_id not in blocked]
        chosen = list(dict.fromkeys(message.group_id for message in free))[:groups]
        return [
            [
                self._take(message, now + timedelta(seconds=visibility))
                for message in [message for message in free if message.group_id == group_id][:batch]
            ]
            for group_id in chosen
        ]

    def _take(self, message: QueuedMessage, until: datetime) -> Received:
        taken = replace(message, visible_at=until, receive_count=message.receive_count + 1)
        self.data.messages[taken.seq] = taken
        return _received(taken)

    async def delete(self, received: Sequence[Received]) -> None:
        """Acknowledge; receipts that are no longer valid are ignored."""
        for message in map(self._held, received):
            if message is not None:
                del self.data.messages[message.seq]

    async def release(self, received: Sequence[Received], *, delay: float, is_counted: bool = True) -> None:
        """Give back unprocessed: visible again, in the same order, after ``delay`` seconds."""
        visible_at = self._clock.now() + timedelta(seconds=delay) if delay > 0 else None
        for message in map(self._held, received):
            if message is not None:
                count = message.receive_count - (not is_counted)
                self.data.messages[message.seq] = replace(message, visible_at=visible_at, receive_count=count)

    def _held(self, received: Received) -> QueuedMessage | None:
        message = self.data.messages.get(int(received.receipt.partition(":")[0]))
        return message if message is not None and message.receipt == received.receipt else None

    async def park(self, received: Received, reason: str) -> None:
        """Move to the dead letters, with the reason."""
        message = self._held(received)
        if message is None:
            return
        del self.data.messages[message.seq]
        self.data.dead[message.queue_id] = DeadLetter(
            queue_id=message.queue_id,
            group_id=message.group_id,
            dedup_id=message.dedup_id,
            body=message.body,
            reason=reason,
            parked_at=self._clock.now(),
            receive_count=message.receive_count,
        )

    async def next_visible_at(self) -> datetime | None:
        """Return when the earliest message that waits for its time becomes visible."""
        now = self._clock.now()
        waiting = [at for message in self.data.messages.values() if (at := message.visible_at) and at > now]
        return min(waiting, default=None)

    async def reclaim(self) -> None:
        """Make visible at once what is invisible, whoever holds it."""
        for message in self.data.messages.values():
            self.data.messages[message.seq] = replace(message, visible_at=None)

    async def waiting(self, group_ids: Collection[str]) -> Sequence[Received]:
        """Return the visible messages of these groups in order, without taking them."""
        now = self._clock.now()
        messages = sorted(self.data.messages.values(), key=attrgetter("seq"))
        return [
            _received(message)
            for message in messages
            if message.group_id in group_ids and (message.visible_at is None or message.visible_at <= now)
        ]

    async def outstanding(self) -> Mapping[str, int]:
        """Return how many messages each group has, whoever holds them."""
        return Counter(message.group_id for message in self.data.messages.values())

    async def changed_elsewhere(self) -> bool:
        """Return ``False``: no other process reaches this one's memory."""
        return False

    async def dead_letters(self, *, limit: int = 100, unnoticed: bool = False) -> Sequence[DeadLetter]:
        """Return parked messages, oldest first."""
        letters = [letter for letter in self.data.dead.values() if not (unnoticed and letter.noticed)]
        return letters[:limit]

    async def mark_noticed(self, queue_id: str) -> None:
        """Remember that the keeper has seen to it."""
        if queue_id in self.data.dead:
            self.data.dead[queue_id] = replace(self.data.dead[queue_id], noticed=True)

    async def redrive(self, queue_id: str) -> None:
        """Put it back on the queue under a new queue id."""
        letter = self.data.dead.pop(queue_id)
        self._append(redriven(letter.body, queue_id), letter.group_id, dedup_id=queue_id)

    async def discard(self, queue_id: str) -> None:
        """Forget it."""
        del self.data.dead[queue_id]


def _received(message: QueuedMessage) -> Received:
    return Received(
        body=message.body,
        group_id=message.group_id,
        queue_id=message.queue_id,
        dedup_id=message.dedup_id,
        receipt=message.receipt,
        receive_count=message.receive_count,
        sent_at=message.sent_at,
    )


@dataclass(slots=True)
class OutputData:
    """Everything that was sent to people, repeats included, as JSON texts."""

    sent: list[str] = field(default_factory=list)


class MemoryOutputs:
    """An ``OutputLog`` over ``data`` that also shows repeats, for tests of promise P1."""

    def __init__(self, data: OutputData | None = None) -> None:
        self.data = data if data is not None else OutputData()

    async def send(self, output: Output) -> None:
        """Keep ``output``, a repeat too."""
        self.data.sent.append(wire_outputs.encode(output))

    @property
    def sent(self) -> tuple[Output, ...]:
        """All that was sent, repeats included."""
        return tuple(map(wire_outputs.decode, self.data.sent))

    @property
    def distinct(self) -> Mapping[str, Output]:
        """What a reader sees who drops repeats: the first output of each ``output_id``, in order."""
        return {output.output_id: output for output in reversed(self.sent)}

    async def outputs(
        self, *, after: int = 0, group_id: str | None = None, limit: int = 1000
    ) -> Sequence[tuple[int, Output]]:
        """Return outputs from behind the place ``after``, oldest first, without repeats."""
        places = {output.output_id: place for place, output in reversed(list(enumerate(self.sent, 1)))}
        return [
            (place, output)
            for place, output in enumerate(self.sent, 1)
            if place > after and places[output.output_id] == place and group_id in {None, output.group_id}
        ][:limit]

    async def last_place(self) -> int:
        """Return the place of the newest output; 0 where there is none."""
        return max((place for place, _ in await self.outputs(limit=len(self.sent))), default=0)


@dataclass(frozen=True, slots=True)
class Timer:
    """A message and the moment at which it is put on the queue."""

    due_at: datetime
    body: str
    group_id: str
    dedup_id: str


@dataclass(slots=True)
class TimerData:
    """What timers keep: by timer id."""

    timers: dict[str, Timer] = field(default_factory=dict)


class MemoryTimers:
    """``LocalTimers`` over ``data`` that put their messages on ``queue``."""

    def __init__(self, queue: InputSender, data: TimerData | None = None) -> None:
        self._queue = queue
        self.data = data if data is not None else TimerData()

    async def set(self, timer_id: str, due_at: datetime, body: str, *, group_id: str, dedup_id: str) -> None:
        """Have ``body`` put on the queue at ``due_at``, unless a timer of that id exists."""
        refuse_unsendable(body, group_id=group_id, dedup_id=dedup_id)
        self.data.timers.setdefault(timer_id, Timer(due_at, body, group_id, dedup_id))

    async def cancel(self, timer_id: str) -> None:
        """Forget the timer, where there is one."""
        self.data.timers.pop(timer_id, None)

    async def next_due_at(self) -> datetime | None:
        """Return when the earliest timer is due."""
        return min((timer.due_at for timer in self.data.timers.values()), default=None)

    async def fire_due(self, now: datetime) -> int:
        """Move the bodies of all timers due by ``now`` to the queue, earliest first."""
        due = sorted((timer.due_at, timer_id) for timer_id, timer in self.data.timers.items() if timer.due_at <= now)
        for _, timer_id in due:
            timer = self.data.timers[timer_id]
            await self._queue.send(timer.body, group_id=timer.group_id, dedup_id=timer.dedup_id)
            self.data.timers.pop(timer_id, None)
        return len(due)


@dataclass(slots=True)
class BlobData:
    """What a blob store keeps: values by hash."""

    values: dict[str, bytes] = field(default_factory=dict)


class MemoryBlobStore:
    """A ``BlobStore`` over ``data``."""

    def __init__(self, data: BlobData | None = None) -> None:
        self.data = data if data is not None else BlobData()

    async def put(self, sha256: str, value: bytes) -> None:
        """Keep ``value``."""
        self.data.values[sha256] = value

    async def get(self, sha256: str) -> bytes:
        """Return the value, or raise ``KeyError``."""
        return self.data.values[sha256]
