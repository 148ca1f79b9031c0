"""Perform: the effects of a commit, in order, each under an id that makes a repeat harmless."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from ..conversation import ids
from ..conversation.content import JsonObject, Text, shown
from ..conversation.effects import (
    AnswerChoice,
    CancelTimer,
    CopyState,
    Dispatch,
    NotifyCancelled,
    NotifyClosed,
    PlannedEffect,
    SendInput,
    SendOutput,
)
from ..conversation.events import Told
from ..conversation.ledger import Call
from ..conversation.messages import InputMessage, ToolResult
from ..conversation.outputs import Output, spoken
from ..conversation.threads import Thread
from ..errors import Redeliver, Reject, TellModel, ToolUnreachable
from ..wire.inputs import encode
from ..wire.large_values import sendable
from ..wire.traces import traced
from .retry import against_store
from .services import Run, is_wanted

_log = logging.getLogger(__name__)


async def perform(
    run: Run,
    thread: Thread,
    effects: Sequence[PlannedEffect],
    calls: Mapping[str, Call],
    metadata: JsonObject | None,
) -> None:
    """Do ``effects``, in order. What fails for good becomes a result that the model reads, or a notice to people.

    ``calls`` are those from which something is expected, as the ledger has them now: what was to be done for any
    other call is moot. ``metadata`` is the conversation's, for notices.

    Raises:
        Redeliver: an effect could not be performed now. Performing all of them again is harmless.
    """
    performer = _Performer(run, thread, calls, metadata)
    for planned in effects:
        await performer.do(planned)


@dataclass(frozen=True, slots=True)
class _Performer:
    run: Run
    thread: Thread
    calls: Mapping[str, Call]
    metadata: JsonObject | None

    async def do(self, planned: PlannedEffect) -> None:
        run, services, thread = self.run, self.run.services, self.thread
        match planned.effect:
            case SendInput(message=message):
                await self._send(message)
            case SendOutput(output=output):
                await self._tell(output)
            case Dispatch(call_id=call_id, tool=tool):
                await self._dispatch(call_id, tool)
            case CancelTimer(call_id=call_id):
                await against_store(run, "timers", lambda: services.timers.cancel(timer_id(thread.id, call_id)))
            case NotifyCancelled(call_id=call_id, tool_set=tool_set):
                servers = services.tool_servers
                await self._once(lambda: servers.call_cancelled(thread.root_id, thread.id, call_id, tool_set))
            case NotifyClosed():
                await self._once(lambda: services.tool_servers.thread_closed(thread.root_id, thread.id))
            case AnswerChoice() as answer:
                await self._answer_choice(answer)
            case CopyState() as copy:
                await self._copy(copy, planned.version)

    async def _once(self, tell: Callable[[], Awaitable[None]]) -> None:
        """Tell a server what it would be good for it to know: one try, and no failure of it holds the thread up."""
        self.run.trip("tool_servers")
        try:
            await tell()
        except Exception:  # noqa: BLE001 - nothing that a server is told here may cost the thread anything
            _log.exception("thread %s: a tool server could not be told", self.thread.id)

    async def _send(self, message: InputMessage) -> None:
        services = self.run.services
        body = await sendable(
            traced(message),
            keyring=services.keyring,
            blobs=services.blobs,
            inline_bytes=services.settings.inline_bytes,
        )
        dedup_id = message.message_id or ids.digest(body)
        try:
            await against_store(
                self.run, "inputs", lambda: services.inputs.send(body, group_id=message.group_id, dedup_id=dedup_id)
            )
        except Reject as error:
            # No later try could send it either.
            _log.exception("thread %s: a message to %s cannot be sent", self.thread.id, message.group_id)
            await self._notice(f"A message to {message.group_id} could not be sent: {error}", dedup_id)

    async def _copy(self, copy: CopyState, version: int) -> None:
        state, thread_id = self.run.services.state, self.thread.id
        try:
            await against_store(
                self.run, "state", lambda: state.copy(thread_id, copy.item, copy.key, copy.value, version)
            )
        except Reject:
            # No later try could keep it either; what the conversation store has is what counts.
            _log.exception("thread %s: the copy of its %s cannot be kept", thread_id, copy.item)

    async def _tell(self, output: Output) -> None:
        await against_store(self.run, "outputs", lambda: self.run.services.outputs.send(output))
        self.run.observe(Told(self.thread.id, output))

    async def _dispatch(self, call_id: str, tool_name: str) -> None:
        call = self.calls.get(call_id)
        if call is None or not is_wanted(call):
            return
        tool = (await self.run.toolbox(self.thread.root_id)).tools.get(tool_name)
        if tool is None:
            await self._fail(call, f"The tool {tool_name} is not there any more.", ambiguous=False)
            return
        self.run.trip("tools")
        try:
            await tool.execute(call, _Context(self.run, self.thread))
        except TellModel as error:
            await self._fail(call, str(error), ambiguous=isinstance(error, ToolUnreachable))
        except Redeliver:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises, the model must hear of it
            _log.exception("thread %s: the tool %s failed on call %s", self.thread.id, tool_name, call_id)
            await self._fail(call, f"{tool_name} failed: {type(error).__name__}: {error}", ambiguous=True)

    async def _fail(self, call: Call, text: str, *, ambiguous: bool) -> None:
        await self._send(
            InputMessage(
                content=ToolResult(
                    id=call.id,
                    call_id=call.call_id,
                    content=(Text(shown(text)),),
                    is_error=True,
                    tool_set=call.tool_set,
                    ambiguous=ambiguous,
                ),
                group_id=self.thread.id,
                message_id=ids.message_id("failed", self.thread.id, call.id),
            )
        )

    async def _answer_choice(self, answer: AnswerChoice) -> None:
        if not is_wanted(self.calls.get(answer.call_id)):
            return
        self.run.trip("tool_servers")
        try:
            await self.run.services.tool_servers.answer_choice(
                answer.tool_set, answer.response_url, answer.call_id, answer.selected
            )
        except TellModel as error:
            await self._notice(f"The answer did not reach the tool that asked: {error}", f"choice:{answer.call_id}")

    async def _notice(self, text: str, about: str) -> None:
        """Tell people what could not be done; the same thing is told under the same id."""
        version = self.thread.version
        await self._tell(
            Output(
                type="error",
                text=spoken(text, self.thread.id, self.thread.root_id),
                group_id=self.thread.root_id,
                thread_id=self.thread.id,
                output_id=ids.fitted(f"{self.thread.id}:notice:{ids.digest(about)}"),
                seq=(version, 0),
                metadata=self.metadata,
            )
        )


def timer_id(thread_id: str, call_id: str) -> str:
    """Return the id of the timer of a call: also a name that EventBridge Scheduler takes."""
    return f"timer-{ids.digest(thread_id, call_id, length=32)}"


@dataclass(frozen=True, slots=True)
class _Context:
    """What a dispatched tool may use."""

    run: Run
    thread: Thread

    def callback_url(self, call: Call) -> str:
        return self.run.services.callback_urls(self.thread.id, call.id, call.tool_set)

    async def set_timer(self, call: Call, text: str) -> None:
        if call.wakes_at is None:
            raise ValueError(f"the call {call.id} has no time to wake at")
        message = InputMessage(
            content=ToolResult(id=call.id, call_id=call.call_id, content=(Text(text),), tool_set=call.tool_set),
            group_id=self.thread.id,
            message_id=ids.message_id("timer", self.thread.id, call.id),
        )
        services = self.run.services
        body = encode(traced(message), services.keyring)
        due_at = call.wakes_at
        await against_store(
            self.run,
            "timers",
            lambda: services.timers.set(
                timer_id(self.thread.id, call.id),
                due_at,
                body,
                group_id=self.thread.id,
                dedup_id=message.message_id or call.id,
            ),
        )
