"""moto's server on loopback, behind the rules, with faults at will and every call counted."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, Literal, Self
from unittest.mock import patch

from ...aws_clients import AwsClients
from .moto_queues import mended_queues
from .rules import RefusedByRule, check_schedule, check_sqs

ACCOUNT = "123456789012"
REGION = "us-east-1"

_SERVICE = re.compile(r"Credential=[^/]+/\d{8}/[^/]+/([^/]+)/aws4_request")
_SCHEDULE = re.compile(r"/schedules/([^/?]+)")


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one call of ``service``; with ``operation``, with one of these.

    ``status`` and ``code`` are answered instead of what the call says, or the connection is cut; ``after`` the call
    took effect, or in its place.
    """

    service: str
    operation: str | None = None
    status: int | Literal["hang up"] = 500
    code: str = "InternalServerError"
    after: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """What an agent is deployed with."""

    table: str
    bucket: str
    input_url: str
    dead_letter_url: str
    output_url: str
    delay_url: str
    delay_arn: str
    delay_dead_letter_url: str
    delay_dead_letter_arn: str
    role_arn: str
    schedule_group: str


@dataclass
class AwsStandIn:
    """AWS on a free port of loopback, while ``running``. One at a time in a process: moto's state is the process's.

    ``now`` tells the time, in seconds since the epoch: set it to that of a clock that stands still. ``faults`` are
    used up, one by each call that they fit; ``calls`` are those that arrived, as (service, operation).
    """

    now: Callable[[], float] = time.time
    faults: list[Fault] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""
    _deployed: int = 0
    _tables: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        """Serve an empty account while the context is open; ``AWS_ENDPOINT_URL`` and the credentials point here."""
        from moto.moto_api._internal.models import moto_api_backend  # noqa: PLC0415 - an extra of development
        from moto.moto_server.werkzeug_app import (  # noqa: PLC0415
            DomainDispatcherApplication,
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server  # noqa: PLC0415

        class Quiet(MotoRequestHandler):
            protocol_version = "HTTP/1.1"

            def log(self, *_: Any, **__: Any) -> None:
                """Say nothing: a test that fails says enough."""

        stand_in = cls()

        def now() -> float:
            return stand_in.now()

        stand_in._moto = DomainDispatcherApplication(create_backend_app)
        server = make_server("127.0.0.1", 0, stand_in, threaded=True, request_handler=Quiet)
        server.daemon_threads = True  # type: ignore[attr-defined]
        stand_in.url = f"http://127.0.0.1:{server.server_port}"
        environment = {
            "AWS_ENDPOINT_URL": stand_in.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_SESSION_TOKEN": "testing",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.05), daemon=True)
        with ExitStack() as stack:
            stack.enter_context(patch.dict("os.environ", environment))
            stack.enter_context(mended_queues(now, clock_stands_still=lambda: stand_in.now is not time.time))
            moto_api_backend.reset()
            thread.start()
            try:
                yield stand_in
            finally:
                server.shutdown()
                thread.join()
                server.server_close()

    _moto: Any = None

    def deploy(self, clients: AwsClients) -> Resources:
        """Make what an agent needs, under names that nothing deployed before has."""
        self._deployed += 1
        name = f"agent-{self._deployed}"
        sqs, dynamodb = clients.client("sqs"), clients.client("dynamodb")
        dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        clients.client("s3").create_bucket(Bucket=name)
        clients.client("scheduler").create_schedule_group(Name=name)
        fifo = {"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
        large = {"MaximumMessageSize": str(1024 * 1024)}
        dead = sqs.create_queue(QueueName=f"{name}-dead.fifo", Attributes={**fifo, **large})["QueueUrl"]
        redrive = {"deadLetterTargetArn": self.arn_of(dead), "maxReceiveCount": 5}
        inputs = sqs.create_queue(
            QueueName=f"{name}-input.fifo", Attributes={**fifo, **large, "RedrivePolicy": json.dumps(redrive)}
        )["QueueUrl"]
        outputs, delay, delay_dead = (
            sqs.create_queue(QueueName=f"{name}-{use}", Attributes=large)["QueueUrl"]
            for use in ("output", "delay", "delay-dead")
        )
        return Resources(
            table=name,
            bucket=name,
            input_url=inputs,
            dead_letter_url=dead,
            output_url=outputs,
            delay_url=delay,
            delay_arn=self.arn_of(delay),
            delay_dead_letter_url=delay_dead,
            delay_dead_letter_arn=self.arn_of(delay_dead),
            role_arn=f"arn:aws:iam::{ACCOUNT}:role/scheduler",
            schedule_group=name,
        )

    @staticmethod
    def arn_of(queue_url: str) -> str:
        """Return the ARN of the queue."""
        return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue_url.rpartition('/')[2]}"

    @staticmethod
    def queue(queue_url_or_arn: str) -> Any:
        """Return moto's own queue; ``None`` where there is none."""
        from moto.sqs.models import sqs_backends  # noqa: PLC0415 - an extra of development

        return sqs_backends[ACCOUNT][REGION].queues.get(re.split("[/:]", queue_url_or_arn)[-1])

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request: by a fault, by a rule, or by moto."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = BytesIO(body)
        service, operation = _asked(environ)
        self.calls.append((service, operation))
        fault = self._fault(service, operation)
        if fault is not None and not fault.after:
            return _fail(fault, environ, start_response)
        try:
            self._check(service, operation, environ, body)
        except RefusedByRule as refused:
            return _answer(service, refused.status, refused.code, refused.message, start_response)
        # DynamoDB looks and writes in one step; moto does so only while nobody else asks.
        with self._tables if service == "dynamodb" else nullcontext():
            if fault is not None:
                list(self._moto(environ, lambda *_: None))
                return _fail(fault, environ, start_response)
            answer: Iterable[bytes] = self._moto(environ, start_response)
            return answer

    def _fault(self, service: str, operation: str) -> Fault | None:
        for fault in self.faults:
            if fault.service == service and fault.operation in {None, operation}:
                self.faults.remove(fault)
                return fault
        return None

    def _check(self, service: str, operation: str, environ: Mapping[str, Any], body: bytes) -> None:
        from moto.scheduler.models import scheduler_backends  # noqa: PLC0415 - an extra of development

        if service == "sqs" and "HTTP_X_AMZ_TARGET" in environ:
            check_sqs(operation, json.loads(body), self._attributes)
        elif service == "scheduler" and operation == "CreateSchedule":
            name = _SCHEDULE.match(environ["PATH_INFO"])
            check_schedule(
                name[1] if name else "",
                json.loads(body),
                now=datetime.fromtimestamp(self.now(), UTC),
                groups=scheduler_backends[ACCOUNT][REGION].schedule_groups,
                attributes_of=self._attributes,
            )

    def _attributes(self, queue_url_or_arn: str) -> Mapping[str, str]:
        queue = self.queue(queue_url_or_arn)
        return {} if queue is None else queue.attributes


def _asked(environ: Mapping[str, Any]) -> tuple[str, str]:
    named = _SERVICE.search(environ.get("HTTP_AUTHORIZATION", ""))
    service = named[1] if named else ""
    target = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
    if target:
        return service, target
    if service == "scheduler" and _SCHEDULE.match(environ["PATH_INFO"]):
        return service, {"POST": "CreateSchedule", "DELETE": "DeleteSchedule"}.get(environ["REQUEST_METHOD"], "Get")
    return service, environ["REQUEST_METHOD"]


def _fail(fault: Fault, environ: Mapping[str, Any], start_response: Any) -> Iterable[bytes]:
    if fault.status == "hang up":
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError("the stand-in hangs up, as it was told")
    return _answer(fault.service, fault.status, fault.code, "a fault, as it was told", start_response)


def _answer(service: str, status: int, code: str, message: str, start_response: Any) -> Iterable[bytes]:
    if service == "s3":
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        headers = [("Content-Type", "application/xml")]
    else:
        text = json.dumps({"__type": code, "message": message})
        headers = [("Content-Type", "application/x-amz-json-1.0"), ("x-amzn-ErrorType", code)]
    body = text.encode()
    start_response(f"{status} {code}", [*headers, ("Content-Length", str(len(body)))])
    return [body]
