"""What Aurora DSQL refuses is in none of the SQL files, and the check that says so knows what it refuses."""

import re
from pathlib import Path

import pytest

import infinity_agents
from infinity_agents.adapters.dsql import DsqlDatabase
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.dsql import DsqlRefuses, LikeDsql, refusals

PACKAGE = Path(infinity_agents.__file__).parent
FILES = sorted(PACKAGE.rglob("*.sql"))


def test_there_are_sql_files():
    assert len(FILES) > 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_dsql_refuses_nothing_in(path):
    assert refusals(path.read_text()) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_table_that_is_named_is_in_our_schema(path):
    text = re.sub(r"--.*", "", path.read_text())
    made_here = set(re.findall(r"(\w+) AS \(", text)) | {"json_array_elements", "unnest", "LATERAL"}
    named = set(re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE|ON) (\w+)(?![\w.=])(?! =)", text))
    assert named - made_here - {"SET", "CONFLICT", "SCHEMA"} == set()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE TABLE t (a jsonb)", "JSONB"),
        ("CREATE TABLE t (a json NOT NULL)", "JSON"),
        ("ALTER TABLE t ADD COLUMN a text[]", "array"),
        ("CREATE TABLE t (a integer ARRAY)", "ARRAY"),
        ("CREATE TABLE t (a bigserial PRIMARY KEY)", "BIGSERIAL"),
        ("CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY)", "IDENTITY"),
        ("CREATE TABLE t (a text REFERENCES u (a))", "REFERENCES"),
        ("CREATE TABLE t (a text, FOREIGN KEY (a) REFERENCES u)", "FOREIGN"),
        ('CREATE TABLE t (a text COLLATE "de_DE")', "COLLATE"),
        ("CREATE TABLE t AS SELECT 1", "AS"),
        ("CREATE TABLE t () INHERITS (u)", "INHERITS"),
        ("CREATE TABLE t (a text) PARTITION BY HASH (a)", "PARTITION"),
        ("CREATE TEMPORARY TABLE t (a text)", "TEMPORARY"),
        ("CREATE INDEX i ON t (a)", "without ASYNC"),
        ("CREATE UNIQUE INDEX IF NOT EXISTS i ON t (a)", "without ASYNC"),
        ("CREATE INDEX CONCURRENTLY i ON t (a)", "CONCURRENTLY"),
        ("CREATE INDEX ASYNC i ON t (lower(a))", "expression"),
        ("CREATE INDEX ASYNC i ON t (a DESC)", "order"),
        ("CREATE SEQUENCE s", "SEQUENCE"),
        ("SELECT nextval('s')", "NEXTVAL"),
        ("CREATE TRIGGER x BEFORE INSERT ON t EXECUTE FUNCTION f()", "TRIGGER"),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$", "PLPGSQL"),
        ("CREATE EXTENSION pgcrypto", "EXTENSION"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "MATERIALIZED"),
        ("DO $$ BEGIN END $$", "DO"),
        ("truncate t", "TRUNCATE"),
        ("BEGIN; SAVEPOINT s; COMMIT", "SAVEPOINT"),
        ("ROLLBACK TO SAVEPOINT s", "ROLLBACK TO"),
        ("VACUUM t", "VACUUM"),
        ("LISTEN channel", "LISTEN"),
        ("LOCK TABLE t", "LOCK TABLE"),
        ("SELECT pg_advisory_lock(1)", "PG_ADVISORY_LOCK"),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE; COMMIT", "ISOLATION LEVEL"),
        ("BEGIN; CREATE TABLE t (a text); CREATE TABLE u (a text); COMMIT", "two DDL"),
        ("BEGIN; DELETE FROM t; DROP TABLE t; COMMIT", "DDL and DML"),
        ("BEGIN; DROP TABLE t; DELETE FROM u; COMMIT", "DDL and DML"),
    ],
)
def test_dsql_refuses(text, why):
    (refused, *_) = refusals(text)
    assert why in refused


@pytest.mark.parametrize(
    "text",
    [
        "-- TRUNCATE everything\nSELECT 1 /* SAVEPOINT */",
        "SELECT 'VACUUM; it''s a text'",
        "SELECT body::json -> 'a' FROM t WHERE id = ANY ('{}'::text[])",
        "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = excluded.a",
        "CREATE UNIQUE INDEX ASYNC IF NOT EXISTS i ON t (a, b)",
        "BEGIN; CREATE TABLE t (a text); COMMIT; BEGIN; CREATE TABLE u (a text); COMMIT",
        "CREATE TABLE t (a text); INSERT INTO t VALUES (1)",
    ],
)
def test_dsql_takes(text):
    assert refusals(text) == []


async def test_a_connection_that_is_like_dsql_refuses_it_too(postgres_url):
    database = DsqlDatabase(LikeDsql(postgres_url), FrozenClock())
    with pytest.raises(DsqlRefuses, match="TRUNCATE"):
        await database.rows(b"TRUNCATE infinity.inbox")
    with pytest.raises(DsqlRefuses, match="DDL and DML"):
        await database.write([(b"DELETE FROM infinity.inbox", [{}]), (b"DROP TABLE infinity.inbox", [{}])])
    await database.close()
