"""What people are told in Slack: once, in order, whole, and readable."""

from contextlib import suppress

import pytest

from infinity_agents.conversation.outputs import Output
from infinity_agents.slack.responder import SlackResponder
from infinity_agents.testing.faults import Crash, FaultInjector
from infinity_agents.testing.slack import SlackFault
from tests.slack.conftest import output_in

LONG = (
    "Here it is.\n\n```python\n" + "\n".join(f"x = {number}  # {'<&>' * 5}" for number in range(600)) + "\n```\n\nEnd."
)


async def test_an_answer_stands_in_its_thread_and_the_status_is_gone(front):
    root = await front.mention()
    assert await front.show(output_in(root, text="**Yes**, <!channel>")) == {}
    assert front.slack.answers("C1", root["ts"]) == ["**Yes**, @channel"]
    assert front.slack.statuses == {}


async def test_a_slice_without_a_text_clears_the_status(front):
    root = await front.mention()
    assert await front.show(output_in(root, "tool_call", "get_time()")) == {}
    assert list(front.slack.statuses.values()) == ["is working: get_time()"]
    assert await front.show(output_in(root, "status", "")) == {}
    assert front.slack.statuses == {}


async def test_a_long_answer_is_several_posts_with_its_code_closed_and_reopened(front):
    assert len(LONG) > 15_000
    root = await front.mention()
    assert await front.show(output_in(root, text=LONG)) == {}
    first, *_, last = parts = front.slack.answers("C1", root["ts"])
    assert len(parts) >= 2
    assert first.endswith("\n```")
    assert all(part.startswith("```python\n") for part in parts[1:])
    assert last.endswith("```\n\nEnd.")
    lines = [line for part in parts for line in part.split("\n") if line.startswith("x = ")]
    assert lines == [line for line in LONG.split("\n") if line.startswith("x = ")]


async def test_outputs_of_a_thread_come_in_their_order(front):
    root = await front.mention()
    told = [output_in(root, text=f"number {seq}", seq=seq) for seq in [(2, 0), (1, 3), (10, 0), (1, 0)]]
    assert await front.show(*told) == {}
    assert front.slack.answers("C1", root["ts"]) == [f"number {seq}" for seq in [(1, 0), (1, 3), (2, 0), (10, 0)]]


@pytest.mark.parametrize("fault", [503, "hang up", "internal_error"])
async def test_what_may_have_been_posted_is_looked_for_before_it_is_posted_again(front, fault):
    root = await front.mention()
    told = output_in(root, text=LONG)
    # Each post takes effect, and the answer is lost.
    for attempt in range(1, 4):
        front.slack.faults.append(SlackFault(fault, "chat.postMessage", after=True))
        left = await front.show(told, attempt=attempt)
        if not left:
            break
        assert left == {"0": 5.0 * 3 ** (attempt - 1)}
    front.slack.faults.clear()
    assert await front.show(told) == {}
    assert await front.show(told, told) == {}
    said = "\n".join(front.slack.answers("C1", root["ts"]))
    assert [said.count(f"x = {number} ") for number in range(600)] == [1] * 600


async def test_another_apps_metadata_hide_nothing(front):
    root = await front.mention()
    told = output_in(root)
    forged = {"event_type": "infinity_output", "event_payload": {"output_id": told.output_id, "part": 0}}
    front.slack.say("C1", "U2", "ha", thread_ts=root["ts"], bot_id="BEVIL", metadata=forged)
    assert await front.show(told) == {}
    assert front.slack.answers("C1", root["ts"])[-1] == "an answer"


async def test_slack_is_waited_for_as_long_as_it_says(front):
    front.slack.limits_posts = True
    root = await front.mention()
    told = [output_in(root, text=f"{number}", seq=(number, 0)) for number in range(1, 5)]
    assert await front.show(*told) == {}
    assert front.slack.answers("C1", root["ts"]) == ["1", "2", "3", "4"]
    assert front.clock.slept == [1.0] * 3


async def test_what_there_is_no_time_to_wait_for_comes_again_then(front):
    root = await front.mention()
    front.slack.faults.append(SlackFault(429, "chat.postMessage"))
    told = [output_in(root, text="1", seq=(1, 0)), output_in(root, text="2", seq=(2, 0))]
    assert await front.show(*told, seconds=5) == {"0": 7.0, "1": 7.0}
    assert front.slack.answers("C1", root["ts"]) == []
    assert await front.show(*told) == {}
    assert front.slack.answers("C1", root["ts"]) == ["1", "2"]


async def test_one_conversation_that_must_wait_holds_up_no_other(front):
    one, other = await front.mention(), await front.mention()
    front.slack.faults += [SlackFault(500, "auth.test")]
    left = await front.show(output_in(one), output_in(other))
    assert len(left) == 1
    assert await front.show(output_in(one), output_in(other)) == {}
    assert front.slack.answers("C1", one["ts"]) == front.slack.answers("C1", other["ts"]) == ["an answer"]


@pytest.mark.parametrize("code", ["channel_not_found", "is_archived", "thread_not_found", "not_in_channel"])
async def test_what_slack_refuses_for_good_is_reported_once(front, caplog, code):
    root = await front.mention()
    front.slack.faults.append(SlackFault(code, "chat.postMessage"))
    assert await front.show(output_in(root, text="1"), output_in(root, text="2", seq=(2, 0))) == {}
    assert [record for record in caplog.records if record.levelname == "ERROR" and code in record.getMessage()]
    assert front.slack.answers("C1", root["ts"]) == ["2"]


@pytest.mark.parametrize("code", ["invalid_auth", "token_revoked", "missing_scope"])
async def test_a_token_that_is_no_good_loses_nothing(front, code):
    root = await front.mention()
    front.slack.faults.append(SlackFault(code))
    assert await front.show(output_in(root)) == {"0": 300.0}
    assert await front.show(output_in(root)) == {}
    assert front.slack.answers("C1", root["ts"]) == ["an answer"]


async def test_blocks_that_slack_does_not_take_are_shown_in_short(front):
    root = await front.mention()
    front.slack.faults.append(SlackFault("msg_blocks_too_long", "chat.postMessage"))
    assert await front.show(output_in(root, text="<b> " * 900)) == {}
    (said,) = front.slack.answers("C1", root["ts"])
    assert said.startswith("&lt;b&gt; ")
    assert said.endswith("it is in the history]")


async def test_slack_is_down_for_a_while(front):
    root = await front.mention()
    front.slack.faults += [SlackFault(503)] * 3
    delays = [(await front.show(output_in(root), attempt=attempt))["0"] for attempt in range(1, 4)]
    assert delays == [5.0, 15.0, 45.0]
    assert await front.show(output_in(root), attempt=4) == {}
    assert front.slack.answers("C1", root["ts"]) == ["an answer"]


async def test_what_is_not_in_slack_is_left_out(front):
    assert await front.show(Output("message", "x", "main", "main", "main:1:0", (1, 0))) == {}
    assert front.slack.calls == []


async def test_a_childs_text_says_which_thread_speaks(front):
    root = await front.mention()
    thread_id = f"slack-C1-{root['ts']}.tabc"
    assert await front.show(output_in(root, text=f"[{thread_id}] found it", thread=".tabc")) == {}
    assert front.slack.answers("C1", root["ts"]) == ["from the sub-thread `tabc`\nfound it"]


async def test_errors_and_limits_are_words(front):
    root = await front.mention()
    told = [output_in(root, "error", "Some tools are missing"), output_in(root, "limit_reached", "Paused.", seq=(2, 0))]
    assert await front.show(*told) == {}
    assert front.slack.answers("C1", root["ts"]) == [
        ":warning: Some tools are missing",
        ":double_vertical_bar: Paused.",
    ]


# Authorizations.

AUTHORIZE = {"auth_url": "https://auth.example/go?a=1", "user_id": "slack:T1:U1"}


NOTE = "<@U1> mail needs your authorization; the link is shown to you alone."


def authorize(root, **details):
    text = f"mail needs your authorization: {AUTHORIZE['auth_url']}"
    return output_in(root, "oauth_required", text, **{**AUTHORIZE, **details})


async def test_an_authorization_link_is_seen_by_the_person_concerned_alone(front):
    root = await front.mention()
    assert await front.show(authorize(root)) == {}
    assert front.slack.answers("C1", root["ts"]) == [NOTE]
    (whisper,) = front.slack.ephemeral
    assert (whisper["user"], whisper["text"]) == ("U1", "mail needs your authorization.")
    assert whisper["blocks"][-1]["elements"][0]["url"] == AUTHORIZE["auth_url"]
    assert front.slack.statuses == {}
    assert AUTHORIZE["auth_url"] not in str(front.slack.messages)


async def test_an_authorization_link_that_is_delivered_again_is_shown_once(front):
    root = await front.mention()
    for attempt in range(1, 4):
        assert await front.show(authorize(root), attempt=attempt) == {}
    assert len(front.slack.ephemeral) == 1
    assert front.slack.answers("C1", root["ts"]) == [NOTE]


async def test_an_authorization_link_is_shown_wherever_the_responder_dies(front):
    boundaries = 0
    while True:
        boundaries += 1
        root = await front.mention()
        front.slack.ephemeral.clear()
        faults, whole = FaultInjector(crash_at=boundaries), front.responder
        front.responder = SlackResponder(faults.wrap(whole.web, "slack"), front.clock)
        with suppress(Crash):
            await front.show(authorize(root))
        front.responder = whole
        assert await front.show(authorize(root), attempt=2) == {}
        # Twice only if it died behind the link and before the mark: the fourth call and the fifth.
        assert len(front.slack.ephemeral) == (2 if boundaries in {8, 9} else 1), boundaries
        assert front.slack.answers("C1", root["ts"]) == [NOTE]
        if not faults.is_dead:
            break
    assert boundaries == 13


async def test_whoever_is_not_in_the_channel_gets_the_link_directly(front):
    root = await front.mention()
    front.slack.members["C2"] = {"U7"}
    told = authorize(root, user_id="slack:T1:U7", auth_url="https://auth.example/" + "x" * 4000)
    for _ in range(2):
        assert await front.show(told) == {}
    assert front.slack.ephemeral == []
    (direct,) = front.slack.messages["DU7"]
    assert told.details["auth_url"] in direct["blocks"][-1]["text"]
    assert front.slack.answers("C1", root["ts"])[0].startswith("<@U7> mail needs your authorization")


async def test_in_a_direct_message_the_link_is_an_ordinary_post(front):
    root = front.slack.say("D1", "U1", "my mail?")
    place = f"slack-D1-{root['ts']}"
    text = f"mail needs your authorization: {AUTHORIZE['auth_url']}"
    told = Output("oauth_required", text, place, place, f"{place}:1:0", (1, 0), {"user_id": "slack:T1:U1"}, AUTHORIZE)
    for _ in range(2):
        assert await front.show(told) == {}
    assert front.slack.answers("D1", root["ts"]) == ["mail needs your authorization.\n[Authorize]"]
    # Another's link is not for whoever talks here.
    front.slack.members["C2"] = {"U7"}
    other = Output(*told_of(told, f"{place}:2:0"), (2, 0), told.metadata, {**AUTHORIZE, "user_id": "slack:T1:U7"})
    assert await front.show(other) == {}
    assert front.slack.messages["DU7"][0]["blocks"][-1]["elements"][0]["url"] == AUTHORIZE["auth_url"]
    assert front.slack.answers("D1", root["ts"])[1].startswith("<@U7> mail needs")


def told_of(output, output_id):
    return output.type, output.text, output.group_id, output.thread_id, output_id


async def test_where_the_thread_takes_no_note_the_link_is_shown_still(front):
    root = await front.mention()
    front.slack.faults += [
        SlackFault("is_archived", "chat.postMessage"),
        SlackFault("is_archived", "chat.postEphemeral"),
    ]
    assert await front.show(authorize(root)) == {}
    assert front.slack.messages["DU1"][0]["blocks"][-1]["elements"][0]["url"] == AUTHORIZE["auth_url"]


async def test_a_link_that_nobody_is_known_for_is_shown_to_nobody(front):
    root = await front.mention()
    told = Output(*told_of(authorize(root), "o"), (1, 0), None, {"auth_url": AUTHORIZE["auth_url"]})
    assert await front.show(told) == {}
    (said,) = front.slack.answers("C1", root["ts"])
    assert said == ":warning: mail needs your authorization, and it is not known whose."


# Choices.


def question(root, **details):
    fields = {"id": "call-1", "prompt": "Where to?", "choices": ["Rome", "Oslo"], "default": 0, **details}
    return output_in(root, "user_choice_required", "Where to?\n0. Rome\n1. Oslo", **fields)


async def test_a_choice_is_buttons_and_its_answer_tells_who_chose(front):
    root = await front.mention()
    assert await front.show(question(root, user_id="slack:T1:U1")) == {}
    assert front.slack.answers("C1", root["ts"]) == ["<@U1> Where to?\n[Rome] [Oslo]"]
    over = {"choice_id": "call-1", "user_id": "slack:T1:U1"}
    complete = output_in(root, "user_choice_complete", "Where to?: <Oslo>", seq=(2, 0), **over)
    assert await front.show(complete) == {}
    assert front.slack.answers("C1", root["ts"]) == ["Where to?: &lt;Oslo&gt;\n_Chosen by <@U1>_"]
    stale = output_in(root, "user_choice_complete", "no longer open", seq=(3, 0), choice_id="call-1")
    # Neither a redelivery nor a late answer changes what stands there.
    assert await front.show(question(root), complete, stale) == {}
    assert front.slack.answers("C1", root["ts"]) == ["Where to?: &lt;Oslo&gt;\n_Chosen by <@U1>_"]


async def test_long_and_many_choices_and_a_long_question(front):
    root = await front.mention()
    choices = ["a" * 200, " ", *(f"number {number}" for number in range(60))]
    assert await front.show(question(root, prompt="Why? " * 3000, choices=choices)) == {}
    *_, last = front.slack.thread("C1", root["ts"])
    rows = [block["elements"] for block in last["blocks"] if block["type"] == "actions"]
    assert [len(row) for row in rows] == [25, 25, 12]
    assert "1. " + "a" * 200 in "".join(front.slack.answers("C1", root["ts"]))


async def test_a_question_whose_choices_were_too_long_for_the_queue_is_its_text(front):
    root = await front.mention()
    assert await front.show(output_in(root, "user_choice_required", "Where to?\n0. Rome", id="call-1")) == {}
    assert front.slack.answers("C1", root["ts"]) == ["Where to?\n0. Rome"]


async def test_an_answer_costs_one_post_and_a_look_before_and_after(front):
    root = await front.mention()
    assert await front.show(output_in(root)) == {}
    front.slack.calls.clear()
    await front.mention()
    assert await front.show(output_in(root, seq=(2, 0)), output_in(root, seq=(3, 0))) == {}
    assert front.slack.calls == [
        "assistant.threads.setStatus",
        "conversations.replies",
        "chat.postMessage",
        "chat.postMessage",
        "conversations.replies",
    ]
    front.slack.calls.clear()
    assert await front.show(output_in(root, seq=(2, 0)), output_in(root, "tool_call", "x()", seq=(4, 0))) == {}
    assert front.slack.calls == ["conversations.replies", "assistant.threads.setStatus"]
