"""What comes from queues: no message is lost, whatever it is, and none keeps another from being heard."""

import json
from contextlib import asynccontextmanager
from random import Random

from infinity_agents.adapters.memory import MemoryInputQueue
from infinity_agents.adapters.slack_web import SlackWebClient
from infinity_agents.aws import delay_relay, slack_responder
from infinity_agents.aws.leading import Leader
from infinity_agents.aws.telemetry import Telemetry
from infinity_agents.conversation.content import plain_text
from infinity_agents.conversation.history import UserEntry, faults
from infinity_agents.errors import Reject, Undecodable
from infinity_agents.slack.responder import SlackResponder
from infinity_agents.testing.doubles import FrozenClock
from infinity_agents.testing.scripted_model import ScriptedModel, calls, heard, says
from infinity_agents.testing.slack import SlackStandIn
from infinity_agents.testing.world import KEYRING, World
from infinity_agents.wire import outputs
from tests.aws.lambdas import QueueReceipts, event_of, failures_of
from tests.embeddings import in_memory
from tests.fuzz import decoders
from tests.fuzz.decoders import MESSAGES, OUTPUT, group_of, signed
from tests.fuzz.mutation import mutated, odd_text
from tests.fuzz.running import Target

PLAIN = '{"content": {"type": "text", "text": "still there?"}, "group_id": "%s"}'
SECONDS = 300.0


def script(request):
    said = heard(request)
    return calls("lookup", {"at": "it"}) if said == "begin" else says(f"You said: {said[:100]}")


def a_batch(random: Random) -> tuple[bool, tuple[tuple[bool, str], ...]]:
    """Return whether a call is at work, and messages, each with whether it is signed."""
    bodies = tuple(
        (random.randrange(4) > 0, mutated(random, random.choice(MESSAGES))) for _ in range(random.choice((1, 1, 2, 4)))
    )
    return random.randrange(3) > 0, bodies


@asynccontextmanager
async def leader():
    async def check(made: tuple[bool, tuple[tuple[bool, str], ...]]) -> None:
        is_at_work, bodies = made
        world = World(in_memory(), ScriptedModel(script), tools=["lookup"])
        await world.boot()
        call_id = "call-1"
        if is_at_work:
            await world.say("c", "begin")
            await world.settle()
            call_id = world.server.last("lookup")
        sent = await _sent(world, call_id, bodies)
        receipts = QueueReceipts(world.adapters.inputs)
        leading = Leader(world.system, receipts, receipts, 3, Telemetry("leader"))
        for _ in range(30):
            groups = await world.adapters.inputs.receive(groups=10, batch=10, visibility=1_800)
            received = [message for group in groups for message in group]
            if not received:
                break
            receipts.held.update({message.receipt: message for message in received})
            failed = failures_of(await leading.handle(event_of(received), seconds=SECONDS))
            assert failed == [], "memory never fails: whatever failed, failed for what the message is"
            await world.adapters.inputs.delete([each for each in received if each.queue_id not in failed])
        dead = {letter.body for letter in world.adapters.inputs.data.dead.values()}
        done = {body for numbers in receipts.deleted for body in numbers}
        assert len(done) >= len(sent), "a message is neither heard nor among the dead letters"
        for body in dead:
            _is_refused(body)
        for group_id in {group for group, _ in sent}:
            entries = await world.history(group_id)
            assert list(faults(entries)) == []
            said = [plain_text(entry.content) for entry in entries if isinstance(entry, UserEntry)]
            assert "still there?" in said, "a plain message was not heard"

    yield check


async def _sent(world: World, call_id: str, bodies) -> list[tuple[str, str]]:
    sent = []
    for number, (is_signed, text) in enumerate(bodies):
        named = text.replace("call-1", call_id)
        body = signed(named, KEYRING) if is_signed else named
        try:
            await world.adapters.inputs.send(body, group_id=group_of(body), dedup_id=str(number))
        except Reject:
            continue  # no queue takes it
        sent.append((group_of(body), body))
    for group_id in {"c", *(group for group, _ in sent)}:
        body = PLAIN % group_id.replace("\\", "\\\\").replace('"', '\\"')
        await world.adapters.inputs.send(body, group_id=group_id, dedup_id="plain")
        sent.append((group_id, body))
    return sent


def _is_refused(body: str) -> None:
    try:
        decoders.inputs.decode(body, keyring=KEYRING, queue_id="q", group_id=group_of(body))
    except Reject:
        return
    raise AssertionError(f"a message that can be read is among the dead letters: {body[:500]}")


# ----------------------------------------------------------------------------------------------- the relay


def some_delayed(random: Random) -> tuple[str, ...]:
    inner = signed(mutated(random, random.choice(MESSAGES)))
    named = odd_text(random, "c") if random.randrange(9) == 0 else group_of(inner)
    return tuple(
        mutated(random, {"body": inner, "group_id": named, "dedup_id": "d"}) for _ in range(random.choice((1, 3)))
    )


@asynccontextmanager
async def relay():
    async def check(bodies: tuple[str, ...]) -> None:
        queue = MemoryInputQueue(FrozenClock())
        good = json.dumps({"body": signed(json.dumps(MESSAGES[0])), "group_id": "c", "dedup_id": "good"})
        event = {"Records": [{"messageId": str(number), "body": body} for number, body in enumerate((*bodies, good))]}
        reply = await delay_relay._forwarded(queue, decoders.KEYRING, event)
        failed = failures_of(reply)
        assert str(len(bodies)) not in failed, "one message keeps another from being forwarded"
        for message in queue.data.messages.values():
            delivery = decoders.inputs.decode(
                message.body, keyring=decoders.KEYRING, queue_id="q", group_id=message.group_id
            )
            assert delivery.proven, "what nobody has proven is forwarded"

    yield check


# ------------------------------------------------------------------------------------------- the responder

ROOT = "slack-C1-1700000000.000100"
OUTPUTS = tuple(
    {**OUTPUT, "group_id": ROOT, "thread_id": ROOT, "metadata": {"user_id": "slack:T1:U1"}, **more}
    for more in (
        {},
        {"type": "message", "text": "a | b\n--|--\n1 | 2", "thread_id": f"{ROOT}.1"},
        {"type": "tool_call", "text": "look(at=it)", "tool": "look", "arguments": {"at": "it"}, "call_id": "c"},
        {"type": "oauth_required", "auth_url": "https://login.example.com/a", "user_id": "slack:T1:U1"},
        {
            "type": "user_choice_required",
            "prompt": "Which?",
            "choices": ["a", "b"],
            "default": 0,
            "user_id": "slack:T1:U1",
        },
        {"type": "user_choice_complete", "choice_id": "call-1", "user_id": "slack:T1:U1"},
        {"type": "limit_reached"},
        {"type": "error"},
        {"type": "status"},
    )
)


class NoReceipts:
    """Receipts of messages that nobody keeps."""

    async def hide(self, receipts, *, seconds):
        assert seconds >= 0

    async def delete(self, receipts):
        """Nothing is there."""


@asynccontextmanager
async def responder():
    clock = FrozenClock()
    with SlackStandIn.running() as slack:
        slack.now = lambda: clock.now().timestamp()

        async def check(bodies: tuple[str, ...]) -> None:
            slack.messages.clear()
            slack.messages["C1"] = [{"type": "message", "ts": "1700000000.000100", "user": "U1", "text": "hello"}]
            slack.members["C1"] = {"U1"}
            showing = SlackResponder(SlackWebClient(slack.token, url=slack.api_url, timeout=5), clock)
            good = json.dumps({**OUTPUTS[0], "text": "still there", "output_id": "good", "seq": [999, 9]})
            records = [
                {
                    "messageId": str(number),
                    "receiptHandle": str(number),
                    "body": body,
                    "attributes": {"ApproximateReceiveCount": "1"},
                }
                for number, body in enumerate((*bodies, good))
            ]
            reply = await slack_responder._handled(showing, NoReceipts(), {"Records": records}, 60.0)
            for number in map(int, failures_of(reply)):
                assert number < len(bodies), "one output keeps another from being shown"
                try:
                    outputs.decode(bodies[number])
                except Undecodable:
                    continue
                raise AssertionError(f"an output waits for ever: {bodies[number][:500]}")
            assert "still there" in slack.answers("C1", "1700000000.000100")

        yield check


def some_outputs(random: Random) -> tuple[str, ...]:
    return tuple(mutated(random, random.choice(OUTPUTS)) for _ in range(random.choice((1, 1, 2, 3))))


TARGETS = (
    Target("leader", a_batch, leader),
    Target("relay", some_delayed, relay),
    Target("responder", some_outputs, responder),
)
