"""Manifests: what is taken, what is refused, and the reason given."""

import json
import subprocess
import sys

import pytest

from infinity_agents.errors import Misconfigured
from infinity_agents.wire import rap
from infinity_agents.wire.addresses import origin, secure_url

BASE = "https://tool.example.com/base"


def parsed(fields, base=BASE):
    return rap.parse_manifest(fields if isinstance(fields, bytes) else json.dumps(fields).encode(), base)


@pytest.fixture
def good(manifest):
    return manifest(BASE)


def test_a_manifest_of_the_wires_own_example():
    found = parsed(
        {
            "name": "weather-tools",
            "description": "…",
            "endpoint": "https://tool.example.com/invoke",
            "needsMigration": False,
            "tools": [
                {
                    "name": "get_weather",
                    "description": "…",
                    "inputSchema": {"type": "object", "properties": {}, "required": []},
                    "annotations": {"readOnly": True, "x-cost": 3},
                    "displayScript": '"Weather for " + args.location',
                }
            ],
        }
    )
    assert found.tools[0].annotations.read_only is True
    assert found.tools[0].display_script == '"Weather for " + args.location'


def test_it_reads_its_own_writing(good):
    found = parsed(good)
    assert rap.read_manifest(json.loads(json.dumps(found.to_json())), BASE) == found
    assert found.to_json()["tools"][0]["inputSchema"] == good["tools"][0]["inputSchema"]


def test_unknown_fields_and_nulls_are_no_errors(good):
    tool = {**good["tools"][0], "annotations": None, "displayScript": None, "new": 1}
    assert parsed({**good, "version": 2, "needsMigration": None, "tools": [tool]}).needs_migration is False


@pytest.mark.parametrize(
    "endpoint",
    ["https://tool.example.com/x", "https://tool.example.com:443/x", "https://TOOL.example.com/x?y=1"],
)
def test_an_endpoint_of_the_same_origin(good, endpoint):
    assert parsed({**good, "endpoint": endpoint}).endpoint == endpoint


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://evil.example.com/invoke",
        "http://tool.example.com/invoke",
        "https://tool.example.com:8443/invoke",
        "https://tool.example.com@evil.example.com/invoke",
        "https://tool.example.com\\@evil.example.com/invoke",
        "https://tool.example.com.evil.example.com/invoke",
        "https://tool.example.com\n.evil.example.com/",
        "//tool.example.com/invoke",
        "/invoke",
        "",
        "https://",
        "https://tool.example.com:99999/",
        "https://[::1/",
    ],
)
def test_an_endpoint_elsewhere_is_refused(good, endpoint):
    with pytest.raises(Misconfigured, match=r"refused: .*endpoint"):
        parsed({**good, "endpoint": endpoint})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"name": None}, "name"),
        ({"tools": []}, "tools"),
        ({"tools": None}, "tools"),
        ({"tools": {}}, "tools"),
    ],
)
def test_a_manifest_is_refused_with_the_reason(good, change, reason):
    with pytest.raises(Misconfigured, match=f"{BASE} is refused: {reason}"):
        parsed({**good, **change})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": ""}, "tools.0.name"),
        ({"name": "x" * 129}, "tools.0.name"),
        ({"name": "get weather"}, "tools.0.name"),
        ({"name": "get_weather\n"}, "tools.0.name"),
        ({"name": "wetter_für"}, "tools.0.name"),
        ({"name": "receive_event__injected"}, "reserved"),
        ({"description": None}, "tools.0.description"),
        ({"inputSchema": None}, "tools.0.inputSchema"),
        ({"inputSchema": True}, "tools.0.inputSchema"),
        ({"inputSchema": []}, "tools.0.inputSchema"),
        ({"inputSchema": {"type": "objekt"}}, r"get_weather.*not a JSON Schema at \$.type"),
        ({"inputSchema": {"properties": 5}}, "not a JSON Schema"),
        ({"inputSchema": {"required": "location"}}, "not a JSON Schema"),
        ({"inputSchema": {"properties": {"a": {"pattern": "("}}}}, "not a JSON Schema"),
        ({"inputSchema": {"$schema": "https://example.com/mine"}}, "dialect"),
        ({"inputSchema": {"$schema": ["x"]}}, "dialect"),
        ({"inputSchema": {"$ref": "http://169.254.169.254/latest/meta-data"}}, "leads outside"),
        ({"inputSchema": {"properties": {"a": {"anyOf": [{"$ref": "other.json"}]}}}}, "leads outside"),
        ({"annotations": {"readOnly": "perhaps"}}, "tools.0.annotations.readOnly"),
        ({"displayScript": 1}, "tools.0.displayScript"),
    ],
)
def test_one_bad_tool_refuses_the_whole_manifest(good, change, reason):
    other = {**good["tools"][0], "name": "other"}
    with pytest.raises(Misconfigured, match=f"is refused: .*{reason}"):
        parsed({**good, "tools": [{**good["tools"][0], **change}, other]})


def test_one_name_twice_is_refused(manifest):
    with pytest.raises(Misconfigured, match="'a' stands there twice"):
        parsed(manifest(BASE, "a", "b", "a"))


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_manifest_at_all(body):
    with pytest.raises(Misconfigured, match="is refused"):
        parsed(body)


def test_older_dialects_are_checked_as_such(good):
    # "items" as a list was right in draft 7, and is wrong in 2020-12.
    schema = {"properties": {"pair": {"items": [{"type": "string"}, {"type": "number"}]}}}
    old = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    assert parsed({**good, "tools": [{**good["tools"][0], "inputSchema": old}]})
    with pytest.raises(Misconfigured, match="not a JSON Schema"):
        parsed({**good, "tools": [{**good["tools"][0], "inputSchema": schema}]})


def test_references_within_the_schema_are_fine(good):
    schema = {"$defs": {"City": {"type": "string"}}, "properties": {"city": {"$ref": "#/$defs/City"}}}
    assert parsed({**good, "tools": [{**good["tools"][0], "inputSchema": schema}]})


def test_a_property_may_be_called_ref(good):
    schema = {"properties": {"$ref": {"type": "string"}}}
    assert parsed({**good, "tools": [{**good["tools"][0], "inputSchema": schema}]})


def test_reading_a_cached_manifest_loads_no_schema_library():
    code = (
        "import sys; from infinity_agents.wire import rap; "
        "rap.read_manifest({'name': 'n', 'endpoint': 'https://a.b/i', 'tools': [{'name': 't', 'description': '',"
        "'inputSchema': {}}]}, 'https://a.b'); sys.exit('jsonschema' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestAddresses:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("https://a.example.com", "https://A.EXAMPLE.com:443/x?y#z"),
            ("http://127.0.0.1", "http://127.0.0.1:80/"),
            ("http://[::1]:80", "http://[::1]/"),
        ],
    )
    def test_one_origin(self, one, other):
        assert origin(one) == origin(other)

    @pytest.mark.parametrize("url", ["http://localhost:1", "http://127.0.0.1", "http://127.9.9.9", "http://[::1]:5"])
    def test_http_on_this_machine_is_secure(self, url):
        assert secure_url(url) == url

    @pytest.mark.parametrize(
        "url",
        ["http://example.com", "http://localhost.example.com", "http://127.0.0.1.example.com", "http://10.0.0.1"],
    )
    def test_http_elsewhere_is_not(self, url):
        with pytest.raises(ValueError, match="must be https"):
            secure_url(url)


class TestSegments:
    def test_a_reader_shows_the_first_that_it_knows(self):
        segments = [{"type": "hologram"}, {"type": "diff", "content": {"path": "a"}}, {"type": "text", "content": "x"}]
        assert rap.first_known_segment(segments) == rap.TextSegment(content="x")

    def test_it_may_know_none(self):
        assert rap.first_known_segment([{"type": "hologram"}, {}]) is None

    def test_diffs_and_images(self):
        diff = {"type": "diff", "content": {"path": "a", "patch": "+b"}}
        image = {"type": "image", "content": {"data": "aGk=", "mediaType": "image/png"}}
        assert rap.first_known_segment([diff]).to_json() == diff
        assert rap.first_known_segment([image]).to_json() == image


class TestInvocation:
    def test_what_is_left_out_for_a_root_without_a_user(self):
        fields = rap.Invocation(operation="t", arguments={}, id="c", callback_url="https://a.b/c", group_id="g")
        assert fields.to_json() == {
            "operation": "t",
            "arguments": {},
            "id": "c",
            "call_id": None,
            "callback_url": "https://a.b/c",
            "group_id": "g",
        }

    def test_null_arguments_of_the_model_stay_null(self):
        fields = rap.Invocation(operation="t", arguments={"a": None}, id="c", callback_url="https://a.b/", group_id="g")
        assert fields.to_json()["arguments"] == {"a": None}
