"""The tool servers of an agent: which there are, and what they offer to a session."""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ..conversation.content import shown
from ..errors import InfinityError, Misconfigured, Reject, StoreUnavailable, ToolRefused
from ..ports.clock import Clock
from ..ports.http import HttpClient, HttpUnreachable
from ..ports.state import StateStore
from ..ports.tool import Tool, Toolset, ToolSpec
from ..wire import rap
from ..wire.addresses import origin, secure_url
from ..wire.inputs import explain
from .tool import CALL_TIMEOUT, LONG_CALL_TIMEOUT, RapTool, excerpt, hand_over

DISCOVERY_TIMEOUT = 8.0
MAX_MANIFEST = 1024 * 1024
NOTICE_TIMEOUT = 2.0
"""Seconds that a notice may take: a slice waits for it, and whoever is slower has not heard it."""
RETRY_AFTER = timedelta(seconds=60)
"""How long a session does without a server that was down before it is asked again."""
SESSIONS_KEPT = 128

_log = logging.getLogger(__name__)


# --------------------------------------------------------------- configuration


@dataclass(frozen=True, slots=True)
class ToolSetConfig:
    """One configured tool server; ``auth`` is as the HTTP port spells it."""

    id: str
    server_url: str
    auth: str = "none"
    call_timeout: timedelta | None = None


def parse_tools_config(text: str, place: str) -> tuple[ToolSetConfig, ...]:
    """Return the tool sets that the JSON ``text`` configures; ``place`` says where it was found.

    Raises:
        Misconfigured: it cannot be read; the text names the place and the field.
    """
    try:
        config = _Config.model_validate(json.loads(text))
    except ValidationError as error:
        raise Misconfigured(f"the tools configuration in {place}: {explain(error)}") from error
    except (ValueError, RecursionError) as error:
        raise Misconfigured(f"the tools configuration in {place} is not JSON: {error}") from error
    ids = [tool_set.id for tool_set in config.tool_sets]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise Misconfigured(f"the tools configuration in {place}: the id {twice!r} stands there twice; rename one")
    return tuple(tool_set.config() for tool_set in config.tool_sets)


def _base_url(url: str) -> str:
    secure_url(url)
    if "?" in url or "#" in url:
        raise ValueError("a server's URL has no query and no fragment")
    return url.rstrip("/")


class _BearerAuth(BaseModel):
    model_config = ConfigDict(frozen=True)

    bearer_secret_arn: Annotated[str, StringConstraints(min_length=1)]


class _ToolSet(BaseModel):
    type: Literal["toolset_server"]
    server_url: Annotated[str, AfterValidator(_base_url)]
    id: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    auth: Literal["sigv4", "none"] | _BearerAuth = "none"
    call_timeout: Annotated[float, Field(gt=0, le=timedelta(days=366).total_seconds())] | None = None

    def config(self) -> ToolSetConfig:
        auth = f"bearer:{self.auth.bearer_secret_arn}" if isinstance(self.auth, _BearerAuth) else self.auth
        timeout = None if self.call_timeout is None else timedelta(seconds=self.call_timeout)
        return ToolSetConfig(self.id, self.server_url, auth, timeout)


class _Config(BaseModel):
    tool_sets: tuple[_ToolSet, ...]


# --------------------------------------------------------------------- servers


@dataclass(frozen=True, slots=True)
class _Kept:
    """A session's tools in memory; where a server was down, it is asked again from ``again_at`` on."""

    toolset: Toolset
    again_at: datetime | None


class RapToolServers:
    """Discovers once per session, and serves from memory, then from the state store, ever after."""

    def __init__(
        self,
        tool_sets: Sequence[ToolSetConfig],
        *,
        http: HttpClient,
        state: StateStore,
        clock: Clock,
        sessions_kept: int = SESSIONS_KEPT,
    ) -> None:
        self._tool_sets = {tool_set.id: tool_set for tool_set in tool_sets}
        self._http = http
        self._state = state
        self._clock = clock
        self._sessions_kept = sessions_kept
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Toolset]] = {}

    async def load(self, session_id: str) -> Toolset:
        """Return the session's tools. What is in memory costs no round trip.

        Raises:
            StoreUnavailable: the state store, which knows what the session was given, cannot be read.
        """
        if not self._tool_sets:
            return Toolset()
        kept = self._kept.get(session_id)
        if kept is not None and (kept.again_at is None or self._clock.now() < kept.again_at):
            self._kept.move_to_end(session_id)
            return kept.toolset
        # Threads of one session step side by side: the first one discovers for all.
        loading = self._loading.get(session_id)
        if loading is None:
            loading = asyncio.create_task(self._load(session_id))
            self._loading[session_id] = loading
            loading.add_done_callback(lambda _: self._loading.pop(session_id, None))
        return await asyncio.shield(loading)

    async def _load(self, session_id: str) -> Toolset:
        found = self._still_valid(await self._state.manifests(session_id) or {})
        missing = [tool_set for tool_set in self._tool_sets.values() if tool_set.id not in found]
        fetched = await asyncio.gather(*(self._fetch(tool_set) for tool_set in missing))
        problems: list[str] = []
        for tool_set, outcome in zip(missing, fetched, strict=True):
            if isinstance(outcome, rap.Manifest):
                found[tool_set.id] = outcome
            else:
                problems.append(f"The tool set {tool_set.id!r} is missing: {outcome}")
        if any(isinstance(outcome, rap.Manifest) for outcome in fetched):
            manifests = {name: manifest.to_json() for name, manifest in found.items()}
            await _cached(self._state.put_manifests(session_id, manifests))
        is_complete = not problems
        tools = self._tools(found, problems)
        for problem in problems:
            _log.warning("session %s: %s", session_id, problem)
        toolset = Toolset(tools, tuple(shown(problem) for problem in problems))
        self._keep(session_id, _Kept(toolset, None if is_complete else self._clock.now() + RETRY_AFTER))
        return toolset

    def _keep(self, session_id: str, kept: _Kept) -> None:
        self._kept[session_id] = kept
        self._kept.move_to_end(session_id)
        while len(self._kept) > self._sessions_kept:
            self._kept.popitem(last=False)

    def _still_valid(self, cached: Mapping[str, Any]) -> dict[str, rap.Manifest]:
        """Return what the cache knows of the servers that are configured now, at the addresses they have now."""
        found = {}
        for name, tool_set in self._tool_sets.items():
            manifest = _reread(cached.get(name), tool_set)
            if manifest is not None:
                found[name] = manifest
        return found

    async def _fetch(self, tool_set: ToolSetConfig) -> rap.Manifest | str:
        """Return the server's manifest, else its newest older one, else what is wrong."""
        try:
            manifest = rap.parse_manifest(await self._discovered(tool_set), tool_set.server_url)
        except HttpUnreachable as error:
            older = await self._older(tool_set)
            if older is None:
                return str(error)
            _log.warning("the tool set %s serves from an older manifest: %s", tool_set.id, error)
            return older
        except Misconfigured as error:
            return str(error)
        await _cached(self._state.put_latest_manifest(tool_set.id, manifest.to_json()))
        return manifest

    async def _older(self, tool_set: ToolSetConfig) -> rap.Manifest | None:
        try:
            return _reread(await self._state.latest_manifest(tool_set.id), tool_set)
        except StoreUnavailable:
            return None

    async def _discovered(self, tool_set: ToolSetConfig) -> bytes:
        url = tool_set.server_url + rap.DISCOVERY_PATH
        try:
            answer = await self._http.request(
                "GET", url, auth=tool_set.auth, timeout=DISCOVERY_TIMEOUT, max_bytes=MAX_MANIFEST
            )
        except HttpUnreachable as error:
            raise HttpUnreachable(f"GET {url}: {error}") from error
        if 300 <= answer.status < 400:
            raise HttpUnreachable(f"GET {url}: HTTP {answer.status}; redirects are not followed, configure the target")
        if answer.status != 200:
            raise HttpUnreachable(f"GET {url}: HTTP {answer.status}{excerpt(answer)}")
        return answer.body

    def _tools(self, found: Mapping[str, rap.Manifest], problems: list[str]) -> dict[str, Tool]:
        offers: dict[str, list[RapTool]] = {}
        for name in (name for name in self._tool_sets if name in found):
            for offered in found[name].tools:
                tool = self._tool(self._tool_sets[name], found[name].endpoint, offered)
                offers.setdefault(offered.name, []).append(tool)
        for name, tools in offers.items():
            if len(tools) > 1:
                offerers = " and ".join(repr(tool.tool_set) for tool in tools)
                problems.append(f"The tool {name!r} is offered by {offerers}, so none of them gets it; rename one.")
        return {name: tools[0] for name, tools in offers.items() if len(tools) == 1}

    def _tool(self, tool_set: ToolSetConfig, endpoint: str, offered: rap.OfferedTool) -> RapTool:
        usual = LONG_CALL_TIMEOUT if offered.annotations.long_running else CALL_TIMEOUT
        return RapTool(
            spec=ToolSpec(offered.name, offered.description, offered.input_schema),
            tool_set=tool_set.id,
            endpoint=endpoint,
            http=self._http,
            clock=self._clock,
            auth=tool_set.auth,
            call_timeout=tool_set.call_timeout or usual,
            display_script=offered.display_script,
        )

    # ------------------------------------------------------------------ notices

    async def thread_closed(self, session_id: str, thread_id: str) -> None:
        """Tell every server once, all at the same time, and ignore what they answer."""
        await self._notify(self._tool_sets.values(), rap.CLOSE_THREAD_PATH, rap.CloseThread(thread_id=thread_id))

    async def call_cancelled(self, session_id: str, thread_id: str, call_id: str, tool_set: str | None) -> None:
        """Tell the server of ``tool_set`` (all servers where it is ``None``) once, and ignore what it answers."""
        chosen = [config for name, config in self._tool_sets.items() if tool_set in (None, name)]
        notice = rap.CancelToolCall(thread_id=thread_id, tool_call_id=call_id)
        await self._notify(chosen, rap.CANCEL_TOOL_CALL_PATH, notice)

    async def migrate(self, session_id: str, destination_url: str) -> None:
        """Tell the session's servers that say ``needsMigration`` where it lives from now on; ignore what they answer.

        Raises:
            StoreUnavailable: the state store, which knows what the session was given, cannot be read.
        """
        found = self._still_valid(await self._state.manifests(session_id) or {})
        chosen = [self._tool_sets[name] for name, manifest in found.items() if manifest.needs_migration]
        notice = rap.Migrate(session_id=session_id, destination_url=destination_url)
        await self._notify(chosen, rap.MIGRATE_PATH, notice)

    async def _notify(
        self, tool_sets: Iterable[ToolSetConfig], path: str, notice: rap.CloseThread | rap.CancelToolCall | rap.Migrate
    ) -> None:
        body = json.dumps(notice.to_json()).encode()
        await asyncio.gather(*(self._tell(tool_set, path, body) for tool_set in tool_sets))

    async def _tell(self, tool_set: ToolSetConfig, path: str, body: bytes) -> None:
        try:
            answer = await self._http.request(
                "POST",
                tool_set.server_url + path,
                body=body,
                headers={"Content-Type": "application/json"},
                auth=tool_set.auth,
                timeout=NOTICE_TIMEOUT,
            )
        except (HttpUnreachable, InfinityError) as error:
            _log.info("the tool set %s did not hear %s: %s", tool_set.id, path, error)
        else:
            _log.info("the tool set %s heard %s: HTTP %d", tool_set.id, path, answer.status)

    async def answer_choice(self, tool_set: str | None, response_url: str, call_id: str, selected: int) -> None:
        """POST a person's answer to the server that asked, and to no other.

        Raises:
            ToolRefused: the server does not take it, or ``response_url`` is not on the server's own origin.
            ToolUnreachable: no answer, or 5xx, to the last try.
        """
        config = self._tool_sets.get(tool_set or "")
        if config is None:
            raise ToolRefused(f"the answer to a choice has nowhere to go: there is no tool set {tool_set!r}")
        if not _is_of(config, response_url):
            raise ToolRefused(f"the choice's response_url is not on the origin of the tool set {config.id!r}")
        await hand_over(
            f"the answer to a choice of the tool set {config.id!r}",
            response_url,
            rap.ChoiceAnswer(id=call_id, selected=selected).to_json(),
            http=self._http,
            clock=self._clock,
            auth=config.auth,
        )


def _reread(fields: Any, tool_set: ToolSetConfig) -> rap.Manifest | None:
    if fields is None:
        return None
    try:
        return rap.read_manifest(fields, tool_set.server_url)
    except Misconfigured:
        return None


def _is_of(tool_set: ToolSetConfig, url: str) -> bool:
    try:
        return origin(url) == origin(tool_set.server_url)
    except ValueError:
        return False


async def _cached(writing: Awaitable[None]) -> None:
    """Write to the cache; where that fails, the next process fetches again."""
    try:
        await writing
    except (StoreUnavailable, Reject) as error:
        _log.warning("a manifest could not be cached: %s", error)
