-- A thread as a step needs it, in one statement: one moment, one round trip. Each row says what it is (kind); a and b
-- are numbers, by which rows of one kind are ordered; x is an id, body a JSON text. OFFSET 0 keeps a lookup by key what
-- it is: joined as the planner likes, it may read a thread's rows through, or the whole table.
-- name: load
WITH asked AS (
    SELECT threads.*,
        (SELECT max(up_to) FROM infinity.summaries WHERE thread_id = threads.id) AS own,
        (SELECT max(personal_at) FROM infinity.commits WHERE root_id = threads.root_id) AS heard_at
    FROM infinity.threads WHERE id = %(thread_id)s::text
), seen AS (
    SELECT asked.*,
        CASE WHEN own IS NULL THEN lineage::json -> 'summary' ->> 0 ELSE id END AS author,
        coalesce(own, (lineage::json -> 'summary' ->> 1)::bigint) AS up_to,
        greatest(own, (lineage::json -> 'summary' ->> 1)::bigint, %(known_to)s::bigint) AS start
    FROM asked
), waiting AS (
    SELECT version, ordinal, call_id, body FROM infinity.deferred
    WHERE thread_id = %(thread_id)s::text AND version >= (SELECT deferred_since FROM asked)
    ORDER BY version, ordinal LIMIT %(deferred_limit)s::bigint + 1
)
SELECT 0 AS kind,
    (SELECT count(*) FROM infinity.commits WHERE root_id = seen.root_id
        AND spoken_at > greatest(%(count_since)s::bigint, seen.heard_at)) AS a,
    heard_at AS b, lineage AS x, record AS body FROM seen
UNION ALL
SELECT 1, NULL, NULL, NULL, roots.record
    FROM seen JOIN infinity.threads AS roots ON roots.id = seen.root_id WHERE seen.root_id <> seen.id
UNION ALL
SELECT 2, summaries.up_to, NULL, thread_id, body
    FROM seen JOIN infinity.summaries ON thread_id = author AND summaries.up_to = seen.up_to
UNION ALL
SELECT 3, position, NULL, NULL, body FROM infinity.entries
    WHERE thread_id = %(thread_id)s::text AND position >= (SELECT start FROM seen)
UNION ALL
SELECT 3, position, NULL, NULL, inherited.body
    FROM seen CROSS JOIN json_array_elements(lineage::json -> 'segments') AS part CROSS JOIN LATERAL (
        SELECT position, body FROM infinity.entries
        WHERE thread_id = part ->> 'thread_id' AND position < (part ->> 'stop')::bigint
            AND position >= greatest((part ->> 'start')::bigint, seen.start)
        OFFSET 0
    ) AS inherited
UNION ALL
SELECT 4, version, ordinal, NULL, body FROM infinity.calls
    WHERE thread_id = %(thread_id)s::text AND state IN ('open', 'detached', 'subscribed')
UNION ALL
SELECT 4, named.version, named.ordinal, NULL, named.body
    FROM (SELECT unnest(%(call_ids)s::text[]) AS id UNION (SELECT call_id FROM waiting
        WHERE call_id IS NOT NULL ORDER BY version, ordinal LIMIT %(deferred_limit)s::bigint)) AS names
    CROSS JOIN LATERAL (
        SELECT version, ordinal, body FROM infinity.calls
        WHERE thread_id = %(thread_id)s::text AND calls.id = names.id AND state IS NULL OFFSET 0
    ) AS named
UNION ALL
SELECT 5, NULL, NULL, heard.id, NULL
    FROM unnest(%(message_ids)s::text[]) AS message_id CROSS JOIN LATERAL (
        SELECT id FROM infinity.inbox WHERE thread_id = %(thread_id)s::text AND id = message_id OFFSET 0
    ) AS heard
UNION ALL
SELECT 6, version, ordinal, NULL, body FROM infinity.effects WHERE thread_id = %(thread_id)s::text
UNION ALL
SELECT 7, version, ordinal, NULL, body FROM waiting
UNION ALL
SELECT 8, version, ordinal, NULL, body FROM infinity.choices WHERE thread_id = %(thread_id)s::text
UNION ALL
SELECT 9, NULL, NULL, id, NULL FROM infinity.threads WHERE open_under = %(thread_id)s::text
UNION ALL
SELECT 10, NULL, NULL, threads.id, NULL
    FROM seen JOIN infinity.threads ON threads.paused_under = seen.root_id WHERE threads.id <> seen.id;
