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


def test_the_tools_of_a_server_are_listed(infinity):
    printed = infinity("tools", "list", "--mcp", SERVER).stdout
    assert printed.startswith("stdio_server  MCP over stdio\n")
    assert "  stdio_server_add  read-only\n    Add two numbers.\n      a (integer, required)" in printed
    (document,) = json.loads(infinity("tools", "list", "--mcp", SERVER, "--json").stdout)["mcp_servers"]
    assert (document["name"], document["transport"], document["problem"]) == ("stdio_server", "stdio", None)
    assert len(document["tools"]) == 9


def test_the_doctor_and_the_list_say_what_each_server_has_or_why_it_has_nothing(infinity, place):
    (place / "infinity.toml").write_text(
        f'[[mcp_servers]]\nserver = "{SERVER}"\nname = "good"\n'
        f'[[mcp_servers]]\nserver = "{SERVER} --fail"\nname = "bad"\n'
        '[[mcp_servers]]\nserver = "http://127.0.0.1:9/mcp"\nname = "gone"\n'
    )
    told = json.loads(infinity("doctor", "--json", code=1).stdout)
    found = {finding["about"]: finding for finding in told["findings"]}
    assert (found["MCP server good"]["verdict"], found["MCP server good"]["seen"]) == ("ok", "stdio, 9 tools")
    assert found["MCP server bad"]["verdict"] == "missing"
    assert "this server does not start" in found["MCP server bad"]["seen"]
    assert found["MCP server gone"]["seen"].startswith("http: no session with the MCP server")
    assert "infinity.toml" in found["MCP server gone"]["remedy"]
    assert not (place / "agent.db.mcp").exists()
    listed = infinity("tools", "list", code=1)
    assert "good  MCP over stdio" in listed.stdout
    assert "this server does not start" in listed.stderr
