"""The embedded agent: everything over one SQLite file, with no account anywhere."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from ..adapters.demo_model import DemoModel
from ..adapters.httpx_client import HttpxClient
from ..adapters.sqlite import (
    HostLock,
    SqliteBlobStore,
    SqliteConversationStore,
    SqliteDatabase,
    SqliteInputQueue,
    SqliteOutputs,
    SqliteStateStore,
    SqliteTimers,
    host_of,
)
from ..adapters.sqlite.database import Synchronous
from ..adapters.system import FreshIds, SystemClock
from ..conversation import ids
from ..conversation.content import JsonObject, Text
from ..conversation.messages import Control, InputMessage, UserChoiceResponse, UserContent
from ..conversation.outputs import Output
from ..errors import Misconfigured
from ..ports.conversations import NO_ENTRIES, LoadRequest
from ..ports.model import Model
from ..ports.observer import Observer
from ..ports.tool import Tool
from ..rap.callbacks import callback_url
from ..rap.toolsets import RapToolServers, ToolSetConfig, parse_tools_config
from ..receiving import CallbackReceiver
from ..runtime import AgentSystem, Services
from ..runtime.keeper import Keeper
from ..settings import AgentSettings
from ..tools import built_in
from ..wire.large_values import sendable
from .callbacks import HOST, PATH, serving
from .host import Host, HostSettings
from .identity import Identity

_LOOK_EVERY = 0.1


@dataclass(frozen=True)
class LocalAgent:
    """An agent in one SQLite file, which any number of processes may open to send and to read.

    One process is its host::

        agent = LocalAgent.open("agent.db", tool_servers=["http://127.0.0.1:8001"])
        async with agent.host():
            await agent.send("my-conversation", "What time is it in Tokyo?")
    """

    database: SqliteDatabase
    queue: SqliteInputQueue
    timers: SqliteTimers
    outputs_log: SqliteOutputs
    services: Services
    identity: Identity
    http: HttpxClient

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        model: Model | None = None,
        tool_servers: Sequence[str | ToolSetConfig] = (),
        tools: Sequence[Tool] = (),
        settings: AgentSettings | None = None,
        synchronous: Synchronous = "FULL",
    ) -> Self:
        """Open the agent that lives in the file ``path``; a file that is not there is made.

        ``tool_servers`` are base URLs, or configurations; the secret of the auth ``bearer:NAME`` is the environment
        variable of that name. ``tools`` run in this process. Without a ``model``, the demo model speaks.
        ``synchronous`` is SQLite's word: only with ``FULL`` does a commit outlive a power cut.

        Raises:
            Misconfigured: the file, or a tool server's URL, cannot be used; the text names it and the remedy.
        """
        tool_sets = _tool_sets(tool_servers)
        settings, clock = settings or AgentSettings(), SystemClock()
        database = SqliteDatabase(path, clock, synchronous)
        identity = Identity.beside(database.path)
        queue, state, http = (
            SqliteInputQueue(database),
            SqliteStateStore(database),
            HttpxClient(bearer=environment_secret),
        )
        outputs, timers = SqliteOutputs(database), SqliteTimers(database, queue)
        base_url = f"http://{HOST}:{identity.port}{PATH}"
        services = Services(
            conversations=SqliteConversationStore(database),
            state=state,
            model=model or DemoModel(),
            inputs=queue,
            outputs=outputs,
            timers=timers,
            blobs=SqliteBlobStore(database),
            tools=(*built_in(clock), *tools),
            tool_servers=RapToolServers(tool_sets, http=http, state=state, clock=clock),
            callback_urls=lambda thread_id, call_id, tool_set: callback_url(
                base_url, identity.keyring, thread_id, call_id, tool_set or ""
            ),
            clock=clock,
            ids=FreshIds(),
            keyring=identity.keyring,
            settings=settings,
        )
        return cls(database, queue, timers, outputs, services, identity, http)

    async def send(
        self,
        thread_id: str,
        content: str | UserContent | UserChoiceResponse | Control,
        *,
        metadata: JsonObject | None = None,
        message_id: str | None = None,
    ) -> str:
        """Put what a person says on the queue; return the message's id. The same id sent again is heard once.

        Raises:
            Reject: no queue takes ``thread_id``, or the message is too large.
            StoreUnavailable: another process holds the file, or its disk is full.
        """
        services = self.services
        message_id = message_id or services.ids.fresh()
        message = InputMessage(
            content=Text(content) if isinstance(content, str) else content,
            group_id=thread_id,
            message_id=message_id,
            metadata=metadata,
        )
        body = await sendable(message, keyring=None, blobs=services.blobs, inline_bytes=services.settings.inline_bytes)
        await self.queue.send(body, group_id=thread_id, dedup_id=ids.message_id("said", thread_id, message_id))
        return message_id

    async def outputs(
        self, *, after: int = 0, group_id: str | None = None, limit: int = 1000
    ) -> Sequence[tuple[int, Output]]:
        """Return what people were told, with its places in the log, oldest first, from behind the place ``after``."""
        return await self.outputs_log.outputs(after=after, group_id=group_id, limit=limit)

    async def follow(self, root_id: str, *, after: int = 0) -> AsyncIterator[tuple[int, Output]]:
        """Yield what people are told in a conversation, from behind the place ``after`` on, until it is at rest.

        It is at rest when nothing more happens without a person: no message is on its way, nobody sleeps until a time,
        and no tool, person or subscription is still to answer. While nobody hosts the file, messages stay on their way.
        """
        place = after
        while True:
            is_over = await self._is_at_rest(root_id)
            page = await self.outputs(after=place, group_id=root_id)
            for place, output in page:
                yield place, output
            if page:
                continue
            if is_over:
                return
            await asyncio.sleep(_LOOK_EVERY)

    async def _is_at_rest(self, root_id: str) -> bool:
        version = self.database.data_version()
        queued = await self.queue.outstanding()
        conversations = self.services.conversations
        threads = [overview.thread.id for overview in await conversations.threads(root_id=root_id)]
        if not queued.keys().isdisjoint({root_id, *threads}):
            return False
        for thread_id in threads:
            snapshot = await conversations.load(LoadRequest(thread_id, known_to=NO_ENTRIES))
            if snapshot and any(call.wakes_at or not call.is_passive for call in snapshot.calls):
                return False
        # What another process wrote in between may have moved what was awaited to where it had been looked for.
        return self.database.data_version() == version

    @property
    def hosted_by(self) -> str | None:
        """The process id of the file's host, this process or another; ``None`` where there is none."""
        return host_of(self.database.path)

    def host(self, observer: Observer | None = None, settings: HostSettings | None = None) -> Host:
        """Return the host of this file; it works while it is open as a context."""
        services = self.services
        receiver = CallbackReceiver(
            keyring=services.keyring,
            inputs=self.queue,
            state=services.state,
            blobs=services.blobs,
            clock=services.clock,
            inline_bytes=services.settings.inline_bytes,
        )
        keeper = Keeper(
            conversations=services.conversations,
            state=services.state,
            inputs=self.queue,
            outputs=self.outputs_log,
            dead_letters=self.queue,
            keyring=services.keyring,
            clock=services.clock,
        )
        return Host(
            AgentSystem(services),
            queue=self.queue,
            timers=self.timers,
            keeper=keeper,
            lock=partial(HostLock, self.database.path),
            callbacks=serving(receiver, self.identity.port),
            observer=observer,
            settings=settings,
        )

    async def aclose(self) -> None:
        """Close the file and the connections. The host must have stopped."""
        await self.http.aclose()
        self.database.close()


async def environment_secret(name: str) -> str:
    """Return the value of the environment variable ``name``.

    Raises:
        Misconfigured: it is not set.
    """
    value = os.environ.get(name, "")
    if not value:
        raise Misconfigured(f"the environment variable {name}, which holds a tool server's token, is not set; set it")
    return value


def _tool_sets(tool_servers: Sequence[str | ToolSetConfig]) -> tuple[ToolSetConfig, ...]:
    """Return the configurations; a server that is given by its URL is known by that URL without its scheme."""
    urls = [server for server in tool_servers if isinstance(server, str)]
    config = {
        "tool_sets": [
            {"type": "toolset_server", "server_url": url, "id": f"{(parts := urlsplit(url)).netloc}{parts.path}"}
            for url in urls
        ]
    }
    read = parse_tools_config(json.dumps(config), "tool_servers")
    return (*read, *(server for server in tool_servers if not isinstance(server, str)))
