"""Which tool servers the leader uses: one item in its table, and one policy for all of them."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

import jsii
from aws_cdk import Duration, IStableStringProducer, Lazy, Stack, aws_dynamodb, aws_iam
from aws_cdk.custom_resources import (
    AwsCustomResource,
    AwsCustomResourcePolicy,
    AwsSdkCall,
    PhysicalResourceId,
)
from constructs import Construct

from .functions import url_statements
from .review import accept_framework

_ARNS_PER_POLICY = 20
"""As many as fit in the 6,144 characters of a managed policy, each twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSetEntry:
    """One tool server as the leader is told of it.

    ``name`` is the tool set's id in tokens and messages, 1 to 128 characters. ``auth`` is ``sigv4``, ``none``, or the
    ARN of a secret that holds a bearer token. ``call_timeout`` is how long a call may take before it is given up.
    """

    name: str
    server_url: str
    auth: str = "none"
    call_timeout: Duration | None = None

    def written(self) -> dict[str, Any]:
        """Return the entry as the tools configuration has it."""
        entry: dict[str, Any] = {
            "type": "toolset_server",
            "server_url": self.server_url,
            "id": self.name,
            "auth": self.auth if self.auth in {"sigv4", "none"} else {"bearer_secret_arn": self.auth},
        }
        if self.call_timeout is not None:
            entry["call_timeout"] = self.call_timeout.to_seconds()
        return entry


class ToolsConfig(Construct):
    """The tools configuration, written by one resource, however many tool sets there are.

    Attributes:
        key: the item's ``pk``. It changes with what the item says: a deployment that changes the tools makes a new
            item first, then tells the leader its key, and then deletes the old one, so that no leader goes on with
            what it read before.
    """

    def __init__(self, scope: Construct, id: str, *, table: aws_dynamodb.TableV2) -> None:
        super().__init__(scope, id)
        self._entries: dict[str, ToolSetEntry] = {}
        self.key = Lazy.string(_Text(self._key))
        config = Lazy.string(_Text(self._config))
        item = {"pk": {"S": self.key}, "sk": {"S": "config"}}
        put = AwsSdkCall(
            service="DynamoDB",
            action="putItem",
            parameters={"TableName": table.table_name, "Item": {**item, "config": {"S": config}}},
            physical_resource_id=PhysicalResourceId.of(self.key),
        )
        AwsCustomResource(
            self,
            "Item",
            resource_type="Custom::InfinityToolsConfig",
            install_latest_aws_sdk=False,
            on_create=put,
            on_update=put,
            on_delete=AwsSdkCall(
                service="DynamoDB",
                action="deleteItem",
                parameters={"TableName": table.table_name, "Key": item},
            ),
            policy=AwsCustomResourcePolicy.from_statements(
                [
                    aws_iam.PolicyStatement(
                        actions=["dynamodb:PutItem", "dynamodb:DeleteItem"], resources=[table.table_arn]
                    )
                ]
            ),
        )
        singleton = Stack.of(self).node.find_child(f"AWS{AwsCustomResource.PROVIDER_FUNCTION_UUID.replace('-', '')}")
        accept_framework(singleton)

    def add(self, entry: ToolSetEntry) -> None:
        """Add a tool set; see ``InfinityAgent.register_tool_set``."""
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", entry.name):
            raise ValueError(
                f"a tool set's name is {entry.name!r} and must be 1 to 128 letters, digits, '-', '_' or '.'; pass name="
            )
        if entry.name in self._entries:
            raise ValueError(
                f"{self.node.path}: the agent has a tool set named {entry.name!r} already; give one of the two another "
                "id, or pass name="
            )
        self._entries[entry.name] = entry

    def _config(self) -> str:
        return Stack.of(self).to_json_string({"tool_sets": [entry.written() for entry in self._entries.values()]})

    def _key(self) -> str:
        told = Stack.of(self).resolve([entry.written() for entry in self._entries.values()])
        return f"tools-{hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]}"


class ToolAccess(Construct):
    """Lets a role send signed requests to the URLs of tool functions."""

    def __init__(self, scope: Construct, id: str, *, role: aws_iam.Role) -> None:
        super().__init__(scope, id)
        self._role = role
        self._arns: list[str] = []
        self._open: list[aws_iam.PolicyStatement] = []

    def add(self, arn: str) -> None:
        """Add a function; a repeat changes nothing."""
        if arn in self._arns:
            return
        page, place = divmod(len(self._arns), _ARNS_PER_POLICY)
        self._arns.append(arn)
        if place == 0:
            self._open = url_statements(arn)
            aws_iam.ManagedPolicy(
                self,
                f"Policy{page + 1}",
                statements=self._open,
                roles=[self._role],
            )
        else:
            for statement in self._open:
                statement.add_resources(arn)


@jsii.implements(IStableStringProducer)
class _Text:
    """A text that is written when all tool sets are known."""

    def __init__(self, write: Any) -> None:
        self._write = write

    def produce(self) -> str:
        return str(self._write())
