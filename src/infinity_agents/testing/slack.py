"""Slack on loopback: the Web API with its limits, files behind the token, and requests that are signed and retried."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from ..slack.signing import signature

RETRIES = (0.0, 60.0, 300.0)
"""Seconds after which Slack tries again what was not answered with 2xx."""
_MAX_TEXT, _MAX_MARKDOWN, _MAX_SECTION, _MAX_BLOCKS = 4_000, 12_000, 3_000, 50
_LOGIN_PAGE = b"<!DOCTYPE html><html><head><title>Slack</title></head><body>Sign in</body></html>"


@dataclass(frozen=True, slots=True)
class SlackFault:
    """What goes wrong with one call of ``method`` (any, where none is named).

    A number is a status, a word is the ``error`` of an answer that says no, ``hang up`` cuts the connection. What
    happens ``after`` the call took effect is not known to whoever called.
    """

    fault: int | str | Literal["hang up"]
    method: str | None = None
    after: bool = False


class _Refused(Exception):
    """The ``error`` of the answer, and the ``messages`` beside it."""

    def __init__(self, code: str, *messages: str) -> None:
        super().__init__(code)
        self.code = code
        self.messages = messages


@dataclass
class SlackStandIn:
    """A workspace: channels with their messages, people, files; one app, whose token it takes and no other.

    ``members`` are the people of each channel, ``names`` the display names of those who have one. ``now`` tells the
    time in seconds. With ``limits_posts`` a channel takes one post a second. ``calls`` are the methods that were
    called; ``statuses`` what threads show at present. ``socket_url`` is where Socket Mode connects to, with
    ``app_token``.
    """

    token: str = "xoxb-the-token-of-the-app"  # noqa: S105 - the stand-in's own
    signing_secret: str = "the signing secret of the app"  # noqa: S105 - the stand-in's own
    bot_user: str = "UBOT"
    bot_id: str = "BBOT"
    team: str = "T1"
    now: Callable[[], float] = time.time
    limits_posts: bool = False
    members: dict[str, set[str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    messages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ephemeral: list[dict[str, Any]] = field(default_factory=list)
    statuses: dict[tuple[str, str], str] = field(default_factory=dict)
    prompts: list[dict[str, Any]] = field(default_factory=list)
    app_token: str = "xapp-the-token-of-the-app"  # noqa: S105 - the stand-in's own
    socket_url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[SlackFault] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    url: str = ""
    _last_post: dict[str, float] = field(default_factory=dict)
    _count: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def api_url(self) -> str:
        """Where the Web API is."""
        return f"{self.url}/api/"

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        """Serve a workspace on a free port of loopback while the context is open."""
        slack = cls()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                slack._serve(self)

            def do_POST(self) -> None:
                slack._serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing: a test that fails says enough."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        slack.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.05), daemon=True)
        thread.start()
        try:
            yield slack
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    # What people do.

    def say(self, channel: str, user: str, text: str, **fields: Any) -> dict[str, Any]:
        """Have a person write a message; return it."""
        with self._lock:
            self.members.setdefault(channel, set()).add(user)
            message = {"type": "message", "ts": self._ts(), "user": user, "text": text, "team": self.team, **fields}
            self.messages.setdefault(channel, []).append(message)
            return message

    def thread(self, channel: str, ts: str) -> list[dict[str, Any]]:
        """Return the thread's messages, its first one among them."""
        return [each for each in self.messages.get(channel, ()) if ts in {each["ts"], each.get("thread_ts")}]

    def answers(self, channel: str, ts: str) -> list[str]:
        """Return what the app has posted in the thread, as people read it."""
        return [shown(each) for each in self.thread(channel, ts) if each.get("bot_id")]

    def event(self, event: Mapping[str, Any], *, event_id: str = "Ev1") -> dict[str, Any]:
        """Return the payload in which Slack tells of ``event``."""
        return {
            "token": "verification",
            "team_id": self.team,
            "api_app_id": "A1",
            "event": dict(event),
            "type": "event_callback",
            "event_id": event_id,
            "event_time": int(self.now()),
            "authorizations": [{"team_id": self.team, "user_id": self.bot_user, "is_bot": True}],
        }

    def click(self, channel: str, ts: str, number: int, user: str) -> dict[str, Any]:
        """Return the payload of a click on the button at ``number`` of the message."""
        (message,) = [each for each in self.messages[channel] if each["ts"] == ts]
        buttons = [item for block in message["blocks"] if block["type"] == "actions" for item in block["elements"]]
        return {
            "type": "block_actions",
            "user": {"id": user, "team_id": self.team},
            "team": {"id": self.team},
            "container": {"type": "message", "message_ts": ts, "channel_id": channel},
            "channel": {"id": channel},
            "message": message,
            "actions": [{**buttons[number], "block_id": "b", "action_ts": self._ts()}],
        }

    # The requests.

    def request(self, payload: Any, *, retry: int = 0, form: bool = False) -> tuple[dict[str, str], bytes]:
        """Return headers and body in which Slack sends ``payload``, signed."""
        text = json.dumps(payload)
        body = urlencode({"payload": text}).encode() if form else text.encode()
        timestamp = str(int(self.now()))
        headers = {
            "Content-Type": "application/x-www-form-urlencoded" if form else "application/json",
            "X-Slack-Request-Timestamp": timestamp,
            "X-Slack-Signature": signature(self.signing_secret, timestamp, body),
        }
        if retry:
            headers |= {"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": "http_error"}
        return headers, body

    def deliver(
        self,
        payload: Any,
        receive: Callable[[Mapping[str, str], bytes], int],
        *,
        form: bool = False,
        wait: Callable[[float], None] = time.sleep,
    ) -> list[int]:
        """Send ``payload`` until it is answered with 2xx, as often as Slack does; return the statuses."""
        statuses = [receive(*self.request(payload, form=form))]
        for retry, seconds in enumerate(RETRIES, start=1):
            if 200 <= statuses[-1] < 300 or form:
                break
            wait(seconds)
            statuses.append(receive(*self.request(payload, retry=retry)))
        return statuses

    # The Web API.

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path = urlsplit(request.path)
        token = (request.headers.get("Authorization") or "").removeprefix("Bearer ")
        if path.path.startswith("/files/"):
            content = self.files.get(path.path.removeprefix("/files/"), b"")
            _answer(request, 200, content if token == self.token else _LOGIN_PAGE, "application/octet-stream")
            return
        method = path.path.removeprefix("/api/")
        with self._lock:
            self.calls.append(method)
            fault = self._fault(method)
            done = fault is None or fault.after
            status, headers, told = (
                self._called(method, token, _arguments(request, path.query, body)) if done else (0, {}, {})
            )
        if fault is None:
            _answer(request, status, json.dumps(told).encode(), "application/json", headers)
        elif fault.fault == "hang up":
            request.close_connection = True
            request.connection.close()
        elif isinstance(fault.fault, int):
            _answer(request, fault.fault, b"<html>Server Error</html>", "text/html", {"Retry-After": "7"})
        else:
            _answer(request, 200, json.dumps({"ok": False, "error": fault.fault}).encode(), "application/json")

    def _fault(self, method: str) -> SlackFault | None:
        for fault in self.faults:
            if fault.method in {None, method}:
                self.faults.remove(fault)
                return fault
        return None

    def _called(
        self, method: str, token: str, arguments: dict[str, Any]
    ) -> tuple[int, Mapping[str, str], Mapping[str, Any]]:
        known = {
            "auth.test": self._auth_test,
            "chat.postMessage": self._post_message,
            "chat.postEphemeral": self._post_ephemeral,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "conversations.replies": self._replies,
            "assistant.threads.setStatus": self._set_status,
            "assistant.threads.setSuggestedPrompts": self._set_prompts,
            "files.info": self._file_info,
            "users.info": self._user_info,
            "apps.connections.open": self._open_connection,
        }
        try:
            if token != (self.app_token if method == "apps.connections.open" else self.token):
                raise _Refused("invalid_auth" if token else "not_authed")
            if method not in known:
                raise _Refused("unknown_method")
            return 200, {}, {"ok": True, **known[method](arguments)}
        except _Refused as refused:
            if refused.code == "ratelimited":
                return 429, {"Retry-After": "1"}, {"ok": False, "error": "ratelimited"}
            told: dict[str, Any] = {"ok": False, "error": refused.code}
            if refused.messages:
                told["response_metadata"] = {"messages": list(refused.messages)}
            return 200, {}, told

    def _auth_test(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"user": "agent", "user_id": self.bot_user, "bot_id": self.bot_id, "team_id": self.team}

    def _open_connection(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"url": self.socket_url}

    def _post_message(self, arguments: dict[str, Any]) -> dict[str, Any]:
        channel = str(arguments.get("channel", ""))
        if any(channel in people for people in self.members.values()):
            channel = f"D{channel}"
            self.members.setdefault(channel, set()).add(channel[1:])
        self._check_place(channel, arguments.get("thread_ts"))
        _check_content(arguments)
        now = self.now()
        if self.limits_posts and now - self._last_post.get(channel, 0.0) < 1.0:
            raise _Refused("ratelimited")
        self._last_post[channel] = now
        message = {
            "type": "message",
            "ts": self._ts(),
            "user": self.bot_user,
            "bot_id": self.bot_id,
            "text": arguments.get("text", ""),
            "blocks": arguments.get("blocks", []),
            **{name: arguments[name] for name in ("thread_ts", "metadata") if arguments.get(name)},
        }
        self.messages.setdefault(channel, []).append(message)
        self.statuses.pop((channel, str(arguments.get("thread_ts"))), None)
        return {"channel": channel, "ts": message["ts"], "message": message}

    def _post_ephemeral(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._check_place(arguments.get("channel"), arguments.get("thread_ts"))
        if arguments.get("user") not in self.members[arguments["channel"]]:
            raise _Refused("user_not_in_channel")
        _check_content(arguments)
        thread_ts = arguments.get("thread_ts")
        # In a thread without a reply it is taken, and nobody sees it.
        if not thread_ts or len(self.thread(arguments["channel"], thread_ts)) > 1:
            self.ephemeral.append(arguments)
        return {"message_ts": self._ts()}

    def _update(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._check_place(arguments.get("channel"), None)
        found = [each for each in self.messages.get(arguments["channel"], ()) if each["ts"] == arguments.get("ts")]
        if not found:
            raise _Refused("message_not_found")
        if found[0].get("bot_id") != self.bot_id:
            raise _Refused("cant_update_message")
        _check_content(arguments)
        found[0].update({name: arguments[name] for name in ("text", "blocks", "metadata") if name in arguments})
        return {"channel": arguments["channel"], "ts": arguments["ts"]}

    def _delete(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._check_place(arguments.get("channel"), None)
        messages = self.messages.get(arguments["channel"], [])
        found = [each for each in messages if each["ts"] == arguments.get("ts")]
        if not found:
            raise _Refused("message_not_found")
        if found[0].get("bot_id") != self.bot_id:
            raise _Refused("cant_delete_message")
        messages.remove(found[0])
        return {"channel": arguments["channel"], "ts": arguments["ts"]}

    def _replies(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._check_place(arguments.get("channel"), arguments.get("ts"))
        thread, limit = self.thread(arguments["channel"], arguments["ts"]), int(arguments.get("limit", 100))
        oldest, start = float(arguments.get("oldest", 0)), int(arguments.get("cursor") or 0)
        found = [each for number, each in enumerate(thread) if number == 0 or float(each["ts"]) > oldest]
        if arguments.get("include_all_metadata") not in {True, "1", "true"}:
            found = [{name: value for name, value in each.items() if name != "metadata"} for each in found]
        cursor = str(start + limit) if start + limit < len(found) else ""
        return {"messages": found[start : start + limit], "response_metadata": {"next_cursor": cursor}}

    def _set_status(self, arguments: dict[str, Any]) -> dict[str, Any]:
        place = (arguments.get("channel_id"), arguments.get("thread_ts"))
        self._check_place(*place)
        self.statuses[str(place[0]), str(place[1])] = arguments["status"]
        if not arguments["status"]:
            del self.statuses[str(place[0]), str(place[1])]
        return {}

    def _set_prompts(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._check_place(arguments.get("channel_id"), arguments.get("thread_ts"))
        self.prompts.append(arguments)
        return {}

    def _file_info(self, arguments: dict[str, Any]) -> dict[str, Any]:
        name = str(arguments.get("file"))
        if name not in self.files:
            raise _Refused("file_not_found")
        return {"file": self.file(name, "image/png")}

    def _user_info(self, arguments: dict[str, Any]) -> dict[str, Any]:
        user = str(arguments.get("user"))
        if user not in self.names:
            raise _Refused("user_not_found")
        profile = {"display_name": self.names[user], "real_name": f"{self.names[user]} (real)"}
        return {"user": {"id": user, "team_id": self.team, "name": user.lower(), "deleted": False, "profile": profile}}

    def file(self, name: str, mimetype: str, **fields: Any) -> dict[str, Any]:
        """Return how Slack describes the file in a message."""
        size = len(self.files.get(name, b""))
        url = f"{self.url}/files/{name}"
        return {"id": name, "name": name, "mimetype": mimetype, "size": size, "url_private_download": url, **fields}

    def _check_place(self, channel: Any, thread_ts: Any) -> None:
        if channel not in self.members:
            raise _Refused("channel_not_found")
        if thread_ts and not any(each["ts"] == thread_ts for each in self.messages.get(channel, ())):
            raise _Refused("thread_not_found")

    def _ts(self) -> str:
        self._count += 1
        return f"{int(self.now())}.{self._count:06}"


def shown(message: Mapping[str, Any]) -> str:
    """Return what people read of a message: the texts of its blocks, or its text where it has none."""
    texts = []
    for block in message.get("blocks") or ():
        match block["type"]:
            case "markdown":
                texts.append(block["text"])
            case "section":
                texts.append(block["text"]["text"])
            case "context":
                texts += [element["text"] for element in block["elements"]]
            case _:
                texts.append(" ".join(f"[{element['text']['text']}]" for element in block["elements"]))
    return "\n".join(texts) if texts else str(message.get("text", ""))


def _arguments(request: BaseHTTPRequestHandler, query: str, body: bytes) -> dict[str, Any]:
    if (request.headers.get("Content-Type") or "").startswith("application/json"):
        told: dict[str, Any] = json.loads(body)
        return told
    fields = {name: values[0] for name, values in parse_qs(f"{query}&{body.decode()}".strip("&")).items()}
    return {
        name: json.loads(value) if name in {"blocks", "metadata", "prompts"} else value
        for name, value in fields.items()
    }


def _answer(
    request: BaseHTTPRequestHandler, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None
) -> None:
    request.send_response(status)
    for name, value in {**(headers or {}), "Content-Type": kind, "Content-Length": str(len(body))}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


# What Slack refuses.


def _check_content(arguments: Mapping[str, Any]) -> None:
    text, blocks = arguments.get("text") or "", arguments.get("blocks") or []
    if not text and not blocks:
        raise _Refused("no_text")
    if len(text) > _MAX_TEXT:
        raise _Refused("msg_too_long")
    if not isinstance(blocks, list) or len(blocks) > _MAX_BLOCKS:
        raise _Refused("invalid_blocks", f"no more than {_MAX_BLOCKS} blocks")
    if sum(_units(block["text"]) for block in blocks if block.get("type") == "markdown") > _MAX_MARKDOWN:
        raise _Refused("msg_blocks_too_long")
    for number, block in enumerate(blocks):
        wrong = _wrong_with(block)
        if wrong:
            raise _Refused("invalid_blocks", f"[ERROR] {wrong} [json-pointer:/blocks/{number}]")
    ids = [element["action_id"] for block in blocks if block["type"] == "actions" for element in block["elements"]]
    if len(set(ids)) < len(ids):
        raise _Refused("invalid_blocks", "action_id already exists")
    metadata = arguments.get("metadata")
    if metadata and not (isinstance(metadata.get("event_type"), str) and isinstance(metadata["event_payload"], dict)):
        raise _Refused("invalid_metadata_format")


def _wrong_with(block: Mapping[str, Any]) -> str | None:
    match block.get("type"):
        case "markdown":
            return None if block.get("text") else "must have text"
        case "rich_text":
            return None if block.get("elements") else "must have elements"
        case "section":
            return _wrong_text(block.get("text"), _MAX_SECTION)
        case "context":
            return next(filter(None, (_wrong_text(each, _MAX_SECTION) for each in block["elements"])), None)
        case "actions":
            elements: Sequence[Mapping[str, Any]] = block.get("elements", ())
            if not 1 <= len(elements) <= 25:
                return "actions take 1 to 25 elements"
            return next(filter(None, map(_wrong_button, elements)), None)
        case kind:
            return f"unsupported type: {kind}"


def _wrong_button(button: Mapping[str, Any]) -> str | None:
    if button.get("type") != "button" or button["text"].get("type") != "plain_text":
        return "not a button with a plain text"
    if len(button.get("action_id", "")) not in range(1, 256):
        return "action_id must have 1 to 255 characters"
    if len(button.get("value", "")) > 2_000 or len(button.get("url", "")) > 3_000:
        return "value or url is too long"
    return _wrong_text(button["text"], 75)


def _wrong_text(text: Any, limit: int) -> str | None:
    if not isinstance(text, Mapping) or text.get("type") not in {"plain_text", "mrkdwn"}:
        return "not a text"
    return None if 1 <= _units(text["text"]) <= limit else f"text must have 1 to {limit} characters"


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
