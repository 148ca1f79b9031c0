"""A message that waits for its time comes back as it went in."""

import json

import pytest

from infinity_agents.errors import Undecodable
from infinity_agents.wire import timers as wire_timers
from infinity_agents.wire.timers import DelayedMessage


def test_a_delayed_message_comes_back():
    message = DelayedMessage('{"a": "\\u0000 ä"}', "g", "d")
    text = wire_timers.encode(message)
    assert text.isascii()
    assert json.loads(text) == {"body": message.body, "group_id": "g", "dedup_id": "d"}
    assert wire_timers.decode(text) == message
    assert wire_timers.decode(text[:-1] + ', "new": 1}') == message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "not a delayed message"),
        ('{"body": "x", "group_id": "g"}', "dedup_id"),
        ('{"body": 1, "group_id": "g", "dedup_id": "d"}', "body"),
        ("[" * 5000, "not JSON"),
    ],
)
def test_what_is_no_delayed_message_is_said_to_be_none(text, said):
    with pytest.raises(Undecodable, match=said):
        wire_timers.decode(text)
