"""Child threads: spawn, report, talk, close. All answer inside the slice; what they do happens with the commit."""

from ..conversation import ids
from ..conversation.content import JsonObject, Text
from ..conversation.effects import SendInput
from ..conversation.ledger import Call
from ..conversation.messages import InputMessage, ParentMessage, ThreadReport
from ..conversation.threads import ThreadKind
from ..ports.tool import SliceContext, ToolAnswer, ToolSpec
from .synchronous import BuiltIn, described, object_schema


class SpawnThread(BuiltIn):
    """Spawns a child of the calling thread, which sees everything said up to now."""

    spec = ToolSpec(
        "spawn_thread",
        "Start a child thread that works by itself, sees everything said so far, and can report to you later. Its "
        "reports come as events about this call.",
        object_schema(
            {
                "instructions": described("string", "What the child is to do, and when to report.", minLength=1),
                "child_of": described(
                    "array",
                    "Your own full thread stack, from the root to you, as the system prompt gives it.",
                    items={"type": "string"},
                ),
            },
            required=("instructions", "child_of"),
        ),
    )

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer:
        stack = list(context.thread.stack)
        if list(call.arguments["child_of"]) != stack:
            return ToolAnswer.error(
                f"child_of must be your own thread stack, {stack}. If these instructions were not meant for you, mind "
                "your own task instead."
            )
        if not str(call.arguments["instructions"]).strip():
            return ToolAnswer.error("instructions must say what the child is to do")
        child = context.spawn_child(call, str(call.arguments["instructions"]))
        return ToolAnswer.of(f"Started the child thread {child}.")


class ReportToParent(BuiltIn):
    """Sends a report to the parent, as an event about the call that made this thread."""

    spec = ToolSpec(
        "report_to_parent",
        "Report to the thread that started you. Only what you report here reaches it.",
        object_schema({"report": described("string", "The report.", minLength=1)}, required=("report",)),
    )

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer:
        if context.thread.parent_id is None:
            return ToolAnswer.error("You are a root thread: nobody is above you. Say it to the people instead.")
        _report(context, call, str(call.arguments["report"]))
        return ToolAnswer.of("Reported.")


def _report(context: SliceContext, call: Call, text: str) -> None:
    thread = context.thread
    context.stage(
        SendInput(
            InputMessage(
                content=Text(text),
                group_id=thread.ancestors[-1],
                message_id=ids.message_id("report", thread.id, call.id),
                synthetic=ThreadReport(tool_call_id=thread.born_of or "", child_thread_id=thread.id),
            )
        )
    )


class SendMessageToChild(BuiltIn):
    """Sends a message to a direct child."""

    spec = ToolSpec(
        "send_message_to_child",
        "Send a message to a child thread that you started yourself and that is not closed.",
        object_schema(
            {
                "thread_id": described("string", "The child's thread id."),
                "message": described("string", "The message.", minLength=1),
            },
            required=("thread_id", "message"),
        ),
    )

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer:
        child = str(call.arguments["thread_id"])
        if child not in context.children:
            return ToolAnswer.error(
                f"{child!r} is no open child of yours. Yours are: {', '.join(context.children) or 'none'}."
            )
        context.stage(
            SendInput(
                InputMessage(
                    content=Text(str(call.arguments["message"])),
                    group_id=child,
                    message_id=ids.message_id("parent", child, context.thread.id, call.id),
                    metadata={"user_id": context.user_id} if context.user_id else None,
                    synthetic=ParentMessage(tool_call_id=call.id),
                )
            )
        )
        return ToolAnswer.of("Sent.")


class CloseThread(BuiltIn):
    """Ends the calling thread, and no other."""

    spec = ToolSpec(
        "close_thread",
        "End your own thread: its timers and subscriptions are cancelled, and its children are closed. A root thread "
        "cannot be closed.",
        object_schema(
            {
                "thread_id": described("string", "Your own thread id."),
                "report_to_parent": described("string", "A last report to the thread that started you."),
            },
            required=("thread_id",),
        ),
    )

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer:
        thread = context.thread
        named = str(call.arguments["thread_id"])
        if named != thread.id:
            return ToolAnswer.error(f"You can close your own thread, {thread.id!r}, and no other.")
        if thread.kind is ThreadKind.ROOT:
            return ToolAnswer.error("A root thread cannot be closed: people may come back to it.")
        report = str(call.arguments.get("report_to_parent", ""))
        if report.strip():
            _report(context, call, report)
        context.close()
        return ToolAnswer.of("Closed.")

    def display(self, arguments: JsonObject) -> str:
        return f"close_thread({arguments.get('thread_id', '')})"
