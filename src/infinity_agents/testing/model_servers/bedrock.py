"""ConverseStream of Amazon Bedrock, as a service: its rules, its errors, its binary events."""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ...conversation import ids
from ...conversation.content import Document, Image, Text
from ...conversation.history import CallBody, Reasoning, ResultBody, SaidText
from ...ports.model import ModelRequest
from ...ports.tool import ToolSpec
from ..scripted_model import Reply
from .reading import Block, picture, request_of, schema
from .serving import KEY, Fault, Refused, require


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """What one model of the service takes. ``extra`` are the fields of its own."""

    most_tokens: int = 64_000
    files: bool = True
    statuses: bool = True
    cached: frozenset[str] = frozenset()
    extra: frozenset[str] = frozenset()
    binds: bool = False


_CLAUDE_FIELDS = frozenset({"tool_choice", "thinking", "anthropic_beta", "output_config"})
_CLAUDE = ServedModel(cached=frozenset({"tools", "system", "messages"}), extra=_CLAUDE_FIELDS)
SERVED: Mapping[str, ServedModel] = {
    "global.anthropic.claude-sonnet-4-6": _CLAUDE,
    "global.anthropic.claude-opus-4-8": _CLAUDE,
    "global.anthropic.claude-fable-5-1": ServedModel(cached=_CLAUDE.cached, extra=_CLAUDE_FIELDS, binds=True),
    "us.amazon.nova-pro-v1:0": ServedModel(
        most_tokens=10_000, cached=frozenset({"system", "messages"}), extra=frozenset({"inferenceConfig"})
    ),
    "us.amazon.nova-micro-v1:0": ServedModel(
        most_tokens=10_000, files=False, cached=frozenset({"system", "messages"}), extra=frozenset({"inferenceConfig"})
    ),
    "mistral.mistral-large-2407-v1:0": ServedModel(most_tokens=8192, files=False, statuses=False),
}

_PATH = re.compile(r"/model/(?P<model>[^/]+)/converse-stream")
_FIELDS = {"messages", "system", "inferenceConfig", "toolConfig", "additionalModelRequestFields", "requestMetadata"}
_SAYS = {"text", "reasoningContent", "toolUse", "cachePoint"}
_HEARS = {"text", "image", "document", "toolResult", "cachePoint"}
_RESULTS = {"text", "image", "document", "json"}
_MOST_CACHE_POINTS = 4
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_DOCUMENT_NAME = re.compile(r"[A-Za-z0-9()\[\]-]+(\s[A-Za-z0-9()\[\]-]+)*")
_DOCUMENTS = {"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"}
_LARGEST_PICTURE = 3_932_160
_LARGEST_DOCUMENT = 4_718_592
_MOST_PICTURES = 20
_MOST_DOCUMENTS = 5
_LARGE = 1000
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
_CODES = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
_NO_CACHING = (
    "You invoked an unsupported model or your request did not allow prompt caching. See the documentation for more "
    "information."
)


@dataclass
class BedrockProtocol:
    """The rules of ConverseStream, first and foremost those by which it refuses a history.

    ``served`` are the models, by id or profile. ``refuses`` are names of fields and blocks that this endpoint does not
    take from any model, as older ones do not.
    """

    media_type = "application/vnd.amazon.eventstream"

    served: Mapping[str, ServedModel] = field(default_factory=lambda: SERVED)
    refuses: frozenset[str] = frozenset()
    dropped: list[str] = field(default_factory=list)
    """The texts of the reasoning that was left out because what came before it has changed."""

    def read(self, path: str, headers: Mapping[str, str], body: Any) -> ModelRequest:
        """Return what was asked, where the service would take it. ``body`` gets the ``modelId`` of the path."""
        _check_credentials(headers)
        found = _PATH.fullmatch(path)
        require(found, f"there is nothing at {path}", status=404, code="UnknownOperationException")
        name = unquote(found["model"]) if found else ""
        model = self.served.get(name)
        if model is None:
            raise Refused(400, "The provided model identifier is invalid.")
        require(isinstance(body, dict), "the body must be an object")
        extra = set(body) - _FIELDS
        require(not extra, f"Malformed input request: extraneous key {sorted(extra)} is not permitted")
        for refused in sorted(self.refuses):
            require(f'"{refused}"' not in json.dumps(body), f"Malformed input request: extraneous key [{refused}]")
        body["modelId"] = name
        _check_inference(body, model)
        tools = _tools(body)
        reading = _Reading(self, body, model)
        blocks = reading.messages()
        has_calls = any(isinstance(block, CallBody) for block in blocks)
        require(
            tools or not has_calls,
            "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
        )
        _check_cache_points(body, model)
        return request_of(model=name, system=_system(body), blocks=blocks, tools=tools)

    def models(self, path: str, headers: Mapping[str, str]) -> Any:
        """Return the list of models, or that of inference profiles."""
        _check_credentials(headers)
        profiles = [name for name in self.served if name.startswith(("global.", "us."))]
        if path == "/inference-profiles":
            return {"inferenceProfileSummaries": [_profile(name) for name in profiles]}
        require(path == "/foundation-models", f"there is nothing at {path}", status=404)
        return {
            "modelSummaries": [
                {"modelId": name, "modelArn": f"arn:aws:bedrock:us-east-1::foundation-model/{name}"}
                for name in self.served
                if name not in profiles
            ]
        }

    def sign(self, model: str, text: str, prefix: str) -> str:
        """Return the signature that ``model`` gives ``text`` where ``prefix`` came before it."""
        return f"{ids.digest(model, text)}.{prefix}"

    # What is answered.

    def spell(self, reply: Reply, asked: Any, fault: Fault | None) -> Iterator[bytes]:
        """Yield the events of ``reply``."""
        yield _event("messageStart", role="assistant")
        for place, block in enumerate(self._blocks(reply, asked, fault)):
            for part in block:
                kind = "contentBlockStart" if "start" in part else "contentBlockDelta"
                yield _event(kind, contentBlockIndex=place, **part)
            if fault == "garbage":
                broken = bytearray(_event("contentBlockDelta", contentBlockIndex=place, delta={"text": "x"}))
                broken[-1] ^= 0xFF
                yield bytes(broken)
            yield _event("contentBlockStop", contentBlockIndex=place)
        if fault in {"no final event", "hang up"} or reply.error is not None:
            return
        yield _event("anEventThatNobodyKnows", anything=1)
        yield _event("messageStop", stopReason=_reason(reply))
        if fault != "no usage":
            yield _event("metadata", usage=_usage(reply), metrics={"latencyMs": 1})

    def _blocks(self, reply: Reply, asked: Any, fault: Fault | None) -> Iterator[list[dict[str, Any]]]:
        if reply.reasoning:
            signature = self.sign(asked["modelId"], reply.reasoning, _prefix(asked, len(asked["messages"])))
            yield [
                *({"delta": {"reasoningContent": {"text": piece}}} for piece in _pieces(reply.reasoning)),
                *({"delta": {"reasoningContent": {"signature": piece}}} for piece in _pieces(signature)),
            ]
            redacted = _redacted(asked["modelId"])
            yield [
                {"delta": {"reasoningContent": {"redactedContent": base64.b64encode(piece).decode()}}}
                for piece in (redacted[:5], redacted[5:])
            ]
        if reply.text:
            yield [{"delta": {"text": piece}} for piece in _pieces(reply.text)]
        for number in range(2 if fault == "two calls" else 1) if reply.call and reply.error is None else ():
            yield _spelt_call(reply, f"tooluse_{len(asked['messages'])}_{number}")

    def spell_error(self, refused: Refused) -> bytes:
        """Return the message that is an exception."""
        error = self.refusal(refused)
        code = error["__type"]
        kind = f"{code[0].lower()}{code[1:]}"
        headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
        return encoded(headers, json.dumps({"message": error["message"]}).encode())

    def refusal(self, refused: Refused) -> Any:
        """Return the body of an error."""
        message = "Input is too long for requested model." if refused.is_too_long else refused.message
        is_named = refused.code is not None and refused.code.endswith("Exception")
        code = refused.code if is_named else _CODES.get(refused.status, f"Status{refused.status}Exception")
        return {"__type": code, "message": message}


def encoded(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one message in ``application/vnd.amazon.eventstream``: prelude, headers, payload, and their checksums.

    https://smithy.io/2.0/aws/amazon-eventstream.html
    """
    head = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + len(value.encode()).to_bytes(2) + value.encode()
        for name, value in headers.items()
    )
    prelude = (16 + len(head) + len(payload)).to_bytes(4) + len(head).to_bytes(4)
    message = prelude + zlib.crc32(prelude).to_bytes(4) + head + payload
    return message + zlib.crc32(message).to_bytes(4)


def _event(kind: str, **fields: Any) -> bytes:
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    # The service pads each event, so that its length tells nothing.
    return encoded(headers, json.dumps({**fields, "p": "abcdefgh"}, ensure_ascii=False).encode())


def _check_credentials(headers: Mapping[str, str]) -> None:
    given = headers.get("authorization", "")
    is_signed = given.startswith(f"AWS4-HMAC-SHA256 Credential={KEY}/") and "/bedrock/aws4_request" in given
    require(
        is_signed or given == f"Bearer {KEY}",
        "The security token included in the request is invalid.",
        status=403,
        code="UnrecognizedClientException",
    )


def _check_inference(body: dict[str, Any], model: ServedModel) -> None:
    config = body.get("inferenceConfig", {})
    extra = set(config) - {"maxTokens", "temperature", "topP", "stopSequences"}
    require(not extra, f"inferenceConfig: extraneous key {sorted(extra)} is not permitted")
    require(
        config.get("maxTokens", 1) <= model.most_tokens,
        f"The maximum tokens you requested exceeds the model limit of {model.most_tokens}.",
    )
    fields = body.get("additionalModelRequestFields", {})
    extra = set(fields) - model.extra
    require(not extra, f"Malformed input request: extraneous key {sorted(extra)} is not permitted")
    choice = fields.get("tool_choice")
    if choice is not None:
        require("type" in choice, "The model returned the following errors: tool_choice.type: Field required")
        require("toolConfig" in body, "tool_choice may only be specified while providing tools")
        require("toolChoice" not in body.get("toolConfig", {}), "tool_choice is specified twice")
    binding = fields.get("thinking", {}).get("block_binding")
    require(
        binding is None or _BINDING_BETA in fields.get("anthropic_beta", ()),
        "thinking.block_binding: Extra inputs are not permitted",
    )


def _system(body: dict[str, Any]) -> str:
    blocks = body.get("system", [])
    texts = [block for block in blocks if "cachePoint" not in block]
    for place, block in enumerate(texts):
        require(str(block.get("text", "")).strip(), f"The text field in the SystemContentBlock at {place} is blank")
    return "\n".join(str(block["text"]) for block in texts)


def _tools(body: dict[str, Any]) -> list[ToolSpec]:
    config = body.get("toolConfig")
    if config is None:
        return []
    require(config.get("tools"), "toolConfig.tools: Member must have length greater than or equal to 1")
    specs = []
    for place, tool in enumerate(config["tools"]):
        if "cachePoint" in tool:
            continue
        where, spec = f"toolConfig.tools.{place}", tool.get("toolSpec", {})
        require(_NAME.fullmatch(str(spec.get("name"))), f"{where}.name: must satisfy '{_NAME.pattern}'")
        require(str(spec.get("description", "x")).strip(), f"{where}.description: must have length of at least 1")
        document = spec.get("inputSchema", {}).get("json")
        schema(document, f"{where}.inputSchema.json")
        specs.append(ToolSpec(spec["name"], spec.get("description", ""), document))
    names = [spec.name for spec in specs]
    require(len(set(names)) == len(names), "The tool names must be unique")
    return specs


def _check_cache_points(body: dict[str, Any], model: ServedModel) -> None:
    lists = {
        "tools": [body.get("toolConfig", {}).get("tools", [])],
        "system": [body.get("system", [])],
        "messages": [message["content"] for message in body["messages"]],
    }
    count = 0
    for place, contents in lists.items():
        for content in contents:
            for index, block in enumerate(content):
                if "cachePoint" not in block:
                    continue
                count += 1
                require(place in model.cached, _NO_CACHING, status=403)
                before = content[index - 1] if index else {}
                require(before, "There is nothing available to cache. Please remove the invalid cache point.")
                require(
                    "reasoningContent" not in before,
                    "Cache point cannot be inserted after reasoning block. Please remove the invalid cache point.",
                )
                require(
                    "document" not in before,
                    f"The model returned the following errors: {place}.content.{index}.type: Field required",
                )
    require(
        count <= _MOST_CACHE_POINTS,
        f"A maximum of {_MOST_CACHE_POINTS} blocks with cache_control may be provided. Found {count}.",
    )


class _Reading:
    """Reads the messages of one request."""

    def __init__(self, protocol: BedrockProtocol, body: dict[str, Any], model: ServedModel) -> None:
        self._protocol = protocol
        self._body = body
        self._model = model
        self._names: set[str] = set()

    def messages(self) -> list[Block]:
        """Return what was said, block by block.

        Raises:
            Refused: the service would refuse it.
        """
        messages = self._body.get("messages")
        require(isinstance(messages, list) and messages, "messages: at least one message is required")
        blocks: list[Block] = []
        called: list[str] = []
        seen: set[str] = set()
        for place, message in enumerate(messages or ()):
            where = f"messages.{place}.content"
            role, content = message.get("role"), message.get("content")
            require(place or role == "user", "A conversation must start with a user message.")
            require(
                role == ("assistant" if place % 2 else "user"),
                "A conversation must alternate between user and assistant roles. Make sure the conversation alternates",
            )
            require(content, f"The content field in the Message object at messages.{place} is empty.")
            self._check_kinds(where, role, content)
            if role == "user":
                _check_answers(where, content, called)
                _check_files(where, content)
            called = [str(block["toolUse"].get("toolUseId")) for block in content if "toolUse" in block]
            is_new = not seen & set(called) and len(set(called)) == len(called)
            require(is_new, f"{where}: the toolUse ids must be unique")
            seen.update(called)
            for index, block in enumerate(content):
                read = self._block(f"{where}.{index}", block, place)
                if read is not None:
                    blocks.append(read)
        is_asked = messages and messages[-1]["role"] == "user"
        require(is_asked, "This model does not support assistant message prefill. It must end with a user message.")
        return blocks

    def _check_kinds(self, where: str, role: str, content: Sequence[dict[str, Any]]) -> None:
        takes = _SAYS if role == "assistant" else _HEARS
        for block in content:
            require(len(block) == 1, f"{where}: a content block must have exactly one member, not {sorted(block)}")
            require(set(block) <= takes, f"{where}: {sorted(block)} in a turn of the {role}")
        require(
            role == "user" or "reasoningContent" not in content[-1],
            f"{where}: the final block in an assistant message cannot be `thinking`",
        )

    def _block(self, where: str, block: dict[str, Any], place: int) -> Block | None:
        match block:
            case {"text": _}:
                text = _text(where, block)
                return Text(text) if self._body["messages"][place]["role"] == "user" else SaidText(text)
            case {"reasoningContent": reasoning}:
                return self._reasoning(where, reasoning, place)
            case {"toolUse": use}:
                return _call(where, use)
            case {"toolResult": result}:
                return self._result(where, result)
            case {"image": image}:
                return self._image(where, image)
            case {"document": document}:
                return self._document(where, document)
            case _:
                require(block == {"cachePoint": {"type": "default"}}, f"{where}.cachePoint.type: must be 'default'")
                return None

    def _result(self, where: str, result: dict[str, Any]) -> ResultBody:
        content = result.get("content")
        require(content, f"The content field in the ToolResultBlock at {where} is empty.")
        status = result.get("status", "success")
        require(self._model.statuses or "status" not in result, "This model doesn't support the status field.")
        require(status in {"success", "error"}, f"{where}.status: must be 'success' or 'error'")
        parts = []
        for part in content or ():
            require(set(part) <= _RESULTS, f"{where}: {sorted(part)} cannot be in a toolResult")
            parts.append(Text(_text(where, part)) if "text" in part else self._image(where, part.get("image", {})))
        return ResultBody(str(result["toolUseId"]), tuple(parts), is_error=status == "error")

    def _image(self, where: str, image: dict[str, Any]) -> Image:
        require(self._model.files, "This model doesn't support the image content block that you provided.")
        data = str(image.get("source", {}).get("bytes"))
        require(len(_bytes(where, data)) <= _LARGEST_PICTURE, f"{where}: image exceeds 3.75 MB maximum")
        return picture(data, f"image/{image.get('format')}")

    def _document(self, where: str, document: dict[str, Any]) -> Document:
        require(self._model.files, "This model doesn't support documents.")
        name, kind = str(document.get("name")), document.get("format")
        require(
            _DOCUMENT_NAME.fullmatch(name) and len(name) <= 200,
            f"{where}: the document file name can only contain alphanumeric characters, whitespace characters, "
            "hyphens, parentheses, and square brackets. The name can't contain more than one consecutive whitespace "
            "character.",
        )
        require(name not in self._names, f"{where}: duplicate document names are not allowed: {name}")
        self._names.add(name)
        require(kind in _DOCUMENTS, f"{where}.format: must be one of {sorted(_DOCUMENTS)}")
        data = str(document.get("source", {}).get("bytes"))
        raw = _bytes(where, data)
        require(0 < len(raw) <= _LARGEST_DOCUMENT, f"{where}: document exceeds 4.5 MB maximum, or is empty")
        require(kind != "pdf" or raw.startswith(b"%PDF-"), f"{where}: the PDF specified was not valid")
        return Document(data, str(kind), name)

    def _reasoning(self, where: str, reasoning: dict[str, Any], place: int) -> Reasoning | None:
        name = self._body["modelId"]
        if "redactedContent" in reasoning:
            data = reasoning["redactedContent"]
            require(_bytes(where, data) == _redacted(name), f"{where}: Invalid `data` in `redacted_thinking` block")
            return Reasoning(redacted=data, model=name)
        told = reasoning.get("reasoningText", {})
        text, signature = told.get("text"), told.get("signature")
        require(text is not None, f"{where}.reasoningContent.reasoningText.text: Member must not be null")
        require(signature, f"{where}: thinking.signature: Field required")
        signed, _, prefix = str(signature).partition(".")
        require(signed == ids.digest(name, text), f"{where}: Invalid `signature` in `thinking` block")
        if self._model.binds and prefix != _prefix(self._body, place):
            thinking = self._body.get("additionalModelRequestFields", {}).get("thinking", {})
            require(
                thinking.get("block_binding", {}).get("prefix_mismatch_behavior") == "drop_block",
                f"{where}: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
            )
            self._protocol.dropped.append(text)
            return None
        return Reasoning(text, signature, model=name)


def _check_answers(where: str, content: Sequence[dict[str, Any]], called: Sequence[str]) -> None:
    """Refuse a user's turn that does not begin with exactly one result for each call of the turn before."""
    answered = [str(block["toolResult"].get("toolUseId")) for block in content if "toolResult" in block]
    missing = [call for call in called if call not in answered]
    require(not missing, f"Expected toolResult blocks at {where} for the following Ids: {', '.join(missing)}")
    require(
        len(answered) <= len(called),
        f"The number of toolResult blocks at {where} exceeds the number of toolUse blocks of previous turn.",
    )
    require(
        set(answered) == set(called), f"{where}: unexpected toolUseId found in toolResult blocks: {sorted(answered)}"
    )
    first = [block for block in content if "cachePoint" not in block][: len(answered)]
    require(all("toolResult" in block for block in first), f"{where}: toolResult blocks must come before anything else")


def _check_files(where: str, content: Sequence[dict[str, Any]]) -> None:
    inner = [part for block in content for part in block.get("toolResult", {}).get("content", ())]
    pictures = sum("image" in block for block in [*content, *inner])
    documents = sum("document" in block for block in content)
    require(pictures <= _MOST_PICTURES, f"{where}: too many images: {pictures} > {_MOST_PICTURES}")
    require(documents <= _MOST_DOCUMENTS, f"{where}: too many documents: {documents} > {_MOST_DOCUMENTS}")
    has_text = any("text" in block for block in content)
    require(has_text or not documents, f"{where}: a text block must be included when using documents")


def _call(where: str, use: dict[str, Any]) -> CallBody:
    call_id, name, arguments = str(use.get("toolUseId")), str(use.get("name")), use.get("input")
    require(_ID.fullmatch(call_id), f"{where}.toolUse.toolUseId: must satisfy '{_ID.pattern}'")
    require(_NAME.fullmatch(name), f"{where}.toolUse.name: must satisfy '{_NAME.pattern}'")
    require(
        isinstance(arguments, dict),
        f"The format of the value at {where}.toolUse.input is invalid. Provide a json object for the field.",
    )
    return CallBody(call_id, name, arguments or {})


def _text(where: str, block: dict[str, Any]) -> str:
    text = block.get("text")
    require(isinstance(text, str) and text.strip(), f"The text field in the ContentBlock object at {where} is blank.")
    return str(text)


def _bytes(where: str, data: Any) -> bytes:
    try:
        return base64.b64decode(str(data), validate=True)
    except binascii.Error as error:
        raise Refused(400, f"{where}: bytes must be base64") from error


def _prefix(body: dict[str, Any], place: int) -> str:
    """Return what stands for all that came before the turn at ``place``."""
    before = (body.get("system"), body.get("toolConfig"), [message["content"] for message in body["messages"][:place]])
    return ids.digest(json.dumps(_bare(before)))


def _bare(value: Any) -> Any:
    """Return ``value`` without cache points and reasoning: these may come and go."""
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        passing = {"cachePoint", "reasoningContent"}
        return [_bare(item) for item in value if not (isinstance(item, dict) and passing & set(item))]
    return value


def _redacted(model: str) -> bytes:
    return f"redacted-{model}\x00".encode()


def _profile(name: str) -> dict[str, Any]:
    arn = f"arn:aws:bedrock:us-east-1:123456789012:inference-profile/{name}"
    models = [{"modelArn": f"arn:aws:bedrock:us-east-1::foundation-model/{name.partition('.')[2]}"}]
    summary = {"inferenceProfileId": name, "inferenceProfileName": name, "inferenceProfileArn": arn, "models": models}
    return {**summary, "status": "ACTIVE", "type": "SYSTEM_DEFINED"}


def _spelt_call(reply: Reply, call_id: str) -> list[dict[str, Any]]:
    name, arguments = reply.call or ("", {})
    spelt = arguments if isinstance(arguments, str) else json.dumps(arguments)
    # A call without arguments has no deltas.
    pieces = _pieces(spelt) if spelt != "{}" else ()
    return [
        {"start": {"toolUse": {"toolUseId": call_id, "name": name}}},
        *({"delta": {"toolUse": {"input": piece}}} for piece in pieces),
    ]


def _reason(reply: Reply) -> str:
    if reply.reason != "end_turn":
        return reply.reason
    if reply.unfinished:
        return "max_tokens"
    return "tool_use" if reply.call else "end_turn"


def _usage(reply: Reply) -> dict[str, int]:
    usage = reply.usage
    return {
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "totalTokens": usage.context,
        "cacheReadInputTokens": usage.cache_read,
        "cacheWriteInputTokens": usage.cache_write,
    }


def _pieces(text: str) -> Iterable[str]:
    # A large text comes at once.
    piece = len(text) if len(text) > _LARGE else 7
    return (text[start : start + piece] for start in range(0, len(text), piece))
