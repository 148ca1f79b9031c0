"""Every store, queue and timer of one process in one SQLite file."""

from .blobs import SqliteBlobStore
from .conversations import SqliteConversationStore
from .database import SqliteDatabase
from .lock import HostLock, host_of
from .outputs import SqliteOutputs
from .queue import SqliteInputQueue
from .state import SqliteStateStore
from .timers import SqliteTimers

__all__ = [
    "HostLock",
    "SqliteBlobStore",
    "SqliteConversationStore",
    "SqliteDatabase",
    "SqliteInputQueue",
    "SqliteOutputs",
    "SqliteStateStore",
    "SqliteTimers",
    "host_of",
]
