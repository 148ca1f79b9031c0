"""What people and models are shown, and what people write: posts in Slack, display scripts, MCP results, the file."""

import json
import os
import tempfile
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import mcp_types
from pydantic import ValidationError

from infinity_agents.cli.config import AgentConfig, read
from infinity_agents.conversation.content import shown
from infinity_agents.conversation.outputs import Output, spoken
from infinity_agents.errors import Misconfigured
from infinity_agents.mcp.results import MAX_RESULT, McpError, value_of
from infinity_agents.rap.display_script import MAX_SCRIPT, MAX_TEXT, evaluate
from infinity_agents.slack.markdown import length, shown_in_slack, split
from infinity_agents.slack.posts import MAX_MARKDOWN, authorization, posts_of, settled
from infinity_agents.testing.slack import _check_content
from infinity_agents.wire.outputs import decode, encode
from tests.fuzz.decoders import ARGUMENTS, PNG, made_by, steady
from tests.fuzz.mutation import ODD_TEXTS, mixed, mutated, odd_text
from tests.fuzz.running import Target

MARKDOWN = (
    "word ",
    "words and words\n",
    "\n",
    "\n\n",
    " ",
    "# title\n",
    "- item\n",
    "**bold**",
    "__",
    "**",
    "`",
    "```",
    "```python\n",
    "````\n",
    "~~~",
    "~~~~ \n",
    "   ```\n",
    "a | b\n--|--\n",
    "| 1 | 2 |\n",
    "|",
    "\\|",
    ":-: | -:\n",
    "--- ---",
    "<!channel>",
    "<!subteam^S1|@here>",
    "<!",
    "<!a",
    "<!DOCTYPE html>",
    "@a",
    ">",
    "<https://example.com|x>",
    "[x](https://example.com)",
    "\U0001f600",
    "\u4e2d\u6587",
    "e\u0301",
    "\t",
    "\r\n",
    "x" * 200,
    "long line of words " * 40,
)


@made_by(lambda random: (random.choice((200, 1_000, MAX_MARKDOWN)), mixed(random, MARKDOWN, 60)))
def markdown(made: tuple[int, str]) -> None:
    limit, text = made
    parts = split(text, limit)
    assert all(length(part) <= limit for part in parts), "a part is over the limit"
    assert all(part.strip() for part in parts), "a part is empty"
    _says_all(text, "".join(parts))
    drawn = shown_in_slack(text)
    assert all(length(part) <= limit for part in split(drawn, limit)), "a part is over the limit"
    letters = "".join(filter(str.isalnum, text.replace("<!subteam^S1|", "<!")))
    _says_all(letters, drawn)


def _says_all(text: str, told: str) -> None:
    """Each character that is seen stands in ``told``, in its order."""
    rest = iter(told)
    for place, character in enumerate(text):
        if not character.isspace():
            assert character in rest, f"{text[place : place + 40]!r} is lost"


OUTPUT_KINDS = ("message", "error", "limit_reached", "user_choice_required", "oauth_required", "user_choice_complete")


def an_output(random: Random) -> tuple[str, str, str, str]:
    """Return the kind, the thread, the text and the JSON of the details, of sizes that a queue takes."""
    details = {
        "id": "call-1",
        "prompt": mixed(random, MARKDOWN, 8)[:50_000],
        "choices": [mixed(random, ("a", "b ", *ODD_TEXTS), 4)[:2_000] for _ in range(random.choice((1, 2, 26, 300)))],
        "auth_url": "https://login.example.com/" + "a" * random.choice((1, 100, 4_000)),
        "user_id": random.choice(("slack:T1:U1", "ada", odd_text(random, "slack:T1:U1"))),
    }
    # No id is longer.
    thread = random.choice(("slack-C1-1.1", "slack-C1-1.1.child", odd_text(random, "slack-C1-1.1.child")[:128]))
    return random.choice(OUTPUT_KINDS), thread, mixed(random, MARKDOWN, 40)[:200_000], json.dumps(details)


@made_by(an_output)
def slack_posts(made: tuple[str, str, str, str]) -> None:
    """The stand-in for Slack takes every post that is made of an output."""
    kind, thread, text, details = made
    said = Output(
        kind, spoken(text, thread, "slack-C1-1.1"), "slack-C1-1.1", thread, "o1", (1, 1), None, json.loads(details)
    )
    output = decode(encode(said))
    for post in posts_of(output):
        metadata = {"event_type": "x", "event_payload": dict(post.metadata)}
        _check_content({"text": post.text, "blocks": list(post.blocks), "metadata": metadata})
        json.dumps(post.blocks).encode()
    text, blocks = settled(output)
    _check_content({"text": text, "blocks": list(blocks)})
    link = authorization(replace(output, text=f"{output.text[:600]}: {json.loads(details)['auth_url']}"))
    _check_content({"text": link.text, "blocks": list(link.blocks)})


SCRIPT = (
    "args",
    ".city",
    ".days",
    ".more",
    '["city"]',
    '"Weather for "',
    "'a'",
    '"\\u{41}\\x41\\U0001F600"',
    '"\\ud800"',
    " + ",
    " += ",
    " == ",
    " != ",
    " && ",
    " || ",
    "!",
    "-",
    "()",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ";",
    "if ",
    " else ",
    "let x = ",
    "x",
    "x += x;",
    "true",
    "false",
    "1_000",
    "1e400",
    "999999999999999999",
    "// c\n",
    "/* c */",
    '"' + "a" * 900 + '"',
)


@made_by(lambda random: (mixed(random, SCRIPT), mutated(random, ARGUMENTS)))
def display_scripts(made: tuple[str, str]) -> None:
    script, text = made
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(arguments, dict):
        return
    told = evaluate(script, arguments)
    assert told is None or isinstance(told, str)
    if len(script) > MAX_SCRIPT:
        assert told is None
    longest = max((len(value) for value in arguments.values() if isinstance(value, str)), default=0)
    assert told is None or len(told) <= max(MAX_TEXT, MAX_SCRIPT, longest), f"a text of {len(told)} characters"


@made_by(lambda random: mixed(random, ("\x1b[31m", "\x1b]0;t\x07", "\x9b", "\x1b", "m", "a", "\u202e", *ODD_TEXTS), 60))
def terminal_text(text: str) -> None:
    """What is shown holds nothing by which a terminal could be driven, and showing it again changes nothing."""
    told = shown(text)
    assert not any(character < " " and character not in "\t\n" for character in told)
    assert not set(told) & set("\x7f\x9b\x9d\u202e\u2066")
    assert shown(told) == told


MCP_RESULT = {
    "content": [
        {"type": "text", "text": "hello"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "description": "b"},
        {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "x"}},
        {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "image/png", "blob": PNG}},
        {"type": "resource", "resource": {"uri": "file:///a", "blob": PNG}},
    ],
    "structuredContent": {"result": [1, {"a": None}]},
    "isError": False,
}


@made_by(lambda random: mutated(random, MCP_RESULT))
def mcp_results(text: str) -> None:
    try:
        result = mcp_types.CallToolResult.model_validate(json.loads(text))
    except (ValidationError, ValueError, RecursionError):
        return
    try:
        value = value_of(result)
    except McpError:
        return
    size = len(value) if isinstance(value, str) else sum(len(part) for part in value if isinstance(part, str))
    assert size < MAX_RESULT + 100_000 * len(result.content) + 1_000


FILE = """\
file = "agent.db"
model = "openai:gpt"
base_url = "http://127.0.0.1:11434/v1"
prompt = "Be brief."
tool_servers = ["http://127.0.0.1:8001", {url = "https://a.example.com", id = "a", call_timeout = 60.0}]

[[mcp_servers]]
server = "uvx mcp-server-time"
name = "time"
env = ["HOME"]

[[mcp_servers]]
server = "https://mcp.example.com/mcp"
bearer_env = "PATH"

[limits]
max_rounds = 3
compact_at = 0.5
"""
TOML = (
    "file",
    "model",
    "prompt_file",
    " = ",
    '"x"',
    "'''",
    '"""',
    "[",
    "]",
    "[[tool_servers]]\n",
    "[[mcp_servers]]\n",
    "[limits]\n",
    "url = ",
    "server = ",
    '"http://["',
    '"\'"',
    "1e999",
    "nan",
    "inf",
    "-1",
    "2020-01-01",
    "{",
    "}",
    ",",
    ".",
    "\n",
    "#",
    "\\u",
    '"\\u0000"',
    '"/"',
    '"."',
    "a.b.c = 1\n",
    "[" * 200,
)


def a_file(random: Random) -> bytes:
    lines = FILE.splitlines(keepends=True)
    for _ in range(random.choice((1, 1, 2, 4))):
        place = random.randrange(len(lines))
        match random.randrange(6):
            case 0:
                del lines[place]
            case 1:
                lines[place:place] = [lines[random.randrange(len(lines))]]
            case 2:
                lines[place] = mixed(random, TOML, 6) + "\n"
            case 3:
                key, equals, _ = lines[place].partition(" = ")
                if equals:
                    lines[place] = f"{key} = {mixed(random, TOML, 2)}\n"
            case 4:
                lines[place] = odd_text(random, lines[place])
            case _:
                key, equals, value = lines[place].partition('"')
                lines[place] = f"{key}{equals}{odd_text(random, value)}"
    return "".join(lines).encode("utf-8", random.choice(("replace", "surrogatepass")))


@asynccontextmanager
async def configuration():
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        source = Path("infinity.toml")
        (Path(place) / "x").write_bytes(b"\xff")

        def check(data: bytes) -> None:
            source.write_bytes(data)
            try:
                config = read(source)
            except Misconfigured as error:
                told = str(error)
                assert "infinity.toml" in told
                assert len(told) < 30_000, f"an error of {len(told)} characters"
                assert shown(told) == told, "an error that drives a terminal"
                return
            assert isinstance(config, AgentConfig)

        yield check
        os.chdir(before)


TARGETS = (
    *map(steady, (markdown, slack_posts, display_scripts, terminal_text, mcp_results)),
    Target("configuration", a_file, configuration),
)
