"""``check_github_actions`` asks GitHub first: what is over is answered at once, and the webhook tells of the rest."""

import ssl
from contextlib import asynccontextmanager

import httpx
import pytest

from infinity_agents.rap.asgi import serving
from infinity_agents.toolsets.github_api import GitHubApi
from infinity_agents.toolsets.github_events import PAUSES, github_server
from tests.toolsets.github_standin import TOKEN, Answer, GitHub
from tests.toolsets.test_github_events import HERE, RUN, SHA, blobs, check, deliver, records, result_of
from tests.toolsets.waiting import conforms, running

__all__ = ["blobs", "deliver", "records"]


def run(number=30433642, conclusion="success", **fields):
    status = "completed" if conclusion else "in_progress"
    return {**RUN, "id": number, "status": status, "conclusion": conclusion, **fields}


def made(name="test", number=1, conclusion="success", **fields):
    return {**check(name, number, conclusion)["check_run"], **fields}


TLS = ssl.create_default_context()
"""Made once: it reads every certificate there is, and nothing here is encrypted."""


@pytest.fixture
def github():
    github = GitHub("Octocat/Hello-World")
    github.refs |= {"main": SHA, "feature/ü#1": SHA}
    return github


@pytest.fixture
def asking(github, records, blobs):
    """A runtime, and a server that asks ``github``. It made the ``pauses``; ``meanwhile`` happens in each."""

    @asynccontextmanager
    async def opened(token=TOKEN, down=False):
        async def known():
            return token

        async def sleep(seconds):
            opened.pauses.append(seconds)
            for happens in opened.meanwhile:
                await happens()

        async with serving(github, "127.0.0.1", 0) as url, httpx.AsyncClient(verify=TLS) as client:
            api = GitHubApi(known, client, url="http://127.0.0.1:1" if down else url)
            async with running(github_server(records, blobs, api, sleep=sleep)) as opened_server:
                yield opened_server

    opened.pauses, opened.meanwhile = [], []
    return opened


class TestAsking:
    async def test_what_is_over_is_answered_at_once(self, asking, github, records):
        github.checks[:] = [made("test", 1), made("lint", 2, "failure")]
        github.runs[:] = [run()]
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        result = result_of(runtime)
        assert (result["sha"], result["passed"]) == (SHA, False)
        assert {told["name"]: told["conclusion"] for told in result["checks"]} == {
            "test": "success",
            "lint": "failure",
            "Build": "success",
        }
        assert await records.all("waiting#thread-1") == {}
        assert github.asked == [
            f"/repos/octocat/hello-world/commits/{SHA}/check-runs?filter=latest&per_page=100&page=1",
            f"/repos/octocat/hello-world/actions/runs?head_sha={SHA}&per_page=100&page=1",
        ]

    async def test_all_pages_are_read(self, asking, github):
        github.checks[:] = [made(f"test {number}", number) for number in range(1, 251)]
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        assert len(result_of(runtime)["checks"]) == 250
        assert len(github.asked) == 4

    async def test_the_named_check_is_enough(self, asking, github):
        github.checks[:] = [made("test", 1), made("lint", 2, None)]
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA, check="test")
        assert [told["name"] for told in result_of(runtime)["checks"]] == ["test"]

    async def test_of_what_was_done_again_the_last_counts(self, asking, github):
        github.checks[:] = [made("test", 1, "failure"), made("test", 2)]
        github.runs[:] = [run(run_attempt=2)]
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        assert result_of(runtime)["passed"]

    async def test_the_webhook_tells_of_what_still_runs(self, asking, github, deliver):
        github.checks[:] = [made("test", 1), made("lint", 2, None)]
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
            assert runtime.callbacks == []
            await deliver("check_run", change={"check_run": made("lint", 2)})
        assert {told["name"] for told in result_of(runtime)["checks"]} == {"test", "lint"}

    @pytest.mark.parametrize("github_knows", [True, False])
    async def test_what_ends_while_github_is_asked_is_answered_once(
        self, asking, github, deliver, records, github_knows
    ):
        github.checks[:] = [made("test", 1, None)]

        class Ends(GitHub):
            async def __call__(self, scope, receive, send):
                if scope["type"] == "http" and "check-runs" in scope["path"]:
                    await deliver("check_run", change={"check_run": made("test", 1)})
                    github.checks[:] = [made("test", 1, "success" if github_knows else None)]
                await super().__call__(scope, receive, send)

        github.__class__ = Ends
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        assert result_of(runtime)["passed"]
        assert await records.all("waiting#thread-1") == {}

    @pytest.mark.parametrize("ref", ["main", "feature/ü#1", SHA[:7]])
    async def test_a_branch_or_a_short_hash_names_a_commit(self, asking, github, ref):
        github.checks[:] = [made()]
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=ref)
        assert result_of(runtime)["sha"] == SHA
        assert len(github.asked) == 3


class TestNoChecks:
    async def test_a_new_commit_gets_its_checks_in_a_moment(self, asking, github):
        async def begin():
            if len(asking.pauses) == 2:
                github.checks[:] = [made()]

        asking.meanwhile.append(begin)
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        assert result_of(runtime)["passed"]
        assert asking.pauses == [*PAUSES[:2]]

    async def test_none_at_all_is_an_error(self, asking, records):
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref="main")
        (result,) = runtime.told("tool_result")
        assert result["is_error"]
        assert f"GitHub has no checks of {SHA} in octocat/hello-world" in result["text"]
        assert asking.pauses == [*PAUSES]
        assert await records.all("waiting#thread-1") == {}

    async def test_none_of_that_name_is_an_error_when_the_others_are_over(self, asking, github):
        github.checks[:] = [made("test", 1), made("lint", 2)]
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA, check="tset")
        (result,) = runtime.told("tool_result")
        assert result["is_error"]
        assert "none is named 'tset'; there are: lint, test" in result["text"]

    async def test_one_of_that_name_may_come_while_others_run(self, asking, github, deliver):
        github.runs[:] = [run(conclusion=None)]
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA, check="deploy")
            assert (runtime.callbacks, asking.pauses) == ([], [])
            await deliver("check_run", change={"check_run": made("deploy", 9)})
        assert [told["name"] for told in result_of(runtime)["checks"]] == ["deploy"]

    @pytest.mark.parametrize("ends", ["answered", "cancelled"])
    async def test_nobody_is_asked_any_more_when_the_call_is_over(self, asking, github, deliver, ends):
        async with asking() as (runtime, call, notice):

            async def end():
                if ends == "answered":
                    await deliver("check_run")
                else:
                    await notice("/cancel_tool_call", thread_id="thread-1", tool_call_id="call-1")

            asking.meanwhile.append(end)
            await call("check_github_actions", **HERE, ref=SHA)
        assert len(runtime.told("tool_result")) == (1 if ends == "answered" else 0)
        assert len(github.asked) == 2


LIMITED = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1796000000"}
REFUSALS = {
    "no permission": (Answer(403, {"message": "Resource not accessible"}), "the token may not read this"),
    "rate limit": (Answer(403, {"message": "API rate limit exceeded"}, LIMITED), "ask again at 2026-11-30 00:53 UTC"),
    "many at once": (Answer(403, {"message": "…"}, {"retry-after": "60"}), "ask again in 60 seconds"),
    "too many": (Answer(429, {"message": "…"}), "takes no more requests of this token: ask again in some minutes"),
    "no such commit": (Answer(422, {"message": "No commit found for SHA"}), "answers 422: there is no such commit"),
    "renamed": (Answer(301, {"message": "Moved Permanently"}, {"location": "/repositories/1/x"}), "another name now"),
    "no JSON": (Answer(200, "<html>"), "holds no check_runs"),
    "other JSON": (Answer(200, {"total_count": 1, "check_runs": [5]}), "holds no check_runs"),
}


class TestRefusals:
    @pytest.mark.parametrize("refusal", REFUSALS)
    async def test_a_refusal_is_an_error(self, asking, github, records, refusal):
        answer, said = REFUSALS[refusal]
        github.next.append(answer)
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        (result,) = runtime.told("tool_result")
        assert result["is_error"]
        assert said in result["text"]
        assert (asking.pauses, len(github.asked)) == ([], 1)
        assert await records.all("waiting#thread-1") == {}

    @pytest.mark.parametrize(("repo", "ref"), [("other", SHA), ("hello-world", "no-such-branch")])
    async def test_what_is_not_there_is_an_error(self, asking, repo, ref):
        async with asking() as (runtime, call, _):
            await call("check_github_actions", owner="octocat", repo=repo, ref=ref)
        (result,) = runtime.told("tool_result")
        assert "there is no such" in result["text"]

    @pytest.mark.parametrize("token", ["ghp_0utdated", "ghp_in two\nlines", "ghp_ünder"])
    async def test_a_wrong_token_is_an_error_and_is_never_told(self, asking, token, caplog):
        async with asking(token) as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        (result,) = runtime.told("tool_result")
        assert result["is_error"]
        assert token[4:] not in result["text"] + caplog.text

    async def test_a_line_end_after_the_token_harms_nothing(self, asking, github):
        github.checks[:] = [made()]
        async with asking(f"{TOKEN}\n") as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        assert result_of(runtime)["passed"]

    async def test_what_passes_is_asked_again(self, asking, github):
        github.checks[:] = [made()]
        github.next += [Answer(502, "bad gateway"), Answer(503, {})]
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        assert result_of(runtime)["passed"]
        assert len(asking.pauses) == 2

    async def test_a_github_that_is_down_is_an_error(self, asking):
        async with asking(down=True) as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
        (result,) = runtime.told("tool_result")
        assert "does not answer (ConnectError)" in result["text"]
        assert len(asking.pauses) == len(PAUSES)

    @pytest.mark.parametrize("conclusion", ["success", None])
    async def test_then_what_the_webhook_told_is_enough(self, asking, github, deliver, conclusion):
        await deliver("check_run", "d-1", change=check(conclusion=conclusion))
        github.next.append(Answer(401, {"message": "Bad credentials"}))
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **HERE, ref=SHA)
            assert len(runtime.callbacks) == (1 if conclusion else 0)
            await deliver("check_run", "d-2", change=check())
        assert result_of(runtime)["passed"]

    @pytest.mark.parametrize("arguments", [{"repo": ".."}, {"repo": "."}, {"ref": ".."}, {"ref": "a b"}, {"ref": ""}])
    async def test_no_name_leads_to_another_path(self, asking, github, arguments):
        async with asking() as (runtime, call, _):
            await call("check_github_actions", **{**HERE, "ref": SHA, **arguments})
        (result,) = runtime.told("tool_result")
        assert (result["is_error"], github.asked) == (True, [])


async def test_the_server_keeps_the_protocol(github, records, blobs):
    async def known():
        return TOKEN

    github.checks[:] = [made()]
    await blobs.put("0" * 64, b"{}")
    examples = {
        "subscribe_github_events": {**HERE, "event_types": ["push"]},
        "check_github_actions": {**HERE, "ref": "main"},
        "get_github_event": {"event": "0" * 64},
    }
    async with serving(github, "127.0.0.1", 0) as url, httpx.AsyncClient(verify=TLS) as client:
        await conforms(github_server(records, blobs, GitHubApi(known, client, url=url)), examples)


class TestWithoutAToken:
    async def test_the_model_is_told_so(self, records, blobs):
        told = {tool.name: tool.description for tool in github_server(records, blobs).offered}
        assert "has no token to ask GitHub with" in told["check_github_actions"]

    async def test_a_branch_is_refused(self, records, blobs):
        async with running(github_server(records, blobs)) as (runtime, call, _):
            await call("check_github_actions", **HERE, ref="main")
        (result,) = runtime.told("tool_result")
        assert "'main' is no whole hash of a commit" in result["text"]
