"""How a typed function becomes a tool: its schema, its arguments and its running."""

import asyncio
import contextlib
import contextvars
import inspect
import re
import threading
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema

from ..errors import Misconfigured
from ..wire import rap
from ..wire.inputs import explain


@dataclass(frozen=True)
class FunctionTool:
    """A function, what the model is told of it, and how the model's arguments become its own.

    What a ``is_subscription`` returns only confirms it; its events come later. Without a model of its ``arguments``,
    the function takes them as they come, with the context.
    """

    function: Callable[..., Any]
    offered: rap.OfferedTool
    arguments: type[BaseModel] | None
    parameters: tuple[str, ...]
    context_parameter: str | None
    is_subscription: bool

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        context_type: type,
        annotations: rap.Annotations,
        display_script: str | None,
        is_subscription: bool,
    ) -> "FunctionTool":
        """Return the tool that ``function`` is; its parameter of ``context_type`` is none of the model's.

        Raises:
            Misconfigured: it has no docstring, an untyped parameter, or one that cannot be passed by name or as JSON.
        """
        if not inspect.isroutine(function):
            raise Misconfigured(f"{function!r} cannot be a tool; a tool is a function")
        name = function.__name__
        _check_kind(function, name, is_subscription=is_subscription)
        description, descriptions = _read_docstring(inspect.getdoc(function) or "")
        if not description:
            raise Misconfigured(f"the tool {name} has no docstring; write one, the model reads it")
        context_parameter, definitions = _parameters(function, name, context_type)
        unknown = sorted(descriptions.keys() - definitions.keys() - {context_parameter})
        if unknown:
            raise Misconfigured(f"the docstring of the tool {name} describes {unknown[0]}, which is no parameter of it")
        try:
            arguments = create_model(
                name,
                __config__=ConfigDict(extra="forbid"),
                **{_field_name(parameter): definition for parameter, definition in definitions.items()},
            )
            schema = arguments.model_json_schema(schema_generator=_UntitledSchema)
            for parameter, text in descriptions.items():
                if parameter in definitions:
                    schema["properties"][parameter].setdefault("description", text)
            offered = rap.OfferedTool(
                name=name,
                description=description,
                input_schema=schema,
                annotations=annotations,
                display_script=display_script,
            )
        except ValidationError as error:
            raise Misconfigured(f"the tool {name}: {explain(error)}") from error
        except PydanticUserError as error:
            raise Misconfigured(f"a parameter of the tool {name} has a type without a JSON form: {error}") from error
        return cls(function, offered, arguments, tuple(definitions), context_parameter, is_subscription)

    @classmethod
    def declared(cls, offered: rap.OfferedTool, function: Callable[..., Any]) -> "FunctionTool":
        """Return the tool that is told of as ``offered``, and carried out by ``function(arguments, context)``."""
        return cls(function, offered, None, ("arguments",), "context", is_subscription=False)

    @property
    def is_generator(self) -> bool:
        """Whether calling the function gives the events themselves."""
        return inspect.isasyncgenfunction(self.function)

    def bound(self, arguments: Mapping[str, Any], context: object) -> dict[str, Any]:
        """Return the keyword arguments of the function.

        Raises:
            ValueError: the arguments are not what the function takes; the text names them.
        """
        if self.arguments is None:
            return {"arguments": arguments, "context": context}
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
        value = await in_thread(self.function, **keywords)
        return await value if inspect.isawaitable(value) else value


def _check_kind(function: Callable[..., Any], name: str, *, is_subscription: bool) -> None:
    if inspect.isgeneratorfunction(function):
        remedy = "write async def" if is_subscription else "return a list"
        raise Misconfigured(f"the function {name} is a generator, and nothing would run it to its end; {remedy}")
    if inspect.isasyncgenfunction(function) and not is_subscription:
        raise Misconfigured(f"the function {name} yields; decorate it with @server.subscription, or return a list")


def _parameters(function: Callable[..., Any], name: str, context_type: type) -> tuple[str | None, dict[str, Any]]:
    """Return which parameter takes the context, and how pydantic is told of the others."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise Misconfigured(f"the annotations of the tool {name} cannot be read: {error}; import it") from error
    context_parameter: str | None = None
    definitions: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Misconfigured(f"the tool {name} takes {parameter}; a tool's parameters are passed by name")
        hint = hints.get(parameter.name)
        if hint is None:
            raise Misconfigured(f"the parameter {parameter.name} of the tool {name} has no type; annotate it")
        if hint is context_type:
            context_parameter = parameter.name
            continue
        if isinstance(parameter.default, FieldInfo):
            raise Misconfigured(
                f"the parameter {parameter.name} of the tool {name} has a Field as its default; "
                "write Annotated[type, Field(...)]"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        definitions[parameter.name] = (hint, Field(default, alias=parameter.name))
    return context_parameter, definitions


_ARGUMENTS = re.compile(r"^(?:Args|Arguments):[ ]*\n(?P<lines>(?:[ \t]+\S.*\n?|[ \t]*\n)*)", re.MULTILINE)
_ARGUMENT = re.compile(r"^(?P<name>\w+)(?:\s*\([^)]*\))?:\s*(?P<text>.*)$", re.DOTALL)


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the docstring without its ``Args:`` section (Google style), and what that says of each parameter."""
    section = _ARGUMENTS.search(docstring)
    if section is None:
        return docstring, {}
    rest = (docstring[: section.start()].rstrip() + "\n\n" + docstring[section.end() :].lstrip()).strip()
    entries: list[str] = []
    lines = inspect.cleandoc("\n" + section["lines"]).splitlines()
    for line in lines:
        if line[:1].isspace() and entries:
            entries[-1] += " " + line.strip()
        elif line.strip():
            entries.append(line.strip())
    found = [match for match in map(_ARGUMENT.match, entries) if match]
    return rest, {match["name"]: match["text"].strip() for match in found}


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


async def in_thread(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Return what ``function`` returns, which runs in a thread of its own."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, failure: BaseException | None) -> None:
        if not outcome.done():
            outcome.set_result((value, failure))

    def work() -> None:
        value, failure = None, None
        try:
            value = context.run(function, *arguments, **keywords)
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
