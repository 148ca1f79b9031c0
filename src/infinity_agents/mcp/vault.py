"""Records that only we can read: tokens, and whatever else must not be read by who can read the table."""

import base64
import hashlib
import hmac
import json
import os
from datetime import timedelta

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..errors import Misconfigured
from ..ports.records import Record, RecordTable

_NONCE = 12
_LEAST_SECRET = 16


class Vault:
    """Encrypts records by AES-256-GCM with a key made of ``secret``; each holds only under its group and key.

    Raises:
        Misconfigured: the secret is too short to be one.
    """

    def __init__(self, records: RecordTable, secret: bytes) -> None:
        if len(secret) < _LEAST_SECRET:
            raise Misconfigured(
                f"the encryption secret has {len(secret)} bytes and must have {_LEAST_SECRET} at least; make one with "
                "`openssl rand -hex 32`"
            )
        self._records = records
        self._cipher = AESGCM(_derived(secret, b"records"))
        self._signing_key = _derived(secret, b"signatures")
        self._naming_key = _derived(secret, b"names")

    async def put(self, group: str, key: str, record: Record, *, kept: timedelta) -> None:
        """Keep ``record``, in place of what was there."""
        await self._records.put(group, key, self._sealed(group, key, record), kept=kept)

    async def get(self, group: str, key: str) -> Record | None:
        """Return the record, or ``None`` where there is none that this secret opens."""
        sealed = await self._records.get(group, key)
        return None if sealed is None else self._opened(group, key, sealed)

    async def all(self, group: str) -> dict[str, Record]:
        """Return the records of a group that this secret opens, by key."""
        sealed = await self._records.all(group)
        found = {key: self._opened(group, key, record) for key, record in sealed.items()}
        return {key: record for key, record in found.items() if record is not None}

    async def delete(self, group: str, key: str) -> None:
        """Forget the record, if there is one."""
        await self._records.delete(group, key)

    async def claim(self, group: str, key: str, *, kept: timedelta) -> bool:
        """Return whether this is the first claim of that key within ``kept``; of two at once, one is."""
        return await self._records.put_new(group, key, {}, kept=kept) is None

    def name(self, *parts: str) -> str:
        """Return what stands for ``parts`` in the keys of a table, and does not tell them."""
        return hmac.new(self._naming_key, json.dumps(parts).encode(), hashlib.sha256).hexdigest()

    def signature(self, *parts: str) -> str:
        """Return what only we can make of ``parts``."""
        return hmac.new(self._signing_key, json.dumps(parts).encode(), hashlib.sha256).hexdigest()

    def _sealed(self, group: str, key: str, record: Record) -> Record:
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, json.dumps(record).encode(), _place(group, key))
        return {"sealed": base64.b64encode(nonce + sealed).decode()}

    def _opened(self, group: str, key: str, record: Record) -> Record | None:
        sealed = base64.b64decode(record["sealed"])
        try:
            text = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], _place(group, key))
        except InvalidTag:
            # Of another secret, which was replaced since, or of another place: as good as not there.
            return None
        opened: Record = json.loads(text)
        return opened


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"infinity-agents mcp " + purpose).derive(secret)


def _place(group: str, key: str) -> bytes:
    return json.dumps([group, key]).encode()
