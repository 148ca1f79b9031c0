"""What a tool server posts to a ``callback_url``, checked on the way in."""

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from ..conversation.content import Image, Text
from ..errors import Undecodable
from .bodies import Body, Name, SecureUrl, WebUrl, parsed


def _base64(data: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not base64: {error}") from error
    return data


class TextPart(Body):
    """Text in a result."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(Body):
    """A picture in a result; ``data`` is base64."""

    type: Literal["image"] = "image"
    data: Annotated[str, AfterValidator(_base64)]
    media_type: str = Field(alias="mediaType")


_Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class ResultCallback(Body):
    """The result of a call; ``content`` wins over ``text``."""

    type: Literal["tool_result"] = "tool_result"
    group_id: str
    id: str
    call_id: str | None = None
    text: str | None = None
    content: tuple[_Part, ...] | None = None
    display_as: tuple[dict[str, Any], ...] | None = None
    subscription: bool = False
    is_error: bool = False

    @model_validator(mode="after")
    def _says_something(self) -> "ResultCallback":
        if self.text is None and self.content is None:
            raise ValueError("a tool_result needs text or content")
        return self

    @property
    def parts(self) -> tuple[Text | Image, ...]:
        """The result as contents; never none."""
        if not self.content:
            return (Text(self.text or ""),)
        return tuple(
            Text(part.text) if isinstance(part, TextPart) else Image(part.data, part.media_type)
            for part in self.content
        )


class EventCallback(Body):
    """An event of a subscription; a stable ``event_id`` makes a repeat harmless."""

    type: Literal["subscription_event"] = "subscription_event"
    group_id: str
    tool_call_id: str
    text: str
    associative: bool = False
    final: bool = False
    event_id: str | None = None


class OauthCallback(Body):
    """The tool needs the user's authorization."""

    type: Literal["oauth"] = "oauth"
    group_id: str
    id: str
    call_id: str | None = None
    auth_url: SecureUrl


class ChoiceCallback(Body):
    """The tool asks the user to choose; the answer is wanted at ``response_url``."""

    type: Literal["user_choice"] = "user_choice"
    group_id: str
    id: str
    call_id: str | None = None
    prompt: str
    choices: Annotated[tuple[str, ...], Field(min_length=1)]
    default: Annotated[int, Field(ge=0)]
    response_url: WebUrl

    @model_validator(mode="after")
    def _default_is_a_choice(self) -> "ChoiceCallback":
        if self.default >= len(self.choices):
            raise ValueError(f"default {self.default} is not an index into {len(self.choices)} choices")
        return self


class ViewCallback(Body):
    """What people may look at beside the conversation, newest of its type."""

    type: Literal["view_update"] = "view_update"
    group_id: str
    view_type: Name
    content: Any


Callback = ResultCallback | EventCallback | OauthCallback | ChoiceCallback | ViewCallback
_KINDS: Mapping[str, type[Callback]] = {
    "tool_result": ResultCallback,
    "subscription_event": EventCallback,
    "oauth": OauthCallback,
    "user_choice": ChoiceCallback,
    "view_update": ViewCallback,
}


def parse_callback(body: bytes) -> Callback:
    """Return the callback in ``body``.

    Raises:
        Undecodable: it is none; the text names the field.
    """
    return parsed(body, _validated, "a callback")


def _validated(fields: Any) -> Callback:
    # By its type, so that a receiver builds the one kind that it is sent.
    kind = fields.get("type") if isinstance(fields, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Undecodable(f"not a callback: an object is wanted whose type is one of {', '.join(_KINDS)}")
    return _KINDS[kind].model_validate(fields)
