"""``infinity init``: what it writes works as it is."""

import json
import os
import subprocess
import sys
import tomllib

import pytest

from infinity_agents.settings import AgentOutputs

from .conftest import ROOT

FILES = {
    ".gitignore",
    "README.md",
    "agent.py",
    "app.py",
    "cdk.json",
    "infinity.toml",
    "prompt.md",
    "pyproject.toml",
    "tests/conftest.py",
    "tests/test_dice.py",
    "tools/dice.py",
    "tools/handler.py",
}


def test_a_new_project_is_whole_and_named_after_its_directory(infinity, place):
    assert "MyAgent" in infinity("init", "my-agent").stdout
    project = place / "my-agent"
    written = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert written == FILES
    assert all("@" not in (project / name).read_text().replace("@server", "").replace("@pytest", "") for name in FILES)
    assert tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"] == "my-agent"
    for module in project.rglob("*.py"):
        compile(module.read_text(), str(module), "exec")
    readme = (project / "README.md").read_text()
    assert {
        name for name in FILES if name.endswith("py") and "tests" not in name and f"`{name}`" not in readme
    } == set()


def test_the_tests_of_a_new_project_pass(infinity, place):
    infinity("init", "my-agent")
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        check=False,
        cwd=place / "my-agent",
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


@pytest.mark.slow  # it packages the functions
def test_a_new_project_synthesizes_with_the_outputs_that_the_command_line_reads(infinity, place):
    infinity("init", "my-agent")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "infra")])
    done = subprocess.run(
        [sys.executable, "-m", "infinity_cdk", "app.py"],
        check=False,
        cwd=place / "my-agent",
        env={**os.environ, "PYTHONPATH": path, "CDK_OUTDIR": str(place / "out")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    template = json.loads((place / "out" / "my-agent.template.json").read_text())
    told = {key: str(output["Value"]) for key, output in template["Outputs"].items()}
    assert AgentOutputs.read(told).written("Agent").items() <= told.items()
    handlers = [
        resource["Properties"].get("Handler")
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Function"
    ]
    assert "handler.handler" in handlers


def test_its_configuration_is_read(infinity, place, monkeypatch):
    infinity("init", "my-agent")
    monkeypatch.chdir(place / "my-agent")
    assert "not begun: 1" in infinity("send", "main", "hello").stdout + infinity("threads").stdout


@pytest.mark.parametrize("name", ["my agent", "1st", "a--b", "my_agent"])
def test_a_name_that_no_stack_takes_is_refused(infinity, place, name):
    assert "cannot be the name of a stack" in infinity("init", name, code=2).stderr
    assert list(place.iterdir()) == []


def test_what_is_there_stays(infinity, place):
    (place / "mine").mkdir()
    (place / "mine" / "app.py").write_text("mine")
    assert "mine is not empty" in infinity("init", "mine", code=2).stderr
    assert (place / "mine" / "app.py").read_text() == "mine"
