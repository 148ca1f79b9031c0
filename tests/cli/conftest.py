"""The command line as people and scripts have it: in this process, in others, and on a terminal."""

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path

import httpx
import pyte
import pytest
from typer.testing import CliRunner

from infinity_agents.cli.commands import app
from infinity_agents.local.wiring import LocalAgent

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
INFINITY = [sys.executable, "-m", "infinity_agents.cli"]
PATIENCE = 30.0
PROMPT = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"


def environment(**more):
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}}
    return {**kept, "PYTHONPATH": path, "TERM": "xterm-256color", "OPENAI_API_KEY": "none", **more}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty directory to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def infinity(place):
    """Run one command in this process; return what came of it."""

    def run(*arguments, stdin=None, code=0):
        # Wide, so that no path is broken in two.
        done = CliRunner().invoke(app, arguments, input=stdin, env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.output
        return done

    return run


@pytest.fixture
def play(place):
    """Let an agent in ``agent.db`` hear texts in a thread, one after the other, each until all is quiet again."""

    def played(*texts, thread="main", **options):
        asyncio.run(_play(texts, thread, options))

    return played


async def _play(texts, thread, options):
    agent = LocalAgent.open("agent.db", synchronous="OFF", **options)
    try:
        async with asyncio.timeout(PATIENCE), agent.host():
            for text in texts:
                await agent.send(thread, text)
                await _quiet(agent)
            await _quiet(agent)
    finally:
        await agent.aclose()


async def _quiet(agent):
    while await agent.queue.outstanding():  # noqa: ASYNC110 - what is waited for happens in a database
        await asyncio.sleep(0.01)


class Process:
    """A process of the tests' own, which is ended with them."""

    def __init__(self, *command, cwd=None, **env):
        self.running = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.said = {self.running.stdout: "", self.running.stderr: ""}

    @property
    def stdout(self):
        return self.said[self.running.stdout]

    @property
    def stderr(self):
        return self.said[self.running.stderr]

    def says(self, text):
        """Return once it has printed ``text``."""
        until = time.monotonic() + PATIENCE
        while text not in self.stdout + self.stderr:
            open_pipes = [pipe for pipe in self.said if not pipe.closed]
            ready, _, _ = select.select(open_pipes, [], [], max(until - time.monotonic(), 0))
            assert ready, f"no {text!r} in:\n{self.stdout}\n{self.stderr}"
            for pipe in ready:
                got = os.read(pipe.fileno(), 65536)
                self.said[pipe] += got.decode()
                if not got:
                    pipe.close()
        return self.stdout

    def signalled(self, number=signal.SIGTERM):
        """Send a signal; return the exit code once it has ended."""
        self.running.send_signal(number)
        return self.ended()

    def ended(self):
        for pipe in self.said:
            if not pipe.closed:
                with contextlib.suppress(OSError):
                    self.said[pipe] += pipe.read().decode()
                pipe.close()
        return self.running.wait(PATIENCE)

    def stop(self):
        if self.running.poll() is None:
            self.running.kill()
        self.ended()


@pytest.fixture
def start(place):
    """Start ``infinity`` with these arguments in a process of its own."""
    with contextlib.ExitStack() as ends:

        def started(*arguments, **env):
            process = Process(*INFINITY, *arguments, cwd=place, **env)
            ends.callback(process.stop)
            return process

        yield started


def serving(*command):
    process = Process(*command)
    try:
        yield process.says("http://").split()[-1]
    finally:
        process.stop()


@pytest.fixture(scope="session")
def odd_tools():
    """The URL of a tool server that asks, sends links, fails, and says terminal escapes."""
    yield from serving(sys.executable, str(HERE / "odd_tools.py"))


@pytest.fixture(scope="session")
def demo_tools():
    yield from serving(sys.executable, "-m", "infinity_agents.local.demo_tools", "--port", "0")


class Model:
    """A model that stands still in the midst of a story until it is told to ``go`` on."""

    def __init__(self, url):
        self.url = f"{url}/v1"
        self.chosen = ["--model", "openai:slow", "--base-url", self.url]
        self._url = url

    def hold(self):
        httpx.post(f"{self._url}/hold", trust_env=False)

    def go(self):
        httpx.post(f"{self._url}/go", trust_env=False)


@pytest.fixture(scope="session")
def model_server():
    for url in serving(sys.executable, str(HERE / "slow_model.py")):
        yield Model(url)


@pytest.fixture
def slow_model(model_server):
    model_server.hold()
    yield model_server
    model_server.go()


class Terminal:
    """A terminal with ``infinity`` in it: what is typed, and what the screen shows."""

    def __init__(self, *arguments, cwd, columns=100, rows=50, **env):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, slave = os.openpty()
        self.resize(columns, rows)
        self.running = subprocess.Popen(
            [*INFINITY, *arguments],
            cwd=cwd,
            env=environment(**env),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=partial(os.login_tty, slave),  # noqa: PLW1509 - nothing else runs here while it does
            pass_fds=[slave],
        )
        os.close(slave)

    def resize(self, columns, rows=50):
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if hasattr(self, "running"):
            self.running.send_signal(signal.SIGWINCH)

    @property
    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def flat(self):
        """The screen without line breaks and set-in lines."""
        return " ".join(self.text.split())

    def type(self, text):
        os.write(self.master, text.encode())

    def enter(self, text):
        self.type(text)
        self.sees(text[-20:])
        self.type("\r")

    def sees(self, *texts):
        """Return once the screen shows all of ``texts``, wherever its lines break."""
        self._read_until(
            lambda: all(" ".join(text.split()) in self.flat for text in texts), lambda: f"no {texts} in:\n{self.text}"
        )

    def comes_to(self, holds):
        """Return once ``holds`` of the screen: a screen is drawn in steps, and may be read between two of them."""
        self._read_until(holds, lambda: f"it does not come to that:\n{self.text}")

    def sees_no(self, text):
        self._read_until(lambda: text not in self.flat, lambda: f"{text!r} stays in:\n{self.text}")

    def _read_until(self, holds, what):
        until = time.monotonic() + PATIENCE
        while not holds():
            ready, _, _ = select.select([self.master], [], [], max(until - time.monotonic(), 0))
            assert ready, what()
            try:
                got = os.read(self.master, 65536)
            except OSError:
                got = b""
            assert got or holds(), f"it has ended: {what()}"
            self.raw += got
            self.stream.feed(got)

    def ended(self):
        """Read to the end; return the exit code."""
        with contextlib.suppress(OSError):
            while got := os.read(self.master, 65536):
                self.raw += got
                self.stream.feed(got)
        return self.running.wait(PATIENCE)

    def close(self):
        """Close the terminal, as a person closes its window."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def stop(self):
        if self.running.poll() is None:
            self.running.kill()
            self.running.wait(PATIENCE)
        self.close()


@pytest.fixture
def terminal(place):
    """Open a terminal with ``infinity`` and these arguments in it."""
    with contextlib.ExitStack() as ends:

        def opened(*arguments, **options):
            one = Terminal(*arguments, cwd=place, **options)
            ends.callback(one.stop)
            # What is typed before the line to type on is there belongs to the terminal itself.
            one.sees(*([] if options.get("TERM") == "dumb" else ["/help lists the commands", PROMPT]))
            return one

        yield opened
