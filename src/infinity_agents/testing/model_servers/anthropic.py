"""The Messages API of Anthropic, as a service: its rules, its errors, its events."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...conversation import ids
from ...conversation.content import Document, Image, Text
from ...conversation.history import CallBody, Reasoning, ResultBody, SaidText
from ...ports.model import ModelRequest
from ...ports.tool import ToolSpec
from ..scripted_model import Reply
from .reading import Block, picture, request_of, schema
from .serving import KEY, Fault, Refused, require

_FIELDS = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "stream",
    "tools",
    "tool_choice",
    "thinking",
    "metadata",
    "output_config",
}
_KEYS = {
    "text": {"text"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "image": {"source"},
    "document": {"source", "title"},
}
_SAYS = {"text", "thinking", "redacted_thinking", "tool_use"}
_HEARS = {"text", "image", "document", "tool_result"}
_MOST_BREAKPOINTS = 4
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_LARGEST_PICTURE = 5 * 1024 * 1024
_LARGE = 1000
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


@dataclass
class AnthropicProtocol:
    """The rules of the Messages API, first and foremost those by which it refuses a history.

    ``binding`` are the models whose reasoning is bound to all that came before it, ``knows_binding`` tells whether
    the service takes the field that says what then: gateways may not.
    """

    media_type = "text/event-stream; charset=utf-8"

    known: Sequence[str] = ("claude-sonnet-4-6", "claude-opus-4-6", "claude-fable-5-1")
    binding: frozenset[str] = frozenset({"claude-fable-5-1"})
    knows_binding: bool = True
    dropped: list[str] = field(default_factory=list)
    """The texts of the reasoning that was left out because what came before it has changed."""

    def read(self, path: str, headers: Mapping[str, str], body: Any) -> ModelRequest:
        """Return what was asked, where the service would take it."""
        require(path == "/v1/messages", f"there is nothing at {path}", status=404)
        self._check_headers(headers)
        require(isinstance(body, dict), "the body must be an object")
        extra = set(body) - _FIELDS
        require(not extra, f"{sorted(extra)}: Extra inputs are not permitted")
        model = body.get("model")
        require(model in self.known, f"model: {model}", status=404)
        require(isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 0, "max_tokens: Field required")
        require(body.get("stream") is True, "the stand-in only streams")
        tools = _tools(body)
        system = "\n".join(_text(block) for block in body.get("system", ()))
        blocks = self._messages(body, headers)
        has_calls = any(isinstance(block, CallBody) for block in blocks)
        require(
            tools or not has_calls,
            "Requests which have `tool_use` or `tool_result` blocks in messages must define tools",
        )
        breakpoints = json.dumps(body).count('"cache_control"')
        require(
            breakpoints <= _MOST_BREAKPOINTS,
            f"A maximum of {_MOST_BREAKPOINTS} blocks with cache_control may be provided. Found {breakpoints}.",
        )
        return request_of(model=str(model), system=system, blocks=blocks, tools=tools)

    def models(self, path: str, headers: Mapping[str, str]) -> Any:
        """Return the list of models."""
        require(path == "/v1/models", f"there is nothing at {path}", status=404)
        self._check_headers(headers)
        data = [
            {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
            for name in self.known
        ]
        return {"data": data, "has_more": False, "first_id": self.known[0], "last_id": self.known[-1]}

    def _check_headers(self, headers: Mapping[str, str]) -> None:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        require(key == KEY, "invalid x-api-key", status=401)
        require("anthropic-version" in headers, "anthropic-version: header is required")
        beta = headers.get("anthropic-beta", "")
        require(self.knows_binding or not beta, f"Unexpected value(s) `{beta}` for the `anthropic-beta` header")

    # The history.

    def _messages(self, body: dict[str, Any], headers: Mapping[str, str]) -> list[Block]:
        messages = body.get("messages")
        require(isinstance(messages, list) and messages, "messages: at least one message is required")
        blocks: list[Block] = []
        called: list[str] = []
        seen: set[str] = set()
        for place, message in enumerate(messages or ()):
            where = f"messages.{place}"
            role, content = message.get("role"), message.get("content")
            require(role == ("assistant" if place % 2 else "user"), f"{where}: roles must alternate, user's first")
            require(isinstance(content, list) and content, f"{where}: content must be a list that is not empty")
            kinds = [block.get("type") for block in content]
            require(set(kinds) <= (_SAYS if role == "assistant" else _HEARS), f"{where}: {kinds} in a turn of {role}")
            if role == "user":
                _check_answers(where, content, called)
            else:
                require("thinking" not in kinds[-1], f"{where}: The final block cannot be `thinking`")
            called = [str(block.get("id")) for block in content if block.get("type") == "tool_use"]
            is_new = not seen & set(called) and len(set(called)) == len(called)
            require(is_new, f"{where}: `tool_use` ids must be unique")
            seen.update(called)
            for index, block in enumerate(content):
                read = self._block(f"{where}.content.{index}", block, body, headers, place)
                if read is not None:
                    blocks.append(read)
        is_asked = messages and messages[-1]["role"] == "user"
        require(is_asked, "This model does not support assistant message prefill.")
        return blocks

    def _block(
        self, where: str, block: dict[str, Any], body: dict[str, Any], headers: Mapping[str, str], place: int
    ) -> Block | None:
        kind = block["type"]
        extra = set(block) - _KEYS[kind] - {"type", "cache_control"}
        require(not extra, f"{where}.{sorted(extra)}: Extra inputs are not permitted")
        require("thinking" not in kind or "cache_control" not in block, f"{where}: cache_control cannot be here")
        match kind:
            case "text":
                text = _text(block)
                return Text(text) if body["messages"][place]["role"] == "user" else SaidText(text)
            case "thinking":
                return self._reasoning(where, block, body, headers, place)
            case "redacted_thinking":
                require(str(block.get("data")).startswith(f"redacted-{body['model']}"), f"{where}: Invalid `data`")
                return Reasoning(redacted=block["data"], model=body["model"])
            case "tool_use":
                return _call(where, block)
            case "tool_result":
                return self._result(where, block)
            case "image":
                return _image(where, block)
            case _:
                return _document(where, block)

    def _result(self, where: str, block: dict[str, Any]) -> ResultBody:
        content = block.get("content")
        require(isinstance(content, list) and content, f"{where}: content must not be empty")
        parts = [Text(_text(part)) if part.get("type") == "text" else _image(where, part) for part in content or ()]
        return ResultBody(str(block["tool_use_id"]), tuple(parts), is_error=bool(block.get("is_error", False)))

    # Reasoning, and what it is bound to.

    def sign(self, model: str, text: str, prefix: str) -> str:
        """Return the signature that ``model`` gives ``text`` where ``prefix`` came before it."""
        return f"{ids.digest(model, text)}.{prefix}"

    def _reasoning(
        self, where: str, block: dict[str, Any], body: dict[str, Any], headers: Mapping[str, str], place: int
    ) -> Reasoning | None:
        text, signature, model = block.get("thinking", ""), str(block.get("signature")), str(body["model"])
        signed, _, prefix = signature.partition(".")
        require(signed == ids.digest(model, text), f"{where}: Invalid `signature` in `thinking` block")
        if model in self.binding and prefix != _prefix(body, place):
            binding = body.get("thinking", {}).get("block_binding")
            require(not binding or _BINDING_BETA in headers.get("anthropic-beta", ""), "block_binding: Extra inputs")
            require(
                (binding or {}).get("prefix_mismatch_behavior") == "drop_block",
                f"{where}: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
            )
            self.dropped.append(text)
            return None
        return Reasoning(text, signature, model=model)

    # What is answered.

    def spell(self, reply: Reply, asked: Any, fault: Fault | None) -> Iterator[str]:
        """Yield the events of ``reply``."""
        usage = reply.usage
        counts = {
            "input_tokens": usage.input,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation_input_tokens": usage.cache_write,
        }
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": asked["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**counts, "output_tokens": 1},
        }
        yield _event("message_start", message=message)
        yield _event("ping")
        for place, block in enumerate(self._blocks(reply, asked, fault)):
            yield _event("content_block_start", index=place, content_block=block[0])
            for delta in block[1:]:
                yield _event("content_block_delta", index=place, delta=delta)
            if fault == "garbage":
                yield "event: content_block_delta\ndata: {garbage\n\n"
            yield _event("content_block_stop", index=place)
        if fault in {"no final event", "hang up"} or reply.error is not None:
            return
        yield _event("an_event_that_nobody_knows", anything=1)
        yield _event(
            "message_delta",
            delta={"stop_reason": _reason(reply), "stop_sequence": None},
            usage={"output_tokens": usage.output},
        )
        yield _event("message_stop")

    def _blocks(self, reply: Reply, asked: Any, fault: Fault | None) -> Iterator[list[dict[str, Any]]]:
        if reply.reasoning:
            signature = self.sign(asked["model"], reply.reasoning, _prefix(asked, len(asked["messages"])))
            yield [
                {"type": "thinking", "thinking": "", "signature": ""},
                *({"type": "thinking_delta", "thinking": piece} for piece in _pieces(reply.reasoning)),
                {"type": "signature_delta", "signature": signature},
            ]
            yield [{"type": "redacted_thinking", "data": f"redacted-{asked['model']}"}]
        if reply.text:
            pieces = ({"type": "text_delta", "text": piece} for piece in _pieces(reply.text))
            yield [{"type": "text", "text": ""}, *pieces]
        for number in range(2 if fault == "two calls" else 1) if reply.call and reply.error is None else ():
            yield _spelt_call(reply, f"toolu_{len(asked['messages'])}_{number}")

    def spell_error(self, refused: Refused) -> str:
        """Return the event ``error``."""
        return _event("error", error=self.refusal(refused)["error"])

    def refusal(self, refused: Refused) -> Any:
        """Return the body of an error."""
        kind = _TYPES.get(refused.status, "api_error" if refused.status >= 500 else "invalid_request_error")
        message = "prompt is too long: 200001 tokens > 200000 maximum" if refused.is_too_long else refused.message
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _check_answers(where: str, content: Sequence[dict[str, Any]], called: Sequence[str]) -> None:
    """Refuse a user's turn that does not begin with exactly one result for each call of the turn before."""
    answered = [str(block.get("tool_use_id")) for block in content if block.get("type") == "tool_result"]
    missing = [call for call in called if call not in answered]
    require(not missing, f"{where}: `tool_use` ids without `tool_result` blocks immediately after: {missing}")
    unexpected = [answer for answer in answered if answer not in called]
    require(not unexpected, f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {unexpected}")
    require(len(set(answered)) == len(answered), f"{where}: each `tool_use` must have a single result")
    first = [block.get("type") for block in content[: len(answered)]]
    require(set(first) <= {"tool_result"}, f"{where}: results must come before anything else")


def _call(where: str, block: dict[str, Any]) -> CallBody:
    call_id, name, arguments = str(block.get("id")), str(block.get("name")), block.get("input")
    require(_ID.fullmatch(call_id), f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    require(_NAME.fullmatch(name), f"{where}.name: String should match pattern '{_NAME.pattern}'")
    require(isinstance(arguments, dict), f"{where}.input: Input should be a valid dictionary")
    return CallBody(call_id, name, arguments or {})


def _text(block: dict[str, Any]) -> str:
    text = block.get("text")
    require(isinstance(text, str) and text, "messages: text content blocks must be non-empty")
    require(str(text).strip(), "messages: text content blocks must contain non-whitespace text")
    return str(text)


def _image(where: str, block: dict[str, Any]) -> Image:
    source = block.get("source", {})
    require(source.get("type") == "base64", f"{where}.source: Input tag must be 'base64'")
    require(len(source.get("data", "")) <= _LARGEST_PICTURE, f"{where}: image exceeds 5 MB maximum")
    return picture(source.get("data"), source.get("media_type"))


def _document(where: str, block: dict[str, Any]) -> Document:
    source = block.get("source", {})
    is_pdf = source.get("type") == "base64" and source.get("media_type") == "application/pdf"
    require(is_pdf, f"{where}.source: Input should be 'application/pdf'")
    return Document(source["data"], source["media_type"], str(block.get("title", "")))


def _tools(body: dict[str, Any]) -> list[ToolSpec]:
    specs = []
    for place, tool in enumerate(body.get("tools", ())):
        extra = set(tool) - {"name", "description", "input_schema", "cache_control"}
        require(not extra, f"tools.{place}.{sorted(extra)}: Extra inputs are not permitted")
        require(_NAME.fullmatch(str(tool.get("name"))), f"tools.{place}.name: should match '{_NAME.pattern}'")
        schema(tool.get("input_schema"), f"tools.{place}.input_schema")
        specs.append(ToolSpec(tool["name"], tool.get("description", ""), tool["input_schema"]))
    names = [spec.name for spec in specs]
    require(len(set(names)) == len(names), "tools: Tool names must be unique.")
    require("tool_choice" not in body or specs, "tool_choice may only be specified while providing tools")
    return specs


def _prefix(body: dict[str, Any], place: int) -> str:
    """Return what stands for all that came before the turn at ``place``."""
    messages = [
        [block for block in message["content"] if "thinking" not in block["type"]]
        for message in body["messages"][:place]
    ]
    return ids.digest(json.dumps([_bare(value) for value in (body.get("system"), body.get("tools"), messages)]))


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key != "cache_control"}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _spelt_call(reply: Reply, call_id: str) -> list[dict[str, Any]]:
    name, arguments = reply.call or ("", {})
    spelt = arguments if isinstance(arguments, str) else json.dumps(arguments)
    start = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    # A call without arguments has no deltas.
    pieces = _pieces(spelt) if spelt != "{}" else ()
    return [start, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces)]


def _reason(reply: Reply) -> str:
    if reply.reason != "end_turn":
        return reply.reason
    if reply.unfinished:
        return "max_tokens"
    return "tool_use" if reply.call else "end_turn"


def _pieces(text: str) -> Iterable[str]:
    # A large text comes at once.
    piece = len(text) if len(text) > _LARGE else 7
    return (text[start : start + piece] for start in range(0, len(text), piece))


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n"
