"""A workspace on loopback, and a receiver and a responder of one agent in it, driven with the real ``slack_sdk``."""

import json
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.adapters.memory import MemoryBlobStore, MemoryInputQueue, MemoryStateStore
from infinity_agents.adapters.slack_web import SlackWebClient
from infinity_agents.conversation.outputs import Output
from infinity_agents.settings.slack import SlackAccess
from infinity_agents.slack.files import SlackFiles
from infinity_agents.slack.receiver import SlackReceiver, SlackRequests
from infinity_agents.slack.responder import SlackResponder, ToShow
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.slack import SlackStandIn

CHANNEL = "C1"


@dataclass
class FrontEnd:
    """Both halves of the front end, with a clock that stands still."""

    slack: SlackStandIn
    clock: FrozenClock
    requests: SlackRequests
    responder: SlackResponder
    queue: MemoryInputQueue
    state: MemoryStateStore
    blobs: MemoryBlobStore
    put_off: list = field(default_factory=list)

    async def deliver(self, payload, *, form=False, **more):
        """Have Slack deliver ``payload``; return the status."""
        headers, body = self.slack.request(payload, form=form, **more)
        return (await self.requests.answer(headers, body)).status

    async def mention(self, text="<@UBOT> hello", user="U1", **fields):
        """Have a person mention the agent; return the message."""
        message = self.slack.say(CHANNEL, user, text, **fields)
        assert await self.deliver(self.slack.event({**message, "type": "app_mention", "channel": CHANNEL})) == 200
        return message

    async def heard(self):
        """Return the messages on the input queue, taken off it."""
        groups = await self.queue.receive(groups=50, batch=50, visibility=30)
        taken = [received for group in groups for received in group]
        await self.queue.delete(taken)
        return [json.loads(received.body) for received in taken]

    async def show(self, *outputs, seconds=30, attempt=1):
        batch = [ToShow(str(number), output, attempt) for number, output in enumerate(outputs)]
        return await self.responder.show(batch, deadline=self.clock.now() + timedelta(seconds=seconds))


@pytest.fixture(scope="module")
def workspace():
    with SlackStandIn.running() as slack:
        yield slack


@pytest.fixture
def slack(workspace):
    fresh = SlackStandIn(url=workspace.url)
    workspace.__dict__.update(fresh.__dict__)
    workspace.members[CHANNEL] = {"U1", "U2"}
    return workspace


@pytest.fixture
async def front(slack):
    clock = FrozenClock()
    slack.now = lambda: clock.now().timestamp()
    queue, state, blobs = MemoryInputQueue(clock), MemoryStateStore(), MemoryBlobStore()
    web, http = SlackWebClient(slack.token, url=slack.api_url, timeout=5), HttpxClient()
    put_off = []

    async def later(payload):
        put_off.append(payload)

    receiver = SlackReceiver(
        inputs=queue,
        state=state,
        blobs=blobs,
        web=web,
        files=SlackFiles(web, http, slack.token, slack.api_url, clock),
        access=SlackAccess.parse("T1"),
        clock=clock,
        inline_bytes=256 * 1024,
    )
    requests = SlackRequests(receiver, slack.signing_secret, later)
    yield FrontEnd(slack, clock, requests, SlackResponder(web, clock), queue, state, blobs, put_off)
    await http.aclose()


def output_in(message, type="message", text="an answer", *, seq=(1, 0), thread="", **details):
    """Return what the runtime tells in the conversation that ``message`` began."""
    root = f"slack-{CHANNEL}-{message['ts']}"
    return Output(
        type, text, root, root + thread, f"{root}{thread}:{seq[0]}:{seq[1]}", seq, {"user_id": "slack:T1:U1"}, details
    )
