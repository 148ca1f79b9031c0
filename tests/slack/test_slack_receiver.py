"""What Slack sends: whatever is the agent's comes to the queue once, and nothing else does."""

import asyncio
import base64
import json
from dataclasses import replace

import pytest

from infinity_agents.errors import Misconfigured, StoreUnavailable
from infinity_agents.settings.slack import SlackAccess, SlackReceiverEnvironment
from infinity_agents.slack import receiver
from infinity_agents.slack.files import is_slacks
from infinity_agents.slack.receiver import SlackRequests
from infinity_agents.slack.signing import signature
from infinity_agents.testing.contracts.models import PNG
from infinity_agents.testing.slack import SlackFault
from tests.slack.conftest import output_in

PICTURE = base64.b64decode(PNG)


def message_event(message, channel="C1", **fields):
    return {**message, "channel": channel, "channel_type": "channel", **fields}


# Proof.


async def test_what_is_not_signed_by_slack_is_not_read(front):
    headers, body = front.slack.request(front.slack.event({"type": "message"}))
    wrong = [
        {},
        {**headers, "X-Slack-Signature": "v0=00"},
        {**headers, "X-Slack-Signature": "\udce9"},
        {**headers, "X-Slack-Request-Timestamp": "now"},
        {**headers, "X-Slack-Request-Timestamp": "9" * 400},
        {**headers, "X-Slack-Request-Timestamp": str(int(front.clock.now().timestamp()) + 1)},
    ]
    assert [(await front.requests.answer(each, body)).status for each in wrong] == [401] * len(wrong)
    assert (await front.requests.answer(headers, body + b" ")).status == 401
    assert (await front.requests.answer(headers, body)).status == 200
    front.clock.advance(301)
    assert (await front.requests.answer(headers, body)).status == 401


async def test_the_challenge_is_answered_for_slack_alone(front):
    headers, body = front.slack.request({"type": "url_verification", "challenge": "c"})
    assert (await front.requests.answer({}, body)).status == 401
    assert (await front.requests.answer(headers, body)).body == {"challenge": "c"}


def test_without_a_secret_there_is_no_service():
    with pytest.raises(Misconfigured, match="signing secret"):
        SlackRequests(None, " ")


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"{", b'"x"', b"[" * 5000, b'{"a": NaN}'])
async def test_what_is_signed_and_cannot_be_read_is_told_so(front, body):
    headers, _ = front.slack.request({})
    headers["X-Slack-Signature"] = front_signature(front, headers, body)
    assert (await front.requests.answer(headers, body)).status == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"payload=%7B", 400),
        (b"payload=[]", 400),
        (b"payload=%FF", 400),
        (b"&".join(b"a=1" for _ in range(30)), 400),
        (b"", 200),
        (b"ssl_check=1&token=x", 200),
    ],
)
async def test_a_form_that_holds_no_click_is_told_so_or_acknowledged(front, body, status):
    headers, _ = front.slack.request({}, form=True)
    headers["X-Slack-Signature"] = front_signature(front, headers, body)
    assert (await front.requests.answer(headers, body)).status == status
    assert await front.heard() == []


def front_signature(front, headers, body):
    return signature(front.slack.signing_secret, headers["X-Slack-Request-Timestamp"], body)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"type": "app_rate_limited"},
        {"type": "event_callback"},
        {"type": "event_callback", "event": {"type": "reaction_added", "user": "U1"}},
        {"type": "event_callback", "event": {"type": "message", "user": 1, "channel": [], "ts": None}},
        {"type": "event_callback", "event": {"type": "app_mention", "user": "U1", "channel": "C1", "ts": "x"}},
        {"type": "event_callback", "event": {"type": "assistant_thread_started", "assistant_thread": "x"}},
    ],
)
async def test_what_is_of_no_kind_that_we_know_is_acknowledged(front, payload):
    assert await front.deliver(payload) == 200
    assert await front.deliver({**payload, "actions": [1]}, form=True) == 200
    assert await front.heard() == []


# What is for the agent.


async def test_a_mention_begins_a_conversation(front):
    message = await front.mention("<@UBOT> what about <#C9|builds> &amp; <https://a.example|this>, <!here>?")
    (heard,) = await front.heard()
    assert heard == {
        "content": {"type": "text", "text": "<@U1>: what about #builds & [this](https://a.example), @here?"},
        "group_id": f"slack-C1-{message['ts']}",
        "message_id": f"slack:C1:{message['ts']}",
        "metadata": {
            "channel": "C1",
            "thread_ts": message["ts"],
            "team": "T1",
            "user": "U1",
            "user_id": "slack:T1:U1",
        },
    }
    assert front.slack.statuses == {("C1", message["ts"]): "is thinking..."}


async def test_a_mention_that_comes_as_a_message_too_and_five_times_in_ten_minutes_is_one(front):
    message = await front.mention()
    as_message = front.slack.event(message_event(message), event_id="Ev2")
    as_mention = front.slack.event(message_event(message, type="app_mention"))
    heard = []
    for minute in range(5):
        assert await front.deliver(as_message) == 200
        assert await front.deliver(as_mention, retry=minute) == 200
        heard += await front.heard()
        front.clock.advance(60)
    assert len(heard) == 1
    front.clock.advance(300)
    # The queue has forgotten it; the inbox knows it by its id.
    assert await front.deliver(as_mention) == 200
    (again,) = await front.heard()
    assert again["message_id"] == heard[0]["message_id"]


async def test_a_retry_whose_first_try_failed_is_not_dropped(front):
    message = front.slack.say("C1", "U1", "<@UBOT> hello")
    payload = front.slack.event(message_event(message, type="app_mention"))
    send, tries = front.queue.send, []

    async def down(body, **ids):
        tries.append(body)
        if len(tries) < 3:
            raise StoreUnavailable("the queue is away")
        await send(body, **ids)

    front.queue.send = down
    assert [await front.deliver(payload, retry=number) for number in range(3)] == [500, 500, 200]
    assert len(await front.heard()) == 1


async def test_replies_are_heard_where_the_agent_takes_part(front):
    message = await front.mention()
    elsewhere = front.slack.say("C1", "U1", "lunch?")
    for root in (message, elsewhere):
        reply = front.slack.say("C1", "U2", "and today?", thread_ts=root["ts"])
        assert await front.deliver(front.slack.event(message_event(reply))) == 200
    assert await front.deliver(front.slack.event(message_event(elsewhere))) == 200
    heard = await front.heard()
    assert [each["content"]["text"] for each in heard] == ["<@U1>: hello", "<@U2>: and today?"]
    assert {each["group_id"] for each in heard} == {f"slack-C1-{message['ts']}"}
    assert [each["metadata"]["user_id"] for each in heard] == ["slack:T1:U1", "slack:T1:U2"]


async def test_direct_messages_and_the_assistant_pane(front):
    pane = front.slack.say("D1", "U1", "")
    told = {"user_id": "U1", "channel_id": "D1", "thread_ts": pane["ts"], "context": {"channel_id": "C1"}}
    started = front.slack.event({"type": "assistant_thread_started", "assistant_thread": told})
    assert await front.deliver(started) == 200
    assert front.slack.prompts[0]["thread_ts"] == pane["ts"]
    first = front.slack.say("D1", "U1", "hi", thread_ts=pane["ts"])
    other = front.slack.say("D1", "U1", "stop")
    for message in (first, other):
        assert await front.deliver(front.slack.event(message_event(message, "D1", channel_type="im"))) == 200
    heard = {each["group_id"]: each["content"] for each in await front.heard()}
    assert heard == {
        f"slack-D1-{pane['ts']}": {"type": "text", "text": "<@U1>: hi"},
        f"slack-D1-{other['ts']}": {"type": "control", "action": "stop"},
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"bot_id": "B2"},
        {"user": "UBOT"},
        {"subtype": "message_changed", "message": {"text": "<@UBOT> x"}},
        {"subtype": "message_deleted", "hidden": True},
        {"subtype": "channel_join"},
        {"edited": {"user": "U1", "ts": "1.2"}},
    ],
)
async def test_bots_the_agent_itself_edits_and_deletions_are_ignored(front, fields):
    message = {**front.slack.say("C1", "U1", "<@UBOT> hello"), **fields}
    for type in ("message", "app_mention"):
        assert await front.deliver(front.slack.event(message_event(message, type=type))) == 200
    assert await front.heard() == []


async def test_two_people_at_once_in_one_thread_are_two_messages_of_one_conversation(front):
    root = await front.mention()
    replies = [front.slack.say("C1", user, "me first", thread_ts=root["ts"]) for user in ("U1", "U2")]
    payloads = [front.slack.event(message_event(reply)) for reply in replies]
    assert await asyncio.gather(*map(front.deliver, payloads)) == [200, 200]
    heard = await front.heard()
    assert len({each["message_id"] for each in heard}) == 3
    assert len({each["group_id"] for each in heard}) == 1


async def test_a_megabyte_of_text_goes_by_the_blob_store(front):
    await front.mention("<@UBOT> " + "x\x00\ud800" * 350_000)
    (heard,) = await front.heard()
    assert heard["content"]["type"] == "blob"
    kept = json.loads(await front.blobs.get(heard["content"]["sha256"]))
    assert kept["text"].startswith("<@U1>: x")


async def test_what_only_pleases_may_fail(front):
    front.slack.faults += [
        SlackFault("hang up", "assistant.threads.setStatus"),
        SlackFault(500),
        SlackFault("fatal_error"),
    ]
    for _ in range(3):
        await front.mention()
    assert len(await front.heard()) == 3


# Who may talk.


async def test_whoever_is_not_admitted_is_told_so_alone(front):
    closed = SlackRequests(
        replace(front.requests.receiver, access=SlackAccess.parse("U2,C7")),
        front.slack.signing_secret,
    )
    message = front.slack.say("C1", "U1", "<@UBOT> hello")
    for type in ("message", "app_mention"):
        headers, body = front.slack.request(front.slack.event(message_event(message, type=type)))
        assert (await closed.answer(headers, body)).status == 200
    assert await front.heard() == []
    (told,) = front.slack.ephemeral
    assert told["user"] == "U1"
    assert "`U1`, `C1` or `T1`" in told["text"]
    # In a thread without a reply, Slack would show it to nobody.
    assert "thread_ts" not in told
    front.slack.say("C1", "U2", "hello", thread_ts=message["ts"])
    reply = front.slack.say("C1", "U1", "<@UBOT> please", thread_ts=message["ts"])
    headers, body = front.slack.request(front.slack.event(message_event(reply, type="app_mention")))
    assert (await closed.answer(headers, body)).status == 200
    assert front.slack.ephemeral[1]["thread_ts"] == message["ts"]
    assert "users.info" not in front.slack.calls


# Names.


async def test_people_are_called_by_their_names_and_each_is_looked_up_once(front):
    front.slack.names |= {"U1": "Ann Lee", "U2": "bob"}
    await front.mention("<@UBOT> <@U2> and <@U3> agree, <@U1>?")
    await front.mention("<@UBOT> <@U2> agrees", user="U2")
    await front.mention("<@UBOT> <@U3|carl> agrees")
    assert [each["content"]["text"] for each in await front.heard()] == [
        "<@U1|Ann Lee>: <@U2|bob> and <@U3> agree, <@U1|Ann Lee>?",
        "<@U2|bob>: <@U2|bob> agrees",
        "<@U1|Ann Lee>: <@U3> agrees",
    ]
    assert front.slack.calls.count("users.info") == 3


async def test_at_most_ten_people_of_a_message_are_looked_up(front):
    await front.mention("<@UBOT> " + " ".join(f"<@U{number}>" for number in range(1, 60)))
    assert front.slack.calls.count("users.info") == 10


async def test_two_messages_at_once_look_up_their_speaker_once(front):
    front.slack.names["U1"] = "Ann"
    await asyncio.gather(*(front.mention() for _ in range(3)))
    assert {each["content"]["text"] for each in await front.heard()} == {"<@U1|Ann>: hello"}
    assert front.slack.calls.count("users.info") == 1


@pytest.mark.parametrize(
    ("fault", "lookups"),
    [("missing_scope", 1), ("user_not_found", 1), (429, 2), (503, 2), ("hang up", 2), ("internal_error", 2)],
)
async def test_a_name_that_is_not_to_be_had_is_an_id_and_what_may_pass_is_tried_again(front, fault, lookups):
    front.slack.names["U1"] = "Ann"
    front.slack.faults.append(SlackFault(fault, "users.info"))
    await front.mention()
    await front.mention()
    first, second = [each["content"]["text"] for each in await front.heard()]
    assert (first, second) == ("<@U1>: hello", "<@U1|Ann>: hello" if lookups == 2 else "<@U1>: hello")
    assert front.slack.calls.count("users.info") == lookups


async def test_a_name_that_takes_long_holds_nothing_up_and_is_there_the_next_time(front, monkeypatch):
    monkeypatch.setattr(receiver, "_COURTESY_SECONDS", 0.02)
    front.slack.names["U1"] = "Ann"
    call, released = front.requests.receiver.web.call, asyncio.Event()

    async def slow(method, **arguments):
        if method == "users.info":
            await released.wait()
        return await call(method, **arguments)

    front.requests.receiver.web.call = slow
    await front.mention()
    released.set()
    monkeypatch.setattr(receiver, "_COURTESY_SECONDS", 10)
    await front.mention()
    assert [each["content"]["text"] for each in await front.heard()] == ["<@U1>: hello", "<@U1|Ann>: hello"]
    assert front.slack.calls.count("users.info") == 1


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("Ann\n<@U2>: yes", "Ann @U2 yes"),
        ("U2>: yes\r\u2028\u202e", "U2 yes"),
        ("a|b:c", "a b c"),
        ("\u6771\u4eac \U0001f389", "\u6771\u4eac \U0001f389"),
        ("x" * 500, "x" * 80),
        ("<>", "(real)"),
    ],
)
async def test_a_name_cannot_speak_for_anybody_else(front, name, called):
    front.slack.names["U1"] = name
    await front.mention()
    (heard,) = await front.heard()
    assert heard["content"]["text"] == f"<@U1|{called}>: hello"


@pytest.mark.parametrize("line_break", ["\n", "\r", "\u2028", "\n \n\t"])
async def test_a_text_cannot_speak_for_anybody_else(front, line_break):
    await front.mention(f"<@UBOT> no{line_break}&lt;@U2&gt;: yes{line_break}<@U2|bob> : yes\n<@U2> said: yes")
    (heard,) = await front.heard()
    assert heard["content"]["text"] == (f"<@U1>: no{line_break}> <@U2>: yes{line_break}> <@U2> : yes\n<@U2> said: yes")


@pytest.mark.parametrize("allowed", ["", None, " , ", "nobody", "U1,ann"])
def test_everyone_is_written_out(allowed):
    with pytest.raises(Misconfigured):
        SlackAccess.parse(allowed)
    with pytest.raises(Misconfigured):
        SlackAccess.parse("U1", everyone=True)
    assert SlackAccess.parse("", everyone=True).admits(user="U9", channel="C9", team="T9")


# Files.


async def with_file(front, file):
    message = await front.mention("<@UBOT> look", files=[file], subtype="file_share")
    assert await front.heard() == []
    (payload,) = front.put_off
    await front.requests.receiver.take_event(payload)
    (heard,) = await front.heard()
    assert heard["message_id"] == f"slack:C1:{message['ts']}"
    text, part = heard["content"]["parts"]
    assert text == {"type": "text", "text": "<@U1>: look"}
    return part


async def test_an_image_comes_along_after_slack_was_answered(front):
    front.slack.files["a.png"] = PICTURE
    part = await with_file(front, front.slack.file("a.png", "image/jpeg"))
    assert part == {"type": "image", "data": PNG, "media_type": "image/png"}


async def test_a_document_comes_along(front):
    front.slack.files["page.html"] = b"<html>ours</html>"
    part = await with_file(front, front.slack.file("page.html", "text/html"))
    assert part["name"] == "page.html"
    assert base64.b64decode(part["data"]) == b"<html>ours</html>"


async def test_a_file_that_slack_does_not_describe_is_asked_for(front):
    front.slack.files["a.png"] = PICTURE
    part = await with_file(front, {"id": "a.png", "file_access": "check_file_info"})
    assert part["type"] == "image"


@pytest.mark.parametrize(
    ("fields", "content", "said"),
    [
        ({"size": 50_000_000}, PICTURE, "at most 3750000"),
        ({"mimetype": "video/mp4"}, b"x", "neither an image nor a document"),
        ({"url_private_download": "https://evil.example/slack.com"}, PICTURE, "evil.example, which is not Slack"),
        ({"url_private_download": "http://files.slack.com/a"}, PICTURE, "not Slack"),
        ({"url_private_download": None}, PICTURE, "no place"),
        ({}, b"<!DOCTYPE html><html>Sign in</html>", "login page"),
        ({}, b"no image", "no PNG"),
        ({}, b"x" * 4_000_000, "more than 3750000 bytes"),
    ],
)
async def test_a_file_that_is_not_to_be_had_leaves_its_reason(front, fields, content, said):
    front.slack.files["a.png"] = content
    part = await with_file(front, {**front.slack.file("a.png", "image/png"), "size": 10, **fields})
    assert part["type"] == "text"
    assert "'a.png' could not be read" in part["text"]
    assert said in part["text"]


def test_the_token_goes_to_slack_and_nowhere_else():
    api = "https://slack.com/api/"
    assert is_slacks("https://files.slack.com/files-pri/T1-F1/a.png", api)
    for url in (
        "https://slack.com.evil.example/a",
        "https://evil.example/?slack.com",
        "https://files.slack.com:8443/a",
        "https://a@files.slack.com/a",
        "https://notslack.com/a",
        "http://slack.com/a",
        "https://[",
        "",
    ):
        assert not is_slacks(url, api)


# Clicks.


async def asked(front, **details):
    """Have a question stand in a thread; return its message."""
    root = await front.mention()
    await front.heard()
    fields = {"id": "call-1", "prompt": "Where to?", "choices": ["Rome", "Oslo"], "default": 0, **details}
    await front.state.copy(f"slack-C1-{root['ts']}", "choice", "call-1", {"prompt": "Where to?"}, 1)
    assert await front.show(output_in(root, "user_choice_required", "Where to?", **fields)) == {}
    return root, front.slack.thread("C1", root["ts"])[-1]


async def test_a_click_is_the_answer_and_the_first_one_counts(front):
    root, question = await asked(front)
    for user, number in (("U2", 1), ("U1", 0)):
        click = front.slack.click("C1", question["ts"], number, user)
        assert await front.deliver(click, form=True) == 200
    (heard,) = await front.heard()
    assert heard["content"] == {
        "type": "user_choice_response",
        "choice_id": "call-1",
        "selected": 1,
        "user_id": "slack:T1:U2",
    }
    assert heard["group_id"] == f"slack-C1-{root['ts']}"


async def test_a_stale_click_says_so(front):
    root, question = await asked(front)
    await front.state.copy(f"slack-C1-{root['ts']}", "choice", "call-1", None, 2)
    assert await front.deliver(front.slack.click("C1", question["ts"], 0, "U2"), form=True) == 200
    assert await front.heard() == []
    assert [(each["user"], each["text"]) for each in front.slack.ephemeral] == [
        ("U2", "This question is no longer open.")
    ]


async def test_only_the_person_asked_can_answer(front):
    _, question = await asked(front, user_id="slack:T1:U1")
    assert await front.deliver(front.slack.click("C1", question["ts"], 0, "U2"), form=True) == 200
    assert await front.heard() == []
    assert front.slack.ephemeral[0]["text"] == "This question is for <@U1>."
    assert await front.deliver(front.slack.click("C1", question["ts"], 0, "U1"), form=True) == 200
    assert len(await front.heard()) == 1


@pytest.mark.parametrize("value", [None, "", "{", "[]", '{"thread": 1}', '{"thread":"t","choice":"c","selected":"x"}'])
async def test_a_click_on_something_else_is_acknowledged(front, value):
    _, question = await asked(front)
    click = front.slack.click("C1", question["ts"], 0, "U1")
    click["actions"][0]["value"] = value
    assert await front.deliver(click, form=True) == 200
    assert await front.heard() == []


# What the function is told.


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"SLACK_SIGNING_SECRET": ""}, "SLACK_SIGNING_SECRET_ARN, or SLACK_SIGNING_SECRET must be set"),
        ({"SLACK_ALLOWED": ""}, "SLACK_ALLOWED, or SLACK_ALLOW_EVERYONE must be set"),
        ({"SLACK_ALLOW_EVERYONE": "true"}, "must be set, and not both"),
        ({"SLACK_ALLOW_EVERYONE": "yes", "SLACK_ALLOWED": ""}, "must be 'true'"),
        ({"SLACK_API_URL": "http://slack.example/api/"}, "SLACK_API_URL must be an https URL"),
    ],
)
def test_what_is_not_told_or_wrong_is_one_error(changed, said):
    told = {
        "INPUT_QUEUE_URL": "https://queue.example",
        "DYNAMODB_TABLE_NAME": "table",
        "BLOB_BUCKET": "bucket",
        "SLACK_SIGNING_SECRET": "hidden",
        "SLACK_BOT_TOKEN": "hidden",
        "SLACK_ALLOWED": "T1",
    }
    read = SlackReceiverEnvironment.read(told)
    assert read.written() == {**told, "SLACK_API_URL": "https://slack.com/api/"}
    assert "hidden" not in repr(read)
    with pytest.raises(Misconfigured, match="slack_receiver") as caught:
        SlackReceiverEnvironment.read({**told, **changed})
    assert said in str(caught.value)
