"""Notices: what people are told of a message that nobody handles any more."""

from ..conversation import ids
from ..conversation.content import JsonObject
from ..conversation.outputs import Output, spoken
from ..ports.conversations import NO_ENTRIES, ConversationStore, LoadRequest

SET_ASIDE = "A message could not be handled and was set aside"
WAITS = "A message cannot be handled at the moment, and is tried again by itself"


async def set_aside(
    conversations: ConversationStore,
    thread_id: str,
    reason: str,
    *,
    about: str,
    metadata: JsonObject | None,
    is_final: bool = True,
) -> Output:
    """Return the notice that a message to ``thread_id`` was set aside, or, where it is not final, must wait.

    The same ``about`` makes the same ``output_id``.

    It carries the conversation's metadata; where there is no such conversation, the message's own ``metadata``.

    Raises:
        StoreUnavailable: the store, which knows whose conversation it is, could not be reached.
    """
    snapshot = await conversations.load(LoadRequest(thread_id, known_to=NO_ENTRIES))
    root_id = snapshot.thread.root_id if snapshot else thread_id
    return Output(
        type="error",
        text=spoken(f"{SET_ASIDE if is_final else WAITS}: {reason}", thread_id, root_id),
        group_id=root_id,
        thread_id=thread_id,
        output_id=ids.fitted(about),
        seq=(snapshot.thread.version if snapshot else 0, 0),
        metadata=(snapshot.root_metadata if snapshot else None) or metadata,
    )
