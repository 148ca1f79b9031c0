"""One payload of each kind that Slack sends, with every field that its documentation shows; ids and texts are ours."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from infinity_agents.settings.slack import SlackAccess
from infinity_agents.slack.receiver import SlackRequests

PAYLOADS = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "payloads").glob("*.json")}
GARDENERS, MAY_LING, PANE = "slack-C0GARDENERS-", "slack-D0MAYLING1-", "slack-D0MAYLING1-1767614460.000700"
ROOT = f"{GARDENERS}1767614401.000100"

HEARD = {
    "app_mention": (ROOT, "slack:T0FERNHILL:U0MAYLING1", "<@U0MAYLING1>: is the greenhouse watered?"),
    "app_mention_in_a_grid": (
        "slack-C0ORGWIDE1-1767614420.000300",
        "slack:E0HILLSIDE:W0ABENAORG",
        "<@W0ABENAORG>: who has the keys?",
    ),
    "app_mention_installed_by_the_speaker": (
        f"{GARDENERS}1767614430.000400",
        "slack:T0FERNHILL:U0MAYLING1",
        "<@U0MAYLING1>: <@U0FERNBOT1> and the tools?",
    ),
    "message_channels": (ROOT, "slack:T0FERNHILL:U0MAYLING1", "<@U0MAYLING1>: and the tomatoes"),
    "message_groups": (
        "slack-G0POTTING1-1767614401.000100",
        "slack:T0FERNHILL:U0MAYLING1",
        "<@U0MAYLING1>: only between us",
    ),
    "message_im": (f"{MAY_LING}1767614450.000600", "slack:T0FERNHILL:U0MAYLING1", "<@U0MAYLING1>: good morning"),
    "message_im_in_the_assistant_pane": (PANE, "slack:T0FERNHILL:U0MAYLING1", "<@U0MAYLING1>: plan my week"),
    "message_me": (f"{MAY_LING}1767614471.000800", "slack:T0FERNHILL:U0MAYLING1", "<@U0MAYLING1>: waters the ferns"),
    "message_mpim": (
        "slack-C0GROUPDM1-1767614470.000800",
        "slack:T0FERNHILL:U0MAYLING1",
        "<@U0MAYLING1>: can you book the hall?",
    ),
    "message_thread_broadcast": (ROOT, "slack:T0FERNHILL:U0JONASWEB", "<@U0JONASWEB>: for everybody: it is"),
    "message_slack_connect": (
        "slack-C0WITHOAKS-1767614530.001500",
        "slack:T0OAKWORKS:U0OAKPRIYA",
        "<@U0OAKPRIYA>: when do you deliver?",
    ),
    "message_with_markup": (
        f"{GARDENERS}1767614540.001600",
        "slack:T0FERNHILL:U0MAYLING1",
        (
            "<@U0MAYLING1>: ask <@U0JONASWEB> in #gardeners or #C0PRIVATE01: "
            "[the plan](https://fernhill.example/plan?a=1&b=2), https://fernhill.example, "
            "[may@fernhill.example](mailto:may@fernhill.example), [555-0100](tel:+15550100) & 1 < 2 > 0 :seedling: "
            "@here @channel @S0KEEPERS1 @keepers 5 January"
        ),
    ),
    "message_of_blocks_alone": (
        f"{MAY_LING}1767614550.001700",
        "slack:T0FERNHILL:U0MAYLING1",
        (
            "<@U0MAYLING1>: Water <@U0JONASWEB> & #C0GARDENERS [plan](https://fernhill.example/?a=1&b=2) :seedling: "
            "@here @S0KEEPERS1\n- ferns\n- herbs\nx < 1"
        ),
    ),
    "message_that_shares_another": (
        f"{MAY_LING}1767614560.001800",
        "slack:T0FERNHILL:U0MAYLING1",
        "<@U0MAYLING1>: what do you say?\n> It is #gardeners' turn.",
    ),
}
"""The conversation, the person and the text."""
PUT_OFF = {"app_mention_with_files", "message_file_share", "message_file_share_of_another_team"}
CLICKED = {"block_actions": "slack:T0FERNHILL:U0JONASWEB", "block_actions_in_a_grid": "slack:T0FERNHILL:W0ABENAORG"}
IGNORED = {
    "app_mention_edited",
    "app_rate_limited",
    "app_uninstalled",
    "assistant_thread_context_changed",
    "assistant_thread_started",
    "block_actions_of_an_ephemeral_message",
    "member_joined_channel",
    "message_assistant_app_thread",
    "message_changed",
    "message_channel_join",
    "message_channels_elsewhere",
    "message_deleted",
    "message_of_a_bot_user",
    "message_of_an_integration",
    "message_of_the_agent",
    "reaction_added",
    "tokens_revoked",
    "url_verification",
}


@pytest.fixture
async def garden(front):
    """A front end that everybody may talk to, and that takes part in two threads."""
    receiver = replace(front.requests.receiver, access=SlackAccess.parse("", everyone=True))
    front.requests = SlackRequests(receiver, front.slack.signing_secret, front.requests.later)
    for root in (ROOT, "slack-G0POTTING1-1767614401.000100"):
        await front.state.put_view(root, "slack", {}, 1)
    await front.state.copy(ROOT, "choice", "call-1", {"prompt": "Which bed?"}, 1)
    return front


async def answered(garden, name, **more):
    payload = PAYLOADS[name]
    headers, body = garden.slack.request(payload, form=payload["type"] == "block_actions", **more)
    return await garden.requests.answer(headers, body)


def test_each_payload_is_of_a_kind_and_each_kind_has_a_payload():
    kinds = [*HEARD, *PUT_OFF, *CLICKED, *IGNORED]
    assert sorted(PAYLOADS) == sorted(kinds)


@pytest.mark.parametrize("name", sorted(HEARD))
async def test_what_is_said_to_the_agent_is_heard_once(garden, name):
    for retry in range(3):
        assert (await answered(garden, name, retry=retry)).status == 200
    (heard,) = await garden.heard()
    thread_id, user_id, text = HEARD[name]
    event = PAYLOADS[name]["event"]
    assert heard["content"] == {"type": "text", "text": text}
    assert (heard["group_id"], heard["metadata"]["user_id"]) == (thread_id, user_id)
    assert heard["message_id"] == f"slack:{event['channel']}:{event['ts']}"
    assert garden.put_off == []


@pytest.mark.parametrize("name", sorted(PUT_OFF))
async def test_what_has_files_is_put_off_with_all_that_it_needs(garden, name):
    assert (await answered(garden, name)).status == 200
    assert await garden.heard() == []
    assert garden.put_off == [PAYLOADS[name]]


@pytest.mark.parametrize("name", sorted(CLICKED))
async def test_a_click_is_the_answer_of_whoever_clicked(garden, name):
    assert (await answered(garden, name)).status == 200
    (heard,) = await garden.heard()
    expected = {"type": "user_choice_response", "choice_id": "call-1", "selected": 1, "user_id": CLICKED[name]}
    assert (heard["group_id"], heard["content"]) == (ROOT, expected)


@pytest.mark.parametrize("name", sorted(IGNORED))
async def test_what_is_not_for_the_agent_is_acknowledged(garden, name):
    assert (await answered(garden, name)).status == 200
    assert await garden.heard() == []
    assert garden.put_off == []


async def test_the_challenge_comes_back(garden):
    assert (await answered(garden, "url_verification")).body == {"challenge": PAYLOADS["url_verification"]["challenge"]}


async def test_the_pane_is_given_prompts(garden):
    pane = PAYLOADS["assistant_thread_started"]["event"]["assistant_thread"]
    garden.slack.members[pane["channel_id"]] = {pane["user_id"]}
    garden.slack.messages[pane["channel_id"]] = [{"ts": pane["thread_ts"]}]
    assert (await answered(garden, "assistant_thread_started")).status == 200
    assert [each["thread_ts"] for each in garden.slack.prompts] == [pane["thread_ts"]]


async def test_events_that_slack_holds_back_are_an_error_in_the_log(garden, caplog):
    assert (await answered(garden, "app_rate_limited")).status == 200
    assert "Slack delivers no events" in caplog.text


async def test_a_file_of_another_team_is_asked_for(garden):
    (stub,) = PAYLOADS["message_file_share_of_another_team"]["event"]["files"]
    garden.slack.files[stub["id"]] = b"\x89PNG\r\n\x1a\n"
    await garden.requests.receiver.take_event(PAYLOADS["message_file_share_of_another_team"])
    (heard,) = await garden.heard()
    assert [part["type"] for part in heard["content"]["parts"]] == ["text", "image"]
    assert heard["metadata"]["team"] == "T0OAKWORKS"
