"""Large values in S3."""

from ..aws_clients import AwsClients, AwsRefused
from ..errors import StoreUnavailable


class S3BlobStore:
    """A ``BlobStore`` in the bucket ``bucket``, under ``blobs/``.

    The role needs ``s3:ListBucket`` too: without it, S3 says *forbidden* of what is not there.
    """

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket

    async def put(self, sha256: str, value: bytes) -> None:
        """Keep ``value``, unless it is there already.

        Raises:
            StoreUnavailable: it may or may not be kept; putting it again is harmless.
        """
        try:
            await self._clients.call(
                "s3", "put_object", Bucket=self._bucket, Key=_key(sha256), Body=value, IfNoneMatch="*"
            )
        except AwsRefused as error:
            if error.code == "ConditionalRequestConflict":
                raise StoreUnavailable(f"{sha256} is being written by somebody else: {error}") from error
            # What is there has the same hash, so it is the same value.
            if error.code != "PreconditionFailed":
                raise

    async def get(self, sha256: str) -> bytes:
        """Return the value, or raise ``KeyError``.

        Raises:
            KeyError: it is not there.
            StoreUnavailable: it could not be read.
        """
        try:
            answer = await self._clients.call("s3", "get_object", Bucket=self._bucket, Key=_key(sha256))
        except AwsRefused as error:
            if error.code == "NoSuchKey":
                raise KeyError(sha256) from error
            if error.code == "AccessDenied":
                raise AwsRefused(
                    f"{error}; the role may lack s3:GetObject on the bucket {self._bucket!r}, or s3:ListBucket, "
                    "without which S3 says the same of a value that is not there",
                    error.code,
                ) from error
            raise
        return bytes(answer["Body"])


def _key(sha256: str) -> str:
    return f"blobs/{sha256}"
