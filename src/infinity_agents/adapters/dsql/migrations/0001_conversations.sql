-- Every id and body is text: DSQL has no columns of JSON, and its keys hold 1 KiB. Moments are microseconds since 1970.
-- Columns that are null for most rows (open_under, deadline, …) do what partial indexes would.

-- open_under is the parent while the thread is not closed, paused_under the root while it has reached a limit. Deferred
-- messages of versions before deferred_since are gone. at is that of the last commit. lineage is null for roots.
CREATE TABLE IF NOT EXISTS infinity.threads (
    id text PRIMARY KEY, root_id text NOT NULL, parent_id text, version bigint NOT NULL, at bigint NOT NULL,
    open_under text, paused_under text, deferred_since bigint NOT NULL, lineage text, record text NOT NULL
);
CREATE INDEX ASYNC IF NOT EXISTS threads_by_root ON infinity.threads (root_id);
CREATE INDEX ASYNC IF NOT EXISTS threads_open ON infinity.threads (open_under);
CREATE INDEX ASYNC IF NOT EXISTS threads_paused ON infinity.threads (paused_under);

CREATE TABLE IF NOT EXISTS infinity.entries (
    thread_id text, position bigint, body text NOT NULL, PRIMARY KEY (thread_id, position)
);
CREATE TABLE IF NOT EXISTS infinity.summaries (
    thread_id text, up_to bigint, body text NOT NULL, PRIMARY KEY (thread_id, up_to)
);

-- state and deadline are those of calls from which something is still expected; the body has the rest. version and
-- ordinal tell in which order calls (and choices) were made: there are no sequences.
CREATE TABLE IF NOT EXISTS infinity.calls (
    thread_id text, id text, version bigint NOT NULL, ordinal bigint NOT NULL, state text, deadline bigint,
    body text NOT NULL, PRIMARY KEY (thread_id, id)
);
CREATE INDEX ASYNC IF NOT EXISTS calls_active ON infinity.calls (thread_id, state);
CREATE INDEX ASYNC IF NOT EXISTS calls_overdue ON infinity.calls (deadline);

CREATE TABLE IF NOT EXISTS infinity.inbox (
    thread_id text, id text, at bigint NOT NULL, PRIMARY KEY (thread_id, id)
);
CREATE INDEX ASYNC IF NOT EXISTS inbox_by_age ON infinity.inbox (at);

-- The fence. spoken_at and personal_at are those of the commits in which the model spoke, or a person was heard.
CREATE TABLE IF NOT EXISTS infinity.commits (
    thread_id text, version bigint, root_id text NOT NULL, writer text NOT NULL, at bigint NOT NULL, spoken_at bigint,
    personal_at bigint, PRIMARY KEY (thread_id, version)
);
CREATE INDEX ASYNC IF NOT EXISTS commits_spoken ON infinity.commits (root_id, spoken_at);
CREATE INDEX ASYNC IF NOT EXISTS commits_personal ON infinity.commits (root_id, personal_at);

CREATE TABLE IF NOT EXISTS infinity.effects (
    thread_id text, version bigint, ordinal bigint, at bigint NOT NULL, body text NOT NULL,
    PRIMARY KEY (thread_id, version, ordinal)
);

-- call_id is the call that the message is about, if it is about one.
CREATE TABLE IF NOT EXISTS infinity.deferred (
    thread_id text, version bigint, ordinal bigint, call_id text, body text NOT NULL,
    PRIMARY KEY (thread_id, version, ordinal)
);
CREATE TABLE IF NOT EXISTS infinity.choices (
    thread_id text, id text, version bigint NOT NULL, ordinal bigint NOT NULL, body text NOT NULL,
    PRIMARY KEY (thread_id, id)
);
