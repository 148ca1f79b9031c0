"""``infinity.toml``: what it may say, and what is said where it says something else."""

from datetime import timedelta
from pathlib import Path

import pytest

from infinity_agents.cli.config import AgentConfig, Flags, configured
from infinity_agents.errors import Misconfigured
from infinity_agents.rap.toolsets import ToolSetConfig
from infinity_agents.settings import AgentSettings

WHOLE = """
file = "state/agent.db"
model = "openai:gpt-5"
base_url = "http://127.0.0.1:11434/v1"
prompt_file = "prompt.md"

[[tool_servers]]
url = "http://127.0.0.1:8001/"

[[tool_servers]]
url = "https://tools.example.com/base"
id = "remote"
call_timeout = 600
bearer_env = "REMOTE_TOKEN"

[limits]
interrupt = "cancel"
rounds_per_slice = 3
compact_at = 0.5
"""


def test_without_a_file_there_are_defaults(place):
    assert configured(Flags()) == AgentConfig()


def test_a_whole_file_is_read_and_its_paths_are_its_own(place):
    (place / "there").mkdir()
    (place / "there" / "infinity.toml").write_text(WHOLE)
    (place / "there" / "prompt.md").write_text("Be brief: ä.")
    assert configured(Flags(config=Path("there/infinity.toml"))) == AgentConfig(
        file=Path("there/state/agent.db"),
        model="openai:gpt-5",
        base_url="http://127.0.0.1:11434/v1",
        tool_servers=(
            ToolSetConfig("127.0.0.1:8001", "http://127.0.0.1:8001"),
            ToolSetConfig("remote", "https://tools.example.com/base", "bearer:REMOTE_TOKEN", timedelta(seconds=600)),
        ),
        settings=AgentSettings("Be brief: ä.", interrupt="cancel", rounds_per_slice=3, compact_at=0.5),
        source=Path("there/infinity.toml"),
    )


def test_every_setting_of_an_agent_is_a_limit_or_the_prompt(place):
    defaults = AgentSettings()
    names = [name for name in AgentSettings.__dataclass_fields__ if name != "system_prompt"]
    spelt = [f"{name} = {getattr(defaults, name)!r}" for name in names]
    (place / "infinity.toml").write_text("\n".join(["prompt = ''", "[limits]", *spelt]))
    assert configured(Flags()).settings == defaults


def test_flags_win(place):
    (place / "infinity.toml").write_text(
        'model = "openai:a"\nprompt = "one"\n[[tool_servers]]\nurl = "http://127.0.0.1:1"'
    )
    config = configured(
        Flags(file=Path("b.db"), model="demo", prompt="two", tool_servers=["http://127.0.0.1:2", "http://127.0.0.1:3"])
    )
    assert (config.file, config.model, config.settings.system_prompt) == (Path("b.db"), "demo", "two")
    assert [server.server_url for server in config.tool_servers] == ["http://127.0.0.1:2", "http://127.0.0.1:3"]


def test_a_tool_server_may_be_its_url_alone(place):
    (place / "infinity.toml").write_text('tool_servers = ["http://127.0.0.1:8001/"]')
    assert configured(Flags()).tool_servers == (ToolSetConfig("127.0.0.1:8001", "http://127.0.0.1:8001"),)


WRONG = {
    "no server": ("\ntool_servers = [3]", "2: tool_servers.0: input should be a URL or a table, and this is '3'"),
    "no limits": ("limits = 3", "1: limits: input should be a table, and this is '3'"),
    "a typo": ('\nmodle = "demo"', "infinity.toml:2: modle: unknown key; did you mean 'model'?"),
    "nothing alike": ("zzz = 1", "infinity.toml:1: zzz: unknown key; the keys here are file, model,"),
    "a type": ("model = 3", "infinity.toml:1: model: input should be a valid string, and this is '3'"),
    "a limit's typo": (
        "\n[limits]\n\nround_per_slice = 3",
        "4: limits.round_per_slice: unknown key; did you mean 'rounds_",
    ),
    "a limit's type": (
        '[limits]\nrounds_per_slice = "many"',
        "2: limits.rounds_per_slice: input should be a valid integer",
    ),
    "a limit's range": (
        "[limits]\nrounds_per_slice = 0",
        "2: limits.rounds_per_slice: input should be greater than or",
    ),
    "a share": ("[limits]\ncompact_at = 75", "2: limits.compact_at: input should be less than or equal to 1"),
    "a word": (
        '[limits]\ninterrupt = "stop"',
        "2: limits.interrupt: input should be 'detach' or 'cancel', and this is 's",
    ),
    "limits in one line": ("model = 'demo'\nlimits = { rounds = 3 }", "2: limits.rounds: unknown key; did you mean"),
    "the wrong table": (
        '[limits]\nmodel = "demo"',
        "2: limits.model: this key stands at the top, before the first [tab",
    ),
    "the second server": (
        '[[tool_servers]]\nurl = "http://127.0.0.1:1"\n[[tool_servers]]\nurl = "http://127.0.0.1:2"\ntimeout = 3',
        "infinity.toml:5: tool_servers.1.timeout: unknown key; did you mean 'call_timeout'?",
    ),
    "no url": ('[[tool_servers]]\nid = "a"', "infinity.toml:1: tool_servers.0.url: this key must be there"),
    "a url": (
        '[[tool_servers]]\nurl = "http://example.com"',
        "infinity.toml:2: tool_sets.0.server_url: Value error, a URL mu",
    ),
    "two ids": (
        '[[tool_servers]]\nid = "a"\nurl = "http://127.0.0.1:1"\n[[tool_servers]]\nid = "a"\nurl = "http://127.0.0.1:2"',
        "two tool servers have the id 'a'; give one of them another id",
    ),
    "a token for a name": (
        '[[tool_servers]]\nurl = "http://127.0.0.1:1"\nbearer_env = "sk-123"',
        "infinity.toml:3: tool_servers.0.bearer_env: string should match pattern",
    ),
    "no toml": ("model = demo", "infinity.toml:1: not TOML: Invalid value"),
    "no prompt": ('prompt_file = "no.md"', "infinity.toml:1: prompt_file: no.md cannot be read (No such file"),
    "two prompts": ('prompt = "a"\nprompt_file = "no.md"', "infinity.toml:2: prompt_file: there is a prompt besides"),
    "not UTF-8": (b"model = '\xff'", "infinity.toml is not UTF-8"),
    "escapes": ('"\\u001b[31m" = 1', "unknown key"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_with_its_place_and_its_remedy(place, name):
    text, told = WRONG[name]
    (place / "infinity.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Misconfigured) as refused:
        configured(Flags())
    assert told in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_all_that_is_wrong_is_told_at_once(place):
    (place / "infinity.toml").write_text("modle = 1\nfiel = 2")
    with pytest.raises(Misconfigured, match=r"(?s)infinity.toml:1: .*\n.*infinity.toml:2: "):
        configured(Flags())


def test_a_file_that_is_named_must_be_there(place):
    with pytest.raises(Misconfigured, match=r"no.toml cannot be read \(No such file"):
        configured(Flags(config=Path("no.toml")))


def test_a_flag_is_checked_too(place):
    with pytest.raises(Misconfigured, match=r"in --tool-server: .*a URL must be https, except on loopback"):
        configured(Flags(tool_servers=["http://example.com"]))
