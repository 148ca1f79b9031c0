"""Folding a delivery into history and ledger. Pure: the same slice and the same delivery always give the same slice.

Every message has a kind, and what it does depends on that kind, on the pending call, and on what the ledger says of
the call that it names. ``fold_batch`` knows the order, ``_fold`` the table.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from . import ids
from .content import Blob, Document, Image, Part, Text, plain_text, shown
from .effects import AnswerChoice, CopyState, NotifyCancelled
from .history import UserEntry
from .ledger import Call, CallState
from .lineage import compaction_range, is_safe_point
from .messages import (
    CallDeadline,
    Compaction,
    CompactionComplete,
    Control,
    Delivery,
    InputMessage,
    Nudge,
    OauthRequired,
    ParentMessage,
    Parts,
    SubscriptionEvent,
    ThreadReport,
    ToolResult,
    UserChoiceRequired,
    UserChoiceResponse,
    UserContent,
)
from .slice import STOPPED, Slice, size_of
from .threads import Choice, ThreadKind

COMPACTION_PROMPT = (
    "Summarise the conversation above so that it can go on from your summary alone. Keep every fact, decision, open "
    "question, promise, name, number, path and identifier that may still matter, what was asked for and by whom, which "
    "tool calls are still running and which subscriptions are open. Answer with the summary alone, and call no tool."
)
_CLOCKS_DIFFER = timedelta(minutes=1)
"""How far the clock of whoever saw that a deadline had passed may be ahead of ours."""


def fold_batch(slice_: Slice, deliveries: Sequence[Delivery]) -> None:
    """Fold ``deliveries``, none of which the thread has heard, and the deferred ones whose time has come.

    The result of the pending call comes first; deferred messages come right after the settlement, oldest first.
    """
    settling, others = _settlement_first(slice_, deliveries)
    room = slice_.settings.deliveries_per_slice
    folded = 0
    if _may_resume(slice_, deliveries):
        slice_.resume()
        slice_.respond = slice_.is_mid_turn and not _has_personal(slice_, deliveries)
    elif _must_pause(slice_, deliveries):
        slice_.pause(
            f"Paused: {slice_.recent_slices} steps within an hour and nobody has said anything in between. "
            "Say something to go on; nothing is lost."
        )
    if not settling:
        folded += _fold_waiting(slice_, room)
    for delivery in (*settling, *others):
        slice_.heard.append(delivery.identity)
        is_held = _is_held(slice_, delivery)
        if folded >= room and not is_held and not _comes_first(slice_, delivery):
            slice_.deferred.append(delivery)
            continue
        if _must_follow(slice_, delivery):
            slice_.deferred.append(delivery)
            slice_.waiting.append(delivery)
            continue
        _fold(slice_, delivery)
        folded += not is_held
        folded += _fold_waiting(slice_, room - folded)
        if _is_stop(delivery):
            slice_.respond = False
    # A person who must wait behind others was heard all the same: what waits before them does not pause the thread.
    slice_.personal = slice_.personal or any(delivery.is_personal for delivery in deliveries)
    if slice_.personal:
        slice_.wake_paused()
    _spawn_event_threads(slice_)
    if _can_go_on(slice_):
        slice_.send(slice_.nudge_for(slice_.thread.id))


def _must_follow(slice_: Slice, delivery: Delivery) -> bool:
    """Whether ``delivery`` waits for a slice of its own, or behind another that does."""
    if slice_.thread.closed or not delivery.is_personal:
        return False
    return _starts_another_turn(slice_, delivery) or _has_personal(slice_, ())


def _starts_another_turn(slice_: Slice, delivery: Delivery) -> bool:
    """Whether the turn that begins acts for somebody else: a tool acts for whoever asked, so nobody joins in."""
    return slice_.respond and delivery.is_personal and _speaker(slice_, delivery) != slice_.acting_for


def _speaker(slice_: Slice, delivery: Delivery) -> str | None:
    if not delivery.is_personal or delivery.message.metadata is not None:
        return delivery.message.user_id
    # Front ends may name the user with the first message only.
    stored = (slice_.root_metadata or {}).get("user_id")
    return stored if isinstance(stored, str) else None


def _comes_first(slice_: Slice, delivery: Delivery) -> bool:
    """Whether ``delivery`` is folded however much this slice has done.

    A person's message is, where the next slice would read nothing but what waits for the running call before it.
    """
    if slice_.thread.closed:
        return True
    return delivery.is_personal and slice_.is_busy and len(slice_.waiting) >= slice_.settings.deliveries_per_slice


def _can_go_on(slice_: Slice) -> bool:
    """Whether deferred messages are left that only this slice's limit kept back.

    Of those that were not even read, some may be next only where others made room for them: a thread that woke itself
    without that would do so for ever.
    """
    if slice_.thread.closed:
        return False
    if slice_.waiting_more and slice_.undeferred:
        return True
    return not all(_is_held(slice_, delivery) for delivery in (*slice_.waiting, *slice_.deferred))


def _settlement_first(slice_: Slice, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """Return the deliveries that answer the pending call, and the others."""
    pending = slice_.pending
    settling, others = list[Delivery](), list[Delivery]()
    for delivery in deliveries:
        answers = pending is not None and _answers(delivery.message, pending)
        (settling if answers else others).append(delivery)
    return settling, others


def _answers(message: InputMessage, call: Call) -> bool:
    content = message.content
    return isinstance(content, ToolResult) and content.id == call.id and content.tool_set == call.tool_set


def _is_stop(delivery: Delivery) -> bool:
    content = delivery.message.content
    return isinstance(content, Control) and content.action == "stop"


def _may_resume(slice_: Slice, deliveries: Iterable[Delivery]) -> bool:
    paused_at = slice_.thread.paused_at
    if paused_at is None or slice_.thread.closed:
        return False
    heard_at = slice_.person_heard_at
    return (heard_at is not None and heard_at > paused_at) or _has_personal(slice_, deliveries)


def _must_pause(slice_: Slice, deliveries: Sequence[Delivery]) -> bool:
    if slice_.thread.closed or slice_.thread.paused_at is not None:
        return False
    if slice_.recent_slices < slice_.settings.slices_per_hour or _has_personal(slice_, deliveries):
        return False
    return any(_waits_while_paused(delivery) for delivery in (*deliveries, *slice_.waiting))


def _has_personal(slice_: Slice, deliveries: Iterable[Delivery]) -> bool:
    return any(delivery.is_personal for delivery in (*deliveries, *slice_.waiting))


def _fold_waiting(slice_: Slice, room: int) -> int:
    """Fold the deferred messages that need not wait any longer; return how many."""
    folded = 0
    progress = True
    while progress and folded < room and not slice_.thread.closed:
        progress = False
        is_turn_taken = False
        for delivery in itertools.chain(*_settlement_first(slice_, slice_.waiting)):
            if delivery.is_personal and (is_turn_taken or _starts_another_turn(slice_, delivery)):
                is_turn_taken = True
                continue
            if _is_held(slice_, delivery):
                continue
            slice_.waiting.remove(delivery)
            if delivery.deferred_as is None:
                slice_.deferred.remove(delivery)
            else:
                slice_.undeferred.append(delivery.deferred_as)
            _fold(slice_, delivery)
            folded += 1
            progress = True
            break
    return folded


def must_wait(slice_: Slice, delivery: Delivery) -> bool:
    """Tell whether ``delivery`` is to be deferred: it may not come between the pending call and its result."""
    if slice_.thread.closed:
        return False
    if slice_.thread.paused_at is not None:
        return _waits_while_paused(delivery)
    message = delivery.message
    match message.synthetic:
        case SubscriptionEvent() as tag:
            call = slice_.calls.get(tag.tool_call_id)
            if call is None or call.tool_set != tag.tool_set:
                return False
            if call.state in {CallState.OPEN, CallState.DETACHED}:
                return True
            if call.state is not CallState.SUBSCRIBED or not slice_.is_busy:
                return False
            return tag.associative or (tag.final and _has_waiting_events(slice_, call.id))
        case ThreadReport() | ParentMessage():
            return slice_.is_busy
        case CallDeadline(tool_call_id=call_id):
            call = slice_.calls.get(call_id)
            return call is not None and call.state is CallState.DETACHED and slice_.is_busy
        case None if isinstance(message.content, ToolResult):
            call = slice_.calls.get(message.content.id)
            if call is None or call.tool_set != message.content.tool_set:
                return False
            return call.state in {CallState.DETACHED, CallState.FAILED} and slice_.is_busy
        case _:
            return False


def _has_waiting_events(slice_: Slice, call_id: str) -> bool:
    """Whether events of the subscription wait, or may wait: its final one must not end it before they are heard."""
    return slice_.waiting_more or any(
        isinstance(tag := delivery.message.synthetic, SubscriptionEvent) and tag.tool_call_id == call_id
        for delivery in slice_.waiting
    )


def _is_held(slice_: Slice, delivery: Delivery) -> bool:
    """Whether ``delivery`` waits, in this embedding: where nothing can be held, most things detach the running call."""
    return must_wait(slice_, delivery) and (slice_.defers or not _would_detach(slice_, delivery))


def _waits_while_paused(delivery: Delivery) -> bool:
    if delivery.is_personal or isinstance(delivery.message.synthetic, Nudge | Compaction | CompactionComplete):
        return False
    return not isinstance(delivery.message.content, Control | UserChoiceResponse | UserChoiceRequired | OauthRequired)


def _fold(slice_: Slice, delivery: Delivery) -> None:
    message = delivery.message
    if slice_.thread.closed:
        _absorb_closed(slice_, message)
        return
    if _is_held(slice_, delivery):
        slice_.deferred.append(delivery)
        slice_.waiting.append(delivery)
        return
    if not delivery.proven:
        _keep_metadata(slice_, message)
    match message.synthetic:
        case SubscriptionEvent() as tag:
            _fold_subscription_event(slice_, delivery, tag)
        case ThreadReport(tool_call_id=call_id, child_thread_id=child):
            _fold_associative(slice_, message, call_id, child=child)
        case ParentMessage(tool_call_id=call_id):
            _fold_associative(slice_, message, call_id, original_tool="send_message_to_child")
        case CallDeadline(tool_call_id=call_id):
            _fold_deadline(slice_, call_id)
        case Compaction():
            _fold_compaction(slice_, delivery)
        case CompactionComplete() as tag:
            _fold_compaction_complete(slice_, tag)
        case Nudge():
            pass
        case None:
            _fold_content(slice_, delivery)


def _fold_content(slice_: Slice, delivery: Delivery) -> None:
    match delivery.message.content:
        case Text() | Image() | Document() | Parts() | Blob():
            _fold_user(slice_, delivery)
        case ToolResult() as result:
            _fold_result(slice_, delivery.message, result)
        case OauthRequired() as asked:
            _fold_oauth(slice_, asked)
        case UserChoiceRequired() as asked:
            _fold_choice(slice_, asked)
        case UserChoiceResponse() as answer:
            _fold_choice_response(slice_, delivery.message, answer)
        case Control(action="stop"):
            _fold_stop(slice_, delivery)
        case Control():
            _settle_for_end(slice_, "The thread was closed.")
            slice_.close()


# What people say.


def _fold_user(slice_: Slice, delivery: Delivery) -> None:
    pending = slice_.pending
    if pending is not None:
        if pending.is_passive:
            _interrupt_passive(slice_, pending, "Interrupted by the user.")
        elif slice_.settings.interrupt == "cancel":
            slice_.answer_text(pending, "Cancelled: the user interrupted.", CallState.CANCELLED)
            slice_.cancel(pending)
        else:
            slice_.answer_text(pending, _still_running(pending), CallState.DETACHED)
    slice_.append(UserEntry(_parts(delivery.message)))
    if delivery.is_personal:
        slice_.personal = True
    slice_.respond = True
    slice_.acting_for = _speaker(slice_, delivery)


def _parts(message: InputMessage) -> tuple[Part, ...]:
    content = message.content
    if isinstance(content, Parts):
        return content.parts
    if isinstance(content, Text | Image | Document | Blob):
        return (content,)
    raise TypeError(f"{content.type} is no user content")


def _keep_metadata(slice_: Slice, message: InputMessage) -> None:
    if message.metadata is None or slice_.thread.kind is not ThreadKind.ROOT:
        return
    slice_.root_metadata = message.metadata
    if message.metadata != slice_.thread.metadata:
        slice_.thread = replace(slice_.thread, metadata=message.metadata)
        slice_.plan(CopyState("metadata", slice_.thread.id, message.metadata))


def _fold_stop(slice_: Slice, delivery: Delivery) -> None:
    _settle_for_end(slice_, STOPPED)
    for call in list(slice_.calls.values()):
        if call.state is CallState.DETACHED:
            slice_.cancel(call)
    for child in slice_.children:
        slice_.send(
            InputMessage(
                content=Control("stop"),
                group_id=child,
                message_id=ids.message_id("stop", child, delivery.identity),
            )
        )
    if slice_.is_mid_turn:
        # There is no turn any more that a person would have go on by speaking.
        slice_.resume()
    slice_.respond = False
    slice_.did.append("stopped")


def _settle_for_end(slice_: Slice, text: str) -> None:
    pending = slice_.pending
    if pending is not None:
        slice_.answer_text(pending, text, CallState.CANCELLED)
        slice_.cancel(pending)


def _still_running(call: Call) -> str:
    # Not every model is shown the ids of its calls, and this one may be cancelled by its id.
    return f"Still running. Its result will come as an event about the call {call.id}."


def _interrupt_passive(slice_: Slice, pending: Call, text: str) -> None:
    slice_.answer_text(pending, text, CallState.DETACHED if pending.wakes_at else CallState.ANSWERED)


# What tools say.


def _fold_result(slice_: Slice, message: InputMessage, result: ToolResult) -> None:
    call = slice_.calls.get(result.id)
    if call is None:
        slice_.note(f"dropped a result of the unknown call {result.id}")
        return
    if result.tool_set != call.tool_set:
        slice_.note(f"dropped a result of the call {call.id}: it does not come from the tool set that was called")
        return
    if call.state not in {CallState.OPEN, CallState.DETACHED, CallState.FAILED}:
        slice_.note(f"absorbed a result of the call {call.id}, which is {call.state}")
        return
    if message.subscription and not result.is_error:
        state = CallState.SUBSCRIBED
        slice_.plan(CopyState("subscription", call.id, {"tool": call.tool, "arguments": dict(call.arguments)}))
    else:
        state = CallState.FAILED if result.ambiguous else CallState.ANSWERED
    pending = slice_.pending
    if pending is not None and pending.id == call.id:
        slice_.answer(call, result.content, state, is_error=result.is_error, display=message.display_as)
    else:
        _make_way(slice_)
        slice_.hear_event(call, call.id, result.content, is_error=result.is_error, display=message.display_as)
        slice_.record(call.now(state))
    _respond_for(slice_, call.user_id)


def _make_way(slice_: Slice) -> None:
    """Settle the pending call so that an event may stand after it. An active one waits, unless nothing can be held."""
    pending = slice_.pending
    if pending is None:
        return
    if pending.is_passive:
        _interrupt_passive(slice_, pending, "Interrupted by an event.")
    else:
        slice_.answer_text(pending, _still_running(pending), CallState.DETACHED)


def _would_detach(slice_: Slice, delivery: Delivery) -> bool:
    """Whether, in an embedding that holds nothing, the delivery is handled at once by detaching the running call."""
    if slice_.thread.paused_at is not None:
        return False
    tag = delivery.message.synthetic
    if not isinstance(tag, SubscriptionEvent):
        return True
    call = slice_.calls.get(tag.tool_call_id)
    return call is not None and call.state is CallState.SUBSCRIBED


def _respond_for(slice_: Slice, user_id: str | None) -> None:
    """Let the model speak for whoever asked for this; a person who spoke in the same batch comes first."""
    slice_.respond = True
    if not slice_.personal:
        slice_.acting_for = user_id


def _fold_deadline(slice_: Slice, call_id: str) -> None:
    call = slice_.calls.get(call_id)
    expired = call is not None and call.deadline_at is not None and call.deadline_at <= slice_.now + _CLOCKS_DIFFER
    if call is None or not expired or call.state not in {CallState.OPEN, CallState.DETACHED}:
        slice_.note(f"absorbed the deadline of the call {call_id}")
        return
    text = f"No answer came from {call.tool} in the time that it had. It may still be running."
    pending = slice_.pending
    if pending is not None and pending.id == call.id:
        slice_.answer_text(call, text, CallState.FAILED, is_error=True)
    else:
        _make_way(slice_)
        slice_.hear_event(call, call.id, (Text(text),), is_error=True)
        slice_.record(call.now(CallState.FAILED))
    _respond_for(slice_, call.user_id)


def _fold_oauth(slice_: Slice, asked: OauthRequired) -> None:
    call = _waiting_call(slice_, asked.id, asked.tool_set, "an authorization")
    if call is None:
        return
    slice_.record(call.with_clock_stopped(slice_.now))
    slice_.tell(
        "oauth_required",
        f"{call.tool} needs your authorization: {asked.auth_url}",
        auth_url=asked.auth_url,
        user_id=call.user_id,
    )


def _fold_choice(slice_: Slice, asked: UserChoiceRequired) -> None:
    call = _waiting_call(slice_, asked.id, asked.tool_set, "a choice")
    if call is None:
        return
    if not asked.choices or not 0 <= asked.default < len(asked.choices):
        slice_.note(f"dropped a choice of the call {call.id}: its default {asked.default} is none of its choices")
        return
    slice_.record(call.with_clock_stopped(slice_.now))
    choices = tuple(shown(choice) for choice in asked.choices)
    slice_.open_choice(
        Choice(
            id=call.id,
            prompt=shown(asked.prompt),
            choices=choices,
            default=asked.default,
            response_url=asked.response_url,
            asked_at=slice_.now,
            user_id=call.user_id,
        )
    )
    listed = "\n".join(f"{index}. {choice}" for index, choice in enumerate(choices))
    slice_.tell(
        "user_choice_required",
        f"{shown(asked.prompt)}\n{listed}",
        id=call.id,
        prompt=shown(asked.prompt),
        choices=list(choices),
        default=asked.default,
        user_id=call.user_id,
    )


def _waiting_call(slice_: Slice, call_id: str, tool_set: str | None, what: str) -> Call | None:
    call = slice_.calls.get(call_id)
    if call is None or call.tool_set != tool_set:
        slice_.note(f"dropped {what} for the call {call_id}: unknown, or not asked by the tool set that was called")
        return None
    if call.state not in {CallState.OPEN, CallState.DETACHED}:
        slice_.note(f"absorbed {what} for the call {call_id}, which is {call.state}")
        return None
    return call


def _fold_choice_response(slice_: Slice, message: InputMessage, answer: UserChoiceResponse) -> None:
    choice = slice_.choices.get(answer.choice_id)
    if choice is None:
        slice_.tell("user_choice_complete", "The question is no longer open.", choice_id=answer.choice_id)
        return
    who = answer.user_id or message.user_id
    if choice.user_id is not None and who != choice.user_id:
        slice_.note(f"dropped an answer to the choice {choice.id}: it was asked of somebody else")
        return
    if answer.selected is not None and not 0 <= answer.selected < len(choice.choices):
        slice_.tell(
            "error", f"There is no choice {answer.selected}: the choices run from 0 to {len(choice.choices) - 1}."
        )
        return
    selected = choice.default if answer.selected is None else answer.selected
    call = slice_.calls[choice.id]
    slice_.plan(AnswerChoice(call.id, choice.response_url, selected, call.tool_set))
    slice_.record(call.with_clock_running(slice_.now))
    slice_.dismiss_choice(choice.id, f"{choice.prompt}: {choice.choices[selected]}", answered_by=who)


# Subscriptions, reports, parents.


def _fold_subscription_event(slice_: Slice, delivery: Delivery, tag: SubscriptionEvent) -> None:
    call = slice_.calls.get(tag.tool_call_id)
    if call is not None and tag.tool_set != call.tool_set:
        slice_.note(f"dropped an event of the call {call.id}: it does not come from the tool set that was called")
        return
    if call is None or call.state is not CallState.SUBSCRIBED:
        slice_.note(f"dropped an event of the call {tag.tool_call_id}, which is no open subscription")
        slice_.plan(NotifyCancelled(tag.tool_call_id, call.tool_set if call else tag.tool_set))
        return
    if tag.associative:
        _fold_associative(slice_, delivery.message, call.id)
    else:
        slice_.bursts.setdefault(call.id, []).append(delivery)
    if tag.final:
        slice_.record(call.now(CallState.ENDED))
        slice_.plan(CopyState("subscription", call.id))


def _fold_associative(
    slice_: Slice,
    message: InputMessage,
    call_id: str,
    *,
    child: str | None = None,
    original_tool: str = "spawn_thread",
) -> None:
    if not isinstance(message.content, UserContent):
        slice_.note(f"dropped an event of the call {call_id}: {message.content.type} is no content of an event")
        return
    call = slice_.calls.get(call_id)
    _make_way(slice_)
    slice_.hear_event(
        call,
        call_id,
        _parts(message),
        child_thread_id=child,
        original_tool=original_tool,
        display=message.display_as,
    )
    _respond_for(slice_, call.user_id if call else message.user_id)


def _spawn_event_threads(slice_: Slice) -> None:
    """Give the plain events of each subscription threads of their own, up to 25 events in each."""
    most = slice_.settings.events_per_thread
    for call_id, deliveries in slice_.bursts.items():
        call = slice_.calls[call_id]
        for start in range(0, len(deliveries), most):
            burst = deliveries[start : start + most]
            acting_for, slice_.acting_for = slice_.acting_for, call.user_id
            slice_.spawn(
                ThreadKind.EVENT,
                ids.event_thread_id(slice_.thread.root_id, slice_.thread.id, burst[0].identity),
                born_of=call.id,
                first=_event_thread_prompt(call, burst),
            )
            slice_.acting_for = acting_for
    slice_.bursts.clear()


def _event_thread_prompt(call: Call, burst: Sequence[Delivery]) -> tuple[Part, ...]:
    many = len(burst) > 1
    intro = (
        f"You are a thread of your own, made to handle {'events' if many else 'an event'} of the subscription that the "
        f"call {call.id} ({call.tool}) started; what was said before is for your understanding. Handle "
        f"{'these events' if many else 'this event'}, then end with close_thread; give it report_to_parent only if "
        f"your parent should know of it. {'The events, oldest first' if many else 'The event'}:"
    )
    parts: list[Part] = [Text(intro)]
    for delivery in burst:
        content = delivery.message.content
        parts.extend(_parts(delivery.message) if isinstance(content, UserContent) else (Text(""),))
    if all(isinstance(part, Text) for part in parts):
        return (Text("\n\n".join((intro, *(plain_text((part,)) for part in parts[1:])))),)
    return tuple(parts)


# Compaction.


def _fold_compaction(slice_: Slice, delivery: Delivery) -> None:
    if slice_.is_compacting:
        return
    count = compaction_range(slice_.history, slice_.room_to_summarise, size_of)
    if count == 0:
        slice_.note("nothing can be summarised yet")
        return
    up_to = slice_.history_from + count
    slice_.thread = replace(slice_.thread, compacting_since=slice_.now)
    slice_.spawn(
        ThreadKind.COMPACTION,
        ids.compaction_thread_id(slice_.thread.root_id, slice_.thread.id, delivery.identity),
        born_of=None,
        first=(Text(COMPACTION_PROMPT),),
        stop=up_to,
        compacts_to=up_to,
    )


def _fold_compaction_complete(slice_: Slice, tag: CompactionComplete) -> None:
    slice_.thread = replace(slice_.thread, compacting_since=None)
    count = tag.up_to - slice_.history_from
    if not tag.summary.strip() or not 0 < count <= len(slice_.history) or not is_safe_point(slice_.history, count):
        slice_.note(f"absorbed a summary up to {tag.up_to}: it is empty, or does not fit what stands there now")
        return
    slice_.summarise(tag.up_to, tag.summary)
    slice_.did.append(f"compacted to {tag.up_to}")


# Closed threads.


def _absorb_closed(slice_: Slice, message: InputMessage) -> None:
    if isinstance(message.synthetic, SubscriptionEvent):
        slice_.plan(NotifyCancelled(message.synthetic.tool_call_id, message.synthetic.tool_set))
