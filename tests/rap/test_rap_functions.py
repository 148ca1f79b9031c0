"""How functions become tools: what the model is told, and what is refused before anything is served."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Literal

import pytest
from pydantic import Field

from infinity_agents.errors import Misconfigured
from infinity_agents.rap.server import ToolContext, ToolServer


class Connection:
    """A type without a JSON form."""


def schema(kit):
    [tool] = kit._tools.values()
    return tool.offered.to_json()


def test_the_docstring_describes_the_parameters(kit):
    @kit.tool
    def book(ctx: ToolContext, city: str, nights: Annotated[int, Field(description="How many")] = 1) -> str:
        """Book a room.

        Nothing is paid yet.

        Args:
            ctx: Is not told to the model.
            city (str): Where to, such as Rome:
                any city will do.
            nights: Loses against the annotation.

        Returns:
            The name of the hotel.
        """
        return ""

    told = schema(kit)
    assert told["description"] == "Book a room.\n\nNothing is paid yet.\n\nReturns:\n    The name of the hotel."
    assert told["inputSchema"]["properties"] == {
        "city": {"type": "string", "description": "Where to, such as Rome: any city will do."},
        "nights": {"type": "integer", "description": "How many", "default": 1},
    }


def test_the_section_may_come_last(kit):
    @kit.tool
    def pay(amount: float) -> None:
        """Pay.

        Args:
            amount: In euros"""

    told = schema(kit)
    assert told["description"] == "Pay."
    assert told["inputSchema"]["properties"]["amount"]["description"] == "In euros"


def test_literals_are_spelt_out(kit):
    @kit.tool
    def order(drink: Literal["tea", "coffee"], size: Literal[1, 2] | None = None) -> None:
        """Order."""

    properties = schema(kit)["inputSchema"]["properties"]
    assert properties["drink"] == {"type": "string", "enum": ["tea", "coffee"]}
    assert properties["size"]["anyOf"][0] == {"type": "integer", "enum": [1, 2]}


@pytest.mark.parametrize("decorate", [ToolServer.tool, ToolServer.subscription])
def test_what_cannot_be_offered_names_the_remedy(kit, decorate):
    def misspelt(city: str) -> None:
        """Do it.

        Args:
            ctiy: A city
        """

    def no_json(connection: Connection) -> None:
        """Do it."""

    def field_default(city: str = Field(description="A city")) -> None:
        """Do it."""

    def unknown_type(city: "Citty") -> None:  # noqa: F821 - that is the fault
        """Do it."""

    def only_arguments(city: str) -> None:
        """
        Args:
            city: A city
        """

    for function, reason in [
        (misspelt, "describes ctiy, which is no parameter"),
        (no_json, "no_json has a type without a JSON form.*Connection"),
        (field_default, r"write Annotated\[type, Field"),
        (unknown_type, "unknown_type cannot be read.*Citty"),
        (only_arguments, "has no docstring"),
        (Connection(), "a tool is a function"),
    ]:
        with pytest.raises(Misconfigured, match=reason):
            decorate(kit, function)


def test_generators_are_subscriptions(kit):
    async def events() -> AsyncIterator[str]:
        """Watch."""
        yield "one"

    def numbers() -> Iterator[int]:
        """Count."""
        yield 1

    with pytest.raises(Misconfigured, match="decorate it with @server"):
        kit.tool(events)
    with pytest.raises(Misconfigured, match="return a list"):
        kit.tool(numbers)
    with pytest.raises(Misconfigured, match="write async def"):
        kit.subscription(numbers)
    assert kit.subscription(events) is events


def test_a_hook_takes_what_it_is_told(kit):
    def forget(thread_id: str) -> None: ...

    with pytest.raises(Misconfigured, match=r"the hook forget must take \(thread_id, call_id\)"):
        kit.on_cancel(forget)
    assert kit.on_close(forget) is forget
