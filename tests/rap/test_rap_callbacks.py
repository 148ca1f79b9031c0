"""Callbacks: who may send them, and what they become."""

import json
import uuid

import pytest

from infinity_agents.conversation.content import Image, Text
from infinity_agents.conversation.messages import (
    InputMessage,
    OauthRequired,
    SubscriptionEvent,
    ToolResult,
    UserChoiceRequired,
)
from infinity_agents.rap.callbacks import (
    BadCallback,
    CallbackClaims,
    ViewUpdate,
    callback_url,
    read_token,
    receive,
    token_in,
)
from infinity_agents.wire.keys import Keyring

BASE = "https://callbacks.example.com/rap"
CLAIMS = CallbackClaims("thread-1", "call-1", "weather")
RESULT = {"type": "tool_result", "group_id": "thread-1", "id": "call-1", "text": "Sunny"}
EVENT = {"type": "subscription_event", "group_id": "thread-1", "tool_call_id": "call-1", "text": "Rain"}
OAUTH = {"type": "oauth", "group_id": "thread-1", "id": "call-1", "auth_url": "https://login.example.com/"}
CHOICE = {
    "type": "user_choice",
    "group_id": "thread-1",
    "id": "call-1",
    "prompt": "Which?",
    "choices": ["a", "b"],
    "default": 1,
    "response_url": "https://tool.example.com/choice/1",
}
VIEW = {"type": "view_update", "group_id": "thread-1", "view_type": "board", "content": {"cards": [1, None]}}


def received(fields, claims=CLAIMS, max_bytes=10_000):
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return receive(body, claims, max_bytes)


def refused(fields, **options):
    with pytest.raises(BadCallback) as caught:
        received(fields, **options)
    return caught.value


class TestToken:
    def test_it_says_whom_it_is_for_without_a_database(self, keyring):
        url = callback_url(BASE, keyring, "thread-1", "call-1", "weather")
        assert url.startswith(BASE + "/")
        assert read_token(keyring, token_in(url)) == CLAIMS

    def test_it_is_the_same_on_every_replay(self, keyring):
        assert callback_url(BASE, keyring, "t", "c", "s") == callback_url(BASE + "/", keyring, "t", "c", "s")

    def test_it_needs_no_escaping_in_a_url(self, keyring):
        token = token_in(callback_url(BASE, keyring, "thré/ad?#%&", "c", "s"))
        assert set(token) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
        assert read_token(keyring, token) == CallbackClaims("thré/ad?#%&", "c", "s")

    def test_a_rotated_key_still_proves(self, keyring):
        token = token_in(callback_url(BASE, keyring, "t", "c", "s"))
        rotated = Keyring.parse("k2:another-secret-of-length,k1:a-secret-of-some-length")
        assert read_token(rotated, token) == CallbackClaims("t", "c", "s")
        assert read_token(Keyring.parse("k2:another-secret-of-length"), token) is None

    def test_no_changed_character_proves_anything(self, keyring):
        token = token_in(callback_url(BASE, keyring, "thread-1", "call-1", "weather"))
        for position, character in enumerate(token):
            changed = token[:position] + ("A" if character != "A" else "B") + token[position + 1 :]
            assert read_token(keyring, changed) is None

    def test_another_calls_token_cannot_be_moved(self, keyring):
        mine = token_in(callback_url(BASE, keyring, "thread-1", "call-1", "weather"))
        other = token_in(callback_url(BASE, keyring, "thread-2", "call-1", "weather"))
        assert read_token(keyring, f"{mine.partition('.')[0]}.{other.partition('.')[2]}") is None

    def test_a_signature_for_something_else_proves_nothing(self, keyring):
        payload = token_in(callback_url(BASE, keyring, "t", "c", "s")).partition(".")[0]
        proof = keyring.sign("input-message", payload.encode()).replace(":", ".")
        assert read_token(keyring, f"{payload}.{proof}") is None

    @pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "é.k1.x", "\ud800.k1.x", "x" * 10_000, "W10.k1."])
    def test_garbage_proves_nothing(self, keyring, token):
        assert read_token(keyring, token) is None


class TestMessages:
    def test_a_result(self):
        message = received({**RESULT, "call_id": "model-1", "unknown": 1})
        assert message == InputMessage(
            content=ToolResult("call-1", (Text("Sunny"),), "model-1", tool_set="weather"),
            group_id="thread-1",
            message_id=message.message_id,
        )

    def test_content_wins_over_text(self):
        parts = [{"type": "text", "text": "See"}, {"type": "image", "data": "aGk=", "mediaType": "image/png"}]
        assert received({**RESULT, "content": parts}).content.content == (Text("See"), Image("aGk=", "image/png"))

    def test_empty_content_leaves_the_text(self):
        assert received({**RESULT, "content": []}).content.content == (Text("Sunny"),)

    def test_what_a_result_carries_beside_its_text(self):
        segments = [{"type": "diff", "content": {"path": "a", "patch": "+b"}}, {"type": "new kind"}]
        message = received({**RESULT, "subscription": True, "is_error": True, "display_as": segments})
        assert message.subscription is True
        assert message.content.is_error is True
        assert message.display_as == tuple(segments)

    def test_null_is_absent(self):
        message = received({**RESULT, "call_id": None, "content": None, "display_as": None, "subscription": None})
        assert (message.subscription, message.display_as, message.content.call_id) == (False, None, None)

    def test_an_event(self):
        message = received({**EVENT, "associative": True, "final": True})
        assert message.synthetic == SubscriptionEvent("call-1", associative=True, final=True, tool_set="weather")
        assert message.content == Text("Rain")

    def test_an_authorization(self):
        assert received(OAUTH).content == OauthRequired("call-1", OAUTH["auth_url"], tool_set="weather")

    def test_a_choice(self):
        assert received(CHOICE).content == UserChoiceRequired(
            "call-1", "Which?", ("a", "b"), 1, CHOICE["response_url"], tool_set="weather"
        )

    def test_a_view(self):
        assert received(VIEW) == ViewUpdate("thread-1", "board", {"cards": [1, None]})
        assert received({**VIEW, "content": None}) == ViewUpdate("thread-1", "board", None)

    def test_lone_surrogates_are_mended_and_nul_is_kept(self):
        body = b'{"type":"tool_result","group_id":"thread-1","id":"call-1","text":"a\\ud800b\\u0000c"}'
        assert received(body).content.content == (Text("a\N{REPLACEMENT CHARACTER}b\x00c"),)


class TestIdentity:
    def test_one_call_has_one_result_whatever_it_says(self):
        assert received(RESULT).message_id == received({**RESULT, "text": "Rainy", "is_error": True}).message_id

    def test_kinds_and_calls_are_told_apart(self):
        other = CallbackClaims("thread-1", "call-2", "weather")
        ids = [received(fields).message_id for fields in (RESULT, EVENT, OAUTH, CHOICE)]
        ids.append(received({**RESULT, "id": "call-2"}, claims=other).message_id)
        assert len(set(ids)) == 5

    def test_a_link_is_told_once(self):
        assert received(OAUTH).message_id == received({**OAUTH, "call_id": "x"}).message_id
        assert received(OAUTH).message_id != received({**OAUTH, "auth_url": "https://b.example.com/"}).message_id

    def test_a_question_is_asked_once(self):
        reordered = dict(reversed(CHOICE.items()))
        assert received(CHOICE).message_id == received(reordered).message_id
        for changed in ({"prompt": "Why?"}, {"choices": ["a", "c"]}, {"default": 0}, {"response_url": "https://b.c/"}):
            assert received(CHOICE).message_id != received({**CHOICE, **changed}).message_id

    def test_an_event_is_new_unless_it_has_an_id(self, monkeypatch):
        assert received(EVENT).message_id != received(EVENT).message_id
        named = {**EVENT, "event_id": "e1"}
        assert received(named).message_id == received({**named, "text": "Snow"}).message_id
        assert received(named).message_id != received({**named, "event_id": "e2"}).message_id
        monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=1))
        assert received(EVENT).message_id == received({**EVENT, "event_id": uuid.UUID(int=1).hex}).message_id


class TestRefusals:
    @pytest.mark.parametrize(
        ("body", "text"),
        [
            (b"", "not JSON"),
            (b"{", "not JSON"),
            (b"[]", "an object is wanted"),
            (b'"text"', "an object is wanted"),
            (b"\xff\xfe{\x00}\x00", "not JSON"),
            (b'{"type": NaN}', "NaN"),
            (b"[" * 2_000 + b"]" * 2_000, "nested"),
            (b'{"a":' * 70 + b"1" + b"}" * 70, "nested"),
            (b"1" * 5_000, "not JSON"),
        ],
    )
    def test_what_is_no_json_object(self, body, text):
        refusal = refused(body)
        assert refusal.status == 400
        assert text in refusal.text

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({}, "type"),
            ({**RESULT, "type": "tool_result_v2"}, "type"),
            ({**RESULT, "type": None}, "type"),
            ({**RESULT, "text": None}, "text or content"),
            ({**RESULT, "text": 5}, "text"),
            ({**RESULT, "id": None}, "id"),
            ({**RESULT, "content": [{"type": "video", "data": ""}]}, "content.0"),
            ({**RESULT, "content": [{"type": "image", "data": "no base64!", "mediaType": "image/png"}]}, "base64"),
            ({**RESULT, "content": [{"type": "image", "data": "aGk="}]}, "mediaType"),
            ({**RESULT, "display_as": ["text"]}, "display_as"),
            ({**EVENT, "text": None}, "text"),
            ({**OAUTH, "auth_url": "http://login.example.com/"}, "https"),
            ({**OAUTH, "auth_url": "javascript:alert(1)"}, "https"),
            ({**OAUTH, "auth_url": "https://good.example.com\\@evil.example.com/"}, "backslash"),
            ({**OAUTH, "auth_url": "https://good.example.com@evil.example.com/"}, "user name"),
            ({**OAUTH, "auth_url": ""}, "auth_url"),
            ({**CHOICE, "choices": []}, "choices"),
            ({**CHOICE, "default": 2}, "default"),
            ({**CHOICE, "default": -1}, "default"),
            ({**CHOICE, "response_url": "ftp://tool.example.com/"}, "response_url"),
            ({**CHOICE, "response_url": "/choice"}, "response_url"),
            ({key: value for key, value in VIEW.items() if key != "content"}, "content"),
            ({**VIEW, "view_type": ""}, "view_type"),
        ],
    )
    def test_what_is_no_callback(self, fields, text):
        refusal = refused(fields)
        assert refusal.status == 400
        assert text in refusal.text

    def test_a_link_on_loopback_may_be_http(self):
        assert received({**OAUTH, "auth_url": "http://localhost:8080/login"}).content.auth_url.startswith("http:")

    @pytest.mark.parametrize("fields", [RESULT, EVENT, OAUTH, CHOICE, VIEW])
    def test_another_thread(self, fields):
        refusal = refused({**fields, "group_id": "thread-2"})
        assert (refusal.status, "group_id" in refusal.text) == (403, True)

    @pytest.mark.parametrize("fields", [RESULT, OAUTH, CHOICE])
    def test_another_call(self, fields):
        assert refused({**fields, "id": "call-2"}).status == 403

    def test_an_event_of_another_call(self):
        assert refused({**EVENT, "tool_call_id": "call-2"}).status == 403

    def test_the_size_is_looked_at_before_the_rest(self):
        assert refused(b"x" * 5 * 1024 * 1024).status == 413
        assert received({**RESULT, "text": "x" * 5 * 1024 * 1024}, max_bytes=6 * 1024 * 1024).group_id == "thread-1"
