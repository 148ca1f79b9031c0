"""``infinity chat --mcp``: the tools of an MCP server in a conversation."""

import json
import sys
from pathlib import Path

import pytest

SERVER = f"{sys.executable} {Path(__file__).parents[1] / 'mcp' / 'stdio_server.py'}"


def test_a_command_is_an_mcp_server_whose_tools_can_be_called(infinity):
    done = infinity("chat", "--mcp", SERVER, stdin='call stdio_server_add {"a": 20, "b": 22}\n')
    assert "42" in done.stdout
    assert "stdio_server: 9 tools" in done.stderr


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('mcp_servers = ["http://mcp.example.com/"]', "https"),
        ('mcp_servers = ["uvx mcp-server-time", "uvx mcp-server-time"]', "two MCP servers have the name 'time'"),
        ('[[mcp_servers]]\nserver = "uvx a"\nname = "a b"', "letters"),
        ('[[mcp_servers]]\nserver = "uvx a"\nenv = ["SURELY_NOT_SET_ANYWHERE"]', "SURELY_NOT_SET_ANYWHERE"),
        ('[[mcp_servers]]\nserver = "uvx a"\nbearer_env = "PATH"', "bearer_env is for a URL"),
        ('[[mcp_servers]]\nserver = "https://a.example/"\nenv = ["PATH"]', "env is for a command"),
        ('[[mcp_servers]]\nserver = "uvx a"\nnam = "a"', "did you mean 'name'"),
        ("mcp_servers = [1]", "a URL, a command or a table"),
    ],
)
def test_what_is_wrong_with_an_mcp_server_is_said_with_its_place(infinity, place, written, said):
    (place / "infinity.toml").write_text(written)
    done = infinity("chat", stdin="", code=2)
    assert "infinity.toml" in done.stderr
    assert said in done.stderr


@pytest.mark.slow
def test_a_server_that_does_not_start_is_said(infinity):
    done = infinity("chat", "--mcp", f"{SERVER} --fail", stdin="", code=2)
    assert "this server does not start" in done.stderr


def test_a_stack_has_its_own(infinity):
    done = infinity("chat", "--stack", "x", "--mcp", SERVER, code=2)
    assert "--mcp" in json.dumps(done.stderr)
