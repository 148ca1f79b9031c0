"""How a typed function becomes a tool: its schema, its arguments, its running and its result."""

import asyncio
import contextlib
import contextvars
import inspect
import json
import threading
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, to_jsonable_python

from ..conversation.content import Image, Text, without_surrogates
from ..errors import Misconfigured
from ..wire import rap
from ..wire.inputs import explain


@dataclass(frozen=True)
class FunctionTool:
    """A function, what the model is told of it, and how the model's arguments become its own."""

    function: Callable[..., Any]
    offered: rap.OfferedTool
    arguments: type[BaseModel]
    parameters: tuple[str, ...]
    context_parameter: str | None

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        context_type: type,
        annotations: rap.Annotations,
        display_script: str | None,
    ) -> "FunctionTool":
        """Return the tool that ``function`` is; its parameter of ``context_type`` is none of the model's.

        Raises:
            Misconfigured: it has no docstring, an untyped parameter, or one that cannot be passed by name.
        """
        name, description = function.__name__, inspect.getdoc(function)
        if not description:
            raise Misconfigured(f"the tool {name} has no docstring; write one, the model reads it")
        hints = typing.get_type_hints(function, include_extras=True)
        definitions: dict[str, Any] = {}
        context_parameter = None
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise Misconfigured(f"the tool {name} takes {parameter}; a tool's parameters are passed by name")
            hint = hints.get(parameter.name)
            if hint is None:
                raise Misconfigured(f"the parameter {parameter.name} of the tool {name} has no type; annotate it")
            if hint is context_type:
                context_parameter = parameter.name
                continue
            default = ... if parameter.default is parameter.empty else parameter.default
            definitions[parameter.name] = (hint, Field(default, alias=parameter.name))
        arguments = create_model(
            name,
            __config__=ConfigDict(extra="forbid"),
            **{_field_name(parameter): definition for parameter, definition in definitions.items()},
        )
        try:
            offered = rap.OfferedTool(
                name=name,
                description=description,
                input_schema=arguments.model_json_schema(schema_generator=_UntitledSchema),
                annotations=annotations,
                display_script=display_script,
            )
        except ValidationError as error:
            raise Misconfigured(f"the tool {name}: {explain(error)}") from error
        return cls(function, offered, arguments, tuple(definitions), context_parameter)

    def bound(self, arguments: Mapping[str, Any], context: object) -> dict[str, Any]:
        """Return the keyword arguments of the function.

        Raises:
            ValueError: the arguments are not what the function takes; the text names them.
        """
        try:
            checked = self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise ValueError(explain(error)) from error
        keywords = {name: getattr(checked, _field_name(name)) for name in self.parameters}
        if self.context_parameter:
            keywords[self.context_parameter] = context
        return keywords

    async def run(self, keywords: Mapping[str, Any]) -> Any:
        """Return what the function returns; one that is not a coroutine runs in a thread of its own."""
        if inspect.iscoroutinefunction(self.function):
            return await self.function(**keywords)
        value = await _in_thread(self.function, keywords)
        return await value if inspect.isawaitable(value) else value


def _field_name(parameter: str) -> str:
    # A parameter may have a name that a pydantic model keeps for itself, such as "schema" or "_x".
    return f"arg_{parameter}"


class _UntitledSchema(GenerateJsonSchema):
    """JSON Schema without the titles that say each name again."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: CoreSchema, mode: Any = "validation") -> dict[str, Any]:
        made = super().generate(schema, mode)
        made.pop("title", None)
        return made


async def _in_thread(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, failure: BaseException | None) -> None:
        if not outcome.done():
            outcome.set_result((value, failure))

    def work() -> None:
        value, failure = None, None
        try:
            value = context.run(function, **keywords)
        except BaseException as error:  # noqa: BLE001 - raised again on the loop
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, failure)

    # A daemon, unlike the threads of an executor, does not keep a stopped server from exiting.
    threading.Thread(target=work, name=f"tool-{function.__name__}", daemon=True).start()
    value, failure = await outcome
    if failure is not None:
        raise failure
    return value


def parts_of(value: Any) -> tuple[rap.TextPart | rap.ImagePart, ...]:
    """Return what a function returned as parts of a result: texts and images as they are, all else as JSON.

    Raises:
        ValueError: it has no JSON form.
    """
    match value:
        case None:
            return (rap.TextPart(text="Done."),)
        case str():
            return (rap.TextPart(text=without_surrogates(value)),)
        case Text():
            return parts_of(value.text)
        case Image():
            return (rap.ImagePart(data=value.data, media_type=value.media_type),)
        case list() | tuple() if value and all(isinstance(item, Text | Image) for item in value):
            return tuple(part for item in value for part in parts_of(item))
        case _:
            return parts_of(json.dumps(to_jsonable_python(value), ensure_ascii=False))
