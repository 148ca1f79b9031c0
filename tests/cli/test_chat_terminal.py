"""``infinity chat`` on a terminal: what a person sees there, and what is left when it goes away."""

import signal

import pytest

from infinity_agents.testing.scripted_model import ScriptedModel, says

from .conftest import PROMPT

DOWN, ESCAPE, CTRL_C, CTRL_D = "\x1b[B", "\x1b", "\x03", "\x04"


@pytest.fixture
def told(infinity):
    """The transcript, once all that runs has ended."""

    def told():
        return infinity("show", "main").stdout

    return told


def test_a_call_and_a_question_and_a_good_bye(terminal, odd_tools):
    chat = terminal("chat", "--tool-server", odd_tools)
    chat.sees("main in agent.db, model demo. /help lists the commands")
    chat.enter('call nap {"seconds": 0.1}')
    chat.sees("→ nap(seconds=0.1)", "← napped for 0.1 seconds", "(demo model) nap says: napped for 0.1 seconds")
    chat.enter("call paint")
    chat.sees(
        "→ paint()", "? Which colour for the shed?", "2. green", "arrows or a number, Enter picks, Esc puts it off"
    )
    chat.type(DOWN)
    chat.sees(f"{PROMPT} 3. blue")
    chat.type("\r")
    chat.sees("· Which colour for the shed?: blue", "(demo model) paint says: the shed is blue")
    chat.sees_no("arrows or a number")
    assert b"\x1b[3" in chat.raw or b"\x1b[1;3" in chat.raw or b";3" in chat.raw  # colours
    chat.type(CTRL_D)
    assert chat.ended() == 0
    assert "left; the next chat goes on from here" in chat.flat


def test_a_question_may_be_put_off(terminal, odd_tools):
    chat = terminal("chat", "--tool-server", odd_tools)
    chat.enter("call paint")
    chat.sees("arrows or a number")
    chat.type(ESCAPE)
    chat.sees("put off: Which colour for the shed?", "waits for you: Which colour for the shed?")
    chat.enter("/answer")
    chat.sees("arrows or a number")
    chat.type("1")
    chat.sees("paint says: the shed is red")


def test_an_open_question_is_there_again_in_the_next_chat(terminal, odd_tools):
    chat = terminal("chat", "--tool-server", odd_tools)
    chat.enter("call paint")
    chat.sees("arrows or a number")
    chat.type(CTRL_C)
    assert chat.ended() == 0
    again = terminal("chat", "--tool-server", odd_tools)
    again.sees("call paint", "? Which colour for the shed?")
    again.type("2")
    again.sees("paint says: the shed is green")


@pytest.mark.parametrize("columns", [60, 200])
def test_a_reply_streams_between_its_margins(terminal, slow_model, columns):
    chat = terminal("chat", *slow_model.chosen, columns=columns)
    chat.enter("tell a story")
    chat.sees("Once upon a time there was an agent", "thinking")
    assert "the end" not in chat.text
    chat.type("typed meanwhile")
    chat.sees("typed meanwhile")
    slow_model.go()
    chat.sees("print('the end')", "typed meanwhile")

    def is_whole():
        story = [row for row in chat.text.splitlines() if "agent that" in row or "never forgot" in row]
        told = " ".join(" ".join(story).split())
        return told.count("Once upon a time there was an agent that never forgot a thing.") == 6

    # Broken at words, once: what is between the first row and the fence is the story, whole.
    chat.comes_to(is_whole)
    assert all(len(row) <= columns for row in chat.text.splitlines())


def test_a_window_that_changes_its_size(terminal, slow_model):
    chat = terminal("chat", *slow_model.chosen, columns=60)
    chat.enter("tell a story")
    chat.sees("Once upon a time there was an agent")
    chat.resize(120)
    slow_model.go()
    chat.sees("print('the end')")
    chat.enter("hello")
    chat.sees("You said: hello")
    assert max(map(len, chat.text.splitlines())) > 60
    chat.resize(50)
    chat.enter("hello again, with more words than such a window has room for in one row")
    chat.sees("You said: hello again, with more words than such a window has room for in one row")
    assert all(len(row) <= 50 for row in chat.text.splitlines())


def test_ctrl_c_forgets_a_line_and_then_leaves_and_the_reply_is_whole(terminal, slow_model, told):
    chat = terminal("chat", *slow_model.chosen)
    chat.enter("tell a story")
    chat.sees("Once upon a time")
    chat.type("half a thou")
    chat.sees("half a thou")
    chat.type(CTRL_C)
    chat.sees_no("half a thou")
    chat.type(CTRL_C)
    chat.sees("finishing what runs; Ctrl-C leaves at once, and nothing is lost either way")
    slow_model.go()
    assert chat.ended() == 0
    assert "print('the end')" in chat.text
    assert told().count("never forgot a thing") == 6


def test_a_second_ctrl_c_leaves_at_once_and_the_next_chat_has_the_reply(terminal, slow_model):
    options = ["chat", *slow_model.chosen]
    chat = terminal(*options)
    chat.enter("tell a story")
    chat.sees("Once upon a time")
    chat.type(CTRL_C)
    chat.sees("finishing what runs")
    chat.type(CTRL_C)
    assert chat.ended() == 130
    assert "the end" not in chat.text
    assert "Traceback" not in chat.text
    again = terminal(*options)
    slow_model.go()
    again.sees("tell a story", "print('the end')")


@pytest.mark.parametrize("end", ["close", pytest.param("kill", marks=pytest.mark.slow)])
def test_a_closed_terminal_loses_nothing(terminal, slow_model, end):
    options = ["chat", *slow_model.chosen]
    chat = terminal(*options)
    chat.enter("tell a story")
    chat.sees("Once upon a time")
    if end == "close":
        chat.close()
    else:
        chat.running.send_signal(signal.SIGKILL)
    assert chat.running.wait(30) != 0
    again = terminal(*options)
    slow_model.go()
    again.sees("tell a story", "print('the end')")
    assert again.flat.count("Once upon a time") == 6


def test_what_came_while_nobody_looked_is_told(terminal, infinity, play):
    chat = terminal("chat")
    chat.enter("Remind me in 1 seconds to stretch")
    chat.sees("asleep until")
    chat.type(CTRL_C)
    assert chat.ended() == 0
    assert "; that takes a host, such as infinity serve" in chat.flat
    play("are you there?", model=ScriptedModel(lambda _: says("I was never away.")))
    again = terminal("chat")
    again.sees("since you left:", "are you there?", "I was never away.")


def test_two_terminals_on_one_file(terminal, odd_tools):
    first = terminal("chat", "--tool-server", odd_tools)
    first.enter("hello from the first")
    first.sees("(demo model)")
    second = terminal("chat", "--tool-server", odd_tools)
    second.sees(
        f"process {first.running.pid} hosts the file: replies come whole, not as a stream", "hello from the first"
    )
    second.enter("hello from the second")
    for one in (first, second):
        one.sees("hello from the second", '(demo model) You said: "hello from the second"')
    assert first.flat.index("hello from the second") < first.flat.index('You said: "hello from the second')
    first.type(CTRL_C)
    assert first.ended() == 0
    second.sees("the other host has ended; this chat hosts the file now")
    second.enter('call nap {"seconds": 0}')
    second.sees("nap says: napped for 0 seconds")


def test_a_slow_tool_children_and_sleep_are_in_the_status(terminal, odd_tools):
    chat = terminal("chat", "--tool-server", odd_tools)
    chat.enter('call nap {"seconds": 600}')
    chat.sees("nap, 0 s")
    chat.enter("hello")
    chat.sees("← Still running.", "meanwhile nap")
    chat.enter("/stop")
    chat.sees("asked to stop")
    chat.sees_no("meanwhile nap")
    chat.enter("Ask a child: wait 600 seconds")
    chat.sees("→ spawn_thread(", "1 child at work")
    chat.enter("/threads")
    chat.sees("(child) waiting", "sleeps until")
    chat.enter("Remind me in 600 seconds to stretch")
    chat.sees("→ sleep 600 s", "asleep until")


def test_an_event_that_says_the_same_again_is_told_again(terminal, odd_tools):
    chat = terminal("chat", "--tool-server", odd_tools)
    chat.enter("call tick")
    told = "← tick: tick (demo model) Meanwhile, tick says: tick"
    chat.sees(f"{told} {told}")


def test_a_link_is_there_whole_to_be_copied(terminal, odd_tools):
    chat = terminal("chat", "--tool-server", odd_tools, columns=60)
    chat.enter("call mail")
    chat.sees("waits for you: your authorization for mail")
    assert f"https://mail.example.com/authorize?client=1&state={'x' * 80}" in chat.raw.decode()


def test_what_comes_from_outside_cannot_touch_the_terminal(terminal, odd_tools):
    chat = terminal("chat", "--tool-server", odd_tools)
    chat.enter("call shout")
    chat.sees("shout says: hey")
    assert b"\x1b]0;title" not in chat.raw
    assert b"\x1b[2J" not in chat.raw


def test_no_color_is_honoured(terminal):
    chat = terminal("chat", NO_COLOR="1")
    chat.enter("Remind me in 600 seconds to stretch")
    chat.sees("→ sleep 600 s", "asleep until")
    assert b"\x1b[36m" not in chat.raw
    assert b";36m" not in chat.raw


def test_a_model_that_fails_is_told_at_once(terminal, slow_model):
    chat = terminal("chat", "--model", "openai:fast", "--base-url", slow_model.url)
    chat.enter("hello")
    chat.sees("does not exist", "it is tried again")
    chat.type(CTRL_C)
    assert chat.ended() == 0


def test_a_terminal_that_can_nothing_gets_plain_lines(terminal):
    chat = terminal("chat", TERM="dumb")
    chat.type("hello\n")
    chat.sees("(demo model)")
    chat.type(CTRL_D)
    assert chat.ended() == 0
    assert b"\x1b" not in chat.raw
