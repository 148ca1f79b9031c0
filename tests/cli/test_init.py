"""``infinity init``: what it writes works as it is."""

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from infinity_agents.settings.stacks import AgentOutputs

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
    assert not [name for name in FILES if re.search("@[A-Z]+@", (project / name).read_text())]
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


NAMES = ["my agent", "1st", "a--b", "my_agent", "-", "größe", "a-", "a\nb", "\udcff", "a" * 129, "a" * 5000]


@pytest.mark.parametrize("name", NAMES, ids=map(ascii, range(len(NAMES))))
def test_a_name_that_no_stack_takes_is_refused(infinity, place, name):
    told = infinity("init", "--", name, code=2).stderr
    assert "cannot be the name of a stack" in told
    assert len(told) < 1000
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_not_the_directory_that_one_is_in(infinity, place, name):
    assert "it is empty; give a path" in infinity("init", name, code=2).stderr
    assert list(place.iterdir()) == []


def test_a_project_is_not_called_as_what_it_needs(infinity, place):
    assert "cannot be its name; name another directory" in infinity("init", "infinity-agents", code=2).stderr
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "class_name"),
    [("none", "NoneAgent"), ("duration", "DurationAgent"), ("infinity-agent", "InfinityAgentAgent"), ("a-1b", "A1b")],
)
def test_the_class_has_a_name_that_is_free(infinity, place, name, class_name):
    assert f"a new agent, {class_name}." in infinity("init", name).stdout
    source = (place / name / "agent.py").read_text()
    assert f"class {class_name}(InfinityAgent):" in source
    compile(source, "agent.py", "exec")


def test_a_directory_too_long_for_the_disk_is_told_shortly(infinity, place):
    told = infinity("init", f"{'a' * 300}/demo", code=2).stderr
    assert "cannot be written (File name too long)" in told
    assert "a" * 200 not in told


# Where the package comes from.


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, "infinity-agents[local,aws,cdk]"),
        ({"url": "file:///a/b", "dir_info": {"editable": True}}, "infinity-agents[local,aws,cdk] @ file:///a/b"),
        (
            {"url": "https://x.example/a.whl", "archive_info": {}},
            "infinity-agents[local,aws,cdk] @ https://x.example/a.whl",
        ),
        (
            {
                "url": "https://x.example/a.git",
                "vcs_info": {"vcs": "git", "commit_id": "0a1b"},
                "subdirectory": "agents",
            },
            "infinity-agents[local,aws,cdk] @ git+https://x.example/a.git@0a1b#subdirectory=agents",
        ),
    ],
)
def test_a_project_needs_the_package_from_where_it_was_installed(
    infinity, place, monkeypatch, tmp_path_factory, origin, requirement
):
    installed = tmp_path_factory.mktemp("installed") / "infinity_agents-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.4\nName: infinity-agents\nVersion: 1.0\n")
    if origin:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(installed.parent)
    infinity("init", "demo")
    assert tomllib.loads((place / "demo" / "pyproject.toml").read_text())["project"]["dependencies"] == [requirement]
    assert f".venv/bin/pip install '{requirement}' pytest\n" in (place / "demo" / "README.md").read_text()


def test_a_checkout_that_is_not_installed_is_named_itself(infinity, place, monkeypatch):
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not list(Path(each).glob("infinity_agents-*"))])
    with pytest.raises(PackageNotFoundError):
        distribution("infinity-agents")
    infinity("init", "demo")
    assert f"'infinity-agents[local,aws,cdk] @ {ROOT.as_uri()}'" in (place / "demo" / "README.md").read_text()


@pytest.mark.slow  # it installs all that a project needs, from where pip finds it
def test_the_commands_of_its_readme_are_true_as_they_stand(infinity, place):
    infinity("init", "demo")
    project = place / "demo"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for name in ("tools/dice.py", "infinity.toml"):
        (project / name).write_text((project / name).read_text().replace("8001", port))
    on_this_machine = (project / "README.md").read_text().partition("```sh\n")[2].partition("```")[0]
    venv, install, tests, tool, chat = (line.partition(" #")[0] for line in on_this_machine.splitlines())
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(command, **more):
        done = subprocess.run(
            ["sh", "-c", command], cwd=project, env=env, check=False, capture_output=True, text=True, **more
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run(venv)
    run(install)
    assert "5 passed" in run(tests)
    served = subprocess.Popen(["sh", "-c", f"exec {tool}"], cwd=project, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert "dice listens on" in served.stdout.readline()
        assert "in all" in run(chat, input='call roll_dice {"sides": 20}\n')
    finally:
        served.terminate()
        served.communicate()
    python = ".venv/bin/python"
    synth = json.loads((project / "cdk.json").read_text())["app"].replace("python3", python)
    run(f"CDK_CONTEXT_JSON='{json.dumps({'aws:cdk:bundling-stacks': []})}' CDK_OUTDIR=cdk.out {synth}")
    assert (project / "cdk.out" / "demo.template.json").exists()


def test_what_is_there_stays(infinity, place):
    (place / "mine").mkdir()
    (place / "mine" / "app.py").write_text("mine")
    assert "mine is not empty" in infinity("init", "mine", code=2).stderr
    assert (place / "mine" / "app.py").read_text() == "mine"
