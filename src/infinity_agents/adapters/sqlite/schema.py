"""The tables, and their version.

Threads have a short number ``n`` inside the file, by which all other rows name them: ids are up to 128 characters, and
every row would repeat one. Moments are microseconds since 1970.

Rows of any size that stay (entries, calls) are appended to ordinary tables and found by a narrow index. Keyed by thread
in tables ``WITHOUT ROWID``, the same rows take up to 1.6 times the space: texts over 1,000 bytes spill over into pages
of their own there, and pages split in the middle stay half empty. Rows that soon go (effects, deferred messages) are in
such tables all the same: each further tree is one more page to write with every commit.
"""

VERSION = 1

SCHEMA = """
-- ``at`` is that of the last commit; ``person_heard_at`` is kept by roots, for themselves and all below them.
CREATE TABLE threads (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, root INTEGER, parent INTEGER, version INTEGER NOT NULL,
    closed INTEGER NOT NULL, at INTEGER NOT NULL, person_heard_at INTEGER, record TEXT NOT NULL
);
CREATE INDEX threads_open ON threads (parent) WHERE parent IS NOT NULL AND NOT closed;
CREATE INDEX threads_paused ON threads (ifnull(root, n))
    WHERE json_extract(record, '$.paused_at') IS NOT NULL AND NOT closed;
CREATE TABLE lineages (n INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE entries (seq INTEGER PRIMARY KEY, n INTEGER NOT NULL, position INTEGER NOT NULL, body TEXT NOT NULL);
CREATE UNIQUE INDEX entries_in_order ON entries (n, position);
CREATE TABLE summaries (seq INTEGER PRIMARY KEY, n INTEGER NOT NULL, up_to INTEGER NOT NULL, text TEXT NOT NULL);
CREATE UNIQUE INDEX summaries_in_order ON summaries (n, up_to);

-- ``state`` and ``deadline`` are those of calls from which something is still expected; the body has the rest.
CREATE TABLE calls (
    seq INTEGER PRIMARY KEY, n INTEGER NOT NULL, id TEXT NOT NULL, state TEXT, deadline INTEGER, body TEXT NOT NULL
);
CREATE UNIQUE INDEX calls_by_id ON calls (n, id);
CREATE INDEX calls_active ON calls (n) WHERE state IS NOT NULL;
CREATE INDEX calls_overdue ON calls (deadline) WHERE deadline IS NOT NULL;

-- When a message was heard is known from the commit of that version.
CREATE TABLE inbox (
    n INTEGER NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (n, id)
) WITHOUT ROWID;

CREATE TABLE commits (
    n INTEGER NOT NULL, version INTEGER NOT NULL, writer TEXT NOT NULL, at INTEGER NOT NULL, root INTEGER NOT NULL,
    spoke INTEGER NOT NULL, PRIMARY KEY (n, version)
) WITHOUT ROWID;
CREATE INDEX commits_spoken ON commits (root, at) WHERE spoke;

CREATE TABLE effects (
    n INTEGER NOT NULL, version INTEGER NOT NULL, ordinal INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (n, version, ordinal)
) WITHOUT ROWID;
CREATE TABLE deferred (
    n INTEGER NOT NULL, version INTEGER NOT NULL, ordinal INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (n, version, ordinal)
) WITHOUT ROWID;
CREATE TABLE choices (seq INTEGER PRIMARY KEY, n INTEGER NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL);
CREATE UNIQUE INDEX choices_by_id ON choices (n, id);

CREATE TABLE performed (thread_id TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE copies (
    thread_id TEXT NOT NULL, item TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, value TEXT,
    PRIMARY KEY (thread_id, item, key)
) WITHOUT ROWID;
CREATE TABLE views (
    thread_id TEXT NOT NULL, type TEXT NOT NULL, at REAL NOT NULL, content TEXT NOT NULL, PRIMARY KEY (thread_id, type)
) WITHOUT ROWID;
CREATE TABLE manifests (session_id TEXT PRIMARY KEY, manifests TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE latest_manifests (tool_set TEXT PRIMARY KEY, manifest TEXT NOT NULL) WITHOUT ROWID;

-- ``visible_at`` is null for a message that nobody holds and that waits for nothing.
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY, queue_id TEXT NOT NULL, group_id TEXT NOT NULL, dedup_id TEXT NOT NULL,
    sent_at INTEGER NOT NULL, visible_at INTEGER, receive_count INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE INDEX messages_by_group ON messages (group_id);
CREATE INDEX messages_invisible ON messages (visible_at, group_id) WHERE visible_at IS NOT NULL;
CREATE TABLE sent (key BLOB PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE dead_letters (
    seq INTEGER PRIMARY KEY, queue_id TEXT NOT NULL UNIQUE, group_id TEXT NOT NULL, dedup_id TEXT NOT NULL,
    body TEXT NOT NULL, reason TEXT NOT NULL, parked_at INTEGER NOT NULL, receive_count INTEGER NOT NULL,
    noticed INTEGER NOT NULL
);
CREATE TABLE timers (
    id TEXT PRIMARY KEY, due_at INTEGER NOT NULL, group_id TEXT NOT NULL, dedup_id TEXT NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX timers_due ON timers (due_at);
CREATE TABLE outputs (
    seq INTEGER PRIMARY KEY, output_id TEXT NOT NULL UNIQUE, group_id TEXT NOT NULL, at INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE TABLE blobs (sha256 TEXT PRIMARY KEY, value BLOB NOT NULL);
"""
