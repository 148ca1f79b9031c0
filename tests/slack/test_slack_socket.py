"""``infinity slack --socket``: the embedded host in Slack, over a web socket of the stand-in."""

import asyncio
import base64
import hashlib
import json

import pytest
from typer.testing import CliRunner

from infinity_agents.cli.commands import app
from infinity_agents.local.slack import SlackFrontEnd
from infinity_agents.local.wiring import LocalAgent
from infinity_agents.ports.slack import SlackRefused
from infinity_agents.settings.slack import SlackAccess
from infinity_agents.testing.scripted_model import ScriptedModel, says

PATIENCE = 20


class WebSocket:
    """The server's end of a web socket: text frames, and nothing that Socket Mode does not need."""

    def __init__(self):
        self.connected = asyncio.Event()
        self.acknowledged = asyncio.Queue()

    async def serve(self, reader, writer):
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line for line in request.split("\r\n") if line.lower().startswith("sec-websocket-key")).split()[1]
        accept = base64.b64encode(
            hashlib.sha1(  # noqa: S324 - what the protocol demands
                f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()
            ).digest()
        )
        upgrade = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(f"{upgrade}Sec-WebSocket-Accept: {accept.decode()}\r\n\r\n".encode())
        self.writer = writer
        self.connected.set()
        try:
            while True:
                opcode, payload = await self._frame(reader)
                if opcode == 1:
                    self.acknowledged.put_nowait(json.loads(payload)["envelope_id"])
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _frame(self, reader):
        first, second = await reader.readexactly(2)
        length = second & 127
        if length == 126:
            length = int.from_bytes(await reader.readexactly(2))
        mask = await reader.readexactly(4) if second & 128 else bytes(4)
        masked = await reader.readexactly(length)
        return first & 15, bytes(byte ^ mask[place % 4] for place, byte in enumerate(masked))

    async def send(self, envelope):
        data = json.dumps(envelope).encode()
        await asyncio.wait_for(self.connected.wait(), PATIENCE)
        self.writer.write(bytes([0x81, 126]) + len(data).to_bytes(2, "big") + data)
        await self.writer.drain()


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the workspace is another thread's
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_mention_is_heard_acknowledged_and_answered_and_nothing_is_shown_twice(slack, tmp_path):
    socket = WebSocket()
    server = await asyncio.start_server(socket.serve, "127.0.0.1", 0)
    slack.socket_url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/link"
    message = slack.say("C1", "U1", "<@UBOT> hello")
    event = slack.event({**message, "type": "app_mention", "channel": "C1"})
    tokens = {"bot_token": slack.token, "app_token": slack.app_token}
    for _ in range(2):
        # Once more after a restart: the same event comes again, and what was shown stays as it is.
        agent = LocalAgent.open(tmp_path / "agent.db", model=ScriptedModel(lambda _: says("Hi.")), synchronous="OFF")
        front_end = SlackFrontEnd(agent, **tokens, access=SlackAccess.parse("T1"), api_url=slack.api_url)
        socket.connected.clear()
        async with agent.host(), front_end as name:
            assert name == "agent"
            await socket.send({"type": "events_api", "envelope_id": "e1", "payload": event})
            assert await asyncio.wait_for(socket.acknowledged.get(), PATIENCE) == "e1"
            await until(lambda: slack.answers("C1", message["ts"]))
        await agent.aclose()
    server.close()
    assert slack.answers("C1", message["ts"]) == ["Hi."]


async def test_a_token_that_is_no_good_is_told(slack, tmp_path):
    agent = LocalAgent.open(tmp_path / "agent.db", synchronous="OFF")
    for tokens in (
        {"bot_token": "xoxb-no", "app_token": "xapp-no"},
        {"bot_token": slack.token, "app_token": "xapp-no"},
    ):
        with pytest.raises(SlackRefused, match="invalid_auth"):
            await SlackFrontEnd(agent, **tokens, access=SlackAccess.parse("T1"), api_url=slack.api_url).__aenter__()
    await agent.aclose()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--socket"),
        (["--socket"], "who may talk"),
        (["--socket", "--allow", "ann"], "'ann' is no id"),
        (["--socket", "--allow", "U1"], "SLACK_BOT_TOKEN is not set"),
    ],
)
def test_the_command_says_what_it_lacks(tmp_path, monkeypatch, capsys, arguments, said):
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["slack", *arguments])
    assert result.exit_code == 2
    assert said in " ".join((result.output + capsys.readouterr().err).split())
