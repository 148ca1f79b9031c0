"""``infinity slack``: the host of the file, and Slack as its front end."""

import asyncio
import logging
import os
import signal

from ..errors import Misconfigured
from ..local.demo_host import SliceLines
from ..local.slack import SlackFrontEnd
from ..settings.slack import SLACK_API, SlackAccess
from .config import AgentConfig
from .opening import hosting, log_to_stderr
from .rendering import note, put, stderr
from .serving import SliceDocuments

_TOKENS = {"SLACK_BOT_TOKEN": ("xoxb-", "OAuth & Permissions"), "SLACK_APP_TOKEN": ("xapp-", "Basic Information")}


async def run_slack(config: AgentConfig, access: SlackAccess, *, as_json: bool) -> None:
    """Host the file, and talk in Slack, until SIGTERM or SIGINT; slices that run then are finished.

    Raises:
        Misconfigured: a token is missing, the agent cannot be opened, or the file has a host.
        SlackRefused: a token is no good.
        SlackUnavailable: Slack cannot be reached.
    """
    bot_token, app_token = map(_token, _TOKENS)
    log_to_stderr(logging.WARNING)
    async with hosting(config) as agent:
        front_end = SlackFrontEnd(
            agent,
            bot_token=bot_token,
            app_token=app_token,
            access=access,
            api_url=os.environ.get("SLACK_API_URL") or SLACK_API,
        )
        async with agent.host(SliceDocuments() if as_json else SliceLines()) as host, front_end as name:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, host.stop)
            put(stderr(), note(f"{name} is in Slack: process {agent.hosted_by} hosts {config.file}; Ctrl-C ends it"))
            await host.wait()
        put(stderr(), note("stopped; what waits is in the file"))


def _token(variable: str) -> str:
    prefix, page = _TOKENS[variable]
    value = os.environ.get(variable, "").strip()
    if not value.startswith(prefix):
        found = "is not set" if not value else f"does not begin with {prefix}"
        raise Misconfigured(f"{variable} {found}; copy the {prefix}... token from the app's page {page!r}")
    return value
