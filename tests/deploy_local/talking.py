"""What the README tells to do with a deployed agent: send to its input queue, read its output queue."""

import json
import time

from .deploying import Deployed

PATIENCE = 60.0


def send(stack: Deployed, thread_id: str, text: str) -> None:
    """Say ``text``, as anyone may who can send to the queue."""
    body = json.dumps({"content": {"type": "text", "text": text}, "group_id": thread_id})
    stack.cli(
        *("sqs", "send-message", "--queue-url", stack.agent.input_queue_url),
        *("--message-group-id", thread_id, "--message-deduplication-id", f"{thread_id}-{text}"[:128].replace(" ", "-")),
        *("--message-body", body),
    )


def told(stack: Deployed) -> list[dict[str, object]]:
    """Take what is on the output queue now off it."""
    url = stack.agent.output_queue_url
    outputs = []
    while received := stack.cli("sqs", "receive-message", "--queue-url", url, "--max-number-of-messages", "10"):
        for message in received["Messages"]:
            outputs.append(json.loads(message["Body"]))
            stack.cli("sqs", "delete-message", "--queue-url", url, "--receipt-handle", message["ReceiptHandle"])
    return outputs


def answer_to(stack: Deployed, thread_id: str, text: str) -> str:
    """Say ``text`` and return the message that comes back; raise with the functions' logs if none does."""
    send(stack, thread_id, text)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for output in told(stack):
            if output["type"] == "message" and output["thread_id"] == thread_id:
                return str(output["text"])
        time.sleep(0.1)
    logs = "\n".join(f"{name}:\n{function.log}" for name, function in stack.functions.running.items())
    raise AssertionError(f"nobody answered {text!r} within {PATIENCE:.0f} s\n{logs}")
