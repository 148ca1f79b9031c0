"""The chat completions of OpenAI, as a service: its rules, its errors, its chunks.

Where endpoints differ, the strictest counts: turns alternate, as the templates of many open models want it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...conversation.content import Document, Part, Text
from ...conversation.history import CallBody, Reasoning, ResultBody, SaidText
from ...ports.model import ModelRequest
from ...ports.tool import ToolSpec
from ..scripted_model import Reply
from .reading import Block, picture, request_of, schema
from .serving import KEY, Fault, Refused, require

_FIELDS = {
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "parallel_tool_calls",
    "reasoning_effort",
    "temperature",
    "max_completion_tokens",
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DATA_URL = re.compile(r"data:([a-z/]+);base64,(.*)", re.DOTALL)
_MOST_TOOLS = 128
_LARGE = 1000
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass
class OpenAIProtocol:
    """The rules of chat completions. ``refuses`` are the optional fields that the endpoint does not take.

    With ``reasoning_effort`` among them, tools are taken only where it is ``none``, as with OpenAI's newer models.
    ``tells_usage`` off is an endpoint that never does.
    """

    media_type = "text/event-stream; charset=utf-8"

    known: Sequence[str] = ("gpt-4.1", "gpt-5.6", "local")
    refuses: frozenset[str] = frozenset()
    tells_usage: bool = True
    reasoned: set[str] = field(default_factory=set)
    """The reasoning that this endpoint has given."""

    def read(self, path: str, headers: Mapping[str, str], body: Any) -> ModelRequest:
        """Return what was asked, where the service would take it."""
        require(path == "/v1/chat/completions", f"there is nothing at {path}", status=404)
        _check_key(headers)
        require(isinstance(body, dict), "the body must be an object")
        for name in sorted(set(body) - _FIELDS):
            require(False, f"Unrecognized request argument supplied: {name}", code="unknown_parameter", param=name)
        for name in sorted(self.refuses & set(body) - {"reasoning_effort"}):
            message = f"Unsupported parameter: '{name}' is not supported with this model."
            require(False, message, code="unsupported_parameter", param=name)
        require(body.get("model") in self.known, f"The model `{body.get('model')}` does not exist", status=404)
        require(body.get("stream") is True, "the stand-in only streams")
        tools = _tools(body)
        require(
            not tools or "reasoning_effort" not in self.refuses or body.get("reasoning_effort") == "none",
            "Function tools with reasoning_effort are not supported. Set reasoning_effort to 'none'.",
            param="reasoning_effort",
        )
        system, blocks = self._messages(body.get("messages"), str(body["model"]))
        return request_of(model=str(body["model"]), system=system, blocks=blocks, tools=tools)

    def models(self, path: str, headers: Mapping[str, str]) -> Any:
        """Return the list of models."""
        require(path == "/v1/models", f"there is nothing at {path}", status=404)
        _check_key(headers)
        return {"object": "list", "data": [{"id": name, "object": "model", "created": 1} for name in self.known]}

    # The history.

    def _messages(self, messages: Any, model: str) -> tuple[str, list[Block]]:
        require(isinstance(messages, list) and messages, "[] is too short - 'messages'")
        require(messages[0].get("role") == "system", "the first message must be the system's")
        blocks: list[Block] = []
        called: list[str] = []
        seen: set[str] = set()
        before = "assistant"
        for place, message in enumerate(messages[1:], 1):
            where, role = f"messages.[{place}]", message.get("role")
            if role == "tool":
                require(
                    message.get("tool_call_id") in called,
                    f"{where}: messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
                )
                called.remove(message["tool_call_id"])
                text = _content(where, message)
                is_error = text.startswith("Error: ")
                result = (Text(text.removeprefix("Error: ")),)
                blocks.append(ResultBody(message["tool_call_id"], result, is_error=is_error))
                before = "tool"
                continue
            require(
                not called,
                f"{where}: An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {called}",
            )
            require(role in {"user", "assistant"} and role != before, f"{where}: roles must alternate user/assistant")
            before = str(role)
            if role == "user":
                blocks.extend(_heard(where, message))
                continue
            said = list(self._said(where, message, model))
            called = [block.id for block in said if isinstance(block, CallBody)]
            require(not seen & set(called), f"{where}: the ids of 'tool_calls' must be unique")
            seen.update(called)
            blocks.extend(said)
        require(not called and before != "assistant", "the last message must be a user's or a tool's")
        return _content("messages.[0]", messages[0]), blocks

    def _said(self, where: str, message: dict[str, Any], model: str) -> Iterator[SaidText | Reasoning | CallBody]:
        extra = set(message) - {"role", "content", "tool_calls", "reasoning_content"}
        require(not extra, f"{where}: Additional properties are not allowed ({sorted(extra)})")
        reasoning = message.get("reasoning_content")
        if reasoning is not None:
            is_taken = "reasoning_content" not in self.refuses and reasoning in self.reasoned
            require(is_taken, f"{where}: Additional properties are not allowed ('reasoning_content' was unexpected)")
            yield Reasoning(str(reasoning), model=model)
        calls = message.get("tool_calls")
        require(calls is None or calls, f"[] is too short - '{where}.tool_calls'")
        if calls is None or "content" in message:
            yield SaidText(_content(where, message))
        for call in calls or ():
            function = call.get("function", {})
            require(call.get("type") == "function" and call.get("id"), f"{where}: a call needs type and id")
            require(_NAME.fullmatch(str(function.get("name"))), f"{where}: function.name must match '{_NAME.pattern}'")
            try:
                arguments = json.loads(function.get("arguments"))
            except (TypeError, ValueError):
                arguments = None
            require(isinstance(arguments, dict), f"{where}: function.arguments must be a JSON object in a string")
            yield CallBody(call["id"], function["name"], arguments)

    # What is answered.

    def spell(self, reply: Reply, asked: Any, fault: Fault | None) -> Iterator[str]:
        """Yield the chunks of ``reply``."""

        def chunk(delta: dict[str, Any], reason: str | None = None) -> str:
            return _event(asked, [{"index": 0, "delta": delta, "finish_reason": reason}])

        yield chunk({"role": "assistant", "content": ""})
        if reply.reasoning:
            self.reasoned.add(reply.reasoning)
        for piece in _pieces(reply.reasoning):
            yield chunk({"reasoning_content": piece})
        for piece in _pieces(reply.text):
            yield chunk({"content": piece})
        if fault == "garbage":
            yield "data: {garbage\n\n"
        if reply.error is None:
            for number in range(2 if fault == "two calls" else 1) if reply.call else ():
                for call in _spelt_call(reply, number, f"call_{len(asked['messages'])}_{number}"):
                    yield chunk({"tool_calls": [call]})
        if fault in {"no final event", "hang up"} or reply.error is not None:
            return
        yield chunk({}, _reason(reply))
        if self.tells_usage and asked.get("stream_options", {}).get("include_usage") and fault != "no usage":
            yield _event(asked, [], usage=_usage(reply))
        yield "data: [DONE]\n\n"

    def spell_error(self, refused: Refused) -> str:
        """Return the chunk that is an error."""
        return f"data: {json.dumps(self.refusal(refused))}\n\n"

    def refusal(self, refused: Refused) -> Any:
        """Return the body of an error."""
        kind = _TYPES.get(refused.status, "server_error" if refused.status >= 500 else "invalid_request_error")
        return {
            "error": {"message": refused.message, "type": kind, "code": refused.code or kind, "param": refused.param}
        }


def _check_key(headers: Mapping[str, str]) -> None:
    given = headers.get("authorization", "")
    require(given == f"Bearer {KEY}", f"Incorrect API key provided: {given[-8:]}", status=401, code="invalid_api_key")


def _content(where: str, message: dict[str, Any]) -> str:
    content = message.get("content")
    require(isinstance(content, str) and content.strip(), f"{where}: content must be text that says something")
    return str(content)


def _heard(where: str, message: dict[str, Any]) -> Iterator[Part]:
    content = message.get("content")
    if isinstance(content, str):
        yield Text(_content(where, message))
        return
    require(isinstance(content, list) and content, f"{where}: content must be text, or parts")
    for part in content or ():
        match part.get("type"):
            case "text":
                require(str(part.get("text", "")).strip(), f"{where}: a text must say something")
                yield Text(part["text"])
            case "image_url":
                found = _DATA_URL.fullmatch(str(part.get("image_url", {}).get("url")))
                require(found, f"{where}: image_url must be a data URL here")
                if found:
                    yield picture(found[2], found[1])
            case "file":
                file = part.get("file", {})
                yield Document(file.get("file_data", ""), "application/pdf", file.get("filename", ""))
            case kind:
                require(False, f"{where}: Invalid value: {kind!r}. Supported values are: 'text', 'image_url', 'file'")


def _tools(body: dict[str, Any]) -> list[ToolSpec]:
    tools = body.get("tools")
    require(tools is None or 0 < len(tools) <= _MOST_TOOLS, "tools: 1 to 128 are allowed")
    require(tools or "parallel_tool_calls" not in body, "'parallel_tool_calls' is only allowed with 'tools'")
    specs = []
    for place, tool in enumerate(tools or ()):
        function = tool.get("function", {})
        require(tool.get("type") == "function", f"tools[{place}].type must be 'function'")
        require(_NAME.fullmatch(str(function.get("name"))), f"tools[{place}].function.name: '{_NAME.pattern}'")
        schema(function.get("parameters"), f"tools[{place}].function.parameters")
        require("properties" in function["parameters"], f"tools[{place}]: object schema missing properties")
        specs.append(ToolSpec(function["name"], function.get("description", ""), function["parameters"]))
    names = [spec.name for spec in specs]
    require(len(set(names)) == len(names), "tools: the names must be unique")
    return specs


def _spelt_call(reply: Reply, number: int, call_id: str) -> Iterator[dict[str, Any]]:
    name, arguments = reply.call or ("", {})
    spelt = arguments if isinstance(arguments, str) else json.dumps(arguments)
    yield {"index": number, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    for piece in _pieces(spelt):
        yield {"index": number, "function": {"arguments": piece}}


def _reason(reply: Reply) -> str:
    if reply.reason != "end_turn":
        return reply.reason
    if reply.unfinished:
        return "length"
    return "tool_calls" if reply.call else "stop"


def _usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    prompt = usage.input + usage.cache_read + usage.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
    }


def _pieces(text: str) -> Iterable[str]:
    # A large text comes at once.
    piece = len(text) if len(text) > _LARGE else 7
    return (text[start : start + piece] for start in range(0, len(text), piece))


def _event(asked: Any, choices: list[dict[str, Any]], **fields: Any) -> str:
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": asked["model"], "choices": choices}
    return f"data: {json.dumps({**chunk, **fields}, ensure_ascii=False)}\n\n"
