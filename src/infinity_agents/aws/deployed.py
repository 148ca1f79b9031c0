"""A deployed agent from outside: its queues and its stores, found by the outputs of its stack."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from ..adapters.dsql import AuroraDsql, DsqlConversationStore, DsqlDatabase, PostgreSql
from ..adapters.dynamodb import DynamoStateStore
from ..adapters.s3 import S3BlobStore
from ..adapters.sqs import SqsDeadLetters, SqsInputSender, SqsOutputReader
from ..adapters.system import FreshIds, SystemClock
from ..aws_clients import AwsClients, AwsRefused
from ..conversation import ids
from ..conversation.content import JsonObject, Text
from ..conversation.messages import Control, Delivery, InputMessage, UserChoiceResponse, UserContent
from ..conversation.outputs import Output
from ..errors import Misconfigured, StoreUnavailable
from ..ports.conversations import NO_ENTRIES, ConversationStore, LoadRequest
from ..settings import AgentSettings
from ..settings.stacks import AgentOutputs
from ..wire.large_values import sendable

_DB_USER = "DSQL_DB_USER"
_DATABASE_URL = "DATABASE_URL"
_COUNTED_FOR = timedelta(minutes=10)
_STACK = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}|arn:aws[a-z-]*:cloudformation:[a-z0-9-]+:\d{12}:stack/[A-Za-z0-9/-]+")
_NOT_USABLE = {
    "CREATE_IN_PROGRESS": "is still being created; wait until that is done",
    "REVIEW_IN_PROGRESS": "is not created yet; deploy it",
    "CREATE_FAILED": "could not be created; read its events in the console, delete it and deploy it again",
    "ROLLBACK_IN_PROGRESS": "could not be created; read its events in the console, delete it and deploy it again",
    "ROLLBACK_FAILED": "could not be created; read its events in the console, delete it and deploy it again",
    "ROLLBACK_COMPLETE": "could not be created; read its events in the console, delete it and deploy it again",
    "DELETE_IN_PROGRESS": "is being deleted; deploy it again when that is done",
    "DELETE_COMPLETE": "was deleted; deploy it again",
}
"""What is wrong with a stack in which no agent is at work, by its status."""


@dataclass(frozen=True, slots=True)
class DeployedStores:
    """What a deployed agent remembers."""

    conversations: ConversationStore
    state: DynamoStateStore
    clock: SystemClock


class DeployedQueue(SqsDeadLetters):
    """The dead letters of a deployed agent, and what this process has put on its input queue.

    SQS does not tell which threads its messages are for, so only those count that were sent here and are not heard yet.
    """

    def __init__(
        self, clients: AwsClients, outputs: AgentOutputs, clock: SystemClock, conversations: ConversationStore
    ) -> None:
        super().__init__(
            clients, dead_letter_url=outputs.dead_letter_queue_url, input_url=outputs.input_queue_url, clock=clock
        )
        self._conversations = conversations
        self._sent: dict[str, dict[str, datetime]] = {}

    def note_sent(self, message: InputMessage) -> None:
        """Count the message until its thread has heard it, or ten minutes are over: then it may have been parked."""
        identity = Delivery(message, queue_id="").identity
        self._sent.setdefault(message.group_id, {})[identity] = self._clock.now()

    async def outstanding(self) -> Mapping[str, int]:
        """Return how many messages of this process each thread has not heard yet."""
        for thread_id, sent in self._sent.items():
            request = LoadRequest(thread_id, message_ids=frozenset(sent), known_to=NO_ENTRIES)
            snapshot = await self._conversations.load(request) if sent else None
            heard = snapshot.heard if snapshot else frozenset()
            long_ago = self._clock.now() - _COUNTED_FOR
            self._sent[thread_id] = {name: at for name, at in sent.items() if name not in heard and at > long_ago}
        return {thread_id: len(sent) for thread_id, sent in self._sent.items() if sent}


class Looking:
    """Stands in for what tells that a store was written to: after ``every`` seconds, a distant one may have been."""

    def __init__(self, every: float = 1.0, now: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._now = now

    def data_version(self) -> int:
        """Return a number that is another one as soon as it is time to look again."""
        return int(self._now() / self._every)


class NoOutputs:
    """The log of outputs that a deployed agent does not keep: they go to its output queue."""

    async def last_place(self) -> int:
        """Return 0: there is none."""
        return 0


@dataclass(frozen=True)
class DeployedAgent:
    """An agent in an AWS account, for whoever may use its queues and read its stores."""

    stack: str
    clients: AwsClients
    found: AgentOutputs
    services: DeployedStores
    queue: DeployedQueue
    told: SqsOutputReader
    database: Looking = field(default_factory=Looking)
    outputs_log: NoOutputs = field(default_factory=NoOutputs)

    @classmethod
    async def find(cls, stack: str, agent: str | None = None, clients: AwsClients | None = None) -> Self:
        """Return the agent that the outputs of ``stack`` tell of.

        Region and credentials come from the usual variables and files of AWS. The database user on Aurora DSQL is
        ``DSQL_DB_USER``, ``admin`` where it is not set; a PostgreSQL that the stack does not own is ``DATABASE_URL``.

        Raises:
            Misconfigured: there is no such stack or agent, it is not deployed yet or any more, or there are no
                credentials that may look; the text says how to mend it.
            StoreUnavailable: CloudFormation cannot be reached at the moment.
        """
        clients = clients or AwsClients()
        found = AgentOutputs.read(await _outputs(clients, stack), agent)
        clock = SystemClock()
        conversations = DsqlConversationStore(DsqlDatabase(_server(found, stack, clients), clock))
        return cls(
            stack,
            clients,
            found,
            DeployedStores(conversations, DynamoStateStore(clients, found.state_table_name, clock), clock),
            DeployedQueue(clients, found, clock, conversations),
            SqsOutputReader(clients, found.output_queue_url),
        )

    async def send(
        self,
        thread_id: str,
        content: str | UserContent | UserChoiceResponse | Control,
        *,
        metadata: JsonObject | None = None,
        message_id: str | None = None,
    ) -> str:
        """Put what a person says on the queue; return the message's id. The same id sent again is heard once.

        Raises:
            Reject: no queue takes ``thread_id``, or the message is too large.
            Misconfigured: these credentials may not send.
            StoreUnavailable: the queue cannot be reached; sending it again under the same id is harmless.
        """
        message_id = message_id or FreshIds().fresh()
        message = InputMessage(
            content=Text(content) if isinstance(content, str) else content,
            group_id=thread_id,
            message_id=message_id,
            metadata=metadata,
        )
        blobs = S3BlobStore(self.clients, self.found.blob_bucket_name)
        body = await sendable(message, keyring=None, blobs=blobs, inline_bytes=AgentSettings().inline_bytes)
        inputs = SqsInputSender(self.clients, self.found.input_queue_url)
        await inputs.send(body, group_id=thread_id, dedup_id=ids.message_id("said", thread_id, message_id))
        self.queue.note_sent(message)
        return message_id

    async def outputs(
        self,
        *,
        after: int = 0,
        group_id: str | None = None,
        limit: int = 1000,
    ) -> Sequence[tuple[int, Output]]:
        """Return none: what people are told goes to the output queue, and is whose that takes it there."""
        return ()

    @property
    def hosted_by(self) -> str:
        """What hosts it."""
        return f"the stack {self.stack}"

    async def aclose(self) -> None:
        """Let the connections go."""
        self.clients.close()


async def _outputs(clients: AwsClients, stack: str) -> Mapping[str, str]:
    if not _STACK.fullmatch(stack):
        raise Misconfigured(
            f"{stack[:100]!r} cannot be the name of a stack, which has letters, digits and hyphens, 128 at most, and "
            "begins with a letter, nor the ARN of one; `aws cloudformation list-stacks` lists them"
        )
    try:
        answer = await clients.call("cloudformation", "describe_stacks", StackName=stack)
    except StoreUnavailable as error:
        # A function gets new credentials by itself; a person does not.
        if "Expired" not in str(error):
            raise
        raise Misconfigured(f"{error}; get new credentials, such as by `aws sso login`") from error
    except AwsRefused as error:
        if error.code == "ValidationError" and "does not exist" in str(error):
            raise Misconfigured(
                f"there is no stack {stack!r} in {clients.region}; name another, or the region with AWS_REGION"
            ) from error
        remedy = "let them do cloudformation:DescribeStacks" if "AccessDenied" in error.code else "check them"
        raise Misconfigured(
            f"{error}; whose credentials these are, `aws sts get-caller-identity` tells: {remedy}"
        ) from error
    described = answer["Stacks"][0]
    wrong = _NOT_USABLE.get(described["StackStatus"])
    if wrong is not None:
        raise Misconfigured(f"the stack {stack!r} {wrong} ({described['StackStatus']})")
    outputs = described.get("Outputs", ())
    return {output["OutputKey"]: output["OutputValue"] for output in outputs}


def _server(found: AgentOutputs, stack: str, clients: AwsClients) -> AuroraDsql | PostgreSql:
    if found.database_endpoint is not None:
        return AuroraDsql(found.database_endpoint, os.environ.get(_DB_USER) or "admin", clients)
    url = os.environ.get(_DATABASE_URL)
    if not url:
        raise Misconfigured(
            f"the database of the stack {stack!r} is a PostgreSQL of its owner's; set {_DATABASE_URL} to reach it"
        )
    return PostgreSql(url)
