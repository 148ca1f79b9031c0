"""The step: load, admit, prepare, complete, commit, perform, finish."""

from .cancellation import Cancellation
from .deferral import InMemoryDeferQueue, NoDeferral
from .observing import EventCollector
from .services import Services
from .system import AgentSystem
from .thread import ThreadHandle

__all__ = [
    "AgentSystem",
    "Cancellation",
    "EventCollector",
    "InMemoryDeferQueue",
    "NoDeferral",
    "Services",
    "ThreadHandle",
]
