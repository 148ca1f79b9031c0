"""The conversation store on Aurora DSQL, or on any PostgreSQL, and the migration of its schema."""

from .conversations import DsqlConversationStore
from .database import DsqlDatabase
from .migrate import Migrated, migrate
from .servers import AuroraDsql, PostgreSql, Server

__all__ = [
    "AuroraDsql",
    "DsqlConversationStore",
    "DsqlDatabase",
    "Migrated",
    "PostgreSql",
    "Server",
    "migrate",
]
