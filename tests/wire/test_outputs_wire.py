"""Output messages: the fields that every reader finds, in the fixed spelling."""

import json

import pytest

from infinity_agents.conversation.outputs import Output
from infinity_agents.wire import outputs

ALWAYS = {"type", "text", "metadata", "group_id", "thread_id", "output_id", "seq"}
DETAILS = {
    "message": {"usage": {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4}},
    "tool_call": {"call_id": "c", "tool": "get_weather", "arguments": {"location": None}},
    "oauth_required": {"auth_url": "https://login.example", "user_id": "ada"},
    "user_choice_required": {"id": "c", "prompt": "?", "choices": ["a", "b"], "default": 1, "user_id": "ada"},
    "user_choice_complete": {"choice_id": "c"},
    "limit_reached": None,
    "error": None,
    "status": None,
}


def output(type="message", **fields):
    return Output(type, "hi", "g", "g.t1", "g.t1:3:0", (3, 0), **fields)


@pytest.mark.parametrize(("type", "details"), DETAILS.items())
def test_each_type_has_its_fields_at_the_top(type, details):
    made = output(type, metadata={"channel": "x"}, details=details)
    assert json.loads(outputs.encode(made)) == {
        "type": type,
        "text": "hi",
        "metadata": {"channel": "x"},
        "group_id": "g",
        "thread_id": "g.t1",
        "output_id": "g.t1:3:0",
        "seq": [3, 0],
        **(details or {}),
    }
    assert outputs.decode(outputs.encode(made)) == made


def test_the_metadata_is_there_even_where_there_is_none():
    fields = outputs.to_json(output())
    assert set(fields) == ALWAYS
    assert fields["metadata"] is None


def test_the_metadata_is_as_the_sender_gave_it():
    metadata = {"b": None, "a": [1, {"c": 2.5}], "\N{GRINNING FACE}": True}
    assert json.loads(outputs.encode(output(metadata=metadata)))["metadata"] == metadata


def test_it_is_ascii_without_lone_surrogates():
    body = outputs.encode(Output("message", "a\ud800\N{GRINNING FACE}", "g", "g", "o", (1, 1)))
    assert body.isascii()
    assert json.loads(body)["text"] == "a\N{REPLACEMENT CHARACTER}\N{GRINNING FACE}"


def test_fields_that_we_do_not_know_come_back():
    assert outputs.decode(outputs.encode(output(details={"future": 1}))).details == {"future": 1}
