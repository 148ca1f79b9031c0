"""Arguments of a call: read and checked before anything runs."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..conversation.content import JsonObject, shown
from ..errors import TellModel
from ..wire.codecs import mended_json
from ..wire.inputs import parse_json

_TOLD = 5


def read_arguments(text: str) -> JsonObject:
    """Return the JSON object that ``text`` spells; no text at all is an empty one.

    Raises:
        TellModel: it is not JSON, or not an object.
    """
    if not text.strip():
        return {}
    try:
        value = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise TellModel(f"The arguments are not valid JSON: {error}. Nothing was run; call again.") from error
    if not isinstance(value, dict):
        raise TellModel(
            f"The arguments must be a JSON object, not {type(value).__name__}. Nothing was run; call again."
        )
    mended: JsonObject = mended_json(value)
    return mended


def check_arguments(name: str, schema: Mapping[str, Any], arguments: JsonObject) -> None:
    """Return where ``arguments`` satisfy ``schema``.

    Raises:
        TellModel: they do not; the text names each field and what was expected there.
    """
    try:
        validator = _validator(json.dumps(schema, sort_keys=True))
        errors = sorted(validator.iter_errors(arguments), key=lambda error: list(map(str, error.absolute_path)))
    except Exception as error:
        told = _short(f"{type(error).__name__}: {error}")
        raise TellModel(f"The schema of {name} cannot be used: {told}. Nothing was run.") from error
    if errors:
        told = "; ".join(
            f"{'.'.join(str(step) for step in error.absolute_path) or 'arguments'}: {_short(error.message)}"
            for error in errors[:_TOLD]
        )
        raise TellModel(f"The arguments of {name} do not fit its schema: {told}. Nothing was run; call again.")


def _short(message: str) -> str:
    message = shown(message)
    return message if len(message) <= 200 else message[:197] + "..."


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from jsonschema.validators import validator_for  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    read = json.loads(schema)
    # An empty registry: checking arguments fetches nothing that a tool server names.
    return validator_for(read, default=Draft202012Validator)(read, registry=Registry())
