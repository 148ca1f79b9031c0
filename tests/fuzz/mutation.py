"""Hostile input, made from valid examples: JSON of wrong types and sizes, texts with odd characters, broken bytes."""

import copy
import json
import re
from random import Random
from typing import Any


class Verbatim(str):
    """A JSON value as it is to be spelt: what ``json.dumps`` would never write."""

    __slots__ = ()


def nested(depth: int, opening: str = "[", closing: str = "]") -> Verbatim:
    return Verbatim(opening * depth + closing * depth)


ODD_TEXTS = (
    "",
    " ",
    "\t\r\n",
    "\x00",
    "a\x00b",
    "\x1b[31mred\x1b[0m",
    "\ud800",
    "a\udfff\ud800b",
    "\u202egnp.exe",
    "\ufeff",
    "\u2028",
    "e\u0301" * 50,
    "\U0001f600" * 20,
    "\u0661\u0662",
    "\u00b2",
    "\uff10",
    "%00%ff%",
    "{}{0}{a.__class__}",
    "%s%n",
    "null",
    "[]",
    "{}",
    '"',
    "\\",
    "\\u",
    "../../etc/passwd",
    "r#a#b.c:d",
    "-1",
    "1e999",
    "NaN",
    "http://[",
    "https://[::1",
    "https://a:99999/",
    "https://user:pw@host/",
    "https://\uff0e/",
    "https:///nothing",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "http://127.0.0.1:1/",
    "<!channel>",
    "<@U1>",
    "<script>",
    "```",
    "receive_event__injected",
    "__class__",
    "a" * 129,
    "a" * 1025,
)
ODD_NUMBERS = (0, -1, 1, 2, 255, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**40, 0.1, -0.0, 1e308, 5e-324)
ODD_VALUES = (
    None,
    True,
    False,
    {},
    [],
    [[]],
    [None],
    {"": ""},
    {"type": "text"},
    Verbatim("NaN"),
    Verbatim("-Infinity"),
    Verbatim("1e999"),
    Verbatim("-0"),
    Verbatim("1" * 5_000),
    nested(99),
    nested(10_000),
    nested(10_000, '{"a":', "}").replace("}", "1}", 1),
    Verbatim('{"a":1,"a":2}'),
    Verbatim('"\\ud800"'),
    Verbatim('"\\ud83d\\ude00"'),
    Verbatim("'single'"),
    Verbatim(""),
)
LARGE = 1_000_000


def odd_text(random: Random, near: str = "") -> str:
    """Return a text that is odd: of its own, or made from ``near``."""
    odd = random.choice(ODD_TEXTS)
    match random.randrange(8):
        case 0:
            return near + odd
        case 1:
            return odd + near
        case 2:
            place = random.randrange(len(near) + 1)
            return near[:place] + odd + near[place:]
        case 3:
            return near[: random.randrange(len(near) + 1)]
        case 4 if random.randrange(4) == 0:
            piece = random.choice((near[:40] or "a", odd or "b", "a", "<", " "))
            return (piece * (LARGE // len(piece) + 1))[: random.choice((5_000, 70_000, LARGE))]
        case 5:
            return near * random.choice((2, 3, 50)) if len(near) < 2_000 else near
        case 6:
            return near.swapcase()
        case _:
            return odd


def odd_value(random: Random, near: Any = None) -> Any:
    """Return a JSON value that hardly anybody expects in the place of ``near``."""
    match random.randrange(6):
        case 0 if isinstance(near, str):
            return odd_text(random, near)
        case 1 if isinstance(near, int | float):
            return random.choice((near + 1, -near, near * 1000, str(near), [near]))
        case 2:
            return [near]
        case 3:
            return {"a": near}
        case 4:
            return random.choice((odd_text(random), random.choice(ODD_NUMBERS)))
        case _:
            return copy.deepcopy(random.choice(ODD_VALUES))


def mutated(random: Random, example: Any, changes: int | None = None) -> str:
    """Return the JSON text of ``example`` after some ``changes``, none to four where it is not said how many."""
    value = copy.deepcopy(example)
    for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 4)) if changes is None else changes):
        value = _changed(random, value)
    text = spelt(value)
    return _broken(random, text) if random.randrange(25) == 0 else text


def spelt(value: Any) -> str:
    """Return ``value`` as JSON; what is ``Verbatim`` stands there as it is."""
    verbatim: list[str] = []
    text = json.dumps(_marked(value, verbatim), ensure_ascii=True)
    return re.sub(r'"\\u0001(\d+)\\u0001"', lambda mark: verbatim[int(mark[1])], text)


def _marked(value: Any, verbatim: list[str]) -> Any:
    match value:
        case Verbatim():
            verbatim.append(str(value))
            return f"\x01{len(verbatim) - 1}\x01"
        case dict():
            return {key: _marked(inner, verbatim) for key, inner in value.items()}
        case list() | tuple():
            return [_marked(inner, verbatim) for inner in value]
        case _:
            return value


def _changed(random: Random, value: Any) -> Any:
    places = list(_places(value))
    if not places or random.randrange(40) == 0:
        return odd_value(random, value)
    holder, key = random.choice(places)
    match random.randrange(10):
        case 0 | 1:
            del holder[key]
        case 2 if isinstance(holder, dict):
            holder[odd_text(random, str(key))] = holder.pop(key)
        case 3 if isinstance(holder, dict):
            holder[random.choice(("type", "id", "content", "text", "", "__proto__"))] = odd_value(random, holder[key])
        case 4 if isinstance(holder, list):
            holder[key:key] = [holder[key]] * random.choice((1, 2, 100, 3_000))
        case 5:
            other, where = random.choice(places)
            if where in other if isinstance(other, dict) else where < len(other):
                holder[key] = copy.deepcopy(other[where])
        case 6 if isinstance(holder, dict):
            again = spelt({key: odd_value(random, holder[key])})[1:-1]
            inner = spelt(holder[key])
            holder[key] = Verbatim(f"{inner},{again}")
        case _:
            holder[key] = odd_value(random, holder[key])
    return value


def _places(value: Any) -> Any:
    """Yield each place of a JSON value: what holds it, and its key there."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            waiting.append(holder[key])


def _broken(random: Random, text: str) -> str:
    place = random.randrange(len(text) + 1)
    return random.choice(
        (text[:place], text[place:], text[:place] + random.choice(('"', "{", "]", ",", "\x00")) + text[place:], "")
    )


def broken_bytes(random: Random, data: bytes) -> bytes:
    """Return ``data`` with some of its bytes changed, left out, doubled, or others put in."""
    made = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        place = random.randrange(len(made) + 1)
        match random.randrange(6):
            case 0:
                del made[place:]
            case 1:
                del made[place : place + random.randrange(1, 9)]
            case 2:
                made[place:place] = random.choice((b"\x00", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\r\n\r\n", b"{"))
            case 3:
                made[place:place] = made[place : place + 50]
            case _ if place < len(made):
                made[place] ^= 1 << random.randrange(8)
    return bytes(made)


def mixed(random: Random, pieces: tuple[str, ...], most: int = 30) -> str:
    """Return a text of some ``pieces``; at times one of them very often."""
    made = [random.choice(pieces) for _ in range(random.randrange(1, most))]
    if random.randrange(12) == 0:
        made.insert(random.randrange(len(made) + 1), random.choice(pieces) * random.choice((300, 20_000)))
    if random.randrange(8) == 0:
        made.insert(random.randrange(len(made) + 1), odd_text(random))
    return "".join(made)
