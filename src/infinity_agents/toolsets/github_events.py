"""The server of GitHub events: a repository's webhook tells it what happens, and it tells whoever asked for that.

| group | key | record |
|---|---|---|
| ``repo#OWNER/NAME`` | thread and call | ``handle``, and ``filters`` or ``check`` |
| ``waiting#THREAD`` | call | ``about`` |
| ``checks#OWNER/NAME#SHA`` | kind and id | ``name``, ``conclusion`` (``null`` while it runs), ``url`` |
| ``delivery#ID`` | ``seen`` | nothing: everybody was told |
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
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
from ..wire.rap import parse_json
from .waiting import Waiting, forget_when_over

CHECKS_KEPT = timedelta(days=14)
DELIVERIES_KEPT = timedelta(days=7)
"""GitHub delivers again what is three days old at most."""
PAGE = 50_000
"""The characters of a whole event that one call of ``get_github_event`` returns."""

_PATIENCE = 5.0
"""Seconds for which telling one conversation is tried again: GitHub waits 10 seconds, and API Gateway 29."""
_LONGEST_BODY = 2_000
_MOST_COMMITS = 10
_PASSED = {"success", "neutral", "skipped"}

_Owner = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,39}$", description="A user or organisation")]
_Repository = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$", description="Its name, without the owner")]
_Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", description="All 40 digits of a commit's hash")]


class BadDelivery(InfinityError):
    """The delivery is refused: ``status`` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


# ------------------------------------------------------------------------------------------------- the tools


def github_server(records: RecordTable, blobs: BlobStore) -> ToolServer:
    """Return the server, which keeps in ``records`` who waits for what, and reads whole events from ``blobs``."""
    server = ToolServer(name="github-events", description="Tells what happens in repositories on GitHub.")

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

    @server.tool(idempotent=True, long_running=True)
    async def check_github_actions(
        owner: _Owner,
        repo: _Repository,
        sha: _Sha,
        ctx: ToolContext,
        check: Annotated[str | None, Field(description="The name of a check or workflow; all by default")] = None,
    ) -> Later:
        """Answer when the checks of a commit are over: the named one, or all that GitHub has told of."""
        repository = f"{owner}/{repo}"
        waiting = Waiting(_waiting_for(repository), ctx.thread_id, ctx.call_id)
        await waiting.put(records, {"handle": ctx.handle, "check": {"sha": sha, "name": check}})
        # It may have ended before that was written, and then nobody would say so again.
        outcome = _outcome(await records.all(_checks(repository, sha)), sha, check)
        if outcome is not None:
            await server.answer(ctx.handle, outcome)
            await waiting.delete(records)
        return LATER

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


def _checks(repository: str, sha: str) -> str:
    return f"checks#{repository.lower()}#{sha}"


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
        for key, record in delivered.checks():
            await self.records.put(_checks(delivered.repository, delivered.sha), key, record, kept=CHECKS_KEPT)
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
        outcome = _outcome(await self.records.all(_checks(delivered.repository, sha)), sha, name)
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
        for name in ("pull_request", "issue", "check_run", "check_suite", "workflow_run", "release", "deployment"):
            if isinstance(self.payload.get(name), dict):
                found: Mapping[str, Any] = self.payload[name]
                return found
        return {}

    @property
    def shas(self) -> frozenset[str]:
        """The commits that it is about."""
        named = [
            self.payload.get("after"),
            self.payload.get("sha"),
            self.subject.get("head_sha"),
            self.subject.get("sha"),
            _at(self.subject, "head", "sha"),
            _at(self.payload, "comment", "commit_id"),
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
        ref = self.payload.get("ref")
        named = [
            ref.removeprefix("refs/heads/") if isinstance(ref, str) else None,
            self.subject.get("head_branch"),
            _at(self.subject, "check_suite", "head_branch"),
            _at(self.subject, "head", "ref"),
            _at(self.subject, "base", "ref"),
            *(_at(branch, "name") for branch in _list(self.payload.get("branches"))),
        ]
        return frozenset(branch for branch in named if isinstance(branch, str))

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

    def checks(self) -> Iterator[tuple[str, Record]]:
        """Return what it says of a commit's checks: a key, and what is known of that check now."""
        if self.kind not in ("check_run", "workflow_run") or not self.sha:
            return
        fields = self.subject
        is_over = fields.get("status") == "completed"
        yield (
            f"{self.kind}#{fields.get('id')}",
            {
                "name": str(fields.get("name") or ""),
                "conclusion": str(fields.get("conclusion") or "unknown") if is_over else None,
                "url": fields.get("html_url"),
            },
        )

    def told(self) -> str:
        """Return what a model needs of it, in a few lines."""
        subject = self.subject
        number = f" #{subject['number']}" if isinstance(subject.get("number"), int) else ""
        title = subject.get("title") or subject.get("name") or subject.get("tag_name") or ""
        lines = [
            f"{self.kind} {self.action}".strip()
            + f" in {self.repository}{number} by {self.actor}: {title}".rstrip(": ")
        ]
        if self.branches:
            lines.append(f"branches: {', '.join(sorted(self.branches))}")
        facts = ("state", "status", "conclusion", "head_sha", "html_url")
        lines += [f"{name}: {subject[name]}" for name in facts if subject.get(name)]
        lines += [
            f"commit {str(_at(commit, 'id'))[:12]} by {_at(commit, 'author', 'name')}: {_first_line(commit)}"
            for commit in _list(self.payload.get("commits"))[:_MOST_COMMITS]
        ]
        more = len(_list(self.payload.get("commits"))) - _MOST_COMMITS
        if more > 0:
            lines.append(f"and {more} more commits")
        said = _at(self.payload, "comment", "body") or _at(self.payload, "review", "body") or subject.get("body")
        if isinstance(said, str) and said:
            lines.append(said if len(said) <= _LONGEST_BODY else f"{said[:_LONGEST_BODY]}… ({len(said)} characters)")
        return shown("\n".join(line[: _LONGEST_BODY + 50] for line in lines))


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


def _outcome(checks: Mapping[str, Record], sha: str, name: str | None) -> dict[str, Any] | None:
    """Return how the wanted checks of a commit ended; ``None`` while they run, or are not known yet."""
    wanted = [check for check in checks.values() if name is None or check["name"] == name]
    if not wanted or any(check["conclusion"] is None for check in wanted):
        return None
    return {
        "sha": sha,
        "passed": all(check["conclusion"] in _PASSED for check in wanted),
        "checks": [dict(check) for check in wanted],
    }


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _first_line(commit: Any) -> str:
    return str(_at(commit, "message") or "").partition("\n")[0][:200]
