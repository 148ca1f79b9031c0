"""The command lines of the bundled tool servers: what is wrong is refused at the start, in words."""

import os
import socket
import subprocess
import sys

import pytest

SERVERS = {"get_time": [], "finance": [], "sandbox": ["--unconfined", "--root", "sandboxes"]}


def refused(server, directory, *options, **environ):
    """Return the last line that a server says which does not start."""
    process = subprocess.run(
        [sys.executable, "-m", f"infinity_agents.toolsets.{server}", *SERVERS[server], *options],
        cwd=directory, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **environ},
    )  # fmt: skip
    assert (process.returncode, "Traceback" in process.stderr) == (2, False), process.stderr
    return process.stderr.splitlines()[-1]


@pytest.mark.parametrize("server", SERVERS)
def test_a_port_that_is_none_is_refused(server, tmp_path):
    for wrong in ("http", "65536", "-1", "\u0662", "9" * 5_000):
        assert f"{wrong[:50]!r} is no port; give a number from 0 to 65535" in refused(
            server, tmp_path, f"--port={wrong}"
        )


@pytest.mark.parametrize("server", SERVERS)
def test_a_port_that_is_taken_is_refused(server, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused(server, tmp_path, "--port", str(port))
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in told
    assert told.endswith("port 0")


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 64 + ".example", "256.0.0.1"])
def test_a_host_that_is_none_is_refused(server, host, tmp_path):
    assert f"cannot listen on {host} port 0" in refused(server, tmp_path, "--port", "0", "--host", host)


@pytest.mark.parametrize("server", SERVERS)
def test_a_host_that_is_left_out_by_mistake_is_not_every_interface(server, tmp_path):
    assert "--host: it is empty" in refused(server, tmp_path, "--host", "")


def test_a_root_that_cannot_be_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    assert "--root: it is empty" in refused("sandbox", tmp_path, "--root", "")
    for wrong in ("file", "file/inside", "/proc/x", "x" * 300):
        assert f"the sandboxes cannot be kept in {wrong[:200]!r}" in refused("sandbox", tmp_path, "--root", wrong)


@pytest.mark.parametrize("option", ["--read", "--allow"])
def test_a_directory_that_is_none_is_refused(option, tmp_path):
    (tmp_path / "file").write_text("")
    for wrong in ("/nope", "file"):
        assert f"{option}: {wrong!r} is no directory" in refused("sandbox", tmp_path, option, wrong)


def test_what_keeps_no_versions_is_refused(tmp_path):
    assert "invalid choice: 'svn'" in refused("sandbox", tmp_path, "--vcs", "svn")
    assert "there is no jj on PATH; install it" in refused("sandbox", tmp_path, "--vcs", "jj", PATH=str(tmp_path))
