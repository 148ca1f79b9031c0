"""What the command lines of tool servers have in common: where to listen, and how a refusal is told."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

from ..errors import Misconfigured


def add_listening_options(parser: argparse.ArgumentParser, port: int) -> None:
    """Add ``--host``, and ``--port`` with ``port`` for its default."""
    parser.add_argument("--host", type=_host, default="127.0.0.1", help="address to listen on (default: %(default)s)")
    told = "port to listen on, 0 for a free one (default: %(default)s)"
    parser.add_argument("--port", type=_port, default=port, help=told)


def named(text: str) -> Path:
    """Return the path that an option names.

    Raises:
        argparse.ArgumentTypeError: it names none.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; name a path")
    return Path(text).expanduser()


def directory(text: str) -> Path:
    """Return the directory that an option names.

    Raises:
        argparse.ArgumentTypeError: there is none; the text names it.
    """
    path = named(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text[:200]!r} is no directory; name one that exists")
    return path


@contextlib.contextmanager
def told_by(parser: argparse.ArgumentParser) -> Iterator[None]:
    """End the program with one line for whoever started it where something is ``Misconfigured``."""
    try:
        yield
    except Misconfigured as error:
        parser.error(str(error))


def _host(text: str) -> str:
    # An empty host is every interface: nobody who left a variable unset means that.
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; give an address, or 0.0.0.0 for every interface")
    return text


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:6]) <= 65_535):
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is no port; give a number from 0 to 65535, 0 for a free one")
    return int(text)
