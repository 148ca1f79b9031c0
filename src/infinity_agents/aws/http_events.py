"""The HTTP requests in the events of function URLs and API Gateway, and the answers to them."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InfinityError


class NoRequest(InfinityError):
    """The event is no HTTP request: the function was invoked with something else."""


class BadBody(ValueError):
    """The body is not what the event says that it is; the sender is answered 400."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as API Gateway and function URLs tell it; the names of headers are in lower case.

    Source: Lambda's documentation, "payload format" 1.0 (REST APIs) and 2.0 (HTTP APIs and function URLs).
    """

    method: str
    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    _body: object
    _is_base64: bool

    @property
    def body(self) -> bytes:
        """Return the bytes that were posted.

        Raises:
            BadBody: they cannot be read.
        """
        if self._body is None:
            return b""
        if not isinstance(self._body, str):
            raise BadBody(f"the body cannot be read: it is of type {type(self._body).__name__}, not text")
        try:
            return base64.b64decode(self._body, validate=True) if self._is_base64 else self._body.encode()
        except ValueError as error:
            raise BadBody(f"the body cannot be read: {error}") from error


def request_of(event: object) -> HttpRequest:
    """Return the request that ``event`` tells of, in either payload format.

    Raises:
        NoRequest: it tells of none.
    """
    if not isinstance(event, Mapping):
        raise NoRequest(_not_a_request(event))
    context = event.get("requestContext")
    http = context.get("http") if isinstance(context, Mapping) else None
    method, path = (
        (http.get("method"), event.get("rawPath"))
        if isinstance(http, Mapping)
        else (event.get("httpMethod"), event.get("path"))
    )
    if not isinstance(method, str) or not isinstance(path, str):
        raise NoRequest(_not_a_request(event))
    return HttpRequest(
        method,
        path,
        {name.lower(): value for name, value in _texts(event.get("headers")).items()},
        _texts(event.get("queryStringParameters")),
        event.get("body"),
        event.get("isBase64Encoded") is True,
    )


def answer(status: int, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the answer with ``status`` and ``fields`` as JSON, or no body at all."""
    body = "" if fields is None else json.dumps(fields)
    return {"statusCode": status, "headers": {"content-type": "application/json"}, "body": body}


def seen(event: object) -> str:
    """Return what ``event`` looks like, as a part of the sentence that refuses it; nothing of what it holds."""
    if not isinstance(event, Mapping):
        return f"is of type {type(event).__name__}"
    keys = ", ".join(sorted(map(str, event))[:10])
    return f"has the keys {keys}" if keys else "is empty"


def _not_a_request(event: object) -> str:
    return (
        f"this function takes HTTP requests, and this event {seen(event)}; call its URL, or test it with an event that "
        "has requestContext.http.method, rawPath, headers and body"
    )


def _texts(found: object) -> dict[str, str]:
    """Return the pairs of texts in ``found``: absent headers and parameters are null in some events."""
    pairs = found.items() if isinstance(found, Mapping) else ()
    return {name: value for name, value in pairs if isinstance(name, str) and isinstance(value, str)}
