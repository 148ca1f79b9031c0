-- Each deletes one batch, so that no transaction passes the number of rows that DSQL takes.
-- name: forget_effects
DELETE FROM infinity.effects WHERE thread_id = %(thread_id)s::text AND (version, ordinal) IN (
    SELECT version, ordinal FROM infinity.effects WHERE thread_id = %(thread_id)s::text AND version <= %(up_to)s::bigint
    LIMIT %(batch)s::bigint
);
-- name: prune_inbox
DELETE FROM infinity.inbox WHERE (thread_id, id) IN (
    SELECT thread_id, id FROM infinity.inbox WHERE at < %(before)s::bigint LIMIT %(batch)s::bigint
);
-- name: prune_deferred
DELETE FROM infinity.deferred WHERE (thread_id, version, ordinal) IN (
    SELECT thread_id, deferred.version, ordinal FROM infinity.deferred JOIN infinity.threads ON threads.id = thread_id
    WHERE deferred.version < deferred_since LIMIT %(batch)s::bigint
);
