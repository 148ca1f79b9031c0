"""Instances in EC2."""

from typing import Any

from ..aws_clients import AwsClients, AwsRefused
from ..toolsets.ec2 import Instance


class Ec2Instances:
    """An ``InstanceCloud`` in the account and region of ``clients``."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients

    async def create(
        self, token: str, *, image_id: str, instance_type: str, name: str | None, subnet_id: str | None
    ) -> str:
        """Return the id of a new instance; of the same one as long as ``token`` is the same.

        Raises:
            ValueError: EC2 refuses; the text is its own.
            StoreUnavailable: it could not be asked; asking again is harmless.
        """
        options: dict[str, Any] = {}
        if name is not None:
            tags = [{"Key": "Name", "Value": name}]
            options["TagSpecifications"] = [{"ResourceType": "instance", "Tags": tags}]
        if subnet_id is not None:
            options["SubnetId"] = subnet_id
        try:
            answer = await self._clients.call(
                "ec2",
                "run_instances",
                ClientToken=token,
                ImageId=image_id,
                InstanceType=instance_type,
                MinCount=1,
                MaxCount=1,
                **options,
            )
        except AwsRefused as error:
            raise ValueError(str(error)) from error
        instance_id: str = answer["Instances"][0]["InstanceId"]
        return instance_id

    async def describe(self, instance_id: str) -> Instance | None:
        """Return the instance, or ``None`` where there is none, or none yet."""
        try:
            answer = await self._clients.call("ec2", "describe_instances", InstanceIds=[instance_id])
        except AwsRefused as error:
            if error.code.startswith("InvalidInstanceID"):
                return None
            raise
        found = [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]
        return _instance(found[0]) if found else None


def _instance(fields: dict[str, Any]) -> Instance:
    return Instance(
        id=fields["InstanceId"],
        state=fields["State"]["Name"],
        instance_type=fields["InstanceType"],
        private_address=fields.get("PrivateIpAddress"),
        public_address=fields.get("PublicIpAddress"),
        reason=fields.get("StateReason", {}).get("Message", ""),
    )
