"""What moto's CloudFormation does not know: made here as far as an agent needs it, and told by name."""

import contextlib
import json
import re
import secrets
import string
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from moto.cloudformation import parsing
from moto.core.common_models import CloudFormationModel
from moto.dynamodb.models import dynamodb_backends
from moto.scheduler.models import scheduler_backends
from moto.secretsmanager.models import secretsmanager_backends
from moto.sqs.models import Queue

from infinity_agents.testing.aws.server import ACCOUNT, REGION

Attributes = dict[str, Any]
"""What ``Fn::GetAtt`` of a resource answers, by attribute; ``Ref`` is what ``Ref`` does."""
Make = Callable[[str, dict[str, Any]], Attributes]
"""Makes a resource of that physical name from its properties, with every reference resolved."""


@dataclass
class Missing:
    """The types of a template that moto lacks, and how each is made. What has no maker is only known by its name."""

    makers: dict[str, Make]
    made: Counter[str] = field(default_factory=Counter)

    @contextlib.contextmanager
    def filled(self) -> Iterator[None]:
        """Have moto know these types while the context is open."""
        known, queue = parsing.resource_class_from_type, Queue.create_from_cloudformation_json.__func__  # type: ignore[attr-defined]
        ours: dict[str, type[CloudFormationModel]] = {}

        def resource_class(kind: str) -> type[CloudFormationModel]:
            if kind not in parsing.get_model_map():
                ours.setdefault(kind, self._model(kind))
            return ours[kind] if kind in ours else known(kind)

        def create_queue(cls: type[Queue], name: str, described: dict[str, Any], *args: Any, **options: Any) -> Queue:
            # A FIFO queue without a name of its own gets one that ends as it must.
            if described["Properties"].get("FifoQueue") and not name.endswith(".fifo"):
                name = f"{name[:75]}.fifo"
            made: Queue = queue(cls, name, described, *args, **options)
            return made

        with ExitStack() as stack:
            stack.enter_context(patch.object(parsing, "resource_class_from_type", resource_class))
            stack.enter_context(patch.object(Queue, "create_from_cloudformation_json", classmethod(create_queue)))
            yield

    def _model(self, kind: str) -> type[CloudFormationModel]:
        missing = self

        class Resource(CloudFormationModel):
            def __init__(self, name: str, attributes: Attributes) -> None:
                self.name, self.attributes = name, attributes

            @staticmethod
            def cloudformation_type() -> str:
                return kind

            @staticmethod
            def cloudformation_name_type() -> str:
                return "Name"

            @classmethod
            def has_cfn_attr(cls, attr: str) -> bool:
                return True

            @classmethod
            def create_from_cloudformation_json(
                cls, resource_name: str, cloudformation_json: dict[str, Any], *_: Any, **options: Any
            ) -> "Resource":
                missing.made[kind] += 1
                make = missing.makers.get("Custom::" if kind.startswith("Custom::") else kind)
                attributes = make(resource_name, cloudformation_json["Properties"]) if make else {}
                return cls(resource_name, attributes)

            @classmethod
            def delete_from_cloudformation_json(cls, *_: Any) -> None:
                """Leave it: the account ends with the run."""

            def is_created(self) -> bool:
                return True

            @property
            def physical_resource_id(self) -> str:
                return str(self.attributes.get("Ref", self.name))

            def get_cfn_attribute(self, attribute_name: str) -> Any:
                if attribute_name in self.attributes:
                    return self.attributes[attribute_name]
                if attribute_name == "Arn":
                    return f"arn:aws:standin:{REGION}:{ACCOUNT}:{self.name}"
                raise KeyError(f"the stand-in's {kind} has no attribute {attribute_name}")

        return Resource


# --------------------------------------------------------------------------------------- those that other types need


def schedule_group(name: str, properties: dict[str, Any]) -> Attributes:
    """Make a group of schedules, in moto's Scheduler."""
    chosen = properties.get("Name") or re.sub("[^0-9a-zA-Z_.-]", "-", name)[-64:]
    group = scheduler_backends[ACCOUNT][REGION].create_schedule_group(chosen, [])
    return {"Ref": chosen, "Arn": group.arn}


def secret(name: str, properties: dict[str, Any]) -> Attributes:
    """Make a secret, in moto's Secrets Manager, with the text given or generated."""
    generated = properties.get("GenerateSecretString")
    text = properties.get("SecretString", "")
    if generated is not None:
        alphabet = string.ascii_letters + string.digits
        text = "".join(secrets.choice(alphabet) for _ in range(int(generated.get("PasswordLength", 32))))
        if "GenerateStringKey" in generated:
            fields = json.loads(generated.get("SecretStringTemplate", "{}"))
            text = json.dumps({**fields, generated["GenerateStringKey"]: text})
    made = json.loads(
        secretsmanager_backends[ACCOUNT][REGION].create_secret(
            name=properties.get("Name", name),
            secret_string=text,
            secret_binary=None,
            description=None,
            tags=[],
            kms_key_id=None,
            client_request_token=None,
            replica_regions=[],
            force_overwrite=False,
        )
    )
    return {"Ref": made["ARN"], "Id": made["ARN"]}


def table(name: str, properties: dict[str, Any]) -> Attributes:
    """Make a table, in moto's DynamoDB, which knows only the older type of it."""
    described = {key: properties[key] for key in ("AttributeDefinitions", "KeySchema", "BillingMode")}
    chosen = properties.get("TableName", name)
    made = dynamodb_backends[ACCOUNT][REGION].create_table(
        chosen,
        schema=described["KeySchema"],
        attr=described["AttributeDefinitions"],
        billing_mode=described["BillingMode"],
        throughput=None,
        global_indexes=[],
        indexes=[],
        streams=None,
        sse_specification=None,
        tags=[],
        deletion_protection_enabled=False,
        warm_throughput=None,
    )
    return {"Ref": chosen, "Arn": made.table_arn}


def cluster(name: str, properties: dict[str, Any]) -> Attributes:
    """Name a cluster of Aurora DSQL: what answers for it is a PostgreSQL, which functions are told of instead."""
    identifier = "standin" + "".join(secrets.choice(string.ascii_lowercase) for _ in range(19))
    return {
        "Ref": identifier,
        "Identifier": identifier,
        "Endpoint": f"{identifier}.dsql.{REGION}.on.aws",
        "ResourceArn": f"arn:aws:dsql:{REGION}:{ACCOUNT}:cluster/{identifier}",
        "Status": "ACTIVE",
    }
