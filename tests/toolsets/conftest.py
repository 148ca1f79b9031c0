"""The fixtures of the kit's own tests: servers on loopback, and a receiver that remembers what it is posted."""

from tests.rap.conftest import raw_server, receiver, serve

__all__ = ["raw_server", "receiver", "serve"]
