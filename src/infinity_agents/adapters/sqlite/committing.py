"""Everything that one slice writes, inside one transaction."""

import sqlite3
from dataclasses import replace
from typing import cast

from ...conversation.content import without_surrogates
from ...conversation.ledger import ACTIVE_STATES, Call, CallState
from ...errors import FenceLost
from ...ports.conversations import Commit, SpawnedThread
from ...wire import history as stored
from .database import micros


def write_commit(connection: sqlite3.Connection, commit: Commit) -> None:
    """Write ``commit``, unless it is there already.

    Raises:
        FenceLost: the thread does not stand at the version before.
    """
    thread, version = commit.thread, commit.thread.version
    row = connection.execute("SELECT n, version, root FROM threads WHERE id = ?", (thread.id,)).fetchone()
    if (None if row is None else row[1]) != (None if commit.is_new else version - 1):
        _explain(connection, commit, row)
        return
    n = _write_thread(connection, commit, row)
    root, at = (row and row[2]) or n, micros(commit.at)
    connection.execute(
        "INSERT INTO commits (n, version, writer, at, root, spoke) VALUES (?, ?, ?, ?, ?, ?)",
        (n, version, commit.writer, at, root, commit.spoke),
    )
    if commit.personal:
        connection.execute(
            "UPDATE threads SET person_heard_at = ? WHERE n = ? AND ifnull(person_heard_at, 0) < ?", (at, root, at)
        )
    if commit.entries:
        connection.executemany(
            "INSERT INTO entries (n, position, body) VALUES (?, ?, ?)",
            [
                (n, position, stored.entries.encode(entry))
                for position, entry in enumerate(commit.entries, commit.first_position)
            ],
        )
    if commit.heard:
        connection.executemany(
            "INSERT OR IGNORE INTO inbox (n, id, version) VALUES (?, ?, ?)",
            [(n, message_id, version) for message_id in commit.heard],
        )
    _write_effects(connection, n, commit)
    _write_ledger(connection, n, commit)
    _write_deferred(connection, n, commit)
    for child in commit.spawned:
        _spawn(connection, child)
    for summary in commit.summaries:
        connection.execute(
            "INSERT OR REPLACE INTO summaries (n, up_to, text) VALUES ((SELECT n FROM threads WHERE id = ?), ?, ?)",
            (summary.thread_id, summary.up_to, without_surrogates(summary.text)),
        )


def _explain(connection: sqlite3.Connection, commit: Commit, row: tuple[int, int, int | None] | None) -> None:
    n, stands_at, _ = row or (None, None, None)
    version = commit.thread.version
    there = connection.execute("SELECT writer FROM commits WHERE n = ? AND version = ?", (n, version)).fetchone()
    if there != (commit.writer,):
        raise FenceLost(
            f"thread {commit.thread.id!r} stands at version {stands_at}, so version {version} cannot be committed: "
            "another step was first; deliver the messages again"
        )


def _write_thread(connection: sqlite3.Connection, commit: Commit, row: tuple[int, int, int | None] | None) -> int:
    thread = commit.thread
    values = (thread.version, thread.closed, micros(commit.at), stored.threads.encode(thread))
    if row is not None:
        connection.execute(
            "UPDATE threads SET version = ?, closed = ?, at = ?, record = ? WHERE n = ?", (*values, row[0])
        )
        return row[0]
    written = connection.execute(
        "INSERT INTO threads (version, closed, at, record, id) VALUES (?, ?, ?, ?, ?)", (*values, thread.id)
    )
    return cast("int", written.lastrowid)


def _write_effects(connection: sqlite3.Connection, n: int, commit: Commit) -> None:
    if commit.forget_effects_to:
        connection.execute("DELETE FROM effects WHERE n = ? AND version <= ?", (n, commit.forget_effects_to))
    if commit.effects:
        connection.executemany(
            "INSERT INTO effects (n, version, ordinal, body) VALUES (?, ?, ?, ?)",
            [(n, item.version, item.ordinal, stored.effects.encode(item.effect)) for item in commit.effects],
        )


def _write_ledger(connection: sqlite3.Connection, n: int, commit: Commit) -> None:
    if commit.calls:
        connection.executemany(
            "INSERT INTO calls (n, id, state, deadline, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT (n, id)"
            " DO UPDATE SET state = excluded.state, deadline = excluded.deadline, body = excluded.body",
            [(n, call.id, *_expected(call), stored.calls.encode(call)) for call in commit.calls],
        )
    for choice_id in commit.choices_closed:
        connection.execute("DELETE FROM choices WHERE n = ? AND id = ?", (n, choice_id))
    for choice in commit.choices_opened:
        connection.execute(
            "INSERT INTO choices (n, id, body) VALUES (?, ?, ?) ON CONFLICT (n, id) DO UPDATE SET body = excluded.body",
            (n, choice.id, stored.choices.encode(choice)),
        )


def _expected(call: Call) -> tuple[str | None, int | None]:
    state = call.state.value if call.state in ACTIVE_STATES else None
    timed = call.state in {CallState.OPEN, CallState.DETACHED} and call.deadline_at is not None
    return state, micros(call.deadline_at) if timed and call.deadline_at else None


def _write_deferred(connection: sqlite3.Connection, n: int, commit: Commit) -> None:
    if commit.all_undeferred:
        connection.execute("DELETE FROM deferred WHERE n = ?", (n,))
    elif commit.undeferred:
        connection.executemany(
            "DELETE FROM deferred WHERE n = ? AND version = ? AND ordinal = ?",
            [(n, *place) for place in commit.undeferred],
        )
    if commit.deferred:
        connection.executemany(
            "INSERT INTO deferred (n, version, ordinal, body) VALUES (?, ?, ?, ?)",
            [
                (n, commit.thread.version, ordinal, stored.deliveries.encode(replace(delivery, deferred_as=None)))
                for ordinal, delivery in enumerate(commit.deferred)
            ],
        )


def _spawn(connection: sqlite3.Connection, child: SpawnedThread) -> None:
    thread = child.thread
    # A thread of that id that is there already stays as it is: a person may have written to it first.
    written = connection.execute(
        "INSERT OR IGNORE INTO threads (id, root, parent, version, closed, at, record)"
        " VALUES (?, (SELECT n FROM threads WHERE id = ?), (SELECT n FROM threads WHERE id = ?), ?, ?, ?, ?)",
        (
            thread.id,
            thread.root_id,
            thread.parent_id,
            thread.version,
            thread.closed,
            micros(thread.created_at),
            stored.threads.encode(thread),
        ),
    )
    if written.rowcount:
        connection.execute(
            "INSERT INTO lineages (n, body) VALUES (?, ?)", (written.lastrowid, stored.lineages.encode(child.lineage))
        )
