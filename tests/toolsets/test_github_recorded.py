"""Deliveries of all types that GitHub was recorded to make, signed: each is taken, and found by what it is about."""

import hmac
import json
import shutil
import subprocess

import pytest

from infinity_agents.toolsets.github_events import LONGEST, BadDelivery, Delivered, Filters
from tests.aws_adapters.conftest import aws, clients, deployed, pauses, running_aws
from tests.toolsets import test_github_events, test_github_webhook
from tests.toolsets.test_github_events import blobs, records, server
from tests.toolsets.waiting import running

__all__ = ["aws", "blobs", "clients", "deployed", "pauses", "records", "running_aws", "server"]
pytestmark = pytest.mark.slow

deliver = test_github_events.deliver
deliver_to_lambda = test_github_webhook.deliver
PACKAGE = "@octokit/webhooks-examples@7.6.1"
SHAS = {
    "check_run": ["check_run.head_sha"],
    "check_suite": ["check_suite.head_sha"],
    "code_scanning_alert": ["commit_oid", "alert.most_recent_instance.commit_sha"],
    "commit_comment": ["comment.commit_id"],
    "deployment": ["deployment.sha"],
    "deployment_review": ["workflow_run.head_sha"],
    "deployment_status": ["deployment.sha"],
    "merge_group": ["merge_group.head_sha"],
    "page_build": ["build.commit"],
    "pull_request": ["pull_request.head.sha"],
    "pull_request_review": ["pull_request.head.sha", "review.commit_id"],
    "pull_request_review_comment": ["pull_request.head.sha", "comment.commit_id"],
    "pull_request_review_thread": ["pull_request.head.sha"],
    "push": ["after", "commits.id"],
    "status": ["sha"],
    "workflow_job": ["workflow_job.head_sha"],
    "workflow_run": ["workflow_run.head_sha"],
}
BRANCHES = {
    "check_run": ["check_run.check_suite.head_branch"],
    "check_suite": ["check_suite.head_branch"],
    "code_scanning_alert": ["ref"],
    "create": ["ref"],
    "delete": ["ref"],
    "deployment": ["deployment.ref"],
    "deployment_review": ["workflow_run.head_branch"],
    "deployment_status": ["deployment.ref"],
    "merge_group": ["merge_group.base_ref"],
    "pull_request": ["pull_request.head.ref", "pull_request.base.ref"],
    "pull_request_review": ["pull_request.head.ref", "pull_request.base.ref"],
    "pull_request_review_comment": ["pull_request.head.ref", "pull_request.base.ref"],
    "pull_request_review_thread": ["pull_request.head.ref", "pull_request.base.ref"],
    "push": ["ref"],
    "repository_dispatch": ["branch"],
    "status": ["branches.name"],
    "workflow_dispatch": ["ref"],
    "workflow_job": ["workflow_job.head_branch"],
    "workflow_run": ["workflow_run.head_branch"],
}
PULL_REQUESTS = {
    "check_run": ["check_run.pull_requests.number"],
    "check_suite": ["check_suite.pull_requests.number"],
    "deployment_review": ["workflow_run.pull_requests.number"],
    "workflow_run": ["workflow_run.pull_requests.number"],
    "pull_request": ["number"],
    **{f"pull_request_{part}": ["pull_request.number"] for part in ("review", "review_comment", "review_thread")},
}
ISSUES = {"issues": ["issue.number"], "issue_comment": ["issue.number"]}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The pairs of a type and a payload."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    place = tmp_path_factory.mktemp("recorded")
    subprocess.run(["npm", "install", "--prefix", place, "--no-audit", "--no-fund", PACKAGE], cwd=place, check=True)
    index = place / "node_modules/@octokit/webhooks-examples/api.github.com/index.json"
    found = [(kind["name"], example) for kind in json.loads(index.read_text()) for example in kind["examples"]]
    assert len({kind for kind, _ in found}) > 50
    return found


def values(payload, paths):
    """What stands at the paths, through lists."""
    for path in paths:
        found = [payload]
        for name in path.split("."):
            found = [value.get(name) for value in found if isinstance(value, dict)]
            found = [item for value in found for item in (value if isinstance(value, list) else [value])]
        yield from (value for value in found if value is not None)


def branch_of(payload, ref):
    is_other = payload.get("ref_type") == "tag" or ref.startswith(("refs/tags/", "refs/pull/"))
    return None if is_other else ref.removeprefix("refs/heads/")


async def test_each_is_told_once(recorded, server, deliver):
    repositories = {payload["repository"]["full_name"] for _, payload in recorded if payload.get("repository")}
    async with running(server) as (runtime, call, _):
        for number, repository in enumerate(sorted(repositories)):
            owner, repo = repository.split("/")
            await call("subscribe_github_events", f"call-{number}", owner=owner, repo=repo)
        for number, (kind, payload) in enumerate(recorded):
            runtime.callbacks.clear()
            body = json.dumps(payload).encode()
            is_told = payload.get("repository") is not None and kind != "ping"
            for done in ("told", "told before") if is_told else (f"nothing to tell of a {kind}",) * 2:
                assert await deliver(kind, f"d-{number}", body=body) == done, (kind, number)
            assert len(runtime.callbacks) == is_told, (kind, number)
            if is_told:
                (event,) = runtime.callbacks
                assert event["text"].startswith(f"{kind} {payload.get('action') or ''}".strip())
                assert f" in {payload['repository']['full_name']}" in event["text"]
                assert f" by {payload['sender']['login']}" in event["text"]
                assert len(event["text"]) < LONGEST + 200
            with pytest.raises(BadDelivery):
                await deliver(
                    kind, f"e-{number}", body=body, signature="sha256=" + hmac.digest(b"", body, "sha256").hex()
                )


def test_each_is_found_by_what_it_is_about(recorded):
    filtered = 0
    for kind, payload in recorded:
        if not payload.get("repository"):
            continue
        delivered = Delivered(kind, payload["repository"]["full_name"], payload)
        branches = [branch_of(payload, ref) for ref in values(payload, BRANCHES.get(kind, ()))]
        right = [
            *({"event_types": (kind,)}, {"actor": payload["sender"]["login"].upper()}),
            *({"actions": (action,)} for action in [payload.get("action")] if action),
            *({"sha": sha} for sha in values(payload, SHAS.get(kind, ()))),
            *({"sha": sha[:7]} for sha in values(payload, SHAS.get(kind, ()))),
            *({"branch": branch} for branch in branches if branch),
            *({"pull_request": number} for number in values(payload, PULL_REQUESTS.get(kind, ()))),
            *({"issue": number} for number in values(payload, ISSUES.get(kind, ()))),
        ]
        filtered += len(right)
        for fields in right:
            assert Filters(**fields).let_through(delivered, None), (kind, fields)
        wrong = [{"event_types": ("x",)}, {"actions": ("x",)}, {"sha": "0123456"}, {"branch": "x"}, {"actor": "x"}]
        wrong += [{"pull_request": 99_999}, {"issue": 99_999}, {"branch": "refs/tags/simple-tag"}]
        wrong += [{"branch": "simple-tag"}] if payload.get("ref_type") == "tag" else []
        for fields in wrong:
            assert not Filters(**fields).let_through(delivered, None), (kind, fields)
        assert not Filters().let_through(delivered, payload["sender"]["login"])
    assert filtered > 1_000


def test_each_is_taken_by_the_function(recorded, deliver_to_lambda):
    taken = {True: 0, False: 0}
    for number, (kind, payload) in enumerate(recorded):
        is_told = payload.get("repository") is not None and kind != "ping"
        done = "told" if is_told else f"nothing to tell of a {kind}"
        named = {"kind": kind, "delivery_id": f"d-{number}", "rest": number % 2 == 0}
        assert deliver_to_lambda(payload, **named) == (200, {"ok": True, "done": done})
        assert deliver_to_lambda(payload, key=b"another", **named)[0] == 401
        taken[is_told] += 1
    assert taken[True] > 250
    assert taken[False] > 20


def test_the_fields_of_the_quick_tests_are_those_of_github(recorded):
    """What is written by hand has no field that no recording has, and none of another type."""
    for kind, fields in test_github_events.DELIVERIES.items():
        known = [shape(payload) for name, payload in recorded if name == kind]
        for path, kinds in shape(fields).items():
            seen = set().union(*(each.get(path, set()) for each in known))
            # What is null in all recordings is a text elsewhere.
            assert kinds <= seen or seen == {"NoneType"}, (kind, path, kinds, seen)


def shape(value, path=""):
    """Return the types of JSON at each path."""
    found = {path: {type(value).__name__}}
    inner = (
        value.items()
        if isinstance(value, dict)
        else (("[]", item) for item in value)
        if isinstance(value, list)
        else ()
    )
    for name, each in inner:
        for inner_path, kinds in shape(each, f"{path}.{name}").items():
            found.setdefault(inner_path, set()).update(kinds)
    return found
