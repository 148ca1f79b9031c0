"""What GitHub's REST API knows of a commit: its hash, and its checks."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx

from ..errors import InfinityError
from ..settings.tool_servers import GITHUB_API

API_VERSION = "2022-11-28"
WHOLE_SHA = re.compile("[0-9a-f]{40}")

_PAGE = 100
_FAILURES = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError)


class GitHubRefused(InfinityError):
    """GitHub did not say what it was asked; the text says why and what to do. ``is_passing``: it may at once."""

    def __init__(self, text: str, *, is_passing: bool = False) -> None:
        super().__init__(text)
        self.is_passing = is_passing


class GitHubApi:
    """Asks GitHub, as whoever the text that ``token`` returns belongs to.

    ``url`` is the API's; that of a GitHub Enterprise Server ends in ``/api/v3``.
    """

    def __init__(
        self, token: Callable[[], Awaitable[str]], client: httpx.AsyncClient, *, url: str = GITHUB_API
    ) -> None:
        self._token = token
        self._client = client
        self._url = url.rstrip("/")

    async def commit(self, repository: str, ref: str) -> str:
        """Return the whole hash of the commit that a branch, a tag or the first digits of a hash name.

        Raises:
            GitHubRefused: there is none, or GitHub does not say.
        """
        answer = await self._get(repository, f"commits/{quote(ref, safe='')}", accept="application/vnd.github.sha")
        if not WHOLE_SHA.fullmatch(answer.text):
            raise GitHubRefused(f"GitHub's answer about {ref!r} in {repository} holds no commit's hash")
        return answer.text

    async def checks(self, repository: str, sha: str) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Return the newest check runs and workflow runs of a commit: the event that tells of such, and its fields.

        Raises:
            GitHubRefused: there is no such commit, or GitHub does not say.
        """
        checks = await self._listed(repository, f"commits/{sha}/check-runs", "check_runs", filter="latest")
        runs = await self._listed(repository, "actions/runs", "workflow_runs", head_sha=sha)
        return [*(("check_run", fields) for fields in checks), *(("workflow_run", fields) for fields in runs)]

    async def _listed(self, repository: str, path: str, name: str, **parameters: str) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        while True:
            page = {"per_page": str(_PAGE), "page": str(len(found) // _PAGE + 1)}
            answer = await self._get(repository, path, **parameters, **page)
            try:
                told = answer.json()
                listed, total = told[name], int(told["total_count"])
                found += [dict(fields) for fields in listed]
            except (ValueError, KeyError, TypeError) as error:
                raise GitHubRefused(f"GitHub's answer about {path} in {repository} holds no {name}") from error
            if len(listed) < _PAGE or len(found) >= total:
                return found

    async def _get(
        self, repository: str, path: str, *, accept: str = "application/vnd.github+json", **parameters: str
    ) -> httpx.Response:
        token = (await self._token()).strip()
        headers = {
            "Accept": accept,
            "Authorization": f"Bearer {token}",
            "User-Agent": "infinity-agents",
            "X-GitHub-Api-Version": API_VERSION,
        }
        what = f"GitHub, asked for {path} of {repository},"
        try:
            answer = await self._client.get(
                f"{self._url}/repos/{repository}/{path}", params=parameters, headers=headers, follow_redirects=False
            )
        except _FAILURES as error:
            # The error's text may hold the token, where that makes no header.
            raise GitHubRefused(f"{what} does not answer ({type(error).__name__})", is_passing=True) from None
        if answer.status_code != 200:
            raise GitHubRefused(f"{what} {_reason(answer)}", is_passing=answer.status_code >= 500)
        return answer


def _reason(answer: httpx.Response) -> str:
    status = answer.status_code
    if status in (403, 429) and (until := _limited_until(answer)) is not None:
        return f"takes no more requests of this token: ask again {until}"
    if status in (301, 302, 307, 308):
        return f"answers {status}: the repository has another name now; use that one"
    remedies = {
        401: "the token is wrong or has expired; store a valid one",
        403: "the token may not read this; it needs the repository's permissions to read Checks, Actions and Contents",
        404: "there is no such repository or commit, or the token may not read it",
        422: "there is no such commit",
    }
    return f"answers {status}: {remedies[status]}" if status in remedies else f"answers {status}"


def _limited_until(answer: httpx.Response) -> str | None:
    """Return when GitHub takes requests again, in words; ``None`` where it is no limit that it speaks of."""
    pause, reset = answer.headers.get("retry-after", ""), answer.headers.get("x-ratelimit-reset", "")
    if pause.isdecimal():
        return f"in {pause} seconds"
    if answer.headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        at = datetime.fromtimestamp(0, UTC) + timedelta(seconds=min(int(reset), 10**11))
        return f"at {at:%Y-%m-%d %H:%M} UTC"
    if answer.status_code == 429 or "rate limit" in answer.text:
        return "in some minutes"
    return None
