"""Compaction inside the slice: what happens when the history does not fit the model's window."""

from collections.abc import Awaitable, Callable

from ..conversation.content import Text
from ..conversation.folding import COMPACTION_PROMPT
from ..conversation.history import UserEntry
from ..conversation.lineage import compaction_range
from ..conversation.slice import Slice, size_of
from ..conversation.turn import Turn, TurnBuffer
from ..errors import ContextTooLong, DeadlineReached
from ..ports.model import ModelRequest
from .prompt import system_prompt
from .reading import reading
from .services import Run


async def shorten(run: Run, slice_: Slice, listen: Callable[[ModelRequest, TurnBuffer], Awaitable[Turn]]) -> None:
    """Have the oldest part that fits summarised by the model, here and now.

    Raises:
        ContextTooLong: there is nothing left to summarise, or not even the oldest part fits.
        DeadlineReached: the summary was not whole in time.
    """
    thread = slice_.thread
    # What the model must still read in full: the last exchange, else there is nothing to speak about.
    count = compaction_range(slice_.history[:-1], slice_.room_to_summarise, size_of)
    if count == 0:
        raise ContextTooLong(f"thread {thread.id}: the last message alone does not fit the window of {thread.model}")
    oldest = (*slice_.history[:count], UserEntry((Text(COMPACTION_PROMPT),)))
    special = [index for index in slice_.special_indexes if index < count]
    request = ModelRequest(
        model=thread.model,
        system=system_prompt(thread, run.services.settings),
        entries=await reading(run, oldest, special, model=thread.model),
        tools=(),
        thread_stack=thread.stack,
        summary=slice_.summary.text if slice_.summary else None,
    )
    turn = await listen(request, TurnBuffer(thread.model))
    slice_.usage += turn.usage
    slice_.spoke = True
    if not turn.is_whole:
        raise DeadlineReached(f"thread {thread.id}: the summary was not whole in time")
    if not turn.text.strip():
        raise ContextTooLong(f"thread {thread.id}: {thread.model} gave no summary of what does not fit its window")
    slice_.summarise(slice_.history_from + count, turn.text)
    slice_.did.append("compacted")
