"""The checks of any server: what they say of one that keeps the protocol, and of those that break one rule each."""

import asyncio
import json

import pytest

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.errors import Misconfigured
from infinity_agents.rap.conformance import RULES, check
from infinity_agents.rap.server import ToolContext, ToolServer
from tests.rap.conftest import MANIFEST_PATH, Answer, finished
from tests.rap.test_rap_toolsets import WITH_PASSWORDS


@pytest.fixture(autouse=True)
def _smaller(monkeypatch):
    """A body that is too large takes a while to send; servers here have a limit to match."""
    monkeypatch.setattr("infinity_agents.rap.conformance.OVERSIZE", 200_000)
    monkeypatch.setattr("infinity_agents.rap.server.MAX_REQUEST", 100_000)
    monkeypatch.setattr("infinity_agents.rap.server.SHUTDOWN_GRACE", 0.05)


@pytest.fixture
def verdicts(http):
    """Checks a server and returns rule -> verdicts, the findings being at hand in ``verdicts.findings``."""

    async def checked(url, **options):
        findings = await check(url, **{"http": http, "patience": 5, "settle": 0.05, **options})
        assert [finding.rule for finding in findings] == sorted(
            (finding.rule for finding in findings), key=list(RULES).index
        )
        assert {finding.rule for finding in findings} == set(RULES)
        assert all(finding.seen and finding.expected for finding in findings)
        checked.findings = findings
        return {rule: {finding.verdict for finding in findings if finding.rule == rule} for rule in RULES}

    return checked


def broken(found):
    return {rule for rule, verdicts in found.items() if "broken" in verdicts}


def seen(verdicts, rule):
    return "; ".join(finding.seen for finding in verdicts.findings if finding.rule == rule)


@pytest.fixture
def runs():
    return []


@pytest.fixture
def offered(runs):
    """Puts the same tools on any server."""

    def on(kit):
        @kit.tool(read_only=True)
        def count(number: int = 1) -> str:
            """Count."""
            runs.append("count")
            return f"{len(runs)} and {number}"

        @kit.tool(destructive=True)
        def destroy(name: str) -> str:
            """Destroy."""
            runs.append(f"destroy {name}")
            return "destroyed"

        return kit

    return on


@pytest.fixture
def kit(kit, offered):
    return offered(kit)


class Changed:
    """A server in front of which something breaks the protocol.

    ``change`` gets method, path and body, and returns a status to answer with, or the body that the server gets.
    """

    def __init__(self, kit, change):
        self.kit = kit
        self.change = change

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.kit(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        changed = self.change(scope["method"], scope["path"], body)
        if isinstance(changed, int):
            headers = [(b"content-length", b"0"), (b"location", b"/elsewhere")]
            await send({"type": "http.response.start", "status": changed, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return

        async def receive_changed():
            return {"type": "http.request", "body": changed}

        await self.kit(scope, receive_changed, send)


def invocation_in(body):
    """The operation of a whole invocation of usual size, or ``None``."""
    try:
        fields = json.loads(body) if len(body) < 1000 else {}
    except ValueError:
        return None
    is_whole = isinstance(fields, dict) and "/callback/" in fields.get("callback_url", "")
    return fields.get("operation") if is_whole else None


class TestGoodServers:
    async def test_the_kit_keeps_every_rule(self, kit, serve, verdicts, runs):
        found = await verdicts(await serve(kit))
        assert found.pop("migrate") == found.pop("credentials") == {"skipped"}
        assert {rule: found[rule] for rule in found if found[rule] != {"ok"}} == {}
        assert runs == ["count"]

    async def test_a_tool_that_is_not_safe_is_called_only_with_an_example(self, kit, serve, verdicts, runs):
        found = await verdicts(await serve(kit), examples={"destroy": {"name": "it"}})
        assert broken(found) == set()
        assert sorted(runs) == ["count", "destroy it"]

    async def test_with_a_token(self, serve, offered, verdicts):
        async def secret(name):
            return {"token": "s3cret"}[name]

        http = HttpxClient(bearer=secret)
        kit = offered(ToolServer(name="t", bearer_token="s3cret"))
        found = await verdicts(await serve(kit), http=http, auth="bearer:token")
        await http.aclose()
        assert (broken(found), found["credentials"]) == (set(), {"ok"})

    async def test_a_tool_that_asks_or_needs_arguments_is_left_alone(self, serve, verdicts):
        kit = ToolServer(name="t")

        @kit.tool(read_only=True)
        async def order(ctx: ToolContext) -> str:
            """Order."""
            return await ctx.ask("Which?", ["tea", "coffee"])

        @kit.tool(read_only=True)
        def look_up(word: str) -> str:
            """Look up."""
            return word

        found = await verdicts(await serve(kit))
        assert (broken(found), found["done-once"]) == (set(), {"skipped"})
        assert seen(verdicts, "done-once") == "order: it asks a person first"

    async def test_a_refusal_at_once_does_as_well_as_an_error_result(self, kit, serve, verdicts):
        def change(method, path, body):
            return 404 if invocation_in(body) == "no_such_tool__conformance" else body

        found = await verdicts(await serve(Changed(kit, change)))
        assert (broken(found), found["unknown-tool"]) == (set(), {"ok"})
        assert "HTTP 404" in seen(verdicts, "unknown-tool")

    async def test_no_subscription_is_left_behind(self, kit, serve, verdicts):
        @kit.subscription(read_only=True)
        async def watch():
            """Watch."""
            await asyncio.Event().wait()
            yield "never"

        assert broken(await verdicts(await serve(kit))) == set()
        await asyncio.wait_for(finished(kit), 2)


def answers(status, *, when):
    """Returns the change by which requests for which ``when(method, path, body)`` holds are answered otherwise."""
    return lambda method, path, body: status if when(method, path, body) else body


def says(old, new):
    """Returns the change by which the server understands something else than was said."""
    return lambda method, path, body: body.replace(old, new)


BREAKAGES = {
    "a redirect": (
        answers(307, when=lambda method, path, body: path == MANIFEST_PATH and method == "GET"),
        {"discovery", "no-redirects"},
    ),
    "a page for every path": (
        answers(200, when=lambda method, path, body: path.startswith("/no_such")),
        {"unknown-path"},
    ),
    "a page at the endpoint": (
        answers(200, when=lambda method, path, body: (method, path) == ("GET", "/invoke")),
        {"wrong-method"},
    ),
    "no lifecycle": (
        answers(404, when=lambda method, path, body: path in ("/close_thread", "/cancel_tool_call")),
        {"close_thread", "cancel_tool_call"},
    ),
    "a crash over an unknown tool": (
        answers(500, when=lambda method, path, body: invocation_in(body) == "no_such_tool__conformance"),
        {"unknown-tool"},
    ),
    "a crash over a known one": (
        answers(500, when=lambda method, path, body: invocation_in(body) == "count"),
        {"accepted", "bad-arguments"},
    ),
    "a crash over what is no invocation": (
        answers(500, when=lambda method, path, body: (method, path) == ("POST", "/invoke") and len(body) < 3),
        {"malformed-bodies"},
    ),
    "no limit": (
        answers(200, when=lambda method, path, body: len(body) > 100_000),
        {"oversize"},
    ),
    "another status": (
        answers(202, when=lambda method, path, body: invocation_in(body) == "count"),
        {"accepted", "bad-arguments", "done-once"},
    ),
    "callbacks about another call": (says(b'"id": "call-', b'"id": "other-'), {"callbacks"}),
    "callbacks about another thread": (says(b'"group_id": "conf', b'"group_id": "Conf'), {"callbacks"}),
}


class TestBrokenServers:
    @pytest.mark.parametrize("breakage", BREAKAGES)
    async def test_a_rule_is_broken(self, kit, serve, verdicts, breakage):
        change, rules = BREAKAGES[breakage]
        patience = 0.1 if breakage == "another status" else 5
        assert broken(await verdicts(await serve(Changed(kit, change)), patience=patience)) == rules

    async def test_repeats_that_are_done_again(self, kit, serve, verdicts, runs):
        class Forgetful(type(kit)):
            def _invoke(self, body, base_url):
                self._known.clear()
                super()._invoke(body, base_url)

        kit.__class__ = Forgetful
        found = await verdicts(await serve(kit))
        assert broken(found) == {"done-once"}
        assert seen(verdicts, "done-once") == "count: 3 result(s) for 3 posts"
        assert len(runs) == 3

    async def test_arguments_that_nobody_checks(self, kit, serve, verdicts, monkeypatch):
        monkeypatch.setattr("infinity_agents.rap.functions.FunctionTool.bound", lambda self, arguments, context: {})
        found = await verdicts(await serve(kit))
        assert broken(found) == {"bad-arguments"}
        assert "no error, '1 and 1'" in seen(verdicts, "bad-arguments") or "2 and 1" in seen(verdicts, "bad-arguments")

    async def test_an_endpoint_elsewhere_is_sent_nothing(self, serve, verdicts, offered, runs):
        kit = offered(ToolServer(name="t", url="https://elsewhere.example.com"))
        found = await verdicts(await serve(kit))
        assert broken(found) == {"endpoint"}
        assert found["done-once"] == found["accepted"] == {"skipped"}
        assert runs == []

    @pytest.mark.parametrize(
        ("change", "rule", "reason"),
        [
            ({"name": ""}, "manifest", "name: String should have at least 1 character"),
            ({"tools": []}, "manifest", "tools: "),
            ({"tools": [{"name": "a b", "description": "", "inputSchema": {}}]}, "manifest", "tools.0.name"),
            ({"tools": [{"name": "a", "description": ""}]}, "manifest", "tools.0.inputSchema: Field required"),
            (
                {"tools": [{"name": "a", "description": "", "inputSchema": {"type": "thing"}}]},
                "input-schemas",
                "not a JSON Schema",
            ),
            (
                {"tools": [{"name": "a", "description": "", "inputSchema": {"$ref": "https://x.example"}}]},
                "input-schemas",
                "leads outside the schema",
            ),
        ],
    )
    async def test_manifests(self, raw_server, verdicts, manifest, change, rule, reason):
        def answer(request):
            made = {**manifest(server.url), **change}
            return Answer.of(made) if request.path == MANIFEST_PATH else Answer(400)

        server = await raw_server(answer)
        assert rule in broken(await verdicts(server.url))
        assert reason in seen(verdicts, rule)

    async def test_a_server_that_never_calls_back(self, raw_server, verdicts, manifest):
        def answer(request):
            if request.path != MANIFEST_PATH:
                return Answer()
            made = manifest(server.url)
            made["tools"][0]["annotations"] = {"readOnly": True}
            return Answer.of(made)

        server = await raw_server(answer)
        found = await verdicts(server.url, patience=0.1)
        assert {"unknown-tool", "bad-arguments", "done-once", "malformed-bodies", "oversize"} <= broken(found)
        assert "no callback within 0.1 seconds" in seen(verdicts, "done-once")
        assert found["callbacks"] == {"skipped"}

    async def test_callbacks_that_say_nothing(self, serve, verdicts, client):
        class Mute(ToolServer):
            async def _deliver(self, result, invocation):
                fields = {key: value for key, value in result.to_json().items() if key != "text"}
                answer = await client.post(invocation.callback_url, content=json.dumps(fields))
                assert answer.status_code == 400

        kit = Mute(name="t")

        @kit.tool(read_only=True)
        def count() -> int:
            """Count."""
            return 1

        found = await verdicts(await serve(kit), patience=0.2)
        assert "callbacks" in broken(found)
        assert "needs text or content" in seen(verdicts, "callbacks")

    async def test_no_token_is_wanted(self, kit, serve, verdicts):
        async def secret(name):
            return "s3cret"

        http = HttpxClient(bearer=secret)
        assert broken(await verdicts(await serve(kit), http=http, auth="bearer:token")) == {"credentials"}
        await http.aclose()

    async def test_nobody_is_there(self, verdicts):
        found = await verdicts("http://127.0.0.1:1")
        assert found["discovery"] == {"broken"}
        assert found["done-once"] == found["unknown-tool"] == {"skipped"}
        assert "no answer" in seen(verdicts, "discovery")


class TestBadInput:
    @pytest.mark.parametrize("url", ["", "weather", "ftp://x.example.com", "http://tools.example.com"])
    async def test_what_is_no_url(self, verdicts, url):
        with pytest.raises(Misconfigured, match="of a tool server"):
            await verdicts(url)

    @pytest.mark.parametrize("url", WITH_PASSWORDS)
    async def test_no_error_tells_a_password(self, client, url):
        with pytest.raises(Misconfigured) as refused:
            await check(url, http=client)
        assert "hunter" not in str(refused.value)

    async def test_examples_that_do_not_fit(self, kit, serve, verdicts, runs):
        url = await serve(kit)
        with pytest.raises(Misconfigured, match="there is no tool 'other' for the example; there are: count, destroy"):
            await verdicts(url, examples={"other": {}})
        with pytest.raises(Misconfigured, match="for destroy do not fit its inputSchema: 'name' is a required"):
            await verdicts(url, examples={"destroy": {}})
        assert runs == []
