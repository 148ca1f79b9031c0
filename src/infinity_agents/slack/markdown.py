"""Markdown as Slack shows it: cut into posts, with tables as aligned text."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

_FENCE = re.compile(r" {0,3}(`{3,20}(?!`)|~{3,20}(?!~))(.*)")
_LONGEST_OPENING = 60
_MOST_COLUMNS = 50
_WIDEST_COLUMN = 40
"""A table of more columns stays as it is, and what is wider stands out of its column: padding must not swell a text."""
_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?")
_BAR = re.compile(r"(?<!\\)\|")
_BOLD = re.compile(r"(\*\*|__)(.+?)\1")
_ALARM = re.compile(r"<!(here|channel|everyone|subteam)(?:\^([A-Z0-9]{1,24}))?(?:\|@?([^<>|\n]{0,80}))?(>?)")
_MENTION = re.compile(r"<@([A-Z0-9]+)\|[^<>\n]*>")


def shown_in_slack(text: str) -> str:
    """Return Markdown that says the same: tables become code blocks, and nothing rings for a whole channel.

    A mention as the agent hears it, with a name, becomes one that Slack knows.
    """
    return "\n".join(_with_tables_drawn(_MENTION.sub(r"<@\1>", _ALARM.sub(_silenced, text)).split("\n")))


def _silenced(alarm: re.Match[str]) -> str:
    name, group, label, end = alarm.groups()
    return f"@{label or group or name}" if end else f"< !{alarm[0][2:]}"


def split(text: str, limit: int) -> list[str]:
    """Return ``text`` in parts of at most ``limit`` characters, as Slack counts them.

    A part ends at the end of a paragraph or a line, where there is one; a code block that is cut is closed there and
    opened again in the next part.
    """
    parts: list[str] = []
    part = _Part()
    for line in text.split("\n"):
        # A piece fits behind the line that opens its code block anew, and before the one that closes it.
        for piece in _pieces(line, limit - 2 * _LONGEST_OPENING):
            while part.lines and part.length_with(piece) > limit:
                whole, part = part.cut(limit)
                parts.append(whole)
            part.add(piece)
    return [each for each in [*parts, "\n".join(part.lines)] if each.strip()]


def length(text: str) -> int:
    """Return how many characters Slack counts: those beyond the basic plane are two."""
    return len(text) + sum(character > "\uffff" for character in text) if not text.isascii() else len(text)


class _Part:
    """The lines of a part so far, and the code block that is open at their end."""

    def __init__(self, lines: Sequence[str] = ()) -> None:
        self.lines: list[str] = []
        self.opening: str | None = None
        """The line that opened the code block."""
        self._opened_at = 0
        self._length = -1
        self._break: int | None = None
        """Where the last paragraph begins."""
        for line in lines:
            self.add(line)

    def length_with(self, line: str) -> int:
        """Return how long the part would be with ``line``, and closed."""
        opening = _open_after(self.opening, line)
        return self._length + 1 + length(line) + (1 + len(_fence_of(opening)) if opening is not None else 0)

    def add(self, line: str) -> None:
        before, self.opening = self.opening, _open_after(self.opening, line)
        if before is None and self.opening is not None:
            self._opened_at = len(self.lines)
        self.lines.append(line)
        self._length += 1 + length(line)
        if self.opening is None and not line.strip():
            self._break = len(self.lines)

    def cut(self, limit: int) -> "tuple[str, _Part]":
        """Return what is posted now, and the part that goes on."""
        if self.opening is None:
            kept = self.lines[: self._break]
            # Between two paragraphs, unless that leaves most of the room.
            if self._break is not None and length("\n".join(kept)) >= limit // 2:
                return "\n".join(kept).rstrip("\n"), _Part(self.lines[self._break :])
            return "\n".join(self.lines), _Part()
        if 0 < self._opened_at == len(self.lines) - 1:
            # Nothing of the block is here yet.
            return "\n".join(self.lines[:-1]), _Part(self.lines[-1:])
        return "\n".join([*self.lines, _fence_of(self.opening)]), _Part([self.opening])


def _open_after(opening: str | None, line: str) -> str | None:
    """Return the line that opened the code block in which the line after ``line`` stands, if it stands in one."""
    fence = _FENCE.fullmatch(line)
    if fence is None:
        return opening
    if opening is None:
        is_inline = fence[1][0] == "`" and "`" in fence[2]
        return None if is_inline else line if length(line) <= _LONGEST_OPENING else fence[1]
    return None if not fence[2].strip() and fence[1].startswith(_fence_of(opening)) else opening


def _fence_of(opening: str) -> str:
    found = _FENCE.fullmatch(opening)
    assert found is not None, opening  # noqa: S101 - what opened a block is a fence
    return found[1]


def _pieces(line: str, limit: int) -> Iterator[str]:
    """Yield the line, in pieces where it is too long: between words, if there are any."""
    while len(line) > limit or length(line) > limit:
        end = limit if length(line[:limit]) <= limit else limit // 2
        space = line.rfind(" ", end // 2, end)
        end = space if space > 0 else end
        yield line[:end]
        line = line[end:].lstrip(" ") if space > 0 else line[end:]
    yield line


def _with_tables_drawn(lines: Sequence[str]) -> Iterator[str]:
    opening: str | None = None
    number = 0
    while number < len(lines):
        line = lines[number]
        if opening is None and _is_table(lines, number):
            end = number + 2
            while end < len(lines) and "|" in lines[end] and lines[end].strip():
                end += 1
            yield from _drawn([_cells(row) for row in (line, *lines[number + 2 : end])])
            number = end
            continue
        opening = _open_after(opening, line)
        yield line
        number += 1


def _is_table(lines: Sequence[str], number: int) -> bool:
    if number + 1 >= len(lines) or "|" not in lines[number] or "|" not in lines[number + 1]:
        return False
    rule = lines[number + 1]
    columns = len(_cells(lines[number]))
    return columns <= _MOST_COLUMNS and bool(_RULE.fullmatch(rule.strip())) and len(_cells(rule)) == columns


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [
        re.sub(r"(\*\*|__)(.+?)\1", r"\2", cell.strip().replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", inner)
    ]


def _drawn(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    columns = len(rows[0])
    # A row may have more cells than there are columns: a bar that was not escaped.
    filled = [[*row[: columns - 1], " | ".join(row[columns - 1 :]), *[""] * columns][:columns] for row in rows]
    widths = [min(max(_width(row[column]) for row in filled), _WIDEST_COLUMN) for column in range(columns)]
    yield "```"
    for number, row in enumerate(filled):
        yield "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        if number == 0:
            yield "  ".join("-" * width for width in widths)
    yield "```"


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)
