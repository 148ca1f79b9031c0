-- Keys are found by the batch, and then deleted one by one in one transaction.
-- name: old_effects
SELECT thread_id, version, ordinal FROM infinity.effects
WHERE thread_id = %(thread_id)s::text AND version <= %(up_to)s::bigint LIMIT %(batch)s::bigint;
-- name: delete_effects
DELETE FROM infinity.effects WHERE thread_id = %s AND version = %s AND ordinal = %s;
-- name: old_inbox
SELECT thread_id, id FROM infinity.inbox WHERE at < %(before)s::bigint LIMIT %(batch)s::bigint;
-- name: delete_inbox
DELETE FROM infinity.inbox WHERE thread_id = %s AND id = %s;
-- name: old_deferred
SELECT thread_id, deferred.version, ordinal FROM infinity.deferred JOIN infinity.threads ON threads.id = thread_id
WHERE deferred.version < deferred_since LIMIT %(batch)s::bigint;
-- name: delete_deferred
DELETE FROM infinity.deferred WHERE thread_id = %s AND version = %s AND ordinal = %s;
