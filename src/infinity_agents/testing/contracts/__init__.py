"""What every adapter of a port must do, as pytest classes for the adapter's own tests to inherit.

An adapter's test says how one is made, and everything else is inherited::

    class TestMyBlobStore(BlobStoreContract):
        async def make(self) -> BlobStore:
            return MyBlobStore(...)

Some contracts also ask for ``reopen``: a fresh adapter over what survives a crash of the one that ``make`` made last.
"""

import pytest

_MODULES = ("blobs", "conversations", "models", "outputs", "queues", "records", "state", "timers")

# Without this, a broken promise would say "AssertionError" and not which values differ.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))

from .blobs import BlobStoreContract  # noqa: E402 - after the registration
from .conversations import ConversationStoreContract  # noqa: E402
from .models import ModelContract, Provided, ServedModelContract  # noqa: E402
from .outputs import OutputLogContract  # noqa: E402
from .queues import InputQueueContract  # noqa: E402
from .records import RecordTableContract  # noqa: E402
from .state import StateStoreContract  # noqa: E402
from .timers import TimersContract  # noqa: E402

__all__ = [
    "BlobStoreContract",
    "ConversationStoreContract",
    "InputQueueContract",
    "ModelContract",
    "OutputLogContract",
    "Provided",
    "RecordTableContract",
    "ServedModelContract",
    "StateStoreContract",
    "TimersContract",
]
