"""The function that hears from EventBridge when an instance changes its state, and tells whoever waits for that."""

import os
from collections.abc import Mapping

from ..adapters.dynamo_records import DynamoRecords
from ..adapters.ec2 import Ec2Instances
from ..adapters.system import SystemClock
from ..aws_clients import AwsClients
from ..rap.posting import CallbackSender
from ..settings.tool_servers import Ec2EventsEnvironment
from ..toolsets.ec2 import heard
from .http_events import NoRequest, seen
from .sandbox import Sandbox
from .tool_servers import signed

_Ports = tuple[Ec2Instances, DynamoRecords, CallbackSender]


async def _ports() -> _Ports:
    environment, clients = Ec2EventsEnvironment.read(os.environ), AwsClients()
    records = DynamoRecords(clients, environment.instances_table_name, SystemClock())
    return Ec2Instances(clients), records, CallbackSender(sign=signed(clients))


sandbox = Sandbox(_ports)


def handler(event: object, context: object) -> None:
    """Tell of the change in ``event``, an *EC2 Instance State-change Notification*.

    Raises:
        NoRequest: the event is another.
        StoreUnavailable: not everybody was told; EventBridge tries again.
        Undelivered: as above.
    """
    sandbox.run(lambda ports: _tell(*ports, event))


async def _tell(cloud: Ec2Instances, records: DynamoRecords, sender: CallbackSender, event: object) -> None:
    detail = event.get("detail") if isinstance(event, Mapping) else None
    if (
        not isinstance(event, Mapping)
        or not isinstance(detail, Mapping)
        or not {"instance-id", "state"} <= detail.keys()
    ):
        raise NoRequest(
            f"this function is told of changes of instances' states, and this event {seen(event)}; make it the target "
            "of a rule for the detail-type EC2 Instance State-change Notification"
        )
    await heard(
        detail["instance-id"],
        detail["state"],
        event_id=event["id"],
        at=event["time"],
        cloud=cloud,
        records=records,
        sender=sender,
    )
