"""The code of Lambda functions, as CDK assets: built on this machine from wheels, without Docker, cached by hash."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import jsii
from aws_cdk import aws_lambda

from . import packages
from .packages import Target

PYTHON = aws_lambda.Runtime.PYTHON_3_13
"""The runtime that packages are built for."""


def handler_of(function: str) -> str:
    """Return the handler of our function, as Lambda names it."""
    return f"infinity_agents.aws.{function}.handler"


def function_code(function: str, *, architecture: aws_lambda.Architecture) -> aws_lambda.Code:
    """Return the code of our function: what it imports, and the dependencies that it needs.

    Raises:
        CannotPackage: there is no such function.
    """
    target = _target(architecture)
    return _code(packages.function_hash(function, target), partial(packages.build_function, function, target))


def project_code(
    directory: Path | str, *, requirements: Path | str | None = None, architecture: aws_lambda.Architecture
) -> aws_lambda.Code:
    """Return the code of a project's own tool server: the directory, and what a tool server imports of this package.

    ``requirements`` names a file as pip reads it, best with exact versions and hashes.

    Raises:
        CannotPackage: the requirements cannot be read.
    """
    place, target = Path(directory).resolve(), _target(architecture)
    wanted = None if requirements is None else Path(requirements).resolve()
    return _code(packages.project_hash(place, wanted, target), partial(packages.build_project, place, wanted, target))


@dataclass(frozen=True, slots=True)
class McpServerCode:
    """The code of ``mcp_proxy`` with an MCP server, and the command that starts the server in Lambda."""

    code: aws_lambda.Code
    command: Sequence[str]


def mcp_server_code(command: str | Sequence[str], *, architecture: aws_lambda.Architecture) -> McpServerCode:
    """Return the MCP server that ``command`` starts here, such as ``["npx", "-y", "name@1.2.3", "--flag"]``.

    It is installed when the package is built, one of npx with a node of its own; nothing is downloaded in Lambda.

    Raises:
        CannotPackage: the command is not one of npx or uvx, or names no exact version.
    """
    server, target = packages.McpServer.of(command), _target(architecture)
    code = _code(packages.server_hash(server, target), partial(packages.build_server, server, target))
    return McpServerCode(code, [f"/var/task/{packages.MCP_SERVER}", *server.arguments])


def _target(architecture: aws_lambda.Architecture) -> Target:
    return Target("arm64" if architecture.name == "arm64" else "x86_64", PYTHON.name.removeprefix("python"))


def _code(asset_hash: str, build: Callable[[Path], None]) -> aws_lambda.Code:
    return aws_lambda.Code.from_asset(
        # What is built here needs no source directory; the CDK wants one that is there.
        str(Path(__file__).parent / "locks"),
        asset_hash_type=cdk.AssetHashType.CUSTOM,
        asset_hash=asset_hash,
        bundling=cdk.BundlingOptions(
            image=cdk.DockerImage.from_registry("docker-is-not-used"),
            local=_Local(build),
        ),
    )


@jsii.implements(cdk.ILocalBundling)
class _Local:
    """Builds a package where the CDK would start Docker. It either succeeds or raises."""

    def __init__(self, build: Callable[[Path], None]) -> None:
        self._build = build

    def try_bundle(self, output_dir: str, *_: Any, **__: Any) -> bool:
        self._build(Path(output_dir))
        return True
