"""A host, a sender and a reader, each a process of its own, over one file."""

import contextlib
import json
import shlex
import signal
import sqlite3
import subprocess

import pytest

from .conftest import INFINITY, environment


def test_serve_send_and_tail(start, infinity, odd_tools):
    host = start("serve", "--tool-server", odd_tools)
    host.says("hosts agent.db: model demo, callbacks on port ")
    reader = start("tail", "main", "--since", "0")
    done = infinity("send", "main", 'call nap {"seconds": 0.1}')
    assert done.stderr == ""
    host.says("[main] heard tool_result -> said (")
    assert "[main] heard text -> called nap (" in host.stdout
    reader.says("napped for 0.1 seconds\n")
    assert reader.stdout.splitlines() == [
        "1 main tool_call nap(seconds=0.1)",
        "2 main message (demo model) nap says: napped for 0.1 seconds",
    ]
    assert reader.signalled(signal.SIGINT) == 130
    assert infinity("send", "main", "hi", "--json").stdout.count(f'"hosted_by": "{host.running.pid}"') == 1
    assert (
        f"ok      host: process {host.running.pid}\nok      callback port: the host answers on "
        in infinity("doctor").stdout
    )
    assert f"process {host.running.pid} is already the host of agent.db" in infinity("serve", code=2).stderr
    assert host.signalled() == 0
    assert "stopped; what waits is in the file" in host.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_host_finishes_what_runs_and_stops(start, infinity, slow_model, number):
    host = start("serve", "--json", *slow_model.chosen)
    host.says("hosts agent.db")
    infinity("send", "main", "tell a story")
    with contextlib.closing(sqlite3.connect("agent.db")) as file:
        while file.execute("SELECT receive_count FROM messages").fetchone() != (1,):
            pass
    host.running.send_signal(number)
    slow_model.go()
    assert host.ended() == 0
    (document,) = [json.loads(line) for line in host.stdout.splitlines()]
    assert (document["thread_id"], document["outcome"], document["did"]) == ("main", "completed", ["said"])
    assert "the end" in infinity("show", "main").stdout


def test_a_reader_that_goes_away_and_a_full_disk_make_no_traceback(infinity, place):
    infinity("send", "main", "hello")
    full = subprocess.run(
        ["sh", "-c", f"{shlex.join(INFINITY)} threads > /dev/full"],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert full.returncode == 1
    assert full.stderr == (
        "error: what is printed cannot be written (No space left on device); what was asked for may be done\n"
    )
    gone = subprocess.run(
        ["sh", "-c", f"{shlex.join(INFINITY)} --help | true"], env=environment(), check=False, capture_output=True
    )
    assert gone.stderr == b""
