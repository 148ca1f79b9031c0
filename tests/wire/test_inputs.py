"""Input messages: the fixed spelling, whatever people send, and who may send what."""

import json
import string
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_agents.conversation.content import Blob, Document, Image, Text
from infinity_agents.conversation.messages import (
    CallDeadline,
    Compaction,
    CompactionComplete,
    Control,
    InputMessage,
    Nudge,
    OauthRequired,
    ParentMessage,
    Parts,
    SubscriptionEvent,
    ThreadReport,
    ToolResult,
    UserChoiceRequired,
    UserChoiceResponse,
)
from infinity_agents.errors import Reject, Undecodable, Unproven
from infinity_agents.wire import inputs
from infinity_agents.wire.keys import Keyring

KEYS = Keyring.parse("new:0123456789abcdef,old:fedcba9876543210")
OLD = Keyring.parse("old:fedcba9876543210")
STRANGER = Keyring.parse("new:another-secret-of-16")
BAD = "\N{REPLACEMENT CHARACTER}"


def decode(body, *, group_id="g", keyring=KEYS, **fields):
    text = body if isinstance(body, str) else json.dumps(body)
    return inputs.decode(text, keyring=keyring, queue_id="q", group_id=group_id, **fields)


def signed(fields, keyring=KEYS):
    """Return the body with our proof over exactly these fields, as another implementation might spell it."""
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({**fields, "mac": keyring.sign("input-message", canonical)}, indent=1)


TEXT = {"content": {"type": "text", "text": "hi"}, "group_id": "g"}
SHA = "ab" * 32

SPELLINGS = [
    ({"type": "text", "text": "hi"}, Text("hi")),
    ({"type": "image", "data": "aGk=", "media_type": "image/png"}, Image("aGk=", "image/png")),
    (
        {"type": "document", "data": "aGk=", "media_type": "application/pdf", "name": "a.pdf"},
        Document("aGk=", "application/pdf", "a.pdf"),
    ),
    (
        {
            "type": "parts",
            "parts": [{"type": "text", "text": "a"}, {"type": "image", "data": "", "media_type": "image/gif"}],
        },
        Parts((Text("a"), Image("", "image/gif"))),
    ),
    (
        {"type": "parts", "parts": [{"type": "document", "data": "", "media_type": "text/csv", "name": "n"}]},
        Parts((Document("", "text/csv", "n"),)),
    ),
    (
        {
            "type": "tool_result",
            "id": "c1",
            "call_id": "toolu_1",
            "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "", "media_type": "image/png"}],
            "is_error": True,
            "tool_set": "weather",
        },
        ToolResult("c1", (Text("a"), Image("", "image/png")), "toolu_1", True, "weather"),
    ),
    ({"type": "tool_result", "id": "c1", "content": []}, ToolResult("c1", ())),
    (
        {"type": "oauth_required", "id": "c1", "call_id": "m", "auth_url": "https://login.example"},
        OauthRequired("c1", "https://login.example", "m"),
    ),
    (
        {
            "type": "user_choice_required",
            "id": "c1",
            "call_id": None,
            "prompt": "?",
            "choices": ["a", "b"],
            "default": 1,
            "response_url": "https://tools.example",
        },
        UserChoiceRequired("c1", "?", ("a", "b"), 1, "https://tools.example"),
    ),
    (
        {"type": "user_choice_response", "choice_id": "c1", "selected": 0, "user_id": "ada"},
        UserChoiceResponse("c1", 0, "ada"),
    ),
    ({"type": "user_choice_response", "choice_id": "c1", "selected": None}, UserChoiceResponse("c1", None)),
    ({"type": "control", "action": "stop"}, Control("stop")),
    ({"type": "control", "action": "close"}, Control("close")),
    ({"type": "blob", "sha256": SHA, "size": 300_000, "of": "parts"}, Blob(SHA, 300_000, "parts")),
    (
        {"type": "parts", "parts": [{"type": "blob", "sha256": SHA, "size": 9, "of": "image"}]},
        Parts((Blob(SHA, 9, "image"),)),
    ),
    (
        {"type": "tool_result", "id": "c", "content": [{"type": "blob", "sha256": SHA, "size": 9, "of": "text"}]},
        ToolResult("c", (Blob(SHA, 9, "text"),)),
    ),
]

TAGS = [
    (
        {"type": "subscription_event", "tool_call_id": "c", "associative": True, "final": True},
        SubscriptionEvent("c", True, True),
    ),
    ({"type": "subscription_event", "tool_call_id": "c"}, SubscriptionEvent("c")),
    ({"type": "thread_report", "tool_call_id": "c", "child_thread_id": "g.t"}, ThreadReport("c", "g.t")),
    ({"type": "parent_message", "tool_call_id": "c"}, ParentMessage("c")),
    ({"type": "compaction"}, Compaction()),
    (
        {"type": "compaction_complete", "up_to": 7, "summary": "short", "child_thread_id": "g.c"},
        CompactionComplete(7, "short", "g.c"),
    ),
    ({"type": "call_deadline", "tool_call_id": "c"}, CallDeadline("c")),
    ({"type": "nudge"}, Nudge()),
]


def kind_of(spelling):
    return spelling["type"] if isinstance(spelling, dict) else ""


class TestSpelling:
    @pytest.mark.parametrize(("spelling", "content"), SPELLINGS, ids=kind_of)
    def test_contents_are_read(self, spelling, content):
        assert decode(signed({"content": spelling, "group_id": "g"})).message.content == content

    @pytest.mark.parametrize(("spelling", "content"), SPELLINGS, ids=kind_of)
    def test_contents_are_written_with_these_fields(self, spelling, content):
        written = inputs.to_json(InputMessage(content, "g"))["content"]
        present = {key: value for key, value in spelling.items() if value is not None}
        assert {key: written[key] for key in present} == present

    @pytest.mark.parametrize(("spelling", "tag"), TAGS, ids=kind_of)
    def test_tags_are_read_and_written(self, spelling, tag):
        fields = {**TEXT, "synthetic": spelling}
        assert decode(signed(fields)).message.synthetic == tag
        written = inputs.to_json(InputMessage(Text(""), "g", synthetic=tag))["synthetic"]
        assert {key: written[key] for key in spelling} == spelling

    @pytest.mark.parametrize("content", [content for _, content in SPELLINGS], ids=lambda content: content.type)
    @pytest.mark.parametrize("tag", [None, *(tag for _, tag in TAGS)], ids=lambda tag: tag.type if tag else "plain")
    def test_what_we_write_we_read(self, content, tag):
        message = InputMessage(
            content,
            "g",
            message_id="m",
            metadata={"user_id": "ada", "nested": {"a": None, "b": [1, 2.5, True]}},
            synthetic=tag,
            display_as=({"type": "diff", "content": {"path": "a", "patch": "b"}},),
            subscription=True,
            trace={"traceparent": "00-1", "tracestate": ""},
        )
        delivery = decode(inputs.encode(message, KEYS))
        assert delivery.message == message
        assert delivery.proven

    def test_the_plainest_message_that_a_person_sends(self):
        body = '{"content": {"type": "text", "text": "What time is it in Tokyo?"}, "group_id": "my-conversation"}'
        delivery = decode(body, group_id="my-conversation")
        assert delivery.message == InputMessage(Text("What time is it in Tokyo?"), "my-conversation")
        assert not delivery.proven
        assert delivery.is_personal
        assert delivery.identity == "q"

    def test_a_bare_string_is_an_old_spelling_of_a_subscription_event(self):
        delivery = decode(signed({**TEXT, "synthetic": "c7"}))
        assert isinstance(delivery.message.synthetic, SubscriptionEvent)
        assert delivery.message.synthetic.tool_call_id == "c7"

    def test_unknown_fields_are_ignored(self):
        fields = {
            "content": {"type": "text", "text": "hi", "mood": "good", "parts": 7, "content": [1, {"type": "?"}]},
            "group_id": "g",
            "future": {"a": [1]},
        }
        assert decode(fields).message == InputMessage(Text("hi"), "g")

    def test_they_are_ignored_in_parts_and_tags_too(self):
        fields = {
            "content": {"type": "parts", "parts": [{"type": "text", "text": "hi", "cache": True}]},
            "group_id": "g",
            "synthetic": {"type": "nudge", "why": "late"},
        }
        message = decode(signed(fields)).message
        assert message.content == Parts((Text("hi"),))
        assert message.synthetic == Nudge()

    def test_absent_and_null_are_the_same(self):
        nulls = dict.fromkeys(("message_id", "mac", "metadata", "synthetic", "display_as", "trace"))
        assert decode({**TEXT, **nulls}).message == decode(TEXT).message

    def test_what_is_absent_is_not_written(self):
        assert inputs.to_json(InputMessage(Text("hi"), "g")) == TEXT

    def test_the_queue_says_when_and_what_of_the_delivery(self):
        now = datetime(2026, 1, 1, tzinfo=UTC)
        delivery = decode(TEXT, dedup_id="d", sent_at=now)
        assert (delivery.queue_id, delivery.dedup_id, delivery.sent_at) == ("q", "d", now)

    def test_a_body_is_ascii(self):
        assert inputs.encode(InputMessage(Text("\N{GRINNING FACE}\ud800"), "g"), KEYS).isascii()


class TestWhatCannotBeRead:
    @pytest.mark.parametrize(
        "body",
        [
            "",
            "hi",
            "{",
            "[1]",
            "null",
            "7",
            '"text"',
            "NaN",
            '{"a": NaN}',
            '{"a": Infinity}',
            '{"a": 1e999}',
            "{'a': 1}",
        ],
    )
    def test_not_a_json_object(self, body):
        with pytest.raises(Undecodable):
            decode(body)

    @pytest.mark.parametrize(
        ("fields", "named"),
        [
            ({}, "content"),
            ({"group_id": "g"}, "content"),
            ({"content": {"type": "text", "text": "hi"}}, "group_id"),
            ({**TEXT, "group_id": 7}, "group_id"),
            ({**TEXT, "group_id": None}, "group_id"),
            ({**TEXT, "metadata": "x"}, "metadata"),
            ({**TEXT, "metadata": [1]}, "metadata"),
            ({**TEXT, "message_id": 7}, "message_id"),
            ({**TEXT, "synthetic": 7}, "synthetic"),
            ({**TEXT, "synthetic": {}}, "synthetic"),
            ({**TEXT, "synthetic": {"type": "future"}}, "future"),
            ({**TEXT, "content": "hi"}, "content"),
            ({**TEXT, "content": None}, "content"),
            ({**TEXT, "content": []}, "content"),
            ({**TEXT, "content": {}}, "content"),
            ({**TEXT, "content": {"type": "hologram"}}, "hologram"),
            ({**TEXT, "content": {"type": ["text"]}}, "content"),
            ({**TEXT, "content": {"type": "text"}}, "text"),
            ({**TEXT, "content": {"type": "text", "text": 7}}, "text"),
            ({**TEXT, "content": {"type": "text", "text": None}}, "text"),
            ({**TEXT, "content": {"type": "image", "data": "x"}}, "media_type"),
            ({**TEXT, "content": {"type": "parts", "parts": "x"}}, "parts"),
            ({**TEXT, "content": {"type": "parts", "parts": [7]}}, "content.parts.0"),
            ({**TEXT, "content": {"type": "parts", "parts": [TEXT["content"], {"type": "video"}]}}, "content.parts.1"),
            ({**TEXT, "content": {"type": "control", "action": "explode"}}, "action"),
            ({**TEXT, "content": {"type": "user_choice_response"}}, "choice_id"),
            ({**TEXT, "content": {"type": "user_choice_response", "choice_id": "c", "selected": "x"}}, "selected"),
        ],
    )
    def test_the_error_names_what_is_wrong(self, fields, named):
        with pytest.raises(Undecodable, match=named) as caught:
            decode(fields)
        assert caught.value.reason.isprintable()

    def test_an_unknown_content_is_named_by_its_tag_alone(self):
        with pytest.raises(Undecodable) as caught:
            decode({**TEXT, "content": {"type": "hologram", "text": "secret" * 999}})
        assert "hologram" in caught.value.reason
        assert len(caught.value.reason) < 1000

    @pytest.mark.parametrize("depth", [101, 300, 900, 5000, 200_000])
    @pytest.mark.parametrize("braces", ["[]", "{}"])
    def test_nested_too_deeply(self, depth, braces):
        opened = "[" if braces == "[]" else '{"a":'
        deep = opened * depth + "1" + braces[1] * depth
        body = f'{{"content": {{"type": "text", "text": "hi"}}, "group_id": "g", "metadata": {{"a": {deep}}}}}'
        with pytest.raises(Undecodable):
            decode(body)

    def test_what_is_nested_less_is_taken(self):
        metadata = {"a": 1}
        for _ in range(80):
            metadata = {"a": metadata}
        message = decode({**TEXT, "metadata": metadata}).message
        assert message.metadata == metadata
        assert decode(inputs.encode(message, KEYS)).message == message

    @pytest.mark.parametrize("group_id", ["g" * 129, "\N{GRINNING FACE}", "a b", "", "g\x00", "g\ud800", "g\n"])
    def test_group_ids_that_sqs_does_not_take(self, group_id):
        with pytest.raises(Undecodable, match="group_id"):
            decode({**TEXT, "group_id": group_id}, group_id=group_id)

    @pytest.mark.parametrize("group_id", ["g" * 128, string.punctuation])
    def test_group_ids_that_it_takes(self, group_id):
        assert decode({**TEXT, "group_id": group_id}, group_id=group_id).thread_id == group_id

    def test_a_group_id_that_is_not_the_queues(self):
        with pytest.raises(Undecodable, match="'other'"):
            decode(TEXT, group_id="other")

    @pytest.mark.parametrize(
        "sha256", ["", "../../etc/passwd", "ab" * 31, "AB" * 32, "zz" * 32, SHA + "\n", SHA + "/x"]
    )
    def test_a_blob_is_named_by_its_hash_and_nothing_else(self, sha256):
        blob = {"type": "blob", "sha256": sha256, "size": 9, "of": "text"}
        for content in (blob, {"type": "parts", "parts": [blob]}):
            with pytest.raises(Undecodable, match="sha256"):
                decode({**TEXT, "content": content})

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["content", "group_id", "type", "text", "synthetic", "metadata", "parts", "id", "mac"]
                    ),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=12,
        )
    )
    def test_nothing_but_a_rejection_is_raised(self, value):
        try:
            decode(json.dumps(value))
        except Reject as error:
            error.reason.encode()

    @given(st.text())
    def test_whatever_the_text(self, body):
        with pytest.raises(Undecodable):
            decode("x" + body)


class TestText:
    def test_nul_is_kept_as_it_came(self):
        assert decode({**TEXT, "content": {"type": "text", "text": "a\x00b"}}).message.content == Text("a\x00b")

    def test_lone_surrogates_are_mended_everywhere(self):
        body = (
            '{"content": {"type": "text", "text": "a\\ud800"}, "group_id": "g", "metadata": {"\\udfff": ["\\ud800"]}}'
        )
        message = decode(body).message
        assert message == InputMessage(Text(f"a{BAD}"), "g", metadata={BAD: [BAD]})
        inputs.encode(message, KEYS).encode()

    def test_and_their_proof_holds(self):
        assert decode(signed({**TEXT, "metadata": {"a": "\ud800"}})).proven
        assert decode(inputs.encode(InputMessage(Text("\ud800"), "g"), KEYS)).proven

    def test_five_megabytes(self):
        text = "ab\N{GRINNING FACE} " * 1_000_000
        message = InputMessage(Text(text), "g")
        assert decode(inputs.encode(message, KEYS)).message == message


class TestProof:
    NEED = (
        {**TEXT, "synthetic": {"type": "nudge"}},
        {**TEXT, "synthetic": {"type": "subscription_event", "tool_call_id": "c"}},
        {**TEXT, "synthetic": "c"},
        {**TEXT, "synthetic": {"type": "compaction_complete", "up_to": 1, "summary": "s", "child_thread_id": "x"}},
        {**TEXT, "synthetic": {"type": "call_deadline", "tool_call_id": "c"}},
        {**TEXT, "subscription": True},
        {**TEXT, "content": {"type": "control", "action": "close"}},
        {**TEXT, "content": {"type": "tool_result", "id": "c", "content": []}},
        {**TEXT, "content": {"type": "oauth_required", "id": "c", "auth_url": "https://x.example"}},
        {
            **TEXT,
            "content": {
                "type": "user_choice_required",
                "id": "c",
                "prompt": "?",
                "choices": ["a"],
                "default": 0,
                "response_url": "https://x.example",
            },
        },
    )
    OPEN = (
        TEXT,
        {**TEXT, "metadata": {"user_id": "ada"}, "message_id": "m", "trace": {}},
        {**TEXT, "content": {"type": "image", "data": "", "media_type": "image/png"}},
        {**TEXT, "content": {"type": "document", "data": "", "media_type": "text/plain", "name": "n"}},
        {**TEXT, "content": {"type": "parts", "parts": []}},
        {**TEXT, "content": {"type": "blob", "sha256": SHA, "size": 1, "of": "text"}},
        {**TEXT, "content": {"type": "control", "action": "stop"}},
        {**TEXT, "content": {"type": "user_choice_response", "choice_id": "c", "selected": 1}},
    )

    @pytest.mark.parametrize("fields", NEED)
    def test_what_people_do_not_send_needs_ours(self, fields):
        assert decode(signed(fields)).proven
        for mac in (None, "", "nonsense", "new:", "new:" + "0" * 64, "other:" + "0" * 64, 7, ["new"], "new:\ud800"):
            with pytest.raises(Unproven):
                decode({**fields, "mac": mac})

    @pytest.mark.parametrize("fields", OPEN)
    def test_people_need_none(self, fields):
        assert not decode(fields).proven

    @pytest.mark.parametrize("fields", OPEN)
    def test_a_wrong_one_makes_it_no_better(self, fields):
        assert not decode({**fields, "mac": "new:" + "0" * 64}).proven

    def test_a_rotated_key_still_counts(self):
        assert decode(signed(self.NEED[0], OLD)).proven

    def test_a_key_that_is_gone_does_not(self):
        body = signed(self.NEED[0], OLD)
        with pytest.raises(Unproven):
            decode(body, keyring=Keyring.parse("new:0123456789abcdef"))

    def test_a_key_of_the_same_name_is_another_key(self):
        with pytest.raises(Unproven):
            decode(signed(self.NEED[0], STRANGER))

    @pytest.mark.parametrize(
        "change",
        [
            {"content": {"type": "tool_result", "id": "other", "content": []}},
            {"group_id": "h"},
            {"message_id": "m"},
            {"metadata": {"user_id": "eve"}},
            {"subscription": True},
            {"future": 1},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_a_body_that_was_changed(self, change):
        fields = json.loads(signed({**TEXT, "content": {"type": "tool_result", "id": "c", "content": []}}))
        fields |= change
        with pytest.raises(Unproven):
            decode(fields, group_id=fields["group_id"])

    def test_a_proof_for_another_purpose(self):
        canonical = json.dumps(self.NEED[0], sort_keys=True, separators=(",", ":")).encode()
        with pytest.raises(Unproven):
            decode({**self.NEED[0], "mac": KEYS.sign("callback-token", canonical)})

    def test_the_order_of_fields_does_not_matter(self):
        fields = json.loads(signed(self.NEED[0]))
        assert decode(dict(reversed(fields.items()))).proven

    def test_the_reason_tells_no_secret(self):
        with pytest.raises(Unproven) as caught:
            decode({**self.NEED[7], "mac": "new:secret-looking"})
        assert "secret-looking" not in caught.value.reason
        assert "tool_result" in caught.value.reason


@pytest.mark.parametrize("content", [Text("a"), Image("", "image/png"), Document("", "a/b", "n"), Parts((Text("a"),))])
def test_what_a_blob_keeps(content):
    assert inputs.content_from_json(json.loads(json.dumps(inputs.content_to_json(content)))) == content
