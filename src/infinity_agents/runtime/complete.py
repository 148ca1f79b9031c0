"""Complete: the model speaks, synchronous tools answer inside the slice, and one call at most is left to dispatch."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..conversation import ids
from ..conversation.content import Text, without_surrogates
from ..conversation.effects import Dispatch, Effect
from ..conversation.events import CallMade, ReasoningStreamed, TextStreamed, TurnDropped
from ..conversation.history import (
    INJECTED_CALL,
    AssistantEntry,
    CallBody,
    Reasoning,
    Said,
    SaidText,
    ToolCallEntry,
)
from ..conversation.ledger import ACTIVE_STATES, Call, CallState
from ..conversation.messages import Compaction, CompactionComplete, InputMessage
from ..conversation.slice import Slice
from ..conversation.threads import Thread, ThreadKind
from ..conversation.turn import (
    ModelEvent,
    ReasoningDelta,
    RequestedCall,
    TextDelta,
    Turn,
    TurnBuffer,
)
from ..errors import ContextTooLong, DeadlineReached, InfinityError, ModelError, StepCancelled, TellModel
from ..ports.model import ModelRequest
from ..ports.tool import Tool, ToolAnswer
from .arguments import check_arguments, read_arguments
from .cancellation import Cancellation
from .compaction import shorten
from .observing import Silent, report
from .prompt import system_prompt
from .reading import reading
from .retry import is_worth_trying
from .services import Run, Toolbox, deadline_of

_log = logging.getLogger(__name__)
_COMMIT_MARGIN = 3.0
"""Seconds that are kept free before the deadline, to commit and perform what the model has said."""


async def complete(run: Run, slice_: Slice) -> None:
    """Let the model speak until it makes a call that must be dispatched, or none.

    Raises:
        ModelError: no usable turn came, and trying again in this slice has no prospect.
        DeadlineReached: the time was over before anything was said.
        StepCancelled: so was the step.
    """
    toolbox = await run.toolbox(slice_.thread.root_id)
    if slice_.is_new:
        for problem in toolbox.problems:
            slice_.tell("error", f"Some tools are missing: {problem}")
    for _ in range(run.services.settings.rounds_per_slice):
        turn = await _turn(run, slice_, toolbox)
        _write(run, slice_, turn)
        goes_on = turn.call is not None and await _call(run, slice_, toolbox, turn.call)
        report(run, slice_)
        if not goes_on:
            _end(slice_)
            return
    if slice_.thread.kind is ThreadKind.COMPACTION:
        _report_summary(slice_, "")
    else:
        slice_.pause(
            f"Paused after {run.services.settings.rounds_per_slice} rounds in one step. "
            "Say something to go on; nothing is lost."
        )


# One turn.


async def _turn(run: Run, slice_: Slice, toolbox: Toolbox) -> Turn:
    """Return the next turn, after as many tries as the error's type and the time allow."""
    # Nobody is to take a summary for what the model says to them.
    unseen = replace(run, observer=Silent())
    attempt = 1
    too_long = shortened = False
    while True:
        try:
            if too_long:
                await shorten(run, slice_, lambda request, heard: _listen(unseen, slice_, request, heard))
                too_long, shortened = False, True
            return await _stream(run, slice_, toolbox)
        except ContextTooLong:
            if too_long or shortened:
                raise
            too_long = True
        except ModelError as error:
            run.observe(TurnDropped(slice_.thread.id, str(error)))
            attempt += 1
            if not error.retryable or not await is_worth_trying(run, attempt, run.services.settings.model_tries):
                raise
            _log.warning("thread %s: model try %d after %s", slice_.thread.id, attempt, type(error).__name__)


async def _stream(run: Run, slice_: Slice, toolbox: Toolbox) -> Turn:
    thread = slice_.thread
    request = ModelRequest(
        model=thread.model,
        system=system_prompt(thread, run.services.settings),
        entries=await reading(run, slice_.history, slice_.special_indexes, model=thread.model),
        tools=toolbox.specs,
        thread_stack=thread.stack,
        summary=slice_.summary.text if slice_.summary else None,
    )
    return await _listen(run, slice_, request, TurnBuffer(thread.model))


async def _listen(run: Run, slice_: Slice, request: ModelRequest, heard: TurnBuffer) -> Turn:
    """Return what the model says; cut short where the time is over or the step is cancelled."""
    left = run.time_left()
    allowed = None if left is None else max(left - _COMMIT_MARGIN, 0.0)
    cancellation = run.cancellation or Cancellation()
    _refuse_cancelled(slice_, cancellation)
    run.trip("model")
    try:
        async with asyncio.timeout(allowed) as scope:
            loop = asyncio.get_running_loop()
            cancellation.attach(lambda: None if scope.expired() else scope.reschedule(loop.time()))
            async for event in run.services.model.stream(request):
                heard.hear(event)
                _show(run, slice_, event)
    except TimeoutError:
        if heard.has_text:
            return heard.cut_short("cancelled" if cancellation.is_cancelled else "deadline")
        _refuse_cancelled(slice_, cancellation)
        raise DeadlineReached(f"thread {slice_.thread.id}: the time was over before the model said anything") from None
    finally:
        cancellation.attach(None)
    return heard.whole()


def _refuse_cancelled(slice_: Slice, cancellation: Cancellation) -> None:
    if cancellation.is_cancelled:
        raise StepCancelled(f"thread {slice_.thread.id}: the step was cancelled before the model said anything")


def _show(run: Run, slice_: Slice, event: ModelEvent) -> None:
    match event:
        case TextDelta(text):
            run.observe(TextStreamed(slice_.thread.id, text))
        case ReasoningDelta(text=text) if text:
            run.observe(ReasoningStreamed(slice_.thread.id, text))
        case _:
            pass


def _write(run: Run, slice_: Slice, turn: Turn) -> None:
    """Take the turn into the slice: its text is told, and a window that fills up asks for compaction.

    Raises:
        DeadlineReached: it is half a summary; nobody could read any more what the other half stands for.
    """
    if slice_.thread.kind is ThreadKind.COMPACTION and not turn.is_whole:
        raise DeadlineReached(f"thread {slice_.thread.id}: the summary was not whole in time")
    slice_.spoke = True
    slice_.usage += turn.usage
    said = tuple(_storable(block) for block in turn.said)
    if said:
        slice_.append(AssistantEntry(said))
    if slice_.thread.kind is ThreadKind.COMPACTION:
        return
    text = "".join(block.text for block in said if isinstance(block, SaidText))
    if text.strip():
        slice_.did.append("said")
        slice_.tell("message", text, usage=_usage(slice_))
    limit = run.services.settings.compact_at * slice_.window
    if turn.usage.context >= limit and not slice_.is_compacting and not slice_.asked_to_compact:
        slice_.asked_to_compact = True
        slice_.send(
            InputMessage(
                content=Text(""),
                group_id=slice_.thread.id,
                message_id=ids.message_id("compaction", slice_.thread.id, slice_.version),
                synthetic=Compaction(),
            )
        )


def _storable(block: Said) -> Said:
    if isinstance(block, Reasoning):
        return block
    return SaidText(without_surrogates(block.text))


def _usage(slice_: Slice) -> dict[str, int]:
    usage = slice_.usage
    return {
        "input": usage.input,
        "output": usage.output,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
    }


def _end(slice_: Slice) -> None:
    if slice_.thread.kind is ThreadKind.COMPACTION:
        last = slice_.history[-1]
        _report_summary(slice_, last.text if isinstance(last, AssistantEntry) else "")
    elif not slice_.told:
        slice_.tell("status", "")


def _report_summary(slice_: Slice, summary: str) -> None:
    thread = slice_.thread
    if thread.parent_id is None or thread.compacts_to is None:
        return
    slice_.send(
        InputMessage(
            content=Text(""),
            group_id=thread.parent_id,
            message_id=ids.message_id("summary", thread.id),
            synthetic=CompactionComplete(up_to=thread.compacts_to, summary=summary, child_thread_id=thread.id),
        )
    )
    slice_.close()


# The call.


async def _call(run: Run, slice_: Slice, toolbox: Toolbox, requested: RequestedCall) -> bool:
    """Write the call; answer it here, or leave it to be dispatched. Tell whether the model goes on."""
    # Not the slice's beginning: a call may sleep for fewer seconds than the model spoke.
    now = run.services.clock.now()
    tool = toolbox.tools.get(requested.name)
    call = Call(
        id=slice_.new_call_id(),
        tool=without_surrogates(requested.name),
        arguments={},
        state=CallState.OPEN,
        made_at=now,
        call_id=requested.call_id,
        user_id=slice_.acting_for,
    )
    answer: ToolAnswer | None
    try:
        arguments = read_arguments(requested.arguments)
        call = replace(call, arguments=arguments)
        if tool is None or requested.name == INJECTED_CALL or slice_.thread.kind is ThreadKind.COMPACTION:
            raise TellModel(_no_such_tool(call.tool, toolbox, slice_.thread))
        check_arguments(requested.name, tool.spec.input_schema, arguments)
        call = replace(
            call,
            tool_set=tool.tool_set,
            is_passive=tool.is_passive,
            deadline_at=deadline_of(tool, now),
        )
        call = replace(call, wakes_at=tool.wakes_at(call))
        _write_call(run, slice_, call, tool)
        answer = await tool.execute_synchronous(call, _Staging(slice_))
    except TellModel as error:
        answer = ToolAnswer.error(str(error))
    except InfinityError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a tool raises, the model must hear of it
        _log.exception("thread %s: the tool %s failed on call %s", slice_.thread.id, call.tool, call.id)
        answer = ToolAnswer.error(f"{call.tool} failed: {type(error).__name__}: {error}")
    if not _is_written(slice_, call):
        _write_call(run, slice_, call, tool)
    if answer is not None:
        slice_.answer(call, answer.content, CallState.ANSWERED, is_error=answer.is_error)
        return not slice_.thread.closed
    slice_.record(call)
    slice_.plan(Dispatch(call.id, call.tool))
    display = _display(tool, call)
    slice_.tell("tool_call", display, call_id=call.id, tool=call.tool, arguments=dict(call.arguments))
    return False


def _no_such_tool(name: str, toolbox: Toolbox, thread: Thread) -> str:
    if thread.kind is ThreadKind.COMPACTION:
        return "No tool can be called while a summary is asked for. Answer with the summary alone."
    if name == INJECTED_CALL:
        return f"{name} stands for events that come by themselves; it cannot be called."
    return f"There is no tool {name!r}. The tools are: {', '.join(sorted(toolbox.tools)) or 'none'}."


def _write_call(run: Run, slice_: Slice, call: Call, tool: Tool | None) -> None:
    display = _display(tool, call)
    body = CallBody(id=call.id, name=call.tool, arguments=call.arguments, call_id=call.call_id)
    slice_.append(ToolCallEntry(body, display))
    slice_.did.append(f"called {call.tool}")
    run.observe(CallMade(slice_.thread.id, call.id, call.tool, call.arguments, display))


def _is_written(slice_: Slice, call: Call) -> bool:
    last = slice_.history[-1] if slice_.history else None
    return isinstance(last, ToolCallEntry) and last.call.id == call.id


def _display(tool: Tool | None, call: Call) -> str:
    if tool is not None:
        try:
            return tool.display(call.arguments)
        except Exception:  # noqa: BLE001 - how people see a call is no reason not to make it
            # The arguments may be anything: they are shown before they are found to fit.
            _log.exception("the tool %s cannot show the call %s", call.tool, call.id)
    return f"{call.tool}(…)"


@dataclass(frozen=True, slots=True)
class _Staging:
    """What a synchronous tool may see and stage."""

    slice_: Slice

    @property
    def thread(self) -> Thread:
        return self.slice_.thread

    @property
    def user_id(self) -> str | None:
        return self.slice_.acting_for

    @property
    def children(self) -> Sequence[str]:
        return self.slice_.children

    def stage(self, effect: Effect) -> None:
        self.slice_.plan(effect)

    def call(self, call_id: str) -> Call | None:
        call = self.slice_.calls.get(call_id)
        return call if call is not None and call.state in ACTIVE_STATES else None

    def cancel(self, call: Call) -> None:
        self.slice_.cancel(call)

    def spawn_child(self, call: Call, instructions: str) -> str:
        thread = self.slice_.thread
        return self.slice_.spawn(
            ThreadKind.CHILD,
            ids.child_id(thread.root_id, thread.id, call.id),
            born_of=call.id,
            first=(Text(instructions),),
        )

    def close(self) -> None:
        self.slice_.close()
