"""The server of GitHub events: signed deliveries, as GitHub sends them, reach those who asked for them, once."""

import hashlib
import hmac
import json

import pytest

from infinity_agents.adapters.memory import MemoryBlobStore
from infinity_agents.adapters.memory_records import MemoryRecords
from infinity_agents.rap.posting import CallbackSender, Undelivered
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.toolsets.github_events import BadDelivery, Webhook, github_server
from tests.toolsets.waiting import running

SECRET = b"It's a Secret to Everybody"
SHA = "1a" * 20
REPOSITORY = {"id": 1296269, "name": "Hello-World", "full_name": "Octocat/Hello-World"}
SENDER = {"login": "monalisa", "id": 2, "type": "User"}
PULL_REQUEST = {
    "number": 7,
    "state": "open",
    "title": "Update the README",
    "body": "Plainly better.",
    "html_url": "https://github.com/Octocat/Hello-World/pull/7",
    "head": {"ref": "changes", "sha": SHA},
    "base": {"ref": "main", "sha": "2b" * 20},
    "user": {"login": "monalisa"},
}
CHECK = {
    "id": 128620228,
    "name": "test",
    "head_sha": SHA,
    "status": "completed",
    "conclusion": "success",
    "html_url": "https://github.com/Octocat/Hello-World/runs/128620228",
    "check_suite": {"id": 118578147, "head_branch": "changes"},
    "pull_requests": [{"number": 7}],
}
RUN = {
    "id": 30433642,
    "run_attempt": 1,
    "name": "Build",
    "head_branch": "changes",
    "head_sha": SHA,
    "status": "completed",
    "conclusion": "failure",
    "html_url": "https://github.com/Octocat/Hello-World/actions/runs/30433642",
    "pull_requests": [],
}
ISSUE = {"number": 3, "title": "Spelling", "state": "open", "body": "Teh."}
COMMIT = {"id": SHA, "message": "Fix it\n\nat length", "author": {"name": "Mona"}}
DELIVERIES = {
    "push": {"ref": "refs/heads/main", "after": SHA, "commits": [COMMIT]},
    "pull_request": {"action": "opened", "number": 7, "pull_request": PULL_REQUEST},
    "pull_request_review": {
        "action": "submitted",
        "review": {"state": "approved", "body": "Good."},
        "pull_request": PULL_REQUEST,
    },
    "issues": {"action": "opened", "issue": ISSUE},
    "issue_comment": {"action": "created", "issue": ISSUE, "comment": {"body": "Indeed."}},
    "check_run": {"action": "completed", "check_run": CHECK},
    "workflow_run": {"action": "completed", "workflow_run": RUN},
    "release": {"action": "published", "release": {"tag_name": "v1", "name": "One", "body": "First."}},
    "create": {"ref": "v1", "ref_type": "tag"},
    "star": {"action": "created"},
}


@pytest.fixture
def records():
    return MemoryRecords(FrozenClock())


@pytest.fixture
def blobs():
    return MemoryBlobStore()


@pytest.fixture
def server(records, blobs):
    return github_server(records, blobs)


@pytest.fixture
def deliver(records, blobs):
    """Delivers an event as GitHub does; ``change`` changes the payload."""

    async def delivered(kind, delivery_id="d-1", *, change=None, body=None, signature=None, login="robot", **headers):
        payload = {**DELIVERIES.get(kind, {}), "repository": REPOSITORY, "sender": SENDER, **(change or {})}
        body = json.dumps(payload).encode() if body is None else body
        told = {
            "content-type": "application/json",
            "x-github-event": kind,
            "x-github-delivery": delivery_id,
            "x-hub-signature-256": signature or "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest(),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        sender = CallbackSender(sleep=no_sleep)
        try:
            return await Webhook(SECRET, records, blobs, sender, login).take(told, body)
        finally:
            await sender.aclose()

    return delivered


async def no_sleep(seconds):
    pass


HERE = {"owner": "octocat", "repo": "hello-world"}


class TestSubscription:
    @pytest.mark.parametrize("kind", DELIVERIES)
    async def test_every_kind_of_event_is_told(self, server, deliver, kind):
        async with running(server) as (runtime, call, _):
            await call("subscribe_github_events", **HERE)
            assert await deliver(kind) == "told"
        (event,) = runtime.told("subscription_event")
        first = event["text"].splitlines()[0]
        assert first.startswith(kind)
        assert "Octocat/Hello-World" in first
        assert "monalisa" in first
        assert (event["event_id"], event["final"]) == ("d-1", False)

    @pytest.mark.parametrize(
        ("filters", "kinds"),
        [
            ({"event_types": ["push", "star"]}, "push star"),
            ({"actions": ["opened"]}, "pull_request issues"),
            ({"branch": "main"}, "push pull_request pull_request_review"),
            ({"branch": "changes"}, "pull_request pull_request_review check_run workflow_run"),
            ({"actor": "MonaLisa", "event_types": ["star"]}, "star"),
            ({"actor": "somebody"}, ""),
            ({"sha": SHA[:8]}, "push pull_request pull_request_review check_run workflow_run"),
            ({"sha": "3c" * 20}, ""),
            ({"pull_request": 7}, "pull_request pull_request_review check_run"),
            ({"issue": 3}, "issues issue_comment"),
            ({"issue": 3, "actions": ["created"]}, "issue_comment"),
        ],
        ids=str,
    )
    async def test_filters(self, server, deliver, filters, kinds):
        async with running(server) as (runtime, call, _):
            await call("subscribe_github_events", **HERE, **filters)
            for number, kind in enumerate(DELIVERIES):
                await deliver(kind, f"d-{number}")
        assert [event["text"].split()[0] for event in runtime.told("subscription_event")] == kinds.split()

    async def test_the_agents_own_doings_are_told_only_if_asked_for(self, server, deliver):
        async with running(server) as (runtime, call, _):
            await call("subscribe_github_events", **HERE)
            await call("subscribe_github_events", "call-2", **HERE, include_own=True)
            await deliver("push", login="MONALISA")
        assert [event["tool_call_id"] for event in runtime.told("subscription_event")] == ["call-2"]

    async def test_other_repositories_are_not_told_of(self, server, deliver):
        async with running(server) as (runtime, call, _):
            await call("subscribe_github_events", owner="octocat", repo="other")
            await deliver("push")
        assert runtime.told("subscription_event") == []

    async def test_a_huge_event_is_trimmed_and_whole_on_request(self, server, deliver):
        long = "ä" * 200_000
        async with running(server) as (runtime, call, _):
            await call("subscribe_github_events", **HERE)
            await deliver("issues", change={"issue": {**ISSUE, "body": long}})
            (event,) = runtime.told("subscription_event")
            assert len(event["text"]) < 3_000
            name = event["text"].rpartition("event='")[2].rstrip("')")
            await call("get_github_event", "call-2", event=name, path="issue.body", offset=100_000)
            await call("get_github_event", "call-3", event=name, path="issue.title")
            await call("get_github_event", "call-4", event=name, path="issue.titel")
            await call("get_github_event", "call-5", event="0" * 64)
        _, page, title, wrong, gone = (result["text"] for result in runtime.told("tool_result"))
        assert page.count("ä") == 50_000
        assert "more from offset=150000" in page
        assert title == '"Spelling"'
        assert "there is no 'titel' in 'issue.titel'; there is: number, title" in wrong
        assert "there is no event 000" in gone

    @pytest.mark.parametrize(
        ("path", "fields"),
        [
            ("/cancel_tool_call", {"thread_id": "thread-1", "tool_call_id": "call-1"}),
            ("/close_thread", {"thread_id": "thread-1"}),
        ],
    )
    async def test_nobody_is_told_who_does_not_listen(self, server, deliver, path, fields):
        async with running(server) as (runtime, call, notice):
            await call("subscribe_github_events", **HERE)
            await notice(path, **fields)
            await deliver("push")
        assert runtime.told("subscription_event") == []


class TestDeliveries:
    @pytest.mark.parametrize("signature", ["", "sha256=", "sha256=" + "0" * 64, "sha1=00", "sha256=\xe9"])
    async def test_what_is_not_signed_is_refused(self, server, deliver, signature):
        async with running(server) as (runtime, call, _):
            await call("subscribe_github_events", **HERE)
            with pytest.raises(BadDelivery) as refused:
                await deliver("push", x_hub_signature_256=signature)
        assert refused.value.status == 401
        assert runtime.told("subscription_event") == []

    async def test_a_signature_is_of_these_very_bytes(self, deliver):
        body = json.dumps({"repository": REPOSITORY}).encode()
        signature = "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
        with pytest.raises(BadDelivery):
            await deliver("push", body=body + b" ", signature=signature)

    async def test_a_repeat_is_dropped(self, server, deliver):
        async with running(server) as (runtime, call, _):
            await call("subscribe_github_events", **HERE)
            assert [await deliver("push"), await deliver("push")] == ["told", "told before"]
            await deliver("push", "d-2")
        assert [event["event_id"] for event in runtime.told("subscription_event")] == ["d-1", "d-2"]

    async def test_one_that_failed_is_told_when_it_comes_again(self, server, deliver):
        async with running(server) as (runtime, call, _):
            await call("subscribe_github_events", **HERE)
            runtime.statuses[:] = [503] * 20
            with pytest.raises(Undelivered):
                await deliver("push")
            runtime.statuses.clear()
            assert await deliver("push") == "told"
        assert len(runtime.told("subscription_event")) == 1

    async def test_who_is_gone_keeps_nobody_from_being_told(self, server, deliver, records):
        async with running(server) as (runtime, call, _):
            await call("subscribe_github_events", "call-1", **HERE)
            await call("subscribe_github_events", "call-2", **HERE)
            runtime.statuses[:] = [401]
            assert await deliver("push") == "told"
        assert [event["tool_call_id"] for event in runtime.told("subscription_event")] == ["call-2"]
        assert [*await records.all("waiting#thread-1")] == ["call-2"]

    @pytest.mark.parametrize(
        ("body", "headers", "status"),
        [
            (b"payload=%7B%7D", {"content_type": "application/x-www-form-urlencoded"}, 415),
            (b"", {}, 400),
            (b"[]", {}, 400),
            (b"\xff", {}, 400),
            (b"[" * 100_000, {}, 400),
            (b"{}", {"x_github_delivery": ""}, 400),
        ],
    )
    async def test_what_cannot_be_read_is_refused(self, deliver, body, headers, status):
        with pytest.raises(BadDelivery) as refused:
            await deliver("push", body=body, **headers)
        assert refused.value.status == status

    @pytest.mark.parametrize("payload", [{}, {"repository": 5}, {"repository": {"full_name": None}}])
    async def test_what_is_of_no_repository_is_told_to_nobody(self, deliver, payload):
        assert await deliver("installation", body=json.dumps(payload).encode()) == "nothing to tell of a installation"

    async def test_a_ping_is_taken(self, deliver):
        assert await deliver("ping") == "nothing to tell of a ping"

    async def test_odd_fields_harm_nothing(self, server, deliver):
        odd = {"action": 5, "sender": None, "ref": [], "commits": "x", "pull_request": {"number": "7", "head": []}}
        async with running(server) as (runtime, call, _):
            await call("subscribe_github_events", **HERE)
            await deliver("pull_request", change=odd)
            await deliver("push", "d-2", change={"commits": [5, {}], "sender": {"login": "\x1b[31m\ud800"}})
        assert len(runtime.told("subscription_event")) == 2
        assert "\x1b" not in runtime.callbacks[-1]["text"]


def result_of(runtime):
    (result,) = runtime.told("tool_result")
    return json.loads(result["text"])


def check(name="test", number=1, conclusion="success"):
    status = {"status": "completed" if conclusion else "in_progress", "conclusion": conclusion}
    return {"check_run": {**CHECK, "name": name, "id": number, **status}}


class TestChecks:
    async def test_the_named_check_answers(self, server, deliver, records):
        async with running(server) as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA, check="test")
            await deliver("check_run", "d-1", change=check(conclusion=None))
            await deliver("check_run", "d-2", change=check("lint", 2))
            assert runtime.callbacks == []
            await deliver("check_run", "d-3", change=check(conclusion="failure"))
            await deliver("check_run", "d-4", change=check(conclusion="failure"))
        result = result_of(runtime)
        assert (result["passed"], [made["conclusion"] for made in result["checks"]]) == (False, ["failure"])
        assert await records.all("waiting#thread-1") == {}

    async def test_all_checks_answer_when_the_last_is_over(self, server, deliver):
        async with running(server) as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
            await deliver("workflow_run", "d-0", change={"workflow_run": {**RUN, "status": "queued"}})
            await deliver("check_run", "d-1", change=check("test", 1))
            await deliver("check_run", "d-2", change=check("lint", 2, conclusion="skipped"))
            assert runtime.callbacks == []
            await deliver("workflow_run", "d-3", change={"workflow_run": {**RUN, "conclusion": "success"}})
        result = result_of(runtime)
        assert result["passed"]
        assert {made["name"] for made in result["checks"]} == {"test", "lint", "Build"}

    async def test_what_was_over_before_is_answered_at_once(self, server, deliver):
        await deliver("check_run")
        async with running(server) as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        assert result_of(runtime)["passed"]

    async def test_what_is_told_late_changes_nothing(self, server, deliver):
        await deliver("check_run", "d-1", change=check())
        await deliver("check_run", "d-2", change=check(conclusion=None))
        async with running(server) as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        assert result_of(runtime)["passed"]

    async def test_the_last_attempt_counts(self, server, deliver):
        again = {**RUN, "run_attempt": 2, "status": "in_progress", "conclusion": None}
        async with running(server) as (runtime, call, _):
            await deliver("check_run", "d-1", change=check("test", 1, conclusion="failure"))
            await deliver("workflow_run", "d-2", change={"workflow_run": RUN})
            await deliver("workflow_run", "d-3", change={"workflow_run": again})
            await call("check_github_actions", **HERE, ref=SHA)
            await deliver("check_run", "d-4", change=check("test", 2))
            assert runtime.callbacks == []
            await deliver(
                "workflow_run", "d-5", change={"workflow_run": {**RUN, "run_attempt": 2, "conclusion": "success"}}
            )
        assert result_of(runtime)["passed"]

    async def test_another_commit_is_not_meant(self, server, deliver):
        async with running(server) as (runtime, call, _):
            await call("check_github_actions", **HERE, ref="3c" * 20)
            await deliver("check_run")
        assert runtime.callbacks == []
