-- name: fence
-- Where the thread does not stand at the version before, there is no writer, which the column refuses.
INSERT INTO infinity.commits (thread_id, version, root_id, writer, at, spoken_at, personal_at)
VALUES (
    %(thread_id)s, %(version)s, %(root_id)s,
    (SELECT %(writer)s::text FROM infinity.threads WHERE id = %(thread_id)s AND version = %(version)s::bigint - 1),
    %(at)s, %(spoken_at)s, %(personal_at)s
);
-- name: first_fence
INSERT INTO infinity.commits (thread_id, version, root_id, writer, at, spoken_at, personal_at)
VALUES (%(thread_id)s, %(version)s, %(root_id)s, %(writer)s, %(at)s, %(spoken_at)s, %(personal_at)s);
-- name: update_thread
UPDATE infinity.threads SET
    version = %(version)s, at = %(at)s, record = %(record)s, open_under = %(open_under)s,
    paused_under = %(paused_under)s, deferred_since = greatest(deferred_since, %(deferred_since)s::bigint)
WHERE id = %(thread_id)s;
-- name: insert_thread
INSERT INTO infinity.threads (id, root_id, parent_id, version, at, record, open_under, paused_under, deferred_since)
VALUES (
    %(thread_id)s, %(root_id)s, %(parent_id)s, %(version)s, %(at)s, %(record)s, %(open_under)s, %(paused_under)s, 0
);
-- name: spawn
-- A thread of that id that is there already stays as it is: a person may have written to it first.
INSERT INTO infinity.threads (
    id, root_id, parent_id, version, at, record, open_under, paused_under, deferred_since, lineage
)
VALUES (
    %(thread_id)s, %(root_id)s, %(parent_id)s, %(version)s, %(at)s, %(record)s, %(open_under)s, %(paused_under)s, 0,
    %(lineage)s
)
ON CONFLICT (id) DO NOTHING;
-- name: entry
INSERT INTO infinity.entries (thread_id, position, body) VALUES (%(thread_id)s, %(position)s, %(body)s);
-- name: heard
INSERT INTO infinity.inbox (thread_id, id, at) VALUES (%(thread_id)s, %(id)s, %(at)s)
ON CONFLICT (thread_id, id) DO NOTHING;
-- name: forget_effects
DELETE FROM infinity.effects WHERE thread_id = %(thread_id)s AND version <= %(up_to)s;
-- name: effect
INSERT INTO infinity.effects (thread_id, version, ordinal, at, body)
VALUES (%(thread_id)s, %(version)s, %(ordinal)s, %(at)s, %(body)s);
-- name: call
INSERT INTO infinity.calls (thread_id, id, version, ordinal, state, deadline, body)
VALUES (%(thread_id)s, %(id)s, %(version)s, %(ordinal)s, %(state)s, %(deadline)s, %(body)s)
ON CONFLICT (thread_id, id)
DO UPDATE SET state = excluded.state, deadline = excluded.deadline, body = excluded.body;
-- name: close_choice
DELETE FROM infinity.choices WHERE thread_id = %(thread_id)s AND id = %(id)s;
-- name: open_choice
INSERT INTO infinity.choices (thread_id, id, version, ordinal, body)
VALUES (%(thread_id)s, %(id)s, %(version)s, %(ordinal)s, %(body)s)
ON CONFLICT (thread_id, id) DO UPDATE SET body = excluded.body;
-- name: undefer
DELETE FROM infinity.deferred WHERE thread_id = %(thread_id)s AND version = %(version)s AND ordinal = %(ordinal)s;
-- name: defer
INSERT INTO infinity.deferred (thread_id, version, ordinal, call_id, body)
VALUES (%(thread_id)s, %(version)s, %(ordinal)s, %(call_id)s, %(body)s);
-- name: summary
INSERT INTO infinity.summaries (thread_id, up_to, body) VALUES (%(thread_id)s, %(up_to)s, %(body)s)
ON CONFLICT (thread_id, up_to) DO UPDATE SET body = excluded.body;
-- name: stands_at
SELECT
    (SELECT version FROM infinity.threads WHERE id = %(thread_id)s::text),
    (SELECT writer FROM infinity.commits WHERE thread_id = %(thread_id)s::text AND version = %(version)s::bigint);
