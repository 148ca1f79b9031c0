"""What a package finds around it in Lambda: what the runtime brings, and the variables that its function must have."""

from dataclasses import MISSING, fields
from importlib.util import find_spec
from pathlib import Path

from infinity_agents.settings import leading, queueing, slack, tool_servers

RUNTIME = ("boto3", "botocore", "s3transfer", "dateutil", "six", "urllib3", "jmespath")
"""What Lambda's runtime for Python brings."""


def linked_runtime(place: Path) -> Path:
    """Return a directory in ``place`` with links to what Lambda's runtime brings."""
    runtime = place / "runtime"
    runtime.mkdir(exist_ok=True)
    for name in RUNTIME:
        spec = find_spec(name)
        assert spec is not None
        file = Path(spec.origin or "")
        source = file.parent if file.name == "__init__.py" else file
        link = runtime / source.name
        if not link.exists():
            link.symlink_to(source)
    return runtime


def least_environment(function: str) -> dict[str, str]:
    """Return variables with which the function's settings can be read; those of tests, where there is a choice."""
    spelt = {"delay_relay": "relay"}.get(function, function)
    modules = (leading, queueing, slack, tool_servers)
    told = [kind for module in modules for kind in vars(module).values() if getattr(kind, "FUNCTION", None) == spelt]
    if not told:
        return {}
    needed = [field.name.upper() for field in fields(told[0]) if field.default is MISSING]
    needed += [name for groups in told[0].ALTERNATIVES for name in groups[-1]]
    return {name: value_of(name) for name in needed}


def value_of(name: str) -> str:
    values = {
        "_URL": "https://sqs.eu-west-1.amazonaws.com/123456789012/a",
        "_ARN": "arn:aws:sqs:eu-west-1:123456789012:a",
        "_COUNT": "5",
        "_EVERYONE": "true",
        "_SECRET": "k1:0123456789abcdef0123456789abcdef",
    }
    if name == "DATABASE_URL":
        return "postgresql://somebody@127.0.0.1:1/nothing"
    return next((value for end, value in values.items() if name.endswith(end)), "something")
