"""Slack to Slack through the deployed functions: receiver, queue, leader, the stand-in for Bedrock, responder."""

import asyncio
import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from infinity_agents.aws import receiver, slack_receiver, slack_responder
from infinity_agents.aws.sandbox import Sandbox
from infinity_agents.testing.aws import Fault
from infinity_agents.testing.contracts.models import PNG
from infinity_agents.testing.model_servers import KEY, BedrockProtocol, ModelServer, serving
from infinity_agents.testing.scripted_model import calls, says
from infinity_agents.testing.slack import SlackFault, SlackStandIn
from tests.aws.conftest import aws, clients, deployed, deployment, fresh_sandboxes, pauses, running_aws

__all__ = ["aws", "clients", "deployed", "deployment", "fresh_sandboxes", "pauses", "running_aws"]

CHANNEL = "C1"
CODE = "```python\n" + "\n".join(f"line = {number}  # {'.' * 20}" for number in range(500)) + "\n```"


def gateway_request(headers, body, *, is_base64):
    """Return the event of API Gateway for a request of Slack."""
    text = base64.b64encode(body).decode() if is_base64 else body.decode()
    return {
        "version": "2.0",
        "rawPath": "/slack",
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": {"http": {"method": "POST", "path": "/slack"}},
        "body": text,
        "isBase64Encoded": is_base64,
    }


class Bot:
    """The app as it is deployed: Slack's requests go in, and what the queues hold is fed to the functions."""

    def __init__(self, slack, deployment, invocations):
        self.slack = slack
        self.deployment = deployment
        self.invocations = invocations
        self.failed = []

    def receive(self, headers, body, *, is_base64=False):
        event = gateway_request(headers, body, is_base64=is_base64)
        return slack_receiver.handler(event, None)["statusCode"]

    def says(self, user, text, **fields):
        """Have somebody mention the bot; return the message."""
        message = self.slack.say(CHANNEL, user, text, **fields)
        event = {**message, "type": "app_mention", "channel": CHANNEL}
        assert self.slack.deliver(self.slack.event(event), self.receive) == [200]
        return message

    def settle(self):
        while self.invocations:
            slack_receiver.handler(self.invocations.pop(0), None)
        self.deployment.settle()
        self.respond()

    def respond(self, batch=10):
        """Feed the responder until its queue holds nothing that can be had now."""
        outputs = self.deployment.resources.output_url
        while (event := self.deployment.received(outputs, batch)) is not None:
            self.failed += self.deployment.invoked(slack_responder.handler, outputs, event)

    def answers(self, message):
        return self.slack.answers(CHANNEL, message.get("thread_ts") or message["ts"])


@contextmanager
def bedrock(script):
    """Serve the stand-in for Bedrock on a loop of its own."""
    server, begun, loop = ModelServer(BedrockProtocol(), script), threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve():
        async with serving(server):
            begun.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    begun.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@contextmanager
def listening(answer):
    """Serve ``answer(method, path, body)`` on a free port of loopback; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.do_POST()

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, said = answer(self.command, urlsplit(self.path).path, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.05), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def bot(deployment, monkeypatch):
    """A bot in a workspace; ``bot.script`` says what its model answers."""
    invocations = []

    def invoke(method, path, body):
        assert path == "/2015-03-31/functions/slack-receiver/invocations"
        invocations.append(json.loads(body))
        return 202, {}

    def script(request):
        return bot.script(request)

    with SlackStandIn.running() as slack, bedrock(script) as model, listening(invoke) as functions:
        for function in (slack_receiver, slack_responder):
            monkeypatch.setattr(function, "sandbox", Sandbox(function.sandbox._build))
        variables = {
            "MODEL_ID": "global.anthropic.claude-sonnet-4-6",
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": model.url,
            "AWS_ENDPOINT_URL_LAMBDA": functions,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_LAMBDA_FUNCTION_NAME": "slack-receiver",
            "SLACK_SIGNING_SECRET": slack.signing_secret,
            "SLACK_BOT_TOKEN": slack.token,
            "SLACK_API_URL": slack.api_url,
            "SLACK_ALLOWED": "T1",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        bot = Bot(slack, deployment, invocations)
        bot.model = model
        bot.script = lambda request: says("Yes.")
        yield bot


def test_a_mention_is_answered_in_its_thread_and_so_is_the_reply(bot):
    bot.slack.limits_posts = True
    message = bot.says("U1", "<@UBOT> is it on?")
    assert bot.slack.statuses == {(CHANNEL, message["ts"]): "is thinking..."}
    bot.settle()
    assert bot.answers(message) == ["Yes."]
    assert bot.slack.statuses == {}
    reply = bot.slack.say(CHANNEL, "U2", "sure?", thread_ts=message["ts"])
    headers, body = bot.slack.request(bot.slack.event({**reply, "channel": CHANNEL}))
    bot.script = lambda request: says("Quite sure.")
    assert bot.receive(headers, body, is_base64=True) == 200
    assert bot.receive(headers, body[:-1], is_base64=True) == 401
    bot.settle()
    assert bot.answers(message) == ["Yes.", "Quite sure."]


def test_a_choice_is_made_by_a_button(bot, monkeypatch):
    invoked, chosen = [], []

    def tool_server(method, path, body):
        if path.endswith("rap-toolset"):
            tool = {"name": "book", "description": "Books a flight.", "inputSchema": {"type": "object"}}
            return 200, {"name": "flights", "description": "d", "endpoint": f"{url}/invoke", "tools": [tool]}
        (invoked if path == "/invoke" else chosen).append(json.loads(body))
        return 200, {}

    with listening(tool_server) as url:
        tool_set = {"type": "toolset_server", "server_url": url, "id": "flights"}
        monkeypatch.setenv("TOOLS_CONFIG", json.dumps({"tool_sets": [tool_set]}))
        bot.script = lambda request: calls("book") if not invoked else says("Booked.")
        message = bot.says("U1", "<@UBOT> book me a flight")
        bot.settle()
        (call,) = invoked
        asks = {"type": "user_choice", "prompt": "Where to?", "choices": ["Rome", "Oslo"], "default": 0}
        posted(call, {**asks, "response_url": f"{url}/choice"})
        bot.settle()
        question = bot.slack.thread(CHANNEL, message["ts"])[-1]
        assert bot.answers(message)[-1] == "<@U1> Where to?\n[Rome] [Oslo]"
        click = bot.slack.click(CHANNEL, question["ts"], 1, "U1")
        assert bot.slack.deliver(click, bot.receive, form=True) == [200]
        bot.settle()
        assert chosen == [{"id": call["id"], "selected": 1}]
        assert bot.answers(message)[-1] == "Where to?: Oslo\n_Chosen by <@U1>_"
        # Somebody had the buttons on their screen still.
        bot.slack.deliver({**click, "user": {"id": "U1", "team_id": "T1"}}, bot.receive, form=True)
        bot.settle()
        assert [each["text"] for each in bot.slack.ephemeral] == ["This question is no longer open."]
        assert len(chosen) == 1
        posted(call, {"type": "tool_result", "text": "done"})
        bot.settle()
        assert bot.answers(message)[-1] == "Booked."


def posted(call, fields):
    """Post what a tool says about its call, as its server does."""
    body = json.dumps({"group_id": call["group_id"], "id": call["id"], **fields})
    context = {"http": {"method": "POST"}}
    event = {"requestContext": context, "rawPath": urlsplit(call["callback_url"]).path, "body": body}
    assert receiver.handler(event, None)["statusCode"] == 200


def test_an_image_comes_in_and_a_long_answer_goes_out(bot):
    bot.script = lambda request: says(f"I see.\n\n{CODE}\n\nThat is all.")
    bot.slack.files["a.png"] = base64.b64decode(PNG)
    file = bot.slack.file("a.png", "image/png")
    message = bot.says("U1", "<@UBOT> what is this?", files=[file], subtype="file_share")
    assert len(bot.invocations) == 1
    bot.settle()
    (asked,) = bot.model.bodies
    assert [part["image"] for part in asked["messages"][-1]["content"] if "image" in part] == [
        {"format": "png", "source": {"bytes": PNG}}
    ]
    answers = bot.answers(message)
    assert sum(map(len, answers)) > 15_000
    assert len(answers) == 2
    assert answers[0].startswith("I see.\n\n```python\n")
    assert answers[0].endswith("\n```")
    assert answers[1].startswith("```python\nline = ")
    assert [line for part in answers for line in part.split("\n") if line.startswith("line")] == CODE.split("\n")[1:-1]


@pytest.mark.slow
def test_slack_and_the_queue_are_down_for_a_while_and_nothing_is_lost_or_doubled(bot):
    message = bot.slack.say(CHANNEL, "U1", "<@UBOT> hello")
    payload = bot.slack.event({**message, "type": "app_mention", "channel": CHANNEL})
    bot.deployment.aws.faults += [Fault("sqs", "SendMessage") for _ in range(3)]
    assert bot.slack.deliver(payload, bot.receive, wait=lambda _: None) == [500, 200]
    assert bot.slack.deliver(payload, bot.receive) == [200]
    bot.slack.faults += [SlackFault(503, "chat.postMessage"), SlackFault("hang up", "chat.postMessage", after=True)]
    bot.settle()
    for _ in range(2):
        assert bot.failed
        bot.failed.clear()
        bot.deployment.later(60)
        bot.settle()
    assert not bot.failed
    assert bot.answers(message) == ["Yes."]


@pytest.mark.slow
def test_answers_that_failed_and_were_overtaken_end_in_order(bot):
    said = iter(range(1, 5))
    bot.script = lambda request: says(f"number {next(said)}")
    message = bot.says("U1", "<@UBOT> hello")
    bot.deployment.settle()
    for _ in range(3):
        reply = bot.slack.say(CHANNEL, "U1", "and now?", thread_ts=message["ts"])
        bot.receive(*bot.slack.request(bot.slack.event({**reply, "channel": CHANNEL})))
        bot.deployment.settle()
    # Each comes in a batch of its own: the first is not taken, the third is, and its answer is lost.
    bot.slack.faults += [SlackFault(503, "chat.postMessage"), SlackFault("hang up", "chat.postMessage", after=True)]
    bot.respond(batch=1)
    assert len(bot.failed) == 2
    assert bot.answers(message)[0] != "number 1"
    for _ in range(2):
        bot.deployment.later(60)
        bot.respond(batch=1)
    assert bot.answers(message) == [f"number {number}" for number in range(1, 5)]


@pytest.mark.slow
def test_what_is_no_output_is_left_to_the_dead_letters(bot):
    url = bot.deployment.resources.output_url
    bot.deployment.sqs.send_message(QueueUrl=url, MessageBody="{}")
    bot.says("U1", "<@UBOT> hello")
    bot.settle()
    assert len(bot.failed) == 1
