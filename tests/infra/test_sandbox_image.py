"""What the image of the sandbox tool set is built from; nothing here builds it, for that takes Docker."""

import re
import subprocess
import sys
from pathlib import Path

import aws_cdk as cdk
import pytest

from infinity_agents.errors import Misconfigured
from infinity_agents.settings.tool_servers import SandboxEnvironment
from infinity_cdk import InfinityAgent, SandboxToolSet
from tests.infra.conftest import Synthesized, app_without_bundling

pytestmark = pytest.mark.slow


def synthesized(**arguments):
    """Return what the function is told, and the directory that its image is built from."""
    app = app_without_bundling()
    stack = cdk.Stack(app, "Stack")
    SandboxToolSet(InfinityAgent(stack, "Agent", monitoring=False), "Sandbox", **arguments)
    variables = Synthesized(stack).function("AgentSandboxToolServer")["Environment"]["Variables"]
    [steps] = Path(app.synth().directory).glob("asset.*/Dockerfile")
    return variables, steps.parent


@pytest.fixture(scope="module")
def jj(tmp_path_factory):
    program = tmp_path_factory.mktemp("jj") / "jj-for-linux"
    program.write_text("a program")
    return program


@pytest.mark.parametrize("vcs", ["git", "jj"])
def test_all_that_is_copied_is_there_and_the_handler_can_be_imported(vcs, jj):
    variables, directory = synthesized(**({"jj": jj} if vcs == "jj" else {}))
    assert variables["SANDBOX_VCS"] == vcs
    steps = [line.split(maxsplit=1) for line in (directory / "Dockerfile").read_text().splitlines() if line[0] != "#"]
    assert [name for name, _ in steps[:2]] == ["FROM", "RUN"]
    assert {name for name, _ in steps} <= {"FROM", "RUN", "COPY", "CMD"}
    copied = [rest.split()[0] for name, rest in steps if name == "COPY"]
    assert sorted(copied) == sorted(path.name for path in directory.iterdir() if path.name != "Dockerfile")
    assert ("jj" in copied) == (vcs == "jj")
    if vcs == "jj":
        assert (directory / "jj").stat().st_mode & 0o111 == 0o111
    [command] = [rest for name, rest in steps if name == "CMD"]
    module, _, handler = re.fullmatch(r'\["([\w.]+)"\]', command)[1].rpartition(".")
    program = f"import {module} as at, sys; assert callable(at.{handler}); print(at.__file__)"
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, env={"PYTHONPATH": str(directory)}, check=True,
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert Path(told.strip()).is_relative_to(directory)


def test_a_jj_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        synthesized(jj=tmp_path / "nowhere")


def test_the_variable_is_git_or_jj():
    told = {"CLAIMS_TABLE_NAME": "t", "SANDBOX_ROOT": "/mnt", "SANDBOX_VCS": "svn"}
    with pytest.raises(Misconfigured, match="SANDBOX_VCS must be 'git' or 'jj', and is 'svn'"):
        SandboxEnvironment.read(told)
