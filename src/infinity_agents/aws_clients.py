"""The AWS client: botocore, each client made once at its first call, and every call run in a thread.

The only file that knows which client library it is. ADR 14 says why it is this one.
"""

import asyncio
import contextvars
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import Misconfigured, StoreUnavailable

if TYPE_CHECKING:
    from botocore.session import Session

_TRANSIENT = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "LimitExceededException",
        "OverLimit",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestExpired",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceQuotaExceededException",
        "SlowDown",
        "TooManyRequestsException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
"""Codes that pass, whatever their status. Codes that speak of throttling are told by that word."""


class AwsRefused(Misconfigured):
    """A service refuses the request as it is. ``code`` is the service's own; an adapter knows which it expects."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """What a request is signed with at this moment."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class AwsClients:
    """Calls AWS services; makes each client once, at its first call, and keeps it as long as the process lives.

    Endpoints, region and credentials come from the usual places, ``AWS_ENDPOINT_URL`` and
    ``AWS_ENDPOINT_URL_<SERVICE>`` included. A call is tried ``attempts`` times, each for at most ``timeout`` seconds:
    a socket that died while the sandbox was frozen costs one of them.
    """

    def __init__(
        self, *, region: str | None = None, attempts: int = 3, timeout: float = 5.0, parallel: int = 32
    ) -> None:
        self._region = region
        self._attempts = attempts
        self._timeout = timeout
        self._parallel = parallel
        # Threads are started as they are needed, and belong to no event loop.
        self._threads = ThreadPoolExecutor(parallel, thread_name_prefix="aws")
        self._making = threading.RLock()
        self._session: Session | None = None
        self._clients: dict[str, Any] = {}

    async def call(self, service: str, operation: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Return the answer to ``operation``, spelt as botocore spells it; a streamed ``Body`` is read to its end.

        Raises:
            StoreUnavailable: the service cannot be reached, is down, or asks to slow down, to the last attempt. What
                was asked for may have been done.
            AwsRefused: the service refuses the request, with its ``code``.
            Misconfigured: there are no credentials, or there is no region.
        """
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, context.run, self._call, service, operation, arguments
        )

    def client(self, service: str) -> Any:
        """Return the botocore client of ``service``, for what ``call`` does not cover."""
        client = self._clients.get(service)
        if client is None:
            from botocore.config import Config  # noqa: PLC0415 - an optional extra

            config = Config(
                connect_timeout=min(self._timeout, 3.0),
                read_timeout=self._timeout,
                retries={"mode": "standard", "total_max_attempts": self._attempts},
                max_pool_connections=self._parallel,
                tcp_keepalive=True,
            )
            # A session makes one client at a time.
            with self._making:
                client = self._clients.get(service)
                if client is None:
                    client = self._opened().create_client(service, region_name=self.region, config=config)
                    self._clients[service] = client
        return client

    @property
    def region(self) -> str | None:
        """The region of all clients; ``None`` where nothing names one."""
        configured: str | None = self._opened().get_config_variable("region")
        return self._region or os.environ.get("AWS_REGION") or configured

    def credentials(self) -> AwsCredentials:
        """Return what to sign with now: what expires is refreshed in time.

        Raises:
            Misconfigured: there are none.
            StoreUnavailable: they cannot be fetched at the moment.
        """
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - an optional extra

        try:
            with self._making:
                found = self._opened().get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        except BotoCoreError as error:
            _raise_for("credentials", error)
        if frozen is None:
            raise Misconfigured("no AWS credentials were found; set AWS_ACCESS_KEY_ID and so on, or AWS_PROFILE")
        return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token)

    def presigned(self, url: str, *, service: str, region: str, seconds: int) -> str:
        """Return ``url`` with the proof in its query that these credentials ask for it, good for ``seconds``.

        Raises:
            Misconfigured: there are no credentials.
            StoreUnavailable: they cannot be fetched at the moment.
        """
        from botocore.auth import SigV4QueryAuth  # noqa: PLC0415 - an optional extra
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415
        from botocore.credentials import Credentials  # noqa: PLC0415

        found = self.credentials()
        request = AWSRequest("GET", url)
        signer = SigV4QueryAuth(Credentials(found.access_key, found.secret_key, found.token), service, region, seconds)
        signer.add_auth(request)
        signed: str = request.prepare().url
        return signed

    def close(self) -> None:
        """Close the connections and let the threads end. A later call fails."""
        self._threads.shutdown(wait=False)
        for client in self._clients.values():
            client.close()

    def _opened(self) -> "Session":
        with self._making:
            if self._session is None:
                self._session = _new_session()
            return self._session

    def _call(self, service: str, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an optional extra
        from botocore.parsers import ResponseParserError  # noqa: PLC0415

        what = f"{service} {operation}"
        try:
            answer: dict[str, Any] = getattr(self.client(service), operation)(**arguments)
            if hasattr(answer.get("Body"), "read"):
                answer["Body"] = answer["Body"].read()
        except ClientError as error:
            _raise_for_answer(what, error)
        except ResponseParserError as error:
            raise StoreUnavailable(f"{what}: the answer makes no sense: {error}") from error
        except (BotoCoreError, OSError) as error:
            _raise_for(what, error)
        return answer


def _new_session() -> "Session":
    import botocore.session  # noqa: PLC0415 - an optional extra

    session = botocore.session.get_session()
    loader = session.get_component("data_loader")

    def named(_type_name: str) -> list[str]:
        return [one.name for path in map(Path, loader.search_paths) if path.is_dir() for one in path.iterdir()]

    # To learn whether it knows a service, the loader would look into the directories of all 400, which is a third of
    # what a client costs at a cold start. Their names tell as much.
    loader.list_available_services = named
    return session


def _raise_for_answer(what: str, error: Any) -> NoReturn:
    told = error.response.get("Error", {})
    code = str(told.get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= 500 or status == 429 or code in _TRANSIENT or "throttl" in code.lower():
        raise StoreUnavailable(f"{what}: {code}: {told.get('Message', '')}") from error
    raise AwsRefused(f"{what} is refused: {code}: {told.get('Message', '')}", code) from error


def _raise_for(what: str, error: Exception) -> NoReturn:
    from botocore import exceptions  # noqa: PLC0415 - an optional extra

    if isinstance(error, exceptions.ParamValidationError):
        # The report quotes values, however long.
        report = " ".join(str(error).split())[:300]
        raise AwsRefused(f"{what} cannot be asked: {report}", "ParamValidation") from error
    unset = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.NoRegionError,
        exceptions.InvalidRegionError,
        exceptions.ProfileNotFound,
        exceptions.ConfigParseError,
        exceptions.SSOError,
        exceptions.TokenRetrievalError,
        exceptions.UnknownServiceError,
        exceptions.DataNotFoundError,
    )
    if isinstance(error, unset):
        told = str(error).rstrip(".")
        raise Misconfigured(f"{what}: {told}; set AWS_REGION and credentials, or AWS_PROFILE") from error
    raise StoreUnavailable(f"{what}: {error}") from error
