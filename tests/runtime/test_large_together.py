"""What is small part by part is set aside all the same where one row could not hold the whole."""

import pytest

from infinity_agents.conversation.content import Blob, Text
from infinity_agents.conversation.messages import InputMessage, Parts
from infinity_agents.wire import inputs
from infinity_agents.wire.large_values import LargeValues

LIMIT = 256 * 1024
ROW = 1024 * 1024


@pytest.mark.parametrize(
    "parts",
    [
        [Text("x" * 250_000)] * 40,
        [Text("\x01" * 200_000)],
        [Text("\N{GRINNING FACE}" * 100_000)] * 3,
        [Text("x" * 1000)] * 3000,
    ],
    ids=["many parts", "control characters", "emoji", "thousands of parts"],
)
def test_no_entry_is_too_large_for_a_row(parts):
    large = LargeValues(LIMIT)
    kept = large.out_of_message(InputMessage(Parts(tuple(parts)), "t"))
    assert len(inputs.encode(kept, None)) < ROW
    assert large.values


def test_a_few_small_parts_stay_where_they_are():
    large = LargeValues(LIMIT)
    message = InputMessage(Parts((Text("a" * 100_000), Text("b" * 100_000))), "t")
    assert large.out_of_message(message) == message
    assert not large.values


def test_a_reference_is_not_set_aside_again():
    blob = Blob("0" * 64, 10_000_000, "text")
    large = LargeValues(LIMIT)
    assert large.out_of_message(InputMessage(blob, "t")).content == blob
    assert not large.values
