"""``infinity migrate``: the schema of the database that the environment names."""

import os
from collections.abc import Sequence

from rich.text import Text

from ..conversation.content import shown
from ..errors import Misconfigured
from .rendering import note, put, put_json, stderr, stdout


async def run_migration(role: str | None, iam_role_arns: Sequence[str], *, as_json: bool) -> None:
    """Migrate the database, telling each statement on standard error, and print what was applied.

    Raises:
        Misconfigured: the environment names no database, or its user may not do that.
        StoreUnavailable: it cannot be reached, or an index could not be built.
    """
    try:
        from ..aws.wiring import migrate_database, named_database

        database = named_database(os.environ)
    except ModuleNotFoundError as error:
        raise Misconfigured(f"migrate needs {error.name}: pip install 'infinity-agents[aws]'") from error
    migrated = await migrate_database(database, role, iam_role_arns, lambda line: put(stderr(), note(shown(line))))
    if as_json:
        put_json({"version": migrated.version, "applied": list(migrated.applied)})
        return
    applied = f"applied {', '.join(migrated.applied)}" if migrated.applied else "there was nothing to apply"
    put(stdout(), Text(f"{database.server.name} is at schema {migrated.version}: {applied}"))
