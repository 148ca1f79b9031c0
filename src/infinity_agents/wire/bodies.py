"""The JSON bodies of RAP, the Reactive Agent Protocol, version 1: what all of them have in common."""

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from ..errors import Undecodable
from .addresses import origin, secure_url
from .codecs import mended_json
from .inputs import explain, finite

_MAX_DEPTH = 64

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


def _web_url(url: str) -> str:
    origin(url)
    return url


SecureUrl = Annotated[str, AfterValidator(secure_url)]
WebUrl = Annotated[str, AfterValidator(_web_url)]


def parse_json(body: bytes) -> Any:
    """Return the JSON value of ``body``; lone surrogates in its texts are replaced.

    Raises:
        Undecodable: it is not UTF-8, not JSON (NaN and numbers beyond a float's range are none), or nested more than
            64 deep.
    """
    try:
        value = mended_json(json.loads(body.decode(), parse_constant=finite, parse_float=finite))
    except ValueError as error:
        raise Undecodable(f"the body is not JSON in UTF-8: {error}") from error
    except RecursionError as error:
        raise Undecodable("the body is nested too deeply") from error
    if _is_deeper(value, _MAX_DEPTH):
        raise Undecodable(f"the body is nested more than {_MAX_DEPTH} deep")
    return value


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deeper(item, levels - 1) for item in inner if isinstance(item, dict | list))


_Parsed = TypeVar("_Parsed")


class Body(BaseModel):
    """A JSON object. Unknown fields are ignored; null means absent wherever a field may be absent."""

    # Each is built when it is first used: a receiver needs few of them, and all are a good part of its cold start.
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        optional = {field.alias or name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in fields.items() if value is not None or name not in optional}

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values in the wire's spelling, without those that are absent."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def parsed(body: bytes, validate: Callable[[Any], _Parsed], what: str) -> _Parsed:
    """Return what ``validate`` makes of the JSON in ``body``, which should be ``what``.

    Raises:
        Undecodable: it is not; the text names the field.
    """
    fields = parse_json(body)
    try:
        return validate(fields)
    except ValidationError as error:
        raise Undecodable(f"not {what}: {explain(error)}") from error
