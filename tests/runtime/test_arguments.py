"""Arguments: read and checked before anything runs, and the model is told what was wrong."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_agents.errors import TellModel
from infinity_agents.runtime.arguments import check_arguments, read_arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}


class TestReading:
    @pytest.mark.parametrize("text", ["", " ", "\n", "{}"])
    def test_none(self, text):
        assert read_arguments(text) == {}

    def test_an_object(self):
        assert read_arguments('{"a": [1, 2.5, null, {"b": "c"}]}') == {"a": [1, 2.5, None, {"b": "c"}]}

    @pytest.mark.parametrize(
        "text", ["{", "hello", '{"a": }', "{'a': 1}", '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": 1}}']
    )
    def test_not_json(self, text):
        with pytest.raises(TellModel, match="not valid JSON"):
            read_arguments(text)

    @pytest.mark.parametrize(("text", "kind"), [("[]", "list"), ("7", "int"), ('"a"', "str"), ("null", "NoneType")])
    def test_not_an_object(self, text, kind):
        with pytest.raises(TellModel, match=kind):
            read_arguments(text)

    @pytest.mark.parametrize("depth", [101, 500, 100_000])
    def test_nested_too_deeply(self, depth):
        with pytest.raises(TellModel):
            read_arguments('{"a":' * depth + "1" + "}" * depth)

    def test_lone_surrogates_are_mended(self):
        assert read_arguments('{"\\ud800": "\\udfff"}') == {"\N{REPLACEMENT CHARACTER}": "\N{REPLACEMENT CHARACTER}"}

    @given(st.text())
    def test_nothing_else_is_raised(self, text):
        with contextlib.suppress(TellModel):
            json.dumps(read_arguments(text)).encode()


class TestChecking:
    @pytest.mark.parametrize("arguments", [{"city": "Rome"}, {"city": "Rome", "days": 3, "tags": []}])
    def test_what_fits(self, arguments):
        check_arguments("get_weather", SCHEMA, arguments)

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({}, "city"),
            ({"city": 7}, "city"),
            ({"city": ""}, "city"),
            ({"city": "Rome", "days": 0}, "days"),
            ({"city": "Rome", "days": 1.5}, "days"),
            ({"city": "Rome", "days": True}, "days"),
            ({"city": "Rome", "tags": ["a", 7]}, "tags.1"),
            ({"city": "Rome", "mood": "good"}, "mood"),
        ],
    )
    def test_the_error_names_the_field_and_the_tool(self, arguments, told):
        with pytest.raises(TellModel, match=told) as caught:
            check_arguments("get_weather", SCHEMA, arguments)
        assert "get_weather" in str(caught.value)

    def test_every_field_is_named(self):
        with pytest.raises(TellModel) as caught:
            check_arguments("get_weather", SCHEMA, {"city": 7, "days": "x"})
        assert "city" in str(caught.value)
        assert "days" in str(caught.value)

    def test_the_error_stays_short(self):
        with pytest.raises(TellModel) as caught:
            check_arguments("get_weather", SCHEMA, {"city": {"x": "y" * 100_000}, **{f"k{n}": 1 for n in range(999)}})
        assert len(str(caught.value)) < 2000

    def test_what_a_model_writes_is_cleaned_for_its_readers(self):
        with pytest.raises(TellModel) as caught:
            check_arguments("get_weather", SCHEMA, {"city": ["\x1b[31m"]})
        assert "\x1b" not in str(caught.value)

    def test_an_older_dialect_is_read_as_such(self):
        schema = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}},
        }
        check_arguments("t", schema, {"pair": ["a", 1]})
        with pytest.raises(TellModel):
            check_arguments("t", schema, {"pair": [1, "a"]})

    def test_an_empty_schema_takes_anything(self):
        check_arguments("t", {}, {"a": object})

    @pytest.mark.parametrize("ref", ["https://example.invalid/schema.json", "#/nowhere", "file:///etc/passwd"])
    def test_a_reference_is_never_fetched(self, ref):
        with pytest.raises(TellModel):
            check_arguments("t", {"properties": {"a": {"$ref": ref}}}, {"a": 1})

    def test_a_schema_that_refers_to_itself(self):
        schema = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}
        with pytest.raises(TellModel):
            check_arguments("t", schema, {"x": 1})
