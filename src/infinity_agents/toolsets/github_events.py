"""The server of GitHub events: a repository's webhook tells it what happens, and it tells whoever asked for that.

| group | key | record |
|---|---|---|
| ``repo#OWNER/NAME`` | thread and call | ``handle``, and ``filters`` or ``check`` |
| ``waiting#THREAD`` | call | ``about`` |
| ``checks#OWNER/NAME#SHA`` | kind, id, attempt | ``of``, ``attempt``, ``name``, ``url``, ``conclusion`` (or ``null``) |
| ``delivery#ID`` | ``seen`` | nothing: everybody was told |
"""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from ..conversation.content import shown
from ..errors import InfinityError
from ..ports.blobs import BlobStore
from ..ports.records import Record, RecordTable
from ..rap.posting import CallbackSender, Undelivered, answer_with, push_with
from ..rap.results import LATER, Event, Later
from ..rap.server import ToolContext, ToolServer
from ..wire.bodies import parse_json
from .github_api import WHOLE_SHA, GitHubApi, GitHubRefused
from .waiting import Waiting, forget_when_over

CHECKS_KEPT = timedelta(days=14)
DELIVERIES_KEPT = timedelta(days=7)
"""GitHub delivers again what is three days old at most."""
PAGE = 50_000
"""The characters of a whole event that one call of ``get_github_event`` returns."""

LONGEST = 6_000
"""The characters that are told of one event."""
PAUSES = (5.0, 10.0, 15.0)
"""Seconds before GitHub is asked again which has no checks of a commit yet: those of a new one take a moment."""

_PATIENCE = 5.0
"""Seconds for which telling one conversation is tried again: GitHub waits 10 seconds, and API Gateway 29."""
_LONGEST_BODY = 2_000
_MOST_COMMITS = 10
_PASSED = {"success", "neutral", "skipped"}

_Owner = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,39}$", description="A user or organisation")]
_Repository = Annotated[
    str,
    # No name of dots alone: in a path, that is another place.
    Field(pattern=r"^[._]*[A-Za-z0-9_-][A-Za-z0-9._-]*$", max_length=100, description="Its name, without the owner"),
]
_Ref = Annotated[
    str,
    Field(
        pattern=r"^[^\s~^:?*\[\\.][^\s~^:?*\[\\]*$",
        max_length=255,
        description="A commit's hash, all of its 40 digits or the first ones, or the name of a branch or a tag",
    ),
]


class BadDelivery(InfinityError):
    """The delivery is refused: ``status`` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


# ------------------------------------------------------------------------------------------------- the tools


def github_server(
    records: RecordTable,
    blobs: BlobStore,
    api: GitHubApi | None = None,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ToolServer:
    """Return the server, which keeps in ``records`` who waits for what, and reads whole events from ``blobs``.

    Without an ``api`` to ask, it knows of checks what the webhook tells, and says so to the model. ``sleep`` waits
    between two questions.
    """
    server = ToolServer(name="github-events", description="Tells what happens in repositories on GitHub.")
    known = _KnownChecks(records, api, sleep)

    @server.subscription(idempotent=True, display_script='"GitHub events of " + args.owner + "/" + args.repo')
    async def subscribe_github_events(
        owner: _Owner,
        repo: _Repository,
        ctx: ToolContext,
        *,
        event_types: Annotated[
            list[str] | None, Field(description="Such as push, pull_request, issue_comment; all by default")
        ] = None,
        actions: Annotated[list[str] | None, Field(description="Such as opened, labeled; all by default")] = None,
        branch: Annotated[
            str | None, Field(description="Pushes to it, pull requests from or into it, its runs")
        ] = None,
        actor: Annotated[str | None, Field(description="The login of whoever does it")] = None,
        sha: Annotated[str | None, Field(pattern="^[0-9a-f]{7,40}$", description="A commit")] = None,
        pull_request: Annotated[int | None, Field(ge=1, description="A pull request's number")] = None,
        issue: Annotated[int | None, Field(ge=1, description="An issue's number")] = None,
        include_own: Annotated[bool, Field(description="Tell also of what this agent's own account does")] = False,
    ) -> str:
        """Tell of events in a GitHub repository as they happen. Without filters, of all; filters must all hold.

        The repository's webhook must deliver to this server.
        """
        filters = Filters(
            tuple(event_types or ()),
            tuple(actions or ()),
            branch,
            actor,
            sha,
            pull_request,
            issue,
            include_own=include_own,
        )
        await Waiting(_waiting_for(f"{owner}/{repo}"), ctx.thread_id, ctx.call_id).put(
            records, {"handle": ctx.handle, "filters": filters.to_json()}
        )
        return f"Subscribed to events of {owner}/{repo}."

    async def check_github_actions(
        owner: _Owner,
        repo: _Repository,
        ref: _Ref,
        ctx: ToolContext,
        check: Annotated[str | None, Field(description="The name of a check or workflow; all by default")] = None,
    ) -> Later:
        repository = f"{owner}/{repo}"
        sha = await known.commit(repository, ref)
        waiting = Waiting(_waiting_for(repository), ctx.thread_id, ctx.call_id)
        # This first: of what ends while GitHub is asked, the webhook tells.
        await waiting.put(records, {"handle": ctx.handle, "check": {"sha": sha, "name": check}})
        try:
            outcome = await known.outcome(repository, sha, check, waiting)
        except Exception:
            await waiting.delete(records)
            raise
        if outcome is not None and await waiting.lasts(records):
            await server.answer(ctx.handle, outcome)
            await waiting.delete(records)
        return LATER

    check_github_actions.__doc__ = _CHECK + (_ASKS if api else _CANNOT_ASK)
    server.tool(idempotent=True, long_running=True)(check_github_actions)

    @server.tool(read_only=True)
    async def get_github_event(
        event: Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="As an event named it")],
        path: Annotated[str, Field(description="What of it, such as pull_request.body; all by default")] = "",
        offset: Annotated[int, Field(ge=0, description="The character to begin with")] = 0,
    ) -> str:
        """Return a GitHub event as GitHub sent it, as JSON, or a part of it."""
        try:
            value = parse_json(await blobs.get(event))
        except KeyError as error:
            raise ValueError(f"there is no event {event}; it was never told of, or is too old") from error
        text = json.dumps(_part(value, path), ensure_ascii=False, indent=1)
        rest = len(text) - offset - PAGE
        return text[offset : offset + PAGE] + (f"\n… {rest} more from offset={offset + PAGE}" if rest > 0 else "")

    forget_when_over(server, records)
    return server


def _part(value: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            inner = ", ".join(list(value)[:50]) if isinstance(value, dict) else type(value).__name__
            raise ValueError(f"there is no {name!r} in {path!r}; there is: {inner}") from error
    return value


def _waiting_for(repository: str) -> str:
    return f"repo#{repository.lower()}"


# --------------------------------------------------------------------------------------------- the checks

_CHECK = "Answer when the checks of a commit are over: the named one, or all of them.\n\n"
_ASKS = """
What is over already is answered at once. A commit that has no checks after half a minute, or none of that name when
all others are over, is an error. The repository's webhook must deliver check runs and workflow runs to this server.
"""
_CANNOT_ASK = """
This server has no token to ask GitHub with: it needs all 40 digits of the hash, and knows of checks what the
repository's webhook told it. For a check that was over before the webhook was there, no answer ever comes.
"""


class _KnownChecks:
    """What is known of commits' checks: what the webhook told, and what GitHub says that is asked."""

    def __init__(self, records: RecordTable, api: GitHubApi | None, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._records = records
        self._api = api
        self._sleep = sleep

    async def commit(self, repository: str, ref: str) -> str:
        """Return the whole hash of a commit.

        Raises:
            ValueError: there is nobody to ask.
            GitHubRefused: there is no such commit, or GitHub does not say.
        """
        if WHOLE_SHA.fullmatch(ref):
            return ref
        if self._api is None:
            raise ValueError(f"{ref!r} is no whole hash of a commit, and this server cannot ask GitHub; give 40 digits")
        return await self._api.commit(repository, ref)

    async def outcome(self, repository: str, sha: str, name: str | None, waiting: Waiting) -> Record | None:
        """Return how the wanted checks ended; ``None`` while the webhook is still to tell, or ``waiting`` is over.

        Raises:
            ValueError: there are no such checks.
            GitHubRefused: GitHub does not say what there is, and nobody told.
        """
        if self._api is None:
            return _outcome(await self._told(repository, sha), sha, name)
        told: Sequence[Record] = ()
        for pause in (*PAUSES, None):
            refusal = await self._ask(self._api, repository, sha)
            told = await self._told(repository, sha)
            outcome = _outcome(told, sha, name)
            if outcome is not None or any(check["conclusion"] is None for check in told):
                return outcome
            if refusal is not None and (pause is None or not refusal.is_passing):
                raise refusal
            if pause is not None:
                await self._sleep(pause)
                if not await waiting.lasts(self._records):
                    return None
        if told:
            there = ", ".join(sorted({check["name"] for check in told}))
            raise ValueError(f"the checks of {sha} are over, and none is named {name!r}; there are: {there}")
        raise ValueError(f"GitHub has no checks of {sha} in {repository}; if it is new, ask again in a minute")

    async def _ask(self, api: GitHubApi, repository: str, sha: str) -> GitHubRefused | None:
        """Keep what GitHub says of a commit's checks; return why it says nothing."""
        try:
            checks = await api.checks(repository, sha)
        except GitHubRefused as error:
            return error
        for kind, fields in checks:
            await _keep_check(self._records, repository, sha, kind, fields)
        return None

    async def _told(self, repository: str, sha: str) -> Sequence[Record]:
        return _newest(await self._records.all(_checks(repository, sha)))


def _checks(repository: str, sha: str) -> str:
    return f"checks#{repository.lower()}#{sha}"


async def _keep_check(records: RecordTable, repository: str, sha: str, kind: str, fields: Mapping[str, Any]) -> None:
    """Keep what the ``fields`` of a check run or a workflow run say, which GitHub may tell in any order."""
    is_over = fields.get("status") == "completed"
    # A workflow that runs again is the same run, and its jobs are new checks of the same names in the same suite.
    attempt = fields.get("run_attempt") if kind == "workflow_run" else fields.get("id")
    suite = _at(fields, "check_suite", "id")
    record = {
        "of": f"workflow {fields.get('id')}" if kind == "workflow_run" else f"check {suite} {fields.get('name')}",
        "attempt": attempt if isinstance(attempt, int) else 0,
        "name": str(fields.get("name") or ""),
        "conclusion": str(fields.get("conclusion") or "unknown") if is_over else None,
        "url": fields.get("html_url"),
    }
    # What is said late of an attempt that is over by now says nothing.
    put = records.put if is_over else records.put_new
    key = f"{kind}#{fields.get('id')}#{record['attempt']}"
    await put(_checks(repository, sha), key, record, kept=CHECKS_KEPT)


def _newest(records: Mapping[str, Record]) -> list[Record]:
    """Return the last attempt of each check."""
    by_attempt = sorted(records.values(), key=lambda check: check["attempt"])
    return list({check["of"]: check for check in by_attempt}.values())


def _outcome(checks: Sequence[Record], sha: str, name: str | None) -> dict[str, Any] | None:
    """Return how the wanted checks of a commit ended; ``None`` while they run, or are not known yet."""
    wanted = [check for check in checks if name is None or check["name"] == name]
    if not wanted or any(check["conclusion"] is None for check in wanted):
        return None
    return {
        "sha": sha,
        "passed": all(check["conclusion"] in _PASSED for check in wanted),
        "checks": [{field: check[field] for field in ("name", "conclusion", "url")} for check in wanted],
    }


# ------------------------------------------------------------------------------------------- the deliveries


@dataclass(frozen=True, slots=True)
class Webhook:
    """Takes GitHub's deliveries, each of which proves itself by ``secret``, and tells whoever waits for them.

    ``agent_login`` is the account that the agent itself acts by.
    """

    secret: bytes
    records: RecordTable
    blobs: BlobStore
    sender: CallbackSender
    agent_login: str | None = None

    async def take(self, headers: Mapping[str, str], body: bytes) -> str:
        """Tell whoever waits for the delivery; return what was done. ``headers`` have names in small letters.

        Raises:
            BadDelivery: it is not GitHub's, or cannot be read.
            StoreUnavailable: not everybody was told; the same delivery again is harmless.
            Undelivered: as above.
        """
        self._admit(headers.get("x-hub-signature-256", ""), body)
        kind, delivery_id = headers.get("x-github-event", ""), headers.get("x-github-delivery", "")
        if not kind or not 0 < len(delivery_id) <= 128:
            raise BadDelivery(400, "X-GitHub-Event or X-GitHub-Delivery is missing")
        delivered = _read(headers, body, kind)
        if delivered is None:
            return f"nothing to tell of a {kind}"
        if await self.records.get(f"delivery#{delivery_id}", "seen") is not None:
            return "told before"
        await self._tell(delivered, delivery_id, body)
        await self.records.put(f"delivery#{delivery_id}", "seen", {}, kept=DELIVERIES_KEPT)
        return "told"

    def _admit(self, signature: str, body: bytes) -> None:
        wanted = "sha256=" + hmac.digest(self.secret, body, "sha256").hex()
        if not hmac.compare_digest(signature.encode(), wanted.encode()):
            raise BadDelivery(401, "X-Hub-Signature-256 is missing or wrong; set the webhook's secret to this server's")

    async def _tell(self, delivered: "Delivered", delivery_id: str, body: bytes) -> None:
        if delivered.kind in ("check_run", "workflow_run") and delivered.sha:
            told = delivered.repository, delivered.sha, delivered.kind, delivered.subject
            await _keep_check(self.records, *told)
        waiting = await self.records.all(_waiting_for(delivered.repository))
        sha256 = hashlib.sha256(body).hexdigest()
        is_kept = False
        for key, record in waiting.items():
            waiter = Waiting.named(_waiting_for(delivered.repository), key)
            if "check" in record:
                await self._answer(waiter, record, delivered)
            elif Filters(**record["filters"]).let_through(delivered, self.agent_login):
                if not is_kept:
                    await self.blobs.put(sha256, body)
                    is_kept = True
                text = f"{delivered.told()}\nAll of it: get_github_event(event={sha256!r})"
                await self._push(waiter, record, Event(text, event_id=delivery_id))

    async def _push(self, waiter: Waiting, record: Record, event: Event) -> None:
        try:
            await push_with(self.sender, record["handle"], event, patience=_PATIENCE)
        except Undelivered as error:
            await self._forget_if_refused(waiter, error)

    async def _answer(self, waiter: Waiting, record: Record, delivered: "Delivered") -> None:
        sha, name = record["check"]["sha"], record["check"]["name"]
        if sha != delivered.sha:
            return
        outcome = _outcome(_newest(await self.records.all(_checks(delivered.repository, sha))), sha, name)
        if outcome is None:
            return
        try:
            await answer_with(self.sender, record["handle"], outcome, patience=_PATIENCE)
        except Undelivered as error:
            await self._forget_if_refused(waiter, error)
        else:
            await waiter.delete(self.records)

    async def _forget_if_refused(self, waiter: Waiting, error: Undelivered) -> None:
        """Forget who is not there any more: one of many must not keep the others from being told."""
        if error.status not in (401, 403, 404, 410):
            raise error
        await waiter.delete(self.records)


def _read(headers: Mapping[str, str], body: bytes, kind: str) -> "Delivered | None":
    if not headers.get("content-type", "").startswith("application/json"):
        raise BadDelivery(415, "the webhook's content type must be application/json; change it in its settings")
    try:
        payload = parse_json(body)
    except InfinityError as error:
        raise BadDelivery(400, str(error)) from error
    if not isinstance(payload, dict):
        raise BadDelivery(400, "the delivery is no JSON object")
    repository = _at(payload, "repository", "full_name")
    if kind == "ping" or not isinstance(repository, str):
        return None
    return Delivered(kind, repository, payload)


_SUBJECTS = {
    "issues": "issue",
    "issue_comment": "issue",
    "pull_request_review": "pull_request",
    "pull_request_review_comment": "pull_request",
    "pull_request_review_thread": "pull_request",
    "discussion_comment": "discussion",
    "deployment_status": "deployment",
    "deployment_review": "workflow_run",
    "code_scanning_alert": "alert",
    "dependabot_alert": "alert",
    "secret_scanning_alert": "alert",
    "repository_vulnerability_alert": "alert",
    "branch_protection_rule": "rule",
    "deploy_key": "key",
    "fork": "forkee",
    "page_build": "build",
}
"""What an event is about, where that field is not called as the event."""
_PARTS = ("review", "comment", "deployment_status")
_TITLES = ("title", "full_name", "name", "tag_name", "login", "note", "environment")
_FACTS = (
    "state",
    "status",
    "conclusion",
    "environment",
    "description",
    "path",
    "line",
    "head_sha",
    "sha",
    "target_url",
    "html_url",
)
_OTHERS = {
    "label": "name",
    "assignee": "login",
    "requested_reviewer": "login",
    "requested_team": "name",
    "milestone": "title",
    "member": "login",
    "team": "name",
}
"""What else an event may name, and by which field."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What happened: the event's ``kind``, as GitHub calls it, and its ``payload``."""

    kind: str
    repository: str
    payload: Mapping[str, Any]

    @property
    def action(self) -> str:
        """What was done, such as ``opened``; empty where GitHub does not say."""
        return str(self.payload.get("action") or "")

    @property
    def actor(self) -> str:
        """The login of whoever did it."""
        return str(_at(self.payload, "sender", "login") or "")

    @property
    def subject(self) -> Mapping[str, Any]:
        """What it is about: the pull request, the run, the issue, ..."""
        if self.kind == "status":  # the one event whose own fields are what it is about
            return {**self.payload, "name": self.payload.get("context")}
        found = self.payload.get(_SUBJECTS.get(self.kind, self.kind))
        return found if isinstance(found, dict) else {}

    @property
    def part(self) -> tuple[str, Mapping[str, Any]]:
        """What is new about its subject, such as a review of the pull request, and what that is."""
        for name in _PARTS:
            found = self.payload.get(name)
            if isinstance(found, dict):
                return name, found
        return "", {}

    @property
    def shas(self) -> frozenset[str]:
        """The commits that it is about."""
        _, part = self.part
        named = [
            self.payload.get("after"),
            self.payload.get("sha"),
            self.payload.get("commit_oid"),
            self.subject.get("head_sha"),
            self.subject.get("sha"),
            self.subject.get("commit"),
            _at(self.subject, "head", "sha"),
            _at(self.subject, "most_recent_instance", "commit_sha"),
            _at(self.payload, "workflow_run", "head_sha"),
            part.get("commit_id"),
            *(_at(commit, "id") for commit in _list(self.payload.get("commits"))),
        ]
        return frozenset(sha for sha in named if isinstance(sha, str))

    @property
    def sha(self) -> str:
        """The commit that a check is of; else empty."""
        return str(self.subject.get("head_sha") or "")

    @property
    def branches(self) -> frozenset[str]:
        """The branches that it is about."""
        refs = [
            None if self.payload.get("ref_type") == "tag" else self.payload.get("ref"),
            self.payload.get("branch"),
            self.subject.get("head_branch"),
            self.subject.get("base_ref"),
            self.subject.get("ref"),
            _at(self.subject, "check_suite", "head_branch"),
            _at(self.subject, "head", "ref"),
            _at(self.subject, "base", "ref"),
            _at(self.payload, "workflow_run", "head_branch"),
            *(_at(branch, "name") for branch in _list(self.payload.get("branches"))),
        ]
        named = [ref.removeprefix("refs/heads/") for ref in refs if isinstance(ref, str)]
        return frozenset(name for name in named if name and not name.startswith("refs/"))

    @property
    def pull_requests(self) -> frozenset[int]:
        """The numbers of the pull requests that it is about."""
        named = [_at(pull, "number") for pull in _list(self.subject.get("pull_requests"))]
        if "pull_request" in self.payload or "pull_request" in self.subject:
            named.append(self.subject.get("number"))
        return frozenset(number for number in named if isinstance(number, int))

    @property
    def issue(self) -> int | None:
        """The number of the issue that it is about."""
        number = _at(self.payload, "issue", "number")
        return number if isinstance(number, int) else None

    def told(self) -> str:
        """Return what a model needs of it, in a few lines."""
        subject, (name, part) = self.subject, self.part
        number = f" #{subject['number']}" if isinstance(subject.get("number"), int) else ""
        title = next((subject[field] for field in _TITLES if subject.get(field) and _is_plain(subject[field])), "")
        lines = [
            f"{self.kind} {self.action}".strip()
            + f" in {self.repository}{number} by {self.actor}: {title}".rstrip(": ")
        ]
        if self.branches:
            lines.append(f"branches: {', '.join(sorted(self.branches))}")
        elif isinstance(self.payload.get("ref"), str):
            lines.append(f"ref: {self.payload['ref']}")
        lines += [f"{fact}: {subject[fact]}" for fact in _FACTS if _is_plain(subject.get(fact))]
        lines += [f"{name} {fact}: {part[fact]}" for fact in _FACTS if _is_plain(part.get(fact))]
        lines += [
            f"{other}: {_at(self.payload, other, field)}"
            for other, field in _OTHERS.items()
            if other != self.kind and _is_plain(_at(self.payload, other, field))
        ]
        lines += [
            f"commit {str(_at(commit, 'id'))[:12]} by {_at(commit, 'author', 'name')}: {_first_line(commit)}"
            for commit in _list(self.payload.get("commits"))[:_MOST_COMMITS]
        ]
        more = len(_list(self.payload.get("commits"))) - _MOST_COMMITS
        if more > 0:
            lines.append(f"and {more} more commits")
        said = part.get("body") if part else subject.get("body")
        if isinstance(said, str) and said:
            lines.append(said if len(said) <= _LONGEST_BODY else f"{said[:_LONGEST_BODY]}… ({len(said)} characters)")
        text = shown("\n".join(line[: _LONGEST_BODY + 50] for line in lines))
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@dataclass(frozen=True, slots=True)
class Filters:
    """Which events a subscription wants: those for which everything holds that is set."""

    event_types: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    branch: str | None = None
    actor: str | None = None
    sha: str | None = None
    pull_request: int | None = None
    issue: int | None = None
    include_own: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def let_through(self, delivered: Delivered, agent_login: str | None) -> bool:
        """Return whether the subscription wants ``delivered``; ``agent_login`` is the agent's own account."""
        sha = self.sha
        is_own = agent_login is not None and delivered.actor.lower() == agent_login.lower()
        return (
            (self.include_own or not is_own)
            and (not self.event_types or delivered.kind in self.event_types)
            and (not self.actions or delivered.action in self.actions)
            and (self.branch is None or self.branch in delivered.branches)
            and (self.actor is None or delivered.actor.lower() == self.actor.lower())
            and (sha is None or any(known.startswith(sha) for known in delivered.shas))
            and (self.pull_request is None or self.pull_request in delivered.pull_requests)
            and (self.issue is None or delivered.issue == self.issue)
        )


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) and value != ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _first_line(commit: Any) -> str:
    return str(_at(commit, "message") or "").partition("\n")[0][:200]
