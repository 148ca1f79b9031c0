"""The files of a message: fetched with the agent's token, from Slack's hosts only."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..conversation.content import Document, Image, Part, Text, shown
from ..ports.clock import Clock
from ..ports.http import HttpClient, HttpUnreachable
from ..ports.slack import SlackRefused, SlackUnavailable, SlackWeb

MAX_IMAGE = 3_750_000
"""The largest image in bytes that models take."""
MAX_DOCUMENT = 4_500_000
"""The largest document in bytes that models take."""
MAX_FILES = 10
_TRIES = 3
_PAUSE = 0.5

_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_DOCUMENTS = {
    "application/pdf",
    "application/msword",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "application/vnd.ms-excel",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/json",
}


@dataclass(frozen=True, slots=True)
class SlackFiles:
    """Fetches files. The token goes to Slack's hosts, and to that of ``api_url``, and nowhere else."""

    web: SlackWeb
    http: HttpClient
    token: str
    api_url: str
    clock: Clock

    async def parts(self, files: Sequence[Mapping[str, Any]]) -> tuple[Part, ...]:
        """Return the files as the model reads them; a note that says why stands in place of what is not to be had."""
        taken = await asyncio.gather(*(self._part(file) for file in files[:MAX_FILES]))
        left_out = len(files) - len(taken)
        return (*taken, Text(f"[{left_out} more files were left out]")) if left_out else tuple(taken)

    async def _part(self, file: Mapping[str, Any]) -> Part:
        name = shown(str(file.get("name") or file.get("id") or "file"))[:200]
        try:
            # Files of other teams come as an id alone.
            if file.get("file_access") == "check_file_info" or "mimetype" not in file:
                file = (await self.web.call("files.info", file=str(file.get("id"))))["file"]
            return await self._fetched(name, file)
        except (_NotToBeHad, SlackRefused, SlackUnavailable) as error:
            return Text(f"[the file {name!r} could not be read: {error}]")

    async def _fetched(self, name: str, file: Mapping[str, Any]) -> Part:
        kind, size = str(file.get("mimetype") or ""), file.get("size")
        limit = MAX_IMAGE if kind.startswith("image/") else MAX_DOCUMENT
        if not (kind.startswith(("image/", "text/")) or kind in _DOCUMENTS):
            raise _NotToBeHad(f"{kind or 'its kind'} is neither an image nor a document")
        if isinstance(size, int) and size > limit:
            raise _NotToBeHad(f"it has {size} bytes, and at most {limit} can be taken")
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        body = await self._download(url, limit)
        if _is_page(body) and not (kind == "text/html" and size == len(body)):
            raise _NotToBeHad("Slack answered with a login page; the app needs the scope files:read")
        data = base64.b64encode(body).decode()
        if not kind.startswith("image/"):
            return Document(data, kind, name)
        found = _image_type(body)
        if found is None:
            raise _NotToBeHad("it is no PNG, JPEG, GIF or WebP image")
        return Image(data, found)

    async def _download(self, url: str, limit: int) -> bytes:
        if not is_slacks(url, self.api_url):
            raise _NotToBeHad(f"it is kept at {shown(urlsplit(url).netloc)[:100] or 'no place'}, which is not Slack")
        reason = ""
        for attempt in range(_TRIES):
            if attempt:
                await self.clock.sleep(_PAUSE * 2**attempt)
            try:
                answer = await self.http.request(
                    "GET", url, headers={"Authorization": f"Bearer {self.token}"}, max_bytes=limit
                )
            except HttpUnreachable as error:
                reason = str(error)
                continue
            if answer.status == 200:
                return answer.body
            reason = f"Slack answered with the status {answer.status}"
            if answer.status < 500 and answer.status != 429:
                break
        raise _NotToBeHad(reason)


class _NotToBeHad(Exception):
    """Why a file is not to be had."""


def is_slacks(url: str, api_url: str) -> bool:
    """Tell whether the token may be sent to ``url``: one of Slack's hosts over https, or the host of ``api_url``."""
    try:
        there, api = urlsplit(url), urlsplit(api_url)
        host, port = there.hostname or "", there.port
    except ValueError:
        return False
    if (there.scheme, there.netloc) == (api.scheme, api.netloc):
        return True
    is_ours = host == "slack.com" or host.endswith((".slack.com", ".slack-files.com"))
    return there.scheme == "https" and is_ours and port in {None, 443} and "@" not in there.netloc


def _is_page(body: bytes) -> bool:
    return body[:500].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def _image_type(body: bytes) -> str | None:
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGES if body.startswith(start)), None)
