"""An example as its README tells it: the commands are run as they stand there, in a copy, and every one of them is."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
RUNS = {
    "python": [sys.executable],
    "uvicorn": [sys.executable, "-m", "uvicorn"],
    "infinity": [sys.executable, "-m", "infinity_agents.cli"],
}


class Example:
    """One example, in a copy that may be written to. The port that its server listens on is a free one there."""

    def __init__(self, name, directory, *, port=None, replaced=()):
        shutil.copytree(
            ROOT / "examples", directory / "examples", ignore=shutil.ignore_patterns("__pycache__", "*.db*", "cdk.out")
        )
        self.directory = directory / "examples" / name
        self.port = free_port()
        for path in self.directory.glob("*.*"):
            text = path.read_text()
            for old, new in (*replaced, *([(str(port), str(self.port))] if port else [])):
                text = text.replace(old, new)
            path.write_text(text)
        readme = (self.directory / "README.md").read_text()
        blocks = re.findall(r"^```(sh|text)\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
        self.commands = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
        self.shown = [line for kind, text in blocks if kind == "text" for line in text.splitlines()]
        assert self.commands.pop(0) == f"cd examples/{name}"
        self.left = list(self.commands)

    def started(self, command, *more, **environment):
        self.left = [told for told in self.left if told != command]
        assert command in self.commands, f"the README does not tell of {command!r}"
        program, *arguments = shlex.split(command)
        return subprocess.Popen(
            [*RUNS[program], *arguments, *more],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def printed(self, command, *more, said=""):
        """Return what ``command`` prints."""
        process = self.started(command, *more)
        try:
            stdout, stderr = process.communicate(said, timeout=PATIENCE)
        finally:
            process.kill()
        assert process.returncode == 0, stdout + stderr
        return stdout

    @contextmanager
    def serving(self, command, **environment):
        """Have the server run that ``command`` starts."""
        process = self.started(command, **environment)
        try:
            give_up = time.monotonic() + PATIENCE
            while not is_open(self.port):
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < give_up, f"{command} does not serve"
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def is_open(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def assert_in_order(lines, text):
    rest = iter(text.splitlines())
    for line in lines:
        assert any(line == printed for printed in rest), f"{line!r} is not printed there:\n{text}"


@pytest.fixture
def example(tmp_path):
    """Return the way to take up an example; at the end, no command of its README is left."""
    taken = []

    def take(name, **options):
        taken.append(Example(name, tmp_path, **options))
        return taken[-1]

    yield take
    assert [command for one in taken for command in one.left] == []
