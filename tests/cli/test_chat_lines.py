"""``infinity chat`` without a terminal: lines in, plain lines out."""

import json
import subprocess
from functools import partial

import pytest

from infinity_agents.local import host
from infinity_agents.runtime.notices import SET_ASIDE

from .conftest import INFINITY, environment


def test_each_line_is_answered_before_the_next_is_said(infinity, odd_tools):
    printed = infinity("chat", "--tool-server", odd_tools, stdin='call nap {"seconds": 0.2}\ncall fail\n').stdout
    assert printed.splitlines() == [
        "  → nap(seconds=0.2)",
        "  ← napped for 0.2 seconds",
        "(demo model) nap says: napped for 0.2 seconds",
        "  → fail()",
        "  ← ValueError: the shed is on fire",
        "(demo model) fail failed: ValueError: the shed is on fire",
    ]


def test_only_what_answers_the_lines_is_printed(infinity, play):
    play("are you there?")
    assert infinity("chat", stdin="").stdout == ""
    (answer,) = infinity("chat", stdin="hello\n").stdout.splitlines()
    assert answer.startswith('(demo model) You said: "hello"')


def test_scripts_get_documents(infinity, odd_tools):
    infinity("chat", stdin="hello\n")
    said = 'call shout {"text": "hey"}\n/threads\n'
    done = infinity("chat", "--json", "--tool-server", odd_tools, stdin=said)
    assert [(line["place"], line["type"], line["text"]) for line in map(json.loads, done.stdout.splitlines())] == [
        (2, "tool_call", 'shout(text="hey")'),
        (3, "message", "(demo model) shout says: hey"),
    ]


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_message_that_was_set_aside_is_not_done(infinity, slow_model, monkeypatch, flags):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(host, "HostSettings", partial(host.HostSettings, max_receive_count=1))
    asked = ["chat", *flags, "--base-url", slow_model.url, "--model", "openai:fast"]
    assert SET_ASIDE in infinity(*asked, stdin="hello\n", code=1).stdout
    assert SET_ASIDE not in infinity("chat", *flags, stdin="").stdout


def test_a_question_is_answered_by_number(infinity, odd_tools):
    printed = infinity("chat", "--tool-server", odd_tools, stdin="call paint\n/answer 9\n/answer 3\n").stdout
    assert "  ? Which colour for the shed?\n    1. red\n    2. green\n    3. blue\n" in printed
    assert "/answer takes the number of a choice, 1 to 3" in printed
    assert "(demo model) paint says: the shed is blue" in printed


def test_what_it_waits_for_at_the_end_is_told(infinity):
    told = infinity("chat", stdin="Remind me in 500 seconds to stretch\n").stderr
    assert told.startswith("  · asleep until ")
    assert told.endswith("; `infinity serve` lets it go on\n")


def test_the_commands_of_a_chat(infinity, odd_tools):
    said = "/threads\ncall mail\n/threads\n/stop\n/threads\n/nonsense\n/help\n/answer\n/quit\nnever said\n"
    printed = infinity("chat", "--tool-server", odd_tools, stdin=said).stdout
    assert "mail needs your authorization: https://mail.example.com/authorize" in printed
    assert "x" * 80 in printed
    assert "main  waiting, 2 entries\n  waits for your authorization for mail, since " in printed
    assert "main  idle, 3 entries" in printed
    assert "there is no /nonsense; /help lists what there is" in printed
    assert "/stop         stop what the thread is doing" in printed
    assert "no question is open" in printed
    assert "never said" not in printed


def test_what_comes_from_outside_cannot_touch_the_terminal(infinity, odd_tools):
    printed = infinity("chat", "--tool-server", odd_tools, stdin="call shout\nsay \x1b[31mred\x1b]0;t\x07\n").stdout
    assert "shout says: hey" in printed
    assert "\x1b" not in printed
    assert "\x07" not in printed


def test_a_missing_tool_server_is_told_in_the_conversation(infinity):
    printed = infinity("chat", "--tool-server", "http://127.0.0.1:9", stdin="hello\n").stdout
    assert "  ! Some tools are missing: The tool set '127.0.0.1:9' is missing: GET http://127.0.0.1:9" in printed


def test_a_model_that_is_not_there_is_told_in_the_conversation(infinity, slow_model, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    asked = ["chat", "--base-url", slow_model.url, "--model"]
    printed = infinity(*asked, "openai:slow", stdin="hello\n").stdout
    assert printed.strip() == "You said: hello"


def test_children_are_told(infinity):
    printed = infinity("chat", stdin="Ask a child: report: well met\n").stdout
    assert "  → spawn_thread(" in printed
    assert "] reports: well met\n(demo model) A child reports: well met\n" in printed


def test_a_pipe_gets_neither_colours_nor_wrapped_lines(place):
    (place / "agent.db").unlink(missing_ok=True)
    long = "word " * 100
    done = subprocess.run(
        [*INFINITY, "chat"], check=True, input=f"{long}\n", env=environment(), capture_output=True, text=True
    )
    assert "\x1b" not in done.stdout
    assert len(done.stdout.splitlines()) == 1
    raw = subprocess.run(
        [*INFINITY, "show", "main", "--raw"], check=True, env=environment(), capture_output=True, text=True
    )
    assert json.loads(raw.stdout.splitlines()[0])["content"][0]["text"] == long.strip()
