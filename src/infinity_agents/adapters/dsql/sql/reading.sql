-- name: overdue_calls
SELECT thread_id, body FROM infinity.calls WHERE deadline <= %(now)s::bigint
ORDER BY deadline, thread_id LIMIT %(limit)s::bigint;
-- name: unperformed
SELECT thread_id, max(version) FROM infinity.effects WHERE at < %(before)s::bigint
GROUP BY thread_id LIMIT %(limit)s::bigint;
-- name: threads
SELECT record, at,
    (SELECT body FROM infinity.calls WHERE thread_id = threads.id AND state = 'open'
        ORDER BY version, ordinal LIMIT 1),
    (SELECT count(*) FROM infinity.deferred WHERE thread_id = threads.id AND version >= threads.deferred_since)
FROM infinity.threads WHERE %(root_id)s::text IS NULL OR root_id = %(root_id)s::text
ORDER BY parent_id IS NOT NULL, at DESC, id LIMIT %(limit)s::bigint;
-- name: history
SELECT position, entries.body FROM infinity.threads LEFT JOIN infinity.entries ON thread_id = id
WHERE id = %(thread_id)s::text ORDER BY position;
-- name: calls
SELECT body FROM infinity.calls WHERE thread_id = %(thread_id)s::text ORDER BY version, ordinal;
