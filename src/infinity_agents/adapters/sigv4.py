"""Signature Version 4 for requests to Lambda function URLs and API Gateway, over the exact bytes that are sent.

The signing key and the string to sign are as AWS documents them:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..aws_clients import AwsCredentials
from ..errors import Misconfigured
from ..ports.clock import Clock

if TYPE_CHECKING:
    import httpx

_HOST = re.compile(r"(?:.+\.(?P<service>lambda-url|execute-api))\.(?P<region>[a-z0-9-]+)\.(?:on\.aws|amazonaws\.com.*)")
_SERVICES = {"lambda-url": "lambda", "execute-api": "execute-api"}

# What a client library or somebody on the way may set or change.
_UNSIGNED = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "expect", "transfer-encoding", "user-agent"}
    | {"x-amzn-trace-id"}
)


def is_aws_url(url: str) -> bool:
    """Return whether ``url`` is one of a Lambda function or of API Gateway, which may want a signature."""
    import httpx  # noqa: PLC0415 - it takes long to import, and a slice without a tool does not need it

    sent = httpx.URL(url)
    return sent.scheme == "https" and _HOST.fullmatch(sent.host) is not None


class SigV4Signer:
    """Signs requests with the credentials of the moment.

    Service and region are read off the host. Of a host that says neither (a domain of one's own, loopback), the region
    is ``region``, and the service ``service``.
    """

    def __init__(
        self,
        credentials: Callable[[], AwsCredentials],
        clock: Clock,
        *,
        region: str | None = None,
        service: str = "execute-api",
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._region = region
        self._service = service

    def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """Return the headers that sign the request.

        Raises:
            Misconfigured: there are no credentials, or no region.
            StoreUnavailable: the credentials cannot be fetched at the moment.
        """
        import httpx  # noqa: PLC0415 - as above

        # As httpx spells it on the wire.
        sent = httpx.URL(url)
        service, region = self._scope(sent.host)
        credentials = self._credentials()
        moment = f"{self._clock.now():%Y%m%dT%H%M%SZ}"
        added = {"x-amz-date": moment}
        if credentials.token is not None:
            added["x-amz-security-token"] = credentials.token
        signed = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
        signed = {name: value for name, value in signed.items() if name not in _UNSIGNED}
        signed |= {"host": sent.netloc.decode(), **added}
        names = ";".join(sorted(signed))
        request = "\n".join(
            [
                method.upper(),
                *_canonical_target(sent),
                *(f"{name}:{signed[name]}" for name in sorted(signed)),
                "",
                names,
                hashlib.sha256(body).hexdigest(),
            ]
        )
        scope = f"{moment[:8]}/{region}/{service}/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = f"AWS4{credentials.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        proof = f"Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**added, "Authorization": f"AWS4-HMAC-SHA256 {proof}"}

    def _scope(self, host: str) -> tuple[str, str]:
        named = _HOST.fullmatch(host)
        if named is not None:
            return _SERVICES[named["service"]], named["region"]
        if self._region is None:
            raise Misconfigured(f"the host {host!r} does not say in which region it is; set AWS_REGION")
        return self._service, self._region


def _canonical_target(url: "httpx.URL") -> tuple[str, str]:
    """Return the path, escaped once more as all services but S3 want it, and the sorted query."""
    path, _, query = url.raw_path.decode("ascii").partition("?")
    pairs = sorted(pair.partition("=")[::2] for pair in query.split("&") if pair)
    return quote(path or "/", safe="/~"), "&".join(f"{name}={value}" for name, value in pairs)
