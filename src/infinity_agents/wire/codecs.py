"""Values as JSON and back, by their types.

What reads and writes a type costs milliseconds to build, and no process needs all: each is built at its first use.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from ..conversation.content import without_surrogates

T = TypeVar("T")


@dataclass(frozen=True)
class Codec(Generic[T]):
    """Turns values of one kind into JSON text and back."""

    kind: Any

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(self.kind)

    def encode(self, value: T) -> str:
        """Return ``value`` as JSON text without what is absent."""
        try:
            return self._adapter.dump_json(value, exclude_none=True).decode()
        except PydanticSerializationError:
            fields = mended_json(self._adapter.dump_python(value, exclude_none=True))
            return json.dumps(fields, default=str)

    def decode(self, text: str | bytes) -> T:
        """Return the value that ``encode`` gave this text."""
        return self._adapter.validate_json(text)


values: Codec[Any] = Codec(Any)
"""Turns any JSON value into text and back."""


def adapter_of(kind: Any) -> Callable[[], TypeAdapter[Any]]:
    """Return what gives the adapter of ``kind``. No cold start needs all: it is built at its first use."""
    return cache(lambda: TypeAdapter(kind))


def mended_json(value: Any) -> Any:
    """Return the JSON value with each lone surrogate in its texts replaced: nothing can store or send one."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list | tuple):
        return [mended_json(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key): mended_json(item) for key, item in value.items()}
    return value
