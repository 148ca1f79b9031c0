"""The EC2 server: makes instances, and tells of the states that they go through.

What waits for a change of state is in a table of records; ``heard`` looks there, in whatever process hears of it.

| group | key | record |
|---|---|---|
| ``instance#ID`` | thread and call | ``handle``, ``kind`` (``creation`` or ``watch``), ``states`` |
| ``waiting#THREAD`` | call | ``about`` |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from ..conversation.ids import digest
from ..ports.records import RecordTable
from ..rap.posting import CallbackSender, answer_with, push_with
from ..rap.results import LATER, Event, Later
from ..rap.server import ToolContext, ToolServer
from .waiting import Waiting, forget_when_over

State = Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]

_NEVER_RUNS = {"stopping", "stopped", "shutting-down", "terminated"}


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as it is now; ``reason`` says why it changed its state, where EC2 says so."""

    id: str
    state: str
    instance_type: str = ""
    private_address: str | None = None
    public_address: str | None = None
    reason: str = ""

    def told(self) -> dict[str, Any]:
        """Return what the model reads of it."""
        return {
            "instance_id": self.id,
            "state": self.state,
            "instance_type": self.instance_type,
            "private_address": self.private_address,
            "public_address": self.public_address,
        }


class InstanceCloud(Protocol):
    """Makes instances and knows them."""

    async def create(
        self, token: str, *, image_id: str, instance_type: str, name: str | None, subnet_id: str | None
    ) -> str:
        """Return the id of a new instance; of the same one as long as ``token`` is the same.

        Raises:
            ValueError: it refuses; the text is for whoever asked.
            StoreUnavailable: it could not be asked; asking again is harmless.
        """
        ...

    async def describe(self, instance_id: str) -> Instance | None:
        """Return the instance, or ``None`` where there is none, or none yet.

        Raises:
            StoreUnavailable: it could not be asked.
        """
        ...


def ec2_server(cloud: InstanceCloud, records: RecordTable) -> ToolServer:
    """Return the server over ``cloud``, which keeps in ``records`` who waits for what."""
    server = ToolServer(name="ec2", description="Makes virtual machines, and tells of their states.")

    @server.tool(idempotent=True, display_script='"New instance: " + args.instance_type + " from " + args.image_id')
    async def create_ec2(
        image_id: Annotated[str, Field(pattern="^ami-[0-9a-f]+$", description="The image that it starts from")],
        ctx: ToolContext,
        instance_type: Annotated[str, Field(description="Such as t4g.small")] = "t3.micro",
        name: Annotated[str | None, Field(max_length=256, description="A name to know it by")] = None,
        subnet_id: str | None = None,
    ) -> Later:
        """Make an EC2 instance. The result comes when it runs, or when it is clear that it will not."""
        token = digest(ctx.thread_id, ctx.call_id, length=64)
        instance_id = await cloud.create(
            token, image_id=image_id, instance_type=instance_type, name=name, subnet_id=subnet_id
        )
        waiting = Waiting(_waiting_for(instance_id), ctx.thread_id, ctx.call_id)
        await waiting.put(records, {"handle": ctx.handle, "kind": "creation", "states": []})
        # It may have changed before that was written, and then nobody would say so again.
        instance = await cloud.describe(instance_id)
        answer = None if instance is None else _answer(instance)
        if answer is not None:
            await server.answer(ctx.handle, answer[0], is_error=answer[1])
            await waiting.delete(records)
        return LATER

    @server.subscription(idempotent=True)
    async def subscribe_ec2_states(
        instance_id: Annotated[str, Field(pattern="^i-[0-9a-f]+$")],
        ctx: ToolContext,
        states: Annotated[list[State] | None, Field(description="The states to be told of; all by default")] = None,
    ) -> str:
        """Tell whenever an EC2 instance changes its state, until it is terminated."""
        instance = await cloud.describe(instance_id)
        if instance is None:
            raise ValueError(f"there is no instance {instance_id} in this account and region")
        if instance.state == "terminated":
            raise ValueError(f"the instance {instance_id} is terminated, and will not change any more")
        record = {"handle": ctx.handle, "kind": "watch", "states": states or []}
        await Waiting(_waiting_for(instance_id), ctx.thread_id, ctx.call_id).put(records, record)
        return f"Subscribed to the states of {instance_id}, which is {instance.state} now."

    forget_when_over(server, records)
    return server


async def heard(
    instance_id: str,
    state: str,
    *,
    event_id: str,
    at: str,
    cloud: InstanceCloud,
    records: RecordTable,
    sender: CallbackSender,
) -> None:
    """Tell whoever waits that the instance went into ``state`` at the moment ``at``; telling it twice is harmless.

    Raises:
        StoreUnavailable: not everybody was told; do it again.
        Undelivered: as above.
    """
    there = await records.all(_waiting_for(instance_id))
    instance: Instance | None = None
    for key, record in there.items():
        waiting = Waiting.named(_waiting_for(instance_id), key)
        if record["kind"] == "watch":
            await _tell(record, instance_id, state, event_id=event_id, at=at, sender=sender)
            is_over = state == "terminated"
        else:
            if instance is None:
                known = await cloud.describe(instance_id) or Instance(instance_id, state)
                instance = Instance(
                    instance_id,
                    state,
                    known.instance_type,
                    known.private_address,
                    known.public_address,
                    known.reason,
                )
            answer = _answer(instance)
            is_over = answer is not None
            if answer is not None:
                await answer_with(sender, record["handle"], answer[0], is_error=answer[1])
        if is_over:
            await waiting.delete(records)


async def _tell(
    record: Mapping[str, Any], instance_id: str, state: str, *, event_id: str, at: str, sender: CallbackSender
) -> None:
    states: Sequence[str] = record["states"]
    is_last = state == "terminated"
    if states and state not in states and not is_last:
        return
    event = Event(f"The instance {instance_id} is {state} (since {at}).", final=is_last, event_id=event_id)
    await push_with(sender, record["handle"], event)


def _answer(instance: Instance) -> tuple[dict[str, Any] | str, bool] | None:
    """Return the result of the call that made the instance, and whether that is an error; ``None`` while it starts."""
    if instance.state == "running":
        return instance.told(), False
    if instance.state in _NEVER_RUNS:
        reason = f": {instance.reason}" if instance.reason else ""
        return f"The instance {instance.id} is {instance.state} before it ran{reason}", True
    return None


def _waiting_for(instance_id: str) -> str:
    return f"instance#{instance_id}"
