"""What is proved of a package: its extensions load, its first event is answered, its libraries fit Lambda's glibc."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from infinity_cdk import packages
from infinity_cdk.packages import CLIENTS, KINDS
from tests.arm64.machine import Machine
from tests.infra_packages.conftest import ARM64
from tests.infra_packages.surroundings import least_environment, linked_runtime

FUNCTIONS = tuple(KINDS)
NEWEST_GLIBC = "2.34"
"""The glibc of Amazon Linux 2023, on which Lambda runs Python 3.13."""
INSIDE = Path(__file__).with_name("inside.py")


def _get(path: str) -> Mapping[str, Any]:
    return _request("GET", path)


def _request(method: str, path: str, body: str = "") -> Mapping[str, Any]:
    http = {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"}
    return {
        "version": "2.0",
        "rawPath": path,
        "headers": {"content-type": "application/json", "x-forwarded-proto": "https", "host": "a.example.com"},
        "requestContext": {"http": http, "domainName": "a.example.com"},
        "body": body,
        "isBase64Encoded": False,
    }


_MANIFEST = (_get("/.well-known/rap-toolset"), 200)
_NO_RECORDS = ({"Records": []}, {"batchItemFailures": []})
EVENTS: Mapping[str, tuple[Mapping[str, Any], Any]] = {
    "leader": _NO_RECORDS,
    "delay_relay": _NO_RECORDS,
    "receiver": (_request("POST", "/forged", "{}"), 401),
    "get_time": _MANIFEST,
    "ec2": _MANIFEST,
    "github_events": _MANIFEST,
    "finance": _MANIFEST,
}
"""Events whose answer needs no service, and the answer, or its status."""


@dataclass
class Proof:
    """What was seen of one function's package; ``faults`` are what is wrong with it."""

    function: str
    python: str = ""
    extensions: int = 0
    glibc: str = ""
    answer: Any = None
    faults: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def line(self) -> str:
        told = "built; its first event needs a service" if self.answer is None else json.dumps(self.answer)
        told = "; ".join(self.faults).replace("\n", "\n    ") or told
        return f"{self.function:<18} {self.python:<8} {self.extensions:>10}  {self.glibc:<6} {told}"


def proved(arm64: Machine, function: str, place: Path, say: Callable[[str], None]) -> Proof:
    """Build the package as the constructs do, and have ``arm64`` run it."""
    package = place / function
    packages.build_function(function, ARM64, package)
    say(f"running {function}")
    proof = Proof(function, glibc=glibc_of(package))
    if _version(proof.glibc) > _version(NEWEST_GLIBC):
        proof.faults.append(f"needs glibc {proof.glibc}, and Lambda has {NEWEST_GLIBC}")
    event, expected = EVENTS.get(function, (None, None))
    runtime = "-" if function in CLIENTS else str(linked_runtime(place))
    done = arm64.python(
        *("-I", "-S", str(INSIDE), str(package), runtime, f"infinity_agents.aws.{function}.handler"),
        "-" if event is None else json.dumps(event),
        environment={
            "AWS_REGION": "eu-west-1",
            "CALLBACK_SECRET": "k1:0123456789abcdef",
            "CLAIMS_TABLE_NAME": "claims",
            **least_environment(function),
        },
    )
    if done.returncode:
        proof.faults.append(done.stderr.strip()[-2_000:] or f"ended with {done.returncode}")
        return proof
    told = json.loads(done.stdout.splitlines()[-1])
    proof.python, proof.extensions = told["python"], told["extensions"]
    answer = told["answer"]
    proof.answer = answer["statusCode"] if isinstance(answer, dict) and "statusCode" in answer else answer
    if told["machine"] != "aarch64":
        proof.faults.append(f"ran on {told['machine']}")
    if proof.answer != expected:
        proof.faults.append(f"answered {proof.answer!r} and not {expected!r}")
    if not proof.extensions:
        proof.faults.append("has no extension: nothing was proved")
    return proof


def glibc_of(package: Path) -> str:
    """Return the newest glibc that a library of the package asks for."""
    asked = {
        found.decode()
        for path in package.rglob("*.so*")
        for found in re.findall(rb"(?<=\0)GLIBC_(2\.[0-9]+(?:\.[0-9]+)?)(?=\0)", path.read_bytes())
    }
    return max(asked, key=_version, default="none")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
