"""Identity: every id that the runtime makes is derived from what it names, so a replay makes the same one."""

import hashlib
import string

MAX_ID = 128
"""The longest group or deduplication id that SQS takes."""

_ALLOWED = frozenset(string.ascii_letters + string.digits + string.punctuation)


def digest(*parts: str | int, length: int = 16) -> str:
    """Return ``length`` hex digits that stand for ``parts`` and for no other sequence of parts."""
    joined = "\x1f".join(str(part) for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def is_sendable(group_id: str) -> bool:
    """Tell whether SQS takes ``group_id`` as a ``MessageGroupId``."""
    return 0 < len(group_id) <= MAX_ID and all(character in _ALLOWED for character in group_id)


def fitted(made: str) -> str:
    """Return an id that we made, shortened by hash where it would pass 128 characters."""
    if len(made) <= MAX_ID:
        return made
    return f"{made[: MAX_ID - 17]}~{digest(made)}"


def call_id(thread_id: str, version: int, ordinal: int) -> str:
    """Return the id of a call: unique along a thread's whole lineage, at most 64 of ``[a-zA-Z0-9_.:-]``."""
    return f"call-{digest(thread_id, length=12)}-{version}-{ordinal}"


def child_id(root_id: str, parent_id: str, call: str) -> str:
    """Return the id of the child that ``call`` of ``parent_id`` spawns."""
    return _below(root_id, "t", parent_id, call)


def event_thread_id(root_id: str, parent_id: str, message_id: str) -> str:
    """Return the id of the event thread that handles the message ``message_id``."""
    return _below(root_id, "e", parent_id, message_id)


def compaction_thread_id(root_id: str, parent_id: str, message_id: str) -> str:
    """Return the id of the compaction child that the message ``message_id`` asks for."""
    return _below(root_id, "c", parent_id, message_id)


def _below(root_id: str, mark: str, *named: str) -> str:
    suffix = f".{mark}{digest(*named, length=12)}"
    room = MAX_ID - len(suffix)
    root = root_id if len(root_id) <= room else f"{root_id[: room - 13]}~{digest(root_id, length=12)}"
    return root + suffix


def message_id(kind: str, thread_id: str, *about: str | int) -> str:
    """Return the identity of a message of ours: the same words always make the same message."""
    return fitted(f"{kind}:{digest(thread_id, *about, length=32)}")


def output_id(thread_id: str, version: int, ordinal: int) -> str:
    """Return the identity of an output, by which a reader drops repeats."""
    return fitted(f"{thread_id}:{version}:{ordinal}")
