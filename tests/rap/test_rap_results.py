"""What tools return: pictures, what people see, and what the model must be told instead."""

import base64
import sys

import pytest

from infinity_agents.rap.server import Diff, Image, Result, ToolContext
from infinity_agents.wire import rap

PNG = b"\x89PNG\r\n\x1a\nrest"
SENT_PNG = {"type": "image", "data": base64.b64encode(PNG).decode(), "mediaType": "image/png"}


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_a_picture_knows_what_it_is(data, media_type):
    assert Image(data).media_type == media_type


def test_what_is_no_picture_says_so_where_it_is_made():
    with pytest.raises(ValueError, match="no PNG, JPEG, GIF or WebP; convert"):
        Image(b"<svg/>")
    with pytest.raises(TypeError, match="bytes, not from str; read the file"):
        Image("cat.png")


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (Image(PNG), [SENT_PNG]),
        (["See", Image(PNG)], [{"type": "text", "text": "See"}, SENT_PNG]),
    ],
)
async def test_pictures_go_to_the_model(kit, serve, result_of, value, content):
    @kit.tool
    def draw() -> object:
        """Draw."""
        return value

    assert (await result_of(await serve(kit), "draw"))["content"] == content


async def test_people_see_what_was_made_for_them(kit, serve, result_of):
    @kit.tool
    def edit() -> Result:
        """Edit."""
        return Result({"changed": 1}, [Diff("a.py", "-1\n+2"), Image(PNG), "one line changed"])

    told = await result_of(await serve(kit), "edit")
    assert told["text"] == '{"changed": 1}'
    assert told["display_as"] == [
        {"type": "diff", "content": {"path": "a.py", "patch": "-1\n+2"}},
        {"type": "image", "content": {"data": SENT_PNG["data"], "mediaType": "image/png"}},
        {"type": "text", "content": "one line changed"},
    ]
    assert rap.first_known_segment(told["display_as"]).content.patch == "-1\n+2"


def _circle():
    circle = {}
    circle["self"] = circle
    return circle


@pytest.mark.parametrize("value", [object(), {"a": object()}, _circle(), b"\xff", lambda: 1])
async def test_what_has_no_json_form_says_what_has(kit, serve, result_of, value):
    @kit.tool
    async def tool() -> object:
        """Do it."""
        return value

    told = await result_of(await serve(kit), "tool")
    assert told["is_error"] is True
    assert f"the result, a {type(value).__name__}, has no JSON form" in told["text"]
    assert "return text, numbers, lists" in told["text"]
    assert "Traceback" not in told["text"]


async def test_an_error_is_cut_to_what_a_model_can_read(kit, serve, result_of):
    @kit.tool
    def tool() -> None:
        """Do it."""
        raise ValueError("x" * 7_000_000)

    told = await result_of(await serve(kit), "tool")
    assert told["is_error"] is True
    assert len(told["text"]) < 11_000
    assert told["text"][-40:].endswith("… (7000012 characters in all)")


async def test_prints_change_nothing(kit, serve, result_of, capsys):
    @kit.tool
    def tool() -> str:
        """Do it."""
        print("on standard output")  # noqa: T201 - that is the test
        sys.stderr.write("on standard error\n")
        return "done"

    assert (await result_of(await serve(kit), "tool"))["text"] == "done"
    assert capsys.readouterr() == ("on standard output\n", "on standard error\n")


async def test_a_view_is_shown(kit, serve, invoke, receiver):
    @kit.tool
    async def plan(ctx: ToolContext) -> str:
        """Plan."""
        await ctx.view("board", {"todo": ["a", "b"]})
        return "planned"

    await invoke(await serve(kit), "plan")
    view, result = [request.json for request in await receiver.heard(2)]
    assert view == {
        "type": "view_update",
        "group_id": "thread-1",
        "view_type": "board",
        "content": {"todo": ["a", "b"]},
    }
    assert result["text"] == "planned"
