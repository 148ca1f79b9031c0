"""What the proof on arm64 looks at, and the proof of one function."""

import json
from pathlib import Path

import pytest

from infinity_cdk.packages import KINDS
from tests.arm64 import machine as machines
from tests.arm64.__main__ import PLACE
from tests.arm64.machine import NoMachine, machine
from tests.arm64.proving import EVENTS, NEWEST_GLIBC, Proof, glibc_of, proved
from tests.infra_packages.conftest import ARM64, package

__all__ = ["package"]


@pytest.mark.parametrize(
    ("data", "newest"),
    [
        (b"", "none"),
        (b"\0GLIBC_2.17\0", "2.17"),
        (b"\0GLIBC_2.9\0memcpy\0GLIBC_2.17\0GLIBC_2.2.5\0", "2.17"),
        (b"\0GLIBC_2.17\0GLIBC_2.34\0", "2.34"),
        (b"\0GLIBC_2.35\0GLIBCXX_3.4.30\0GLIBC_PRIVATE\0", "2.35"),
    ],
)
def test_the_newest_glibc_that_a_package_asks_for(tmp_path, data, newest):
    (tmp_path / "x.libs").mkdir()
    (tmp_path / "x.libs" / "libx-1.so.5").write_bytes(data)
    (tmp_path / "x.so").write_bytes(b"\x7fELF")
    assert glibc_of(tmp_path) == newest


def test_where_there_is_no_apt_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoMachine, match="apt-get is not here: run this on Debian"):
        machine(tmp_path / "machine", print)


def test_where_the_keys_of_debian_are_not_here_the_error_names_the_package(tmp_path, monkeypatch):
    for name in ("apt-get", "dpkg", "dpkg-deb"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machines, "_KEYRING", tmp_path / "no-keys")
    with pytest.raises(NoMachine, match="apt-get install debian-archive-keyring"):
        machine(tmp_path / "machine", print)
    monkeypatch.setattr(machines, "_KEYRING", Path(__file__))
    with pytest.raises(NoMachine, match="apt knows no mirror of Debian"):
        machine(tmp_path / "machine", print)


def test_the_events_are_of_functions_that_there_are():
    assert set(EVENTS) <= set(KINDS)


def test_a_line_of_the_table_says_what_is_wrong():
    assert Proof("receiver", "3.13.5", 1, "2.17", 401).line().split() == ["receiver", "3.13.5", "1", "2.17", "401"]
    assert "its first event needs a service" in Proof("keeper").line()
    assert "ran on x86_64" in Proof("keeper", faults=["ran on x86_64"]).line()


@pytest.mark.slow
@pytest.mark.parametrize("function", KINDS)
def test_no_library_needs_a_newer_glibc_than_lambda_has(package, function):
    newest = glibc_of(package(function, ARM64))
    assert newest != "none"
    assert tuple(map(int, newest.split("."))) <= tuple(map(int, NEWEST_GLIBC.split(".")))


@pytest.mark.slow
def test_a_tool_server_answers_its_first_request_on_arm64(tmp_path):
    try:
        arm64 = machine(PLACE, lambda line: None)
    except NoMachine as error:
        pytest.skip(str(error))
    proof = proved(arm64, "get_time", tmp_path, lambda line: None)
    assert proof.faults == []
    assert (proof.answer, proof.python[:5]) == (200, "3.13.")
    json.dumps(proof.to_json())
    # What is no program of that machine is told, and no proof.
    broken = machines.Machine(tmp_path, arm64.emulator)
    assert proved(broken, "get_time", tmp_path, lambda line: None).faults != []
