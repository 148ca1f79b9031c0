"""What tool servers know of a host stays the same over restarts."""

import stat
from pathlib import Path

import pytest

from infinity_agents.errors import Misconfigured
from infinity_agents.local import identity as module
from infinity_agents.local.callbacks import HOST
from infinity_agents.local.identity import Identity


def test_it_is_made_once_and_for_this_user_alone(path):
    first, second = Identity.beside(path), Identity.beside(path)
    assert first == second
    assert stat.S_IMODE(Path(f"{path}.callbacks").stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["agent.db.callbacks"]


def test_two_files_have_two_secrets(path, tmp_path):
    first, second = Identity.beside(path), Identity.beside(tmp_path / "other.db")
    assert not second.keyring.proves("p", b"m", first.keyring.sign("p", b"m"))


@pytest.mark.parametrize("wrong", ["", "[]", '{"secret": "short", "port": 1}', '{"port": 20000}'])
def test_a_damaged_file_is_a_clear_error(path, wrong):
    Path(f"{path}.callbacks").write_text(wrong)
    with pytest.raises(Misconfigured, match=r"agent\.db\.callbacks is damaged; restore a copy|CALLBACK_SECRET"):
        Identity.beside(path)


def test_a_directory_that_is_not_there_is_a_clear_error(tmp_path):
    with pytest.raises(Misconfigured, match=r"agent\.db\.callbacks cannot be read or made \(No such file"):
        Identity.beside(tmp_path / "nowhere" / "agent.db")


def test_the_port_is_none_that_a_connection_is_given(path):
    assert Identity.beside(path).port in module._PORTS


async def test_a_callback_port_that_is_taken_is_a_clear_error(open_agent):
    import socket

    agent = open_agent()
    port = agent.identity.port
    with socket.create_server((HOST, port)), pytest.raises(Misconfigured, match=rf"callback port {port}, .* in use"):
        async with agent.hosted():
            pass
    async with agent.hosted():
        pass
