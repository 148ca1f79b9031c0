"""moto's SQS, mended where it differs from SQS: order, deduplication, receipts, dead letters; on a clock of ours."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

DEDUP_SECONDS = 300


@contextmanager
def mended_queues(now: Callable[[], float], *, clock_stands_still: Callable[[], bool]) -> Iterator[None]:
    """Have moto's queues behave like SQS while the context is open; ``now`` is seconds since the epoch."""
    from moto.sqs import models  # noqa: PLC0415 - an extra of development
    from moto.sqs.exceptions import ReceiptHandleIsInvalid  # noqa: PLC0415

    mark, delete, receive, change = (
        models.Message.mark_received,
        models.Queue.delete_message,
        models.SQSBackend.receive_message,
        models.SQSBackend.change_message_visibility,
    )

    def add_message(queue: Any, message: Any) -> None:
        # One that was received before comes from the queue whose dead letters these are.
        if queue.fifo_queue and message.approximate_receive_count:
            message.deduplication_id = message.id
            message.sent_timestamp = int(now() * 1000)
            message.approximate_receive_count = 0
        elif queue.fifo_queue and message.deduplication_id:
            by_group = queue.attributes.get("DeduplicationScope") == "messageGroup"
            key = (message.group_id if by_group else "", message.deduplication_id)
            # moto forgets an id together with its message.
            sent = queue.__dict__.setdefault("sent_ids", {})
            if now() - sent.get(key, float("-inf")) < DEDUP_SECONDS:
                return
            sent[key] = now()
        with queue._messages_lock:
            queue._messages.append(message)
            queue._messages_lock.notify_all()

    def receive_message(backend: Any, queue_name: str, count: int, wait: int, *args: Any, **options: Any) -> Any:
        queue = backend.get_queue(queue_name)
        # moto frees a group in the middle of a receive, when it meets the message, and goes on behind it.
        for message in [message for message in queue.pending_messages if message.visible]:
            queue.pending_messages.discard(message)
        return receive(backend, queue_name, count, 0 if clock_stands_still() else wait, *args, **options)

    def mark_received(message: Any, *args: Any, **options: Any) -> None:
        mark(message, *args, **options)
        message.received_ms = int(now() * 1000)

    def delete_message(queue: Any, receipt_handle: str) -> None:
        if queue.fifo_queue:
            _refuse_stale(queue, receipt_handle)
        delete(queue, receipt_handle)

    def change_message_visibility(backend: Any, queue_name: str, receipt_handle: str, visibility_timeout: int) -> None:
        queue = backend.get_queue(queue_name)
        _refuse_stale(queue, receipt_handle)
        # moto counts the twelve hours from when a message was sent, SQS from when it was received last.
        held = [message for message in queue._messages if message.had_receipt_handle(receipt_handle)]
        sent = [message.sent_timestamp for message in held]
        for message in held:
            message.sent_timestamp = message.received_ms
        try:
            change(backend, queue_name, receipt_handle, visibility_timeout)
        finally:
            for message, sent_at in zip(held, sent, strict=True):
                message.sent_timestamp = sent_at

    def _refuse_stale(queue: Any, receipt_handle: str) -> None:
        for message in queue._messages:
            if message.had_receipt_handle(receipt_handle) and (
                message.visible or message.receipt_handle != receipt_handle
            ):
                raise ReceiptHandleIsInvalid

    with ExitStack() as stack:
        for target, name, value in (
            (models, "unix_time", now),
            (models, "unix_time_millis", lambda: now() * 1000),
            (models.Message, "visible", property(lambda message: now() * 1000 >= message.visible_at)),
            (models.Message, "mark_received", mark_received),
            (models.Queue, "add_message", add_message),
            (models.Queue, "delete_message", delete_message),
            (models.SQSBackend, "receive_message", receive_message),
            (models.SQSBackend, "change_message_visibility", change_message_visibility),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield
