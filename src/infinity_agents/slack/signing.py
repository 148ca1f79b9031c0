"""The proof that a request comes from Slack."""

import hashlib
import hmac
import re
from collections.abc import Mapping

from ..errors import Misconfigured

TOLERANCE = 300
"""Seconds for which a signature is good, in either direction."""


def checked_secret(secret: str) -> str:
    """Return the signing secret.

    Raises:
        Misconfigured: there is none: without it, anybody could speak for anybody.
    """
    if not secret.strip():
        raise Misconfigured("the signing secret of the Slack app is empty; it stands under Basic Information")
    return secret.strip()


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return what Slack writes into ``X-Slack-Signature`` for these very bytes."""
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, *, now: float) -> bool:
    """Tell whether Slack signed ``body`` within ``TOLERANCE`` of ``now``, in seconds since the epoch."""
    lowered = {name.lower(): value for name, value in headers.items()}
    timestamp = lowered.get("x-slack-request-timestamp", "")
    if not re.fullmatch(r"[0-9]{1,12}", timestamp) or abs(now - int(timestamp)) > TOLERANCE:
        return False
    proof = lowered.get("x-slack-signature", "")
    return hmac.compare_digest(signature(secret, timestamp, body).encode(), proof.encode("utf-8", "surrogatepass"))
