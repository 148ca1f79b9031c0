"""Slack as the front end of the embedded host: Socket Mode, which needs no URL that Slack can reach."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..adapters.httpx_client import HttpxClient
from ..adapters.slack_web import SlackWebClient
from ..settings.slack import SLACK_API, SlackAccess
from ..slack.files import SlackFiles
from ..slack.receiver import SlackReceiver
from ..slack.responder import SlackResponder, ToShow
from ..slack.threads import SlackThread
from .wiring import LocalAgent

if TYPE_CHECKING:
    from slack_sdk.socket_mode import SocketModeClient
    from slack_sdk.socket_mode.client import BaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest

_log = logging.getLogger(__name__)

_LOOK_EVERY = 0.3
_SHOWN_WITHIN = timedelta(seconds=60)
_PLACE = ("slack", "outputs")
"""The thread and the view that keep how far the log of outputs has been shown."""


class SlackFrontEnd:
    """Hears what people say in Slack and shows them what they are told, while it is open and somebody hosts the file.

    What was not shown when it closed is shown when it opens again.
    """

    def __init__(
        self, agent: LocalAgent, *, bot_token: str, app_token: str, access: SlackAccess, api_url: str = SLACK_API
    ) -> None:
        services = agent.services
        self._agent = agent
        self._app_token = app_token
        self._api_url = api_url
        self._web = SlackWebClient(bot_token, url=api_url)
        self._http = HttpxClient()
        self._receiver = SlackReceiver(
            inputs=agent.queue,
            state=services.state,
            blobs=services.blobs,
            web=self._web,
            files=SlackFiles(self._web, self._http, bot_token, api_url, services.clock),
            access=access,
            clock=services.clock,
            inline_bytes=services.settings.inline_bytes,
        )
        self._responder = SlackResponder(self._web, services.clock)
        self._client: SocketModeClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> str:
        """Connect; return the name of the app's own user.

        Raises:
            SlackRefused: a token is no good.
            SlackUnavailable: Slack cannot be reached.
        """
        name = str((await self._web.call("auth.test")).get("user", ""))
        self._client = await asyncio.to_thread(self._connected, asyncio.get_running_loop())
        self._begin(self._show_outputs())
        return name

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    def _connected(self, loop: asyncio.AbstractEventLoop) -> "SocketModeClient":
        from slack_sdk import WebClient
        from slack_sdk.errors import SlackApiError
        from slack_sdk.socket_mode import SocketModeClient

        from ..ports.slack import SlackRefused

        client = SocketModeClient(self._app_token, web_client=WebClient(base_url=self._api_url))

        def listen(_: "BaseSocketModeClient", request: "SocketModeRequest") -> None:
            # It is called in a thread of the client's.
            loop.call_soon_threadsafe(lambda: self._begin(self._take(client, request)))

        client.socket_mode_request_listeners.append(listen)
        try:
            client.connect()
        except SlackApiError as error:
            client.close()
            code = str(error.response.get("error"))
            raise SlackRefused(f"apps.connections.open: {code}; is SLACK_APP_TOKEN that of this app?", code) from error
        return client

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, client: "SocketModeClient", request: "SocketModeRequest") -> None:
        from slack_sdk.socket_mode.response import SocketModeResponse

        try:
            if request.type == "events_api":
                await self._receiver.take_event(request.payload, later=self._later)
            elif request.type == "interactive":
                await self._receiver.take_interaction(request.payload)
        except Exception:  # noqa: BLE001 - what is not acknowledged, Slack sends again
            _log.exception("what Slack sent could not be taken")
            return
        await asyncio.to_thread(client.send_socket_mode_response, SocketModeResponse(envelope_id=request.envelope_id))

    async def _later(self, payload: Mapping[str, Any]) -> None:
        self._begin(self._receiver.take_event(payload))

    async def _show_outputs(self) -> None:
        services = self._agent.services
        thread_id, view = _PLACE
        place: int = ((await services.state.views(thread_id)).get(view) or {"place": 0})["place"]
        while True:
            page = await self._agent.outputs(after=place, limit=100)
            if not page:
                await asyncio.sleep(_LOOK_EVERY)
                continue
            await self._show(
                [ToShow(str(number), output) for number, output in page if SlackThread.of(output.group_id)]
            )
            place = page[-1][0]
            await services.state.put_view(thread_id, view, {"place": place}, services.clock.now().timestamp())

    async def _show(self, batch: list[ToShow]) -> None:
        """Show the batch, however long Slack takes."""
        clock, attempt = self._agent.services.clock, 1
        while batch:
            left = await self._responder.show(batch, deadline=clock.now() + _SHOWN_WITHIN)
            attempt += 1
            batch = [ToShow(item.key, item.output, attempt) for item in batch if item.key in left]
            if batch:
                await clock.sleep(min(left.values()))
