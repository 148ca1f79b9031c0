"""``make synth`` on a machine with nothing but the project's own environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_an_example_is_synthesized_without_node_docker_or_credentials(tmp_path) -> None:
    example = tmp_path / "minimal_agent"
    example.mkdir()
    for name in ("app.py", "cdk.json"):
        (example / name).write_bytes((ROOT / "examples" / "minimal_agent" / name).read_bytes())
    done = subprocess.run(
        [sys.executable, ROOT / "infra" / "synthesize.py", example],
        env={
            "HOME": os.environ["HOME"],
            "PATH": str(Path(sys.executable).parent),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "infra")]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "MB unpacked: leader" in done.stdout
    # Standard output is the CDK's: what is packaged is told on standard error.
    assert "packaging" not in done.stdout
    assert "packaging leader for arm64" in done.stderr


def test_a_failing_app_fails_the_command_and_is_named(tmp_path) -> None:
    (tmp_path / "cdk.json").write_text('{"app": "python3 -c \'raise SystemExit(3)\'"}')
    done = subprocess.run(
        [sys.executable, ROOT / "infra" / "synthesize.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"failed: {tmp_path}" in done.stdout
