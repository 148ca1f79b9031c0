"""The schema, brought up to date at deploy time: never by a request."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from ...errors import Misconfigured, StoreUnavailable
from .database import DsqlDatabase, micros
from .servers import Connection
from .statements import named_statements, read_sql, split_statements

_SQL: Final = named_statements("migrating.sql")
_CREATES_INDEX: Final = re.compile(r"CREATE (UNIQUE )?INDEX ASYNC\b")
_POLL_SECONDS: Final = 1.0
_POLLS: Final = 600

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did: the schema's version now, and the names of the migrations that were applied, in order."""

    version: int
    applied: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Migration:
    version: int
    name: str
    statements: tuple[str, ...]


async def migrate(
    database: DsqlDatabase, *, role: str | None = None, iam_role_arn: str | None = None, progress: Progress = print
) -> Migrated:
    """Bring the schema up to date, and let ``role`` use it; a repeat, or another process at it too, changes nothing.

    ``role`` is the database user of the functions: it is made where it is missing, and may read and write the store's
    tables and nothing else. On Aurora DSQL whoever acts as ``iam_role_arn`` may connect as that role. The database's
    own user must be its admin.

    Raises:
        Misconfigured: the schema is of a newer release, or this user may not do that.
        StoreUnavailable: the database cannot be reached, or an index could not be built; it may be tried again.
    """
    # There is nothing to lock with on DSQL. Every statement has its own transaction and does nothing where it has been
    # done, so that two processes at it merely meet, and the one that is refused for that tries again.
    await _execute(database, _SQL["create_schema"])
    await _execute(database, _SQL["create_versions"])
    done = {version for (version,) in await database.rows(_SQL["versions"])}
    migrations = _migrations()
    known = migrations[-1].version
    if done and max(done) > known:
        raise Misconfigured(
            f"{database.server.name} was migrated by a newer release of this package (schema {max(done)}, and this "
            f"one knows {known}); upgrade the package, or name another database"
        )
    applied = [migration for migration in migrations if migration.version not in done]
    for migration in applied:
        for statement in migration.statements:
            progress(f"{migration.name}: {' '.join(statement.split()[:8])} …")
            await _apply(database, statement)
        at = micros(database.clock.now())
        await _execute(database, _SQL["done"], {"version": migration.version, "name": migration.name, "at": at})
    if role is not None:
        progress(f"role {role}")
        await _admit(database, role, iam_role_arn)
    return Migrated(known, tuple(migration.name for migration in applied))


def _migrations() -> list[_Migration]:
    names = sorted(path.name for path in resources.files(__package__).joinpath("migrations").iterdir())
    return [
        _Migration(int(name[:4]), name.removesuffix(".sql"), tuple(split_statements(read_sql("migrations", name))))
        for name in names
        if name.endswith(".sql")
    ]


async def _apply(database: DsqlDatabase, statement: str) -> None:
    if not _CREATES_INDEX.match(statement):
        await _execute(database, statement.encode())
    elif not database.server.is_dsql:
        await _execute(database, statement.replace(" ASYNC", "", 1).encode())
    else:
        await _execute(database, statement.encode())
        await _wait_for_indexes(database)


async def _wait_for_indexes(database: DsqlDatabase) -> None:
    # Not for the statement's own job: where it found the index there already, another process's may be at it.
    for _ in range(_POLLS):
        invalid = await database.rows(_SQL["invalid_indexes"])
        if not invalid:
            return
        if not await database.rows(_SQL["running_jobs"]):
            still_invalid = await database.rows(_SQL["invalid_indexes"])
            for (name,) in set(invalid).intersection(still_invalid):
                # The next migration would take it for a good one.
                await _execute(database, sql.SQL("DROP INDEX IF EXISTS infinity.{}").format(sql.Identifier(name)))
                raise StoreUnavailable(f"{database.server.name} could not build the index {name}; migrate again")
        await database.clock.sleep(_POLL_SECONDS)
    raise StoreUnavailable(f"{database.server.name} still builds indexes; migrate again when `sys.jobs` is done")


async def _admit(database: DsqlDatabase, role: str, iam_role_arn: str | None) -> None:
    name = sql.Identifier(role)
    if not await database.rows(_SQL["role"], {"role": role}):
        await _execute(database, sql.SQL("CREATE ROLE {} WITH LOGIN").format(name))
    for statement in split_statements(read_sql("sql", "role.sql")):
        await _execute(database, sql.SQL(statement).format(role=name))
    if database.server.is_dsql and iam_role_arn is not None:
        mapping = {"role": role, "arn": iam_role_arn}
        if not await database.rows(_SQL["iam_mapping"], mapping):
            await _execute(database, sql.SQL("AWS IAM GRANT {} TO {}").format(name, sql.Literal(iam_role_arn)))


async def _execute(
    database: DsqlDatabase, statement: bytes | sql.Composed, parameters: dict[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """Execute one statement in a transaction of its own; that somebody else just did the same is as good."""

    async def execute(connection: Connection) -> list[tuple[Any, ...]]:
        try:
            cursor = await connection.execute(statement, parameters, prepare=False)
        except (errors.DuplicateTable, errors.DuplicateSchema, errors.DuplicateObject):
            return []
        except errors.UniqueViolation as error:
            # IF NOT EXISTS looks first and leaps later: of two at once, one finds the name taken in the catalogue.
            raise psycopg.OperationalError(str(error)) from error
        return await cursor.fetchall() if cursor.description else []

    return await database.run(execute)
