"""The keys that prove who wrote a message or may answer a call."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import Misconfigured

_SETTING = "CALLBACK_SECRET"
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")


@dataclass(frozen=True)
class Keyring:
    """Signs with its first key and accepts all of them, so that a key can be replaced without a gap."""

    keys: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def parse(cls, setting: str) -> "Keyring":
        """Read ``keyid:secret``, several by comma; the first signs.

        Raises:
            Misconfigured: a part is not ``keyid:secret``, or its secret is shorter than 16 characters or no text.
        """
        keys: dict[str, bytes] = {}
        for number, part in enumerate(setting.split(","), start=1):
            key_id, colon, secret = part.strip().partition(":")
            if not colon or not _KEY_ID.fullmatch(key_id):
                raise Misconfigured(
                    f"{_SETTING}: key {number} must be spelt keyid:secret, with a key id of 1 to 32 letters, digits, "
                    "'-' or '_'"
                )
            if len(secret) < 16:
                raise Misconfigured(f"{_SETTING}: the secret of key {key_id!r} must have at least 16 characters")
            if key_id in keys:
                raise Misconfigured(f"{_SETTING}: the key id {key_id!r} stands there twice")
            try:
                keys[key_id] = secret.encode()
            except UnicodeEncodeError as error:
                raise Misconfigured(f"{_SETTING}: the secret of key {key_id!r} must be text in UTF-8") from error
        return cls(keys)

    def sign(self, purpose: str, message: bytes) -> str:
        """Return ``keyid:hmac`` over ``message``. What was signed for one ``purpose`` proves nothing for another."""
        key_id, key = next(iter(self.keys.items()))
        return f"{key_id}:{_mac(key, purpose, message)}"

    def proves(self, purpose: str, message: bytes, proof: str) -> bool:
        """Tell whether ``proof`` is a signature of ``message`` for ``purpose`` by one of the keys."""
        key_id, _, mac = proof.partition(":")
        key = self.keys.get(key_id)
        return key is not None and hmac.compare_digest(
            _mac(key, purpose, message).encode(), mac.encode("utf-8", "surrogatepass")
        )


def _mac(key: bytes, purpose: str, message: bytes) -> str:
    return hmac.new(key, purpose.encode() + b"\0" + message, hashlib.sha256).hexdigest()
