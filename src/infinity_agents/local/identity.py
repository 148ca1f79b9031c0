"""What tool servers know of a host: the port that takes their callbacks, and the secret that proves them."""

import contextlib
import json
import os
import secrets
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..errors import Misconfigured
from ..wire.keys import Keyring
from .callbacks import HOST

# Below the ports that systems give to outgoing connections: one of those must not take the port while the host is down.
_PORTS = range(20_000, 30_000)


@dataclass(frozen=True, slots=True)
class Identity:
    """Kept for as long as the database: calls made before a restart are answered after it."""

    keyring: Keyring
    port: int

    @classmethod
    def beside(cls, database: Path) -> "Identity":
        """Return the identity that is kept in a file beside ``database``, for this user's eyes alone; make it once.

        Raises:
            Misconfigured: the file cannot be read or made; the text names it.
        """
        # By the file itself: calls that were made under one name of it are answered under another.
        path = Path(f"{database.resolve()}.callbacks")
        try:
            if not path.exists():
                _make(path)
            kept = json.loads(path.read_text())
            return cls(Keyring.parse(kept["secret"]), int(kept["port"]))
        except OSError as error:
            raise Misconfigured(
                f"{path} cannot be read or made ({error.strerror}); let this user write the directory"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise Misconfigured(
                f"{path} is damaged; restore a copy, or delete it: calls that still run can then not be answered"
            ) from error


def _make(path: Path) -> None:
    made = {"secret": f"local:{secrets.token_hex(32)}", "port": _free_port()}
    # Written whole before it has its name, and never over another: two processes may make it at the same moment.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps(made))
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()


def _free_port() -> int:
    while True:
        port = secrets.choice(_PORTS)
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            return port
