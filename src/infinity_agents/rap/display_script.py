"""``displayScript``: a tiny expression, in Rhai's syntax, that says how people see a call.

It is untrusted text. There are no loops and no functions: reading it once, left to right, is running it, so the number
of its tokens bounds its work. A branch that is not taken is read with ``live`` false, and computes nothing.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_SCRIPT = 4_096
"""The longest script, in characters."""
MAX_TEXT = 2_000
"""The longest text that a script may build, in characters."""
_MAX_DEPTH = 24
_MAX_TOKENS = 1_500

_TOKEN = re.compile(
    r"""
      (?P<blank>   [\s]+ | //[^\n]* | /\*.*?\*/ )
    | (?P<text>    "(?:[^"\\\n]|\\.)*" )
    | (?P<letter>  '(?:[^'\\\n]|\\.[0-9a-fA-F]*)' )
    | (?P<number>  [0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9]+)? )
    | (?P<name>    [A-Za-z_][A-Za-z0-9_]* )
    | (?P<mark>    \+= | == | != | && | \|\| | [-+!=.;(){}\[\]] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
_WORDS = frozenset({"let", "if", "else", "true", "false"})


def evaluate(script: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the text that ``script`` makes of ``arguments`` (its ``args``), or ``None`` where it makes none."""
    if len(script) > MAX_SCRIPT:
        return None
    try:
        value = _Run(list(_tokens(script)), arguments).result()
        return _text(value) if value is not None else None
    except (_CannotEvaluate, ArithmeticError, RecursionError, ValueError):
        return None


class _CannotEvaluate(Exception):
    """The script is not of the subset, or fails on these arguments."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


_END = _Token("end", "")


def _tokens(script: str) -> Iterator[_Token]:
    position = 0
    while position < len(script):
        match = _TOKEN.match(script, position)
        if match is None:
            raise _CannotEvaluate(f"unexpected {script[position]!r}")
        position = match.end()
        if match.lastgroup != "blank":
            yield _Token(str(match.lastgroup), match.group())


class _Run:
    """One reading of a script. Rhai's ``()`` is ``None`` here."""

    def __init__(self, tokens: list[_Token], arguments: Mapping[str, Any]) -> None:
        if len(tokens) > _MAX_TOKENS:
            raise _CannotEvaluate("too many tokens")
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self._scopes: list[dict[str, Any]] = [{"args": arguments}]

    def result(self) -> Any:
        value = self._statements(live=True)
        if self._next is not _END:
            self._fail()
        return value

    # Reading

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position] if self._position < len(self._tokens) else _END

    def _fail(self) -> NoReturn:
        raise _CannotEvaluate(f"unexpected {self._next.text!r}")

    def _take(self) -> _Token:
        token = self._next
        self._position += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._next.kind not in ("mark", "name") or self._next.text != text:
            return False
        self._position += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._fail()

    def _name(self) -> str:
        if self._next.kind != "name" or self._next.text in _WORDS:
            self._fail()
        return self._take().text

    # Statements: the last one without a semicolon is the value

    def _statements(self, *, live: bool) -> Any:
        value = None
        while self._next is not _END and self._next.text != "}":
            is_block = self._next.text == "if"
            value = self._statement(live=live)
            if self._accept(";"):
                value = None
            elif not is_block and self._next is not _END and self._next.text != "}":
                self._fail()
        return value

    def _statement(self, *, live: bool) -> Any:
        if self._accept("let"):
            name = self._name()
            value = self._expression(live=live) if self._accept("=") else None
            self._scopes[-1][name] = value
            return None
        if self._next.kind == "name" and self._next.text not in _WORDS:
            following = self._tokens[self._position + 1] if self._position + 1 < len(self._tokens) else _END
            if following.text in ("=", "+=") and following.kind == "mark":
                return self._assignment(live=live)
        return self._expression(live=live)

    def _assignment(self, *, live: bool) -> None:
        name, mark = self._name(), self._take().text
        value = self._expression(live=live)
        if not live:
            return
        scope = self._scope_of(name)
        scope[name] = value if mark == "=" else _sum(scope[name], value)

    def _scope_of(self, name: str) -> dict[str, Any]:
        scope: dict[str, Any]
        for scope in reversed(self._scopes):
            if name in scope:
                return scope
        raise _CannotEvaluate(f"unknown variable {name!r}")

    def _block(self, *, live: bool) -> Any:
        self._expect("{")
        self._deeper()
        self._scopes.append({})
        value = self._statements(live=live)
        self._scopes.pop()
        self._depth -= 1
        self._expect("}")
        return value

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _CannotEvaluate("nested too deeply")

    # Expressions, loosest first

    def _expression(self, *, live: bool) -> Any:
        self._deeper()
        value = self._either(live=live)
        self._depth -= 1
        return value

    def _either(self, *, live: bool) -> Any:
        value = self._both(live=live)
        while self._accept("||"):
            known = live and _truth(value)
            other = self._both(live=live and not known)
            value = known or (_truth(other) if live else None)
        return value

    def _both(self, *, live: bool) -> Any:
        value = self._comparison(live=live)
        while self._accept("&&"):
            known = live and _truth(value)
            other = self._comparison(live=known)
            value = _truth(other) if known else (False if live else None)
        return value

    def _comparison(self, *, live: bool) -> Any:
        value = self._addition(live=live)
        for mark in ("==", "!="):
            if self._accept(mark):
                other = self._addition(live=live)
                return (_same(value, other) == (mark == "==")) if live else None
        return value

    def _addition(self, *, live: bool) -> Any:
        value = self._negation(live=live)
        while self._accept("+"):
            other = self._negation(live=live)
            value = _sum(value, other) if live else None
        return value

    def _negation(self, *, live: bool) -> Any:
        negations = 0
        while self._accept("!"):
            negations += 1
        value = self._place(live=live)
        return value if negations == 0 or not live else _truth(value) == (negations % 2 == 0)

    def _place(self, *, live: bool) -> Any:
        value = self._atom(live=live)
        while True:
            if self._accept("."):
                key: Any = self._name()
            elif self._accept("["):
                key = self._expression(live=live)
                self._expect("]")
            else:
                return value
            value = _field(value, key) if live else None

    def _atom(self, *, live: bool) -> Any:
        token = self._next
        if token.kind in ("text", "letter"):
            return _unescaped(self._take().text[1:-1])
        if token.kind == "number" or token.text == "-":
            return self._number()
        if self._accept("true"):
            return True
        if self._accept("false"):
            return False
        if self._accept("if"):
            return self._if(live=live)
        if self._accept("("):
            if self._accept(")"):
                return None
            value = self._expression(live=live)
            self._expect(")")
            return value
        if token.text == "{":
            return self._block(live=live)
        name = self._name()
        return self._scope_of(name)[name] if live else None

    def _number(self) -> int | float:
        sign = -1 if self._accept("-") else 1
        if self._next.kind != "number":
            self._fail()
        text = self._take().text.replace("_", "")
        if len(text) > 18:
            raise _CannotEvaluate("the number is too long")
        return sign * (int(text) if text.isdigit() else float(text))

    def _if(self, *, live: bool) -> Any:
        value, decided = None, not live
        while True:
            holds = self._expression(live=not decided)
            chosen = not decided and _truth(holds)
            taken = self._block(live=chosen)
            if chosen:
                value, decided = taken, True
            if not self._accept("else"):
                return value
            if self._accept("if"):
                continue
            taken = self._block(live=not decided)
            return value if decided else taken


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _CannotEvaluate("a condition must be a bool")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    if _is_number(one) and _is_number(other):
        return bool(one == other)
    return type(one) is type(other) and bool(one == other)


def _sum(one: Any, other: Any) -> Any:
    if _is_number(one) and _is_number(other):
        return one + other
    if not isinstance(one, str) and not isinstance(other, str):
        raise _CannotEvaluate("+ needs a text or two numbers")
    text = _text(one) + _text(other)
    if len(text) > MAX_TEXT:
        raise _CannotEvaluate("the text grows too long")
    return text


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise _CannotEvaluate("lists and objects have no text")


def _field(value: Any, key: Any) -> Any:
    if not isinstance(value, Mapping) or not isinstance(key, str):
        raise _CannotEvaluate("only objects have fields")
    return value.get(key)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None:
        if match[4] not in _ESCAPED:
            raise _CannotEvaluate(f"unknown escape {match[4]!r}")
        return _ESCAPED[match[4]]
    if int(code, 16) > 0x10FFFF or 0xD800 <= int(code, 16) <= 0xDFFF:
        raise _CannotEvaluate("no such character")
    return chr(int(code, 16))
