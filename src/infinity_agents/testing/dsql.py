"""What Aurora DSQL refuses and PostgreSQL does not: told of any SQL, and enforced on a connection to PostgreSQL."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg

_TOKEN: Final = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r'|(?P<word>"[^"]+"|[^\W\d]\w*)|(?P<mark>\S)',
    re.DOTALL,
)
_DDL: Final = ("CREATE", "ALTER", "DROP", "GRANT", "REVOKE", "COMMENT", "AWS")
_DML: Final = ("INSERT", "UPDATE", "DELETE", "MERGE", "COPY")

# Sequences of words, wherever in a statement they stand.
_REFUSED: Final = (
    "TRUNCATE",
    "SAVEPOINT",
    "ROLLBACK TO",
    "VACUUM",
    "LISTEN",
    "NOTIFY",
    "LOCK TABLE",
    "COPY",
    "DO",
    "ISOLATION LEVEL",
    "ALTER SYSTEM",
    "CREATE TRIGGER",
    "CREATE EXTENSION",
    "CREATE SEQUENCE",
    "CREATE DATABASE",
    "CREATE TABLESPACE",
    "CREATE TYPE",
    "CREATE TEMP",
    "CREATE TEMPORARY",
    "CREATE UNLOGGED",
    "CREATE MATERIALIZED",
    "CREATE INDEX CONCURRENTLY",
    "LANGUAGE PLPGSQL",
    "NEXTVAL",
    "PG_ADVISORY_LOCK",
    "PG_ADVISORY_XACT_LOCK",
    "PG_TRY_ADVISORY_LOCK",
)
# Words that no definition of a table may hold.
_REFUSED_IN_TABLES: Final = (
    *("JSON", "JSONB", "ARRAY", "XML", "HSTORE", "MONEY", "POINT", "TSVECTOR", "CITEXT", "INET"),
    *("SERIAL", "BIGSERIAL", "SMALLSERIAL", "IDENTITY"),
    *("REFERENCES", "FOREIGN", "EXCLUDE", "COLLATE", "INHERITS", "PARTITION", "TABLESPACE", "AS"),
)


class DsqlRefuses(psycopg.NotSupportedError):
    """DSQL would refuse the statement; the text says why."""


def refusals(text: str) -> list[str]:
    """Return in words what DSQL would refuse in the statements and transactions (BEGIN to COMMIT) of ``text``."""
    found: list[str] = []
    transaction: list[str] = []
    is_open = False
    for words in _statements(text):
        found += _refusals_of(words)
        if words[0] in {"BEGIN", "START"}:
            is_open, transaction = True, []
        elif words[0] in {"COMMIT", "END", "ROLLBACK"}:
            is_open = False
        elif is_open:
            transaction.append(words[0])
            found += _refusals_of_transaction(transaction)
    return found


def _refusals_of(words: list[str]) -> Iterator[str]:
    line = f" {' '.join(words)} "
    for refused in _REFUSED:
        # `ON CONFLICT DO` is an action, not the statement of that name.
        if f" {refused} " in line and not (refused == "DO" and words[0] != "DO"):
            yield f"{refused} in: {line.strip()[:80]}"
    if re.match(r" CREATE (UNIQUE )?INDEX (?!ASYNC )", line):
        yield f"CREATE INDEX without ASYNC in: {line.strip()[:80]}"
    if re.match(r" CREATE (UNIQUE )?INDEX ", line):
        columns = line.partition("(")[2]
        if "(" in columns or " DESC " in columns or " ASC " in columns:
            yield f"an index on an expression or in an order in: {line.strip()[:80]}"
    if words[:2] in (["CREATE", "TABLE"], ["ALTER", "TABLE"]):
        for refused in _REFUSED_IN_TABLES:
            if refused in words:
                yield f"{refused} in a table in: {line.strip()[:80]}"
        if "[" in words:
            yield f"an array in a table in: {line.strip()[:80]}"


def _refusals_of_transaction(heads: list[str]) -> Iterator[str]:
    *_, newest = heads
    ddl = sum(head in _DDL for head in heads)
    if newest in _DDL and ddl > 1:
        yield "two DDL statements in one transaction"
    if ddl and any(head in _DML for head in heads):
        yield "DDL and DML in one transaction"


def _statements(text: str) -> Iterator[list[str]]:
    words: list[str] = []
    for token in _TOKEN.finditer(text):
        if token["mark"] == ";":
            if words:
                yield words
            words = []
        elif token["text"]:
            words.append("''")
        elif not token["comment"]:
            words.append(token[0].upper())
    if words:
        yield words


class StrictCursor(psycopg.AsyncCursor[Any]):
    """Refuses what DSQL refuses, and does on PostgreSQL what only DSQL has (``CREATE INDEX ASYNC``, IAM grants)."""

    async def execute(self, query: Any, params: Any = None, **options: Any) -> "StrictCursor":
        text = _text(query, self.connection)
        self._refuse(text)
        if re.match(r"CREATE (UNIQUE )?INDEX ASYNC\b", text):
            await super().execute(text.replace(" ASYNC", "", 1).encode(), params, **options)
            await super().execute(
                b"INSERT INTO sys.jobs VALUES (gen_random_uuid()::text, 'completed') RETURNING job_id"
            )
        elif granted := re.fullmatch(r"AWS IAM GRANT \"(.+)\" TO '(.+)'", text):
            await super().execute(b"INSERT INTO sys.iam_pg_role_mappings VALUES (%s, %s)", granted.groups())
        else:
            await super().execute(query, params, **options)
        return self

    async def executemany(self, query: Any, params_seq: Any, **options: Any) -> None:
        self._refuse(_text(query, self.connection))
        await super().executemany(query, params_seq, **options)

    def _refuse(self, text: str) -> None:
        connection: Any = self.connection
        head = text.split(None, 1)[0].upper()
        if head in {"BEGIN", "START"}:
            connection.sent = []
        connection.sent = [*getattr(connection, "sent", []), text]
        refused = refusals(";\n".join(connection.sent))
        if head in {"COMMIT", "ROLLBACK"} or not connection.sent[0].startswith("BEGIN"):
            connection.sent = []
        if refused:
            raise DsqlRefuses(f"DSQL refuses {refused[0]}")


def _text(query: Any, connection: Any) -> str:
    if isinstance(query, bytes):
        return query.decode()
    return query if isinstance(query, str) else str(query.as_string(connection))


@dataclass(frozen=True, slots=True)
class LikeDsql:
    """A PostgreSQL that refuses what Aurora DSQL refuses; a ``Server`` for the adapter of the conversation store.

    ``enforce_dsql_limits`` makes the database itself refuse the rest.
    """

    url: str

    @property
    def name(self) -> str:
        return "PostgreSQL that is like Aurora DSQL"

    @property
    def begin(self) -> bytes:
        return b"BEGIN"

    @property
    def is_dsql(self) -> bool:
        return True

    async def connect(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(
            self.url,
            autocommit=True,
            prepare_threshold=0,
            cursor_factory=StrictCursor,
            options="-c default_transaction_isolation=repeatable\\ read",
        )


SYSTEM_SCHEMA: Final = """
CREATE SCHEMA sys;
CREATE TABLE sys.jobs (job_id text PRIMARY KEY, status text NOT NULL);
CREATE TABLE sys.iam_pg_role_mappings (pg_role_name text, arn text, PRIMARY KEY (pg_role_name, arn));
"""
"""The part of DSQL's own schema that a migration looks at."""
