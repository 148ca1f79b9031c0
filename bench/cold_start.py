"""What a fresh process takes to import the leader and the receiver and to handle a first event, beside bare handlers.

Each run is a process of its own, ours and bare by turns, against a stand-in for AWS and a PostgreSQL on this machine.
Ours are the packages that the constructs deploy, built for this machine. The bare handlers, ``bare_leader.py`` and
``bare_receiver.py``, make the same calls to AWS, by what Lambda's runtime brings and by psycopg.

``python -m bench.cold_start --runs 9 --json``
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import distribution
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import psycopg

from infinity_agents.adapters.dsql import DsqlDatabase, PostgreSql, migrate
from infinity_agents.adapters.system import SystemClock
from infinity_agents.aws_clients import AwsClients
from infinity_agents.rap.callbacks import callback_url
from infinity_agents.testing import postgres
from infinity_agents.testing.aws import AwsStandIn, Resources
from infinity_agents.wire.keys import Keyring
from infinity_cdk.packages import Target, build_function

_SECRET = "k1:a secret of more than 16 characters"  # noqa: S105 - invented
_BASE = "https://callbacks.example.com"
_FUNCTIONS = ("leader", "receiver")
_RUNTIME = ("boto3", "botocore", "s3transfer", "python-dateutil", "six", "urllib3", "jmespath")
"""What Lambda's runtime for Python brings; what a function brings itself goes before it."""
_DRIVER = ("psycopg", "psycopg-binary", "typing-extensions")
_CHILD = """
import importlib, json, sys, time
class Context:
    function_name, aws_request_id, memory_limit_in_mb = "f", "r", 1024
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:f"
    def get_remaining_time_in_millis(self):
        return 60_000
event = json.load(sys.stdin)
begun = time.perf_counter(), time.process_time()
handler = importlib.import_module(sys.argv[1]).handler
imported = time.perf_counter(), time.process_time()
answer = handler(event, Context())
done = time.perf_counter(), time.process_time()
print(json.dumps({"answer": answer, "import": [b - a for a, b in zip(begun, imported)],
                  "whole": [b - a for a, b in zip(begun, done)]}))
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians of one function: milliseconds of the import alone and to the end of the first event; ours over bare."""

    function: str
    with_pyc: bool
    runs: int
    import_ms: float
    bare_import_ms: float
    first_event_ms: float
    bare_first_event_ms: float
    first_event_cpu_ms: float
    bare_first_event_cpu_ms: float
    import_ratio: float
    first_event_ratio: float
    first_event_cpu_ratio: float
    calls: tuple[str, ...]
    bare_calls: tuple[str, ...]


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="processes of each kind")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    options = parser.parse_args()
    figures = run(options.runs)
    if options.json:
        print(json.dumps([asdict(one) for one in figures]))
        return
    for one in figures:
        print(f"{one.function}, {'with' if one.with_pyc else 'without'} .pyc, {one.runs} runs")
        for name, value in asdict(one).items():
            if isinstance(value, float):
                print(f"  {name:28} {value:>10,.2f}")


def run(runs: int) -> list[Figures]:
    """Return the figures of both functions, with ``.pyc`` and without."""
    with tempfile.TemporaryDirectory() as folder, _deployed() as (aws, clients, resources):
        handlers = {function: _handlers(function, Path(folder)) for function in _FUNCTIONS}
        return [
            _measured(function, sides, aws, clients, resources, runs=runs, with_pyc=with_pyc)
            for function, sides in handlers.items()
            for with_pyc in (True, False)
        ]


@dataclass(frozen=True, slots=True)
class _Handler:
    """One side: a module with a ``handler``, and where a process finds modules."""

    module: str
    path: tuple[Path, ...]


def _handlers(function: str, folder: Path) -> tuple[_Handler, _Handler]:
    """Return ours and the bare one, each with its package in ``folder``."""
    package, bare, runtime = folder / function, folder / f"bare_{function}", folder / "runtime"
    architecture: Any = "arm64" if platform.machine() in {"arm64", "aarch64"} else "x86_64"
    build_function(function, Target(architecture, "{}.{}".format(*sys.version_info)), package)
    _link(runtime, _RUNTIME)
    _link(bare, _DRIVER)
    (bare / f"bare_{function}.py").symlink_to(Path(__file__).with_name(f"bare_{function}.py"))
    return (
        _Handler(f"infinity_agents.aws.{function}", (package, runtime)),
        _Handler(f"bare_{function}", (bare, runtime)),
    )


def _link(place: Path, names: tuple[str, ...]) -> None:
    place.mkdir(exist_ok=True)
    for name in names:
        for file in distribution(name).files or ():
            top = place / file.parts[0]
            if file.parts[0] != ".." and not top.exists():
                top.symlink_to(Path(str(distribution(name).locate_file(file.parts[0]))))


def _measured(
    function: str,
    sides: tuple[_Handler, _Handler],
    aws: AwsStandIn,
    clients: AwsClients,
    resources: Resources,
    *,
    runs: int,
    with_pyc: bool,
) -> Figures:
    took: tuple[list[Any], list[Any]] = ([], [])
    calls: list[tuple[str, ...]] = [(), ()]
    # The first run of each is not counted: it writes what the others read.
    for number in range(runs + 1):
        for side, handler in enumerate(sides):
            name = f"{function}-{with_pyc}-{number}-{side}"
            event = _message(name, clients, resources) if function == "leader" else _callback(name)
            aws.calls.clear()
            told = _first_event(handler, event, with_pyc=with_pyc)
            calls[side] = tuple(sorted(f"{service} {operation}" for service, operation in aws.calls))
            if number:
                took[side].append(told)
    print(f"{function}, {'with' if with_pyc else 'without'} .pyc: {runs} runs done", file=sys.stderr)
    (importing, bare_importing), (whole, bare_whole), (cpu, bare_cpu) = (
        [1000 * median(told[what][clock] for told in side) for side in took]
        for what, clock in (("import", 0), ("whole", 0), ("whole", 1))
    )
    return Figures(
        function=function,
        with_pyc=with_pyc,
        runs=runs,
        import_ms=importing,
        bare_import_ms=bare_importing,
        first_event_ms=whole,
        bare_first_event_ms=bare_whole,
        first_event_cpu_ms=cpu,
        bare_first_event_cpu_ms=bare_cpu,
        import_ratio=importing / bare_importing,
        first_event_ratio=whole / bare_whole,
        first_event_cpu_ratio=cpu / bare_cpu,
        calls=calls[0],
        bare_calls=calls[1],
    )


def _first_event(handler: _Handler, event: dict[str, Any], *, with_pyc: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as nowhere:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, handler.path))}
        if not with_pyc:
            environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": nowhere}
        ended = subprocess.run(  # noqa: S603 - this interpreter, with a script of ours
            [sys.executable, "-S", "-c", _CHILD, handler.module],  # -S: what is installed here is not in Lambda
            input=json.dumps(event),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode != 0:
        raise RuntimeError(f"{handler.module} failed: {ended.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    if told["answer"].get("batchItemFailures") or told["answer"].get("statusCode", 200) != 200:
        raise RuntimeError(f"{handler.module} did not handle its event: {told['answer']}; {ended.stderr[-2000:]}")
    return told


def _message(thread_id: str, clients: AwsClients, resources: Resources) -> dict[str, Any]:
    queue = clients.client("sqs")
    body = json.dumps({"content": {"type": "text", "text": "Hello!"}, "group_id": thread_id})
    queue.send_message(
        QueueUrl=resources.input_url, MessageBody=body, MessageGroupId=thread_id, MessageDeduplicationId=thread_id
    )
    answer = queue.receive_message(
        QueueUrl=resources.input_url, VisibilityTimeout=600, MessageSystemAttributeNames=["All"]
    )
    (message,) = answer["Messages"]
    return {
        "Records": [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message["Attributes"],
            }
        ]
    }


def _callback(call_id: str) -> dict[str, Any]:
    path = callback_url(_BASE, Keyring.parse(_SECRET), "cold", call_id, "tools").removeprefix(_BASE)
    return {
        "rawPath": path,
        "requestContext": {"http": {"method": "POST", "path": path}},
        "body": json.dumps({"type": "tool_result", "group_id": "cold", "id": call_id, "text": "done"}),
        "isBase64Encoded": False,
    }


@contextmanager
def _deployed() -> Iterator[tuple[AwsStandIn, AwsClients, Resources]]:
    server = postgres.start(f"bench-{os.getpid()}")
    url = server.create("cold_start")
    asyncio.run(_migrated(url))
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE bare (thread text, place int, body text, PRIMARY KEY (thread, place))")
    with AwsStandIn.running() as aws:
        clients = AwsClients()
        resources = aws.deploy(clients)
        secret = clients.client("secretsmanager").create_secret(Name="keys", SecretString=_SECRET)["ARN"]
        environment = {
            "INPUT_QUEUE_URL": resources.input_url,
            "DELAY_QUEUE_URL": resources.delay_url,
            "DELAY_QUEUE_ARN": resources.delay_arn,
            "DELAY_DEAD_LETTER_QUEUE_ARN": resources.delay_dead_letter_arn,
            "SCHEDULER_ROLE_ARN": resources.role_arn,
            "SCHEDULE_GROUP_NAME": resources.schedule_group,
            "OUTPUT_QUEUE_URL": resources.output_url,
            "DEAD_LETTER_QUEUE_URL": resources.dead_letter_url,
            "MAX_RECEIVE_COUNT": "5",
            "DYNAMODB_TABLE_NAME": resources.table,
            "DATABASE_URL": url,
            "RAP_CALLBACK_URL": _BASE,
            "CALLBACK_SECRET_ARN": secret,
            "BLOB_BUCKET": resources.bucket,
            "MODEL_ID": "demo",
            "AWS_LAMBDA_FUNCTION_NAME": "cold-start",
        }
        with patch.dict("os.environ", environment):
            yield aws, clients, resources
        clients.close()


async def _migrated(url: str) -> None:
    database = DsqlDatabase(PostgreSql(url), SystemClock())
    await migrate(database, progress=lambda _: None)
    await database.close()


if __name__ == "__main__":
    main()
