"""The documents say what is so: their examples run, their JSON is read, their names and links are there.

A comment before a fenced block says how it is to be taken:

* ``<!-- file: NAME -->``: a program of that name, for the blocks that need it.
* ``<!-- with: NAME -->``: the block is run while that program serves. Port 8001 becomes a free one in both.
* ``<!-- prints: TEXT -->``: the block prints a line with this text. Several stand for lines in this order.
* ``<!-- is: KIND -->``: what a JSON block is, so that the code which reads the real thing reads it.
* ``<!-- not run: REASON -->``: the block is only shown.
"""

import importlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from infinity_agents.adapters.sqlite.schema import SCHEMA
from infinity_agents.cli.config import read as read_config
from infinity_agents.rap.toolsets import parse_tools_config
from infinity_agents.settings import AgentSettings
from infinity_agents.wire import inputs, outputs, rap, timers
from infinity_agents.wire.callbacks import parse_callback
from infinity_agents.wire.keys import Keyring

pytestmark = pytest.mark.check

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
KEYRING = Keyring({"k1": b"a secret of more than 16 characters"})
PATIENCE = 60.0
SHELLS = {"sh", "bash", "console"}
LANGUAGES = {"python", "json", "text", "toml", *SHELLS}

_FENCE = re.compile(r"^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_DIRECTIVES = re.compile(r"(?:<!--[^\n]*-->\n)+\Z")
_DIRECTIVE = re.compile(r"<!-- (?P<name>file|with|prints|is|not run): ?(?P<value>.*?) -->")


@dataclass(frozen=True)
class Block:
    """One fenced block, and what the comments before it say of it."""

    document: Path
    line: int
    language: str
    text: str
    directives: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    def told(self, name: str) -> list[str]:
        return [value for key, value in self.directives if key == name]

    @property
    def is_run(self) -> bool:
        return not self.told("not run")

    @property
    def commands(self) -> list[str]:
        lines = (line.removeprefix("$ ").strip() for line in self.text.splitlines())
        return [line for line in lines if line and not line.startswith("#")]


def blocks_of(document: Path) -> Iterator[Block]:
    text = document.read_text()
    for found in _FENCE.finditer(text):
        before = _DIRECTIVES.search(text[: found.start()])
        directives = tuple(
            (told["name"], told["value"].strip()) for told in _DIRECTIVE.finditer(before[0] if before else "")
        )
        line = text.count("\n", 0, found.start()) + 1
        yield Block(document, line, found["language"], found["text"], directives)


BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]
PROGRAMS = [block for block in BLOCKS if block.language == "python" and block.is_run]


def without_blocks(document: Path) -> str:
    return _FENCE.sub("", document.read_text())


# Blocks.


def test_every_block_says_what_it_is() -> None:
    for block in BLOCKS:
        assert block.language in LANGUAGES, f"{block}: fenced as {block.language!r}"
    for document in DOCUMENTS:
        assert document.read_text().count("\n```") == 2 * len(list(blocks_of(document))), f"{document}: an open fence"
        comments = re.findall(r"<!--.*?-->", document.read_text(), re.DOTALL)
        taken = [block.directives for block in blocks_of(document)]
        assert len(comments) == sum(map(len, taken)), f"{document}: a comment that no block takes"


def test_what_is_not_run_has_a_reason() -> None:
    for block in BLOCKS:
        for reason in block.told("not run"):
            assert len(reason.split()) >= 4, f"{block}: {reason!r} is no reason"


def test_there_is_something_to_run() -> None:
    assert len(PROGRAMS) >= 3
    assert all(block.document == README or block.told("is") for block in BLOCKS if block.language == "json")


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_python_block_runs_as_it_is(block: Block, tmp_path: Path) -> None:
    with serving(block, tmp_path) as port:
        program = tmp_path / "block.py"
        program.write_text(block.text.replace("8001", str(port)))
        # A server would serve for ever: a file's block is only read here, and run by the block that needs it.
        start = [sys.executable, "-c", "import block"] if block.told("file") else [sys.executable, str(program)]
        done = ran(start, tmp_path)
    assert done.returncode == 0, f"{block}: {done.stderr}"
    printed = iter(done.stdout.splitlines())
    for wanted in block.told("prints"):
        assert any(wanted in line for line in printed), f"{block} does not print {wanted!r} there:\n{done.stdout}"


@contextmanager
def serving(block: Block, directory: Path) -> Iterator[int]:
    """Run the program that the block needs, where it needs one; give the port that stands for 8001."""
    port = free_port()
    if not block.told("with"):
        yield port
        return
    (name,) = block.told("with")
    (needed,) = [other for other in BLOCKS if name in other.told("file")]
    (directory / name).write_text(needed.text.replace("8001", str(port)))
    server = subprocess.Popen(
        [sys.executable, name], cwd=directory, env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        assert str(port) in server.stdout.readline(), f"{needed} does not serve"
        yield port
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def ran(command: list[str], directory: Path, *, patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=False, cwd=directory, env=environment(), capture_output=True, text=True, timeout=patience
    )


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def _same(again: Any, block: Block) -> None:
    assert again == json.loads(block.text), f"{block}: reading and writing it changes it"


def _input(block: Block) -> None:
    inputs.decode(block.text, keyring=KEYRING, queue_id="q", group_id=json.loads(block.text)["group_id"])


def _proven_input(block: Block) -> None:
    fields = json.loads(block.text)
    assert fields.pop("mac").endswith("..."), f"{block}: a document shows no real mac"
    body = inputs.encode(inputs.from_json(fields), KEYRING)
    delivery = inputs.decode(body, keyring=KEYRING, queue_id="q", group_id=fields["group_id"])
    assert delivery.proven
    with pytest.raises(inputs.Unproven):
        inputs.decode(json.dumps(fields), keyring=KEYRING, queue_id="q", group_id=fields["group_id"])


def _output(block: Block) -> None:
    _same(outputs.to_json(outputs.decode(block.text)), block)


def _invocation(block: Block) -> None:
    _same(rap.parse_invocation(block.text.encode()).to_json(), block)


READERS: dict[str, Callable[[Block], object]] = {
    "input message": _input,
    "message with a mac": _proven_input,
    "output": _output,
    "invocation": _invocation,
    "callback": lambda block: parse_callback(block.text.encode()),
    "choice answer": lambda block: rap.parse_notice(block.text.encode(), rap.ChoiceAnswer),
    "cancel notice": lambda block: rap.parse_notice(block.text.encode(), rap.CancelToolCall),
    "delayed message": lambda block: timers.decode(block.text),
    "manifest of http://127.0.0.1:8001": lambda block: rap.parse_manifest(block.text.encode(), "http://127.0.0.1:8001"),
    "tools configuration": lambda block: parse_tools_config(block.text, str(block)),
}


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "json"], ids=str)
def test_a_json_block_is_read_by_what_reads_the_real_thing(block: Block) -> None:
    json.loads(block.text)
    for kind in block.told("is"):
        READERS[kind](block)


# Commands.

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):.*## ", MAKEFILE, re.MULTILINE))


# The one that is tested, installed or not.
_INFINITY = f"infinity() {{ '{sys.executable}' -m infinity_agents.cli \"$@\"; }}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in SHELLS], ids=str)
def test_a_command_runs_or_says_why_it_is_only_shown(block: Block, tmp_path: Path) -> None:
    for command in block.commands:
        if command.startswith("make "):
            assert not block.is_run, f"{block}: a target sets up its own environment, so it is not run in the tests"
            assert command.split()[1] in TARGETS, f"{block}: the Makefile has no such target"
    if not block.is_run:
        return
    printed = ""
    with serving(block, tmp_path) as port:
        for command in block.commands:
            done = ran(["bash", "-euc", f"{_INFINITY}; {command.replace('8001', str(port))}"], tmp_path)
            assert done.returncode == 0, f"{block}: {command}: {done.stderr}"
            printed += done.stdout
    for wanted in block.told("prints"):
        assert wanted in printed, f"{block} does not print {wanted!r}:\n{printed}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "toml"], ids=str)
def test_a_toml_block_is_a_configuration_with_every_limit_as_it_is(block: Block, tmp_path: Path) -> None:
    assert block.told("is") == ["infinity.toml"], block
    (tmp_path / "infinity.toml").write_text(block.text)
    config = read_config(tmp_path / "infinity.toml")
    assert replace(config.settings, system_prompt="") == AgentSettings(), block
    assert all(name in block.text for name in AgentSettings.__dataclass_fields__ if name != "system_prompt"), block


def test_every_target_is_told_and_every_target_told_is_there() -> None:
    told = {target for document in DOCUMENTS for target in re.findall(r"`make ([a-z0-9-]+)`", document.read_text())}
    assert told == TARGETS


def test_what_a_target_runs_is_there() -> None:
    modules = re.findall(r"\$\(PY\) -m (infinity_agents[\w.]*|tests[\w.]*)", MAKEFILE)
    assert "infinity_agents.local.demo" in modules
    for module in modules:
        places = (ROOT / "src" / module.replace(".", "/"), ROOT / module.replace(".", "/"))
        assert any(place.with_suffix(".py").is_file() or (place / "__main__.py").is_file() for place in places), module


def test_the_readme_tells_of_what_continuous_integration_runs() -> None:
    (command,) = re.findall(r"^make [a-z]+$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert any(command in block.commands for block in BLOCKS if block.document == README)


@pytest.mark.slow
def test_the_demo_does_what_the_readme_tells(tmp_path: Path) -> None:
    done = ran([sys.executable, "-m", "infinity_agents.local.demo"], tmp_path, patience=3 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    (shown,) = [block for block in BLOCKS if block.document == README and "put on the queue" in block.text]
    for line in shown.text.splitlines():
        # The times differ from run to run.
        wanted = re.escape(line)
        wanted = re.sub(r"\d{4}\\-\d\d\\-\d\d\\ \d\d:\d\d:\d\d", r"[\\d -]+:\\d\\d:\\d\\d", wanted)
        assert re.search(wanted, done.stdout), f"the demo does not print {line!r}:\n{done.stdout}"


# Links and names.


def slug_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_every_relative_link_resolves(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(document)):
        if re.match(r"[a-z]+:", target):
            assert target.startswith("https://"), f"{document.name}: {target}"
            continue
        path, _, anchor = target.partition("#")
        linked = (document.parent / path).resolve() if path else document
        assert linked.exists(), f"{document.name}: {target}"
        assert linked.is_relative_to(ROOT), f"{document.name}: {target} leads outside"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", without_blocks(linked), re.MULTILINE)
            assert anchor in map(slug_of, headings), f"{document.name}: {target}"


def test_every_promise_has_its_row_and_its_test_file() -> None:
    rows = re.findall(r"^\| (P\d) \|.*\]\((tests/promises/\S+)\) \|$", README.read_text(), re.MULTILINE)
    assert [promise for promise, _ in rows] == [f"P{number}" for number in range(1, 9)]
    for promise, path in rows:
        assert (ROOT / path).is_file(), path
        assert f"def test_{promise.lower()}_" in (ROOT / path).read_text(), f"{path} has no test named after {promise}"
    files = {path.name for path in (ROOT / "tests" / "promises").glob("test_p*.py")}
    assert files == {Path(path).name for _, path in rows}


PARTS = "conversation|ports|wire|runtime|tools|rap|adapters|local|testing|toolsets|settings|errors"
_NAME = re.compile(rf"`(?:infinity_agents\.)?((?:{PARTS})(?:\.\w+)*)`")
_PATH = re.compile(r"`((?:src|tests|docs)/[\w./-]*|testing/\w+\.py)`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_every_name_of_ours_is_there(document: Path) -> None:
    text = without_blocks(document)
    for name in _NAME.findall(text):
        assert is_there(name), f"{document.name}: there is no {name}"
    for path in _PATH.findall(text):
        assert any((ROOT / base / path).exists() for base in ("", "src/infinity_agents")), f"{document.name}: {path}"


def is_there(name: str) -> bool:
    """Whether ``name``, below the package, is a module or what can be reached from one."""
    steps = name.split(".")
    found: Any = importlib.import_module("infinity_agents")
    for number, step in enumerate(steps, start=1):
        try:
            found = importlib.import_module(".".join(["infinity_agents", *steps[:number]]))
        except ModuleNotFoundError:
            fields = getattr(found, "__dataclass_fields__", {})
            if not hasattr(found, step) and step not in fields:
                return False
            found = getattr(found, step, fields.get(step))
    return True


def test_every_package_is_in_the_layout_and_every_table_in_the_architecture() -> None:
    readme, architecture = README.read_text(), (ROOT / "docs" / "architecture.md").read_text()
    packages = {path.parent.name for path in (ROOT / "src" / "infinity_agents").glob("*/__init__.py")}
    assert {name for name in packages if f"`src/infinity_agents/{name}/`" not in readme} == set()
    tables = set(re.findall(r"CREATE TABLE (\w+)", SCHEMA))
    assert {name for name in tables if f"`{name}`" not in architecture} == set()


def test_every_decision_has_its_three_parts_and_is_short() -> None:
    decisions = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [path.name[:4] for path in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for path in decisions:
        text = path.read_text()
        assert text.startswith(f"# {int(path.name[:4])}. "), path.name
        assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["Context", "Decision", "Consequence"], path.name
        assert len(text.splitlines()) <= 16, path.name


def test_the_version_has_its_entry_in_the_changelog() -> None:
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


FORBIDDEN = {
    "a registry's host": re.compile(r"pypi\.org|pythonhosted|npmjs|crates\.io|ghcr\.io|docker\.io|\.dkr\.ecr\."),
    "a path of one machine": re.compile(r"(?<![\w.])/(?:home|root|tmp|work|Users|var|usr|opt|mnt)/"),
    "an emoji": re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]"),
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_no_document_names_a_registry_or_a_machine(document: Path) -> None:
    for what, pattern in FORBIDDEN.items():
        found = pattern.search(document.read_text())
        assert found is None, f"{document.name} has {what}: {found and found[0]}"
