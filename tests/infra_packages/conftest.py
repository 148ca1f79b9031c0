"""The packages of our functions, each built once in a run."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from infinity_cdk import packages
from infinity_cdk.packages import Target

ARM64 = Target("arm64", "3.13")
HERE = Target("x86_64", f"{sys.version_info[0]}.{sys.version_info[1]}")
"""What can be run by the tests' own Python."""


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Target], Path]:
    """Return the way to the package of one of our functions for a target."""
    built: dict[tuple[str, Target], Path] = {}

    def build(function: str, target: Target) -> Path:
        key = function, target
        if key not in built:
            built[key] = tmp_path_factory.mktemp(f"{function}-{target.architecture}") / "package"
            packages.build_function(function, target, built[key])
        return built[key]

    return build
