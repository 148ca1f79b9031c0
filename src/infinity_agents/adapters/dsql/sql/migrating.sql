-- name: create_schema
CREATE SCHEMA IF NOT EXISTS infinity;
-- name: create_versions
CREATE TABLE IF NOT EXISTS infinity.versions (version bigint PRIMARY KEY, name text NOT NULL, at bigint NOT NULL);
-- name: versions
SELECT version FROM infinity.versions;
-- name: done
INSERT INTO infinity.versions (version, name, at) VALUES (%(version)s, %(name)s, %(at)s)
ON CONFLICT (version) DO NOTHING;
-- name: running_jobs
SELECT job_id FROM sys.jobs WHERE status IN ('submitted', 'processing');
-- name: invalid_indexes
SELECT relname FROM pg_catalog.pg_index JOIN pg_catalog.pg_class ON pg_class.oid = indexrelid
WHERE NOT indisvalid AND relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'infinity');
-- name: role
SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %(role)s::text;
-- name: iam_mapping
SELECT 1 FROM sys.iam_pg_role_mappings WHERE pg_role_name = %(role)s::text AND arn = %(arn)s::text;
