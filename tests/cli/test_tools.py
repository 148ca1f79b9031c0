"""``infinity tools``: against tool servers in processes of their own."""

import json

import pytest


def documents(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_tools_are_listed_with_their_arguments(infinity, demo_tools):
    printed = infinity("tools", "list", demo_tools).stdout
    assert printed.startswith(f"demo-tools  {demo_tools}\n")
    assert "  slow_job  long-running\n    Do a job that takes a while.\n" in printed
    assert "      topic (string, required): What to watch" in printed
    (document,) = documents(infinity("tools", "list", demo_tools, "--json"))
    assert [tool["name"] for tool in document["servers"][0]["tools"]] == ["slow_job", "watch"]


def test_the_configured_servers_are_listed_and_one_that_is_down_is_told(infinity, place, demo_tools):
    assert "no tool server is configured; name a URL" in infinity("tools", "list", code=2).stderr
    (place / "infinity.toml").write_text(
        f'[[tool_servers]]\nurl = "{demo_tools}"\n[[tool_servers]]\nid = "gone"\nurl = "http://127.0.0.1:9"'
    )
    done = infinity("tools", "list", code=1)
    assert "slow_job" in done.stdout
    assert "The tool set 'gone' is missing" in done.stderr


def test_a_tool_is_called(infinity, odd_tools):
    done = infinity("tools", "call", odd_tools, "nap", '{"seconds": 0.01}')
    assert done.stdout == "napped for 0.01 seconds\n"
    assert "→ nap" in done.stderr
    (result,) = documents(infinity("tools", "call", odd_tools, "nap", '{"seconds": 0}', "--json"))
    assert (result["type"], result["is_error"]) == ("tool_result", False)
    assert result["content"] == [{"type": "text", "text": "napped for 0 seconds"}]


def test_what_a_tool_says_cannot_touch_the_terminal(infinity, odd_tools):
    assert infinity("tools", "call", odd_tools, "shout", '{"text": "boo"}').stdout == "boo\n"


def test_a_failure_is_an_exit_code(infinity, odd_tools):
    done = infinity("tools", "call", odd_tools, "fail", code=1)
    assert "the shed is on fire" in done.stdout
    assert "Traceback" not in done.output


def test_events_follow_until_the_last_one(infinity, demo_tools):
    called = infinity("tools", "call", demo_tools, "watch", '{"topic": "x", "events": 2}', "--json")
    result, first, last = documents(called)
    assert (result["subscription"], first["final"], last["final"]) == (True, False, True)
    assert last["text"] == "something happened to x (2 of 2)"


def test_without_a_terminal_a_question_has_its_default(infinity, odd_tools):
    done = infinity("tools", "call", odd_tools, "paint")
    assert done.stdout == "the shed is green\n"
    assert "2. green" in done.stderr
    assert "no terminal to ask on: 2, the default, is taken" in done.stderr


def test_a_large_result_is_printed_whole_and_one_that_is_too_large_is_an_error(infinity, odd_tools):
    assert len(infinity("tools", "call", odd_tools, "much", '{"megabytes": 3}').stdout) == 3_000_001
    assert "are allowed" in infinity("tools", "call", odd_tools, "much", '{"megabytes": 7}', code=1).stdout


@pytest.mark.parametrize(
    ("arguments", "told", "code"),
    [
        (["nap", "seconds=1"], "the arguments 'seconds=1' are not a JSON object; quote one", 2),
        (["nap", "[1]"], "are not a JSON object", 2),
        (["nap", '{"seconds": "long"}'], "seconds", 1),
        (["nop"], "has no tool 'nop'; it has paint, mail, shout, ", 1),
    ],
)
def test_a_call_that_cannot_be_made_is_told(infinity, odd_tools, arguments, told, code):
    assert told in infinity("tools", "call", odd_tools, *arguments, code=code).stderr


def test_a_server_that_is_not_there_is_told(infinity):
    assert "http://127.0.0.1:9" in infinity("tools", "call", "http://127.0.0.1:9", "nap", code=1).stderr
    assert "URL" in infinity("tools", "call", "nonsense", "nap", code=2).stderr


@pytest.mark.slow
def test_a_server_is_checked_against_the_protocol(infinity, demo_tools):
    done = infinity("tools", "test", demo_tools, "--example", 'slow_job={"seconds": 0}')
    assert "nothing broken" in done.stdout
    (document,) = documents(infinity("tools", "test", demo_tools, "--json"))
    assert document["broken"] == 0


def test_what_a_server_breaks_is_told(infinity, slow_model):
    done = infinity("tools", "test", slow_model.url.removesuffix("/v1"), code=1)
    assert "broken  manifest" in done.stdout
    assert "expected: name, endpoint and at least one tool" in done.stdout
