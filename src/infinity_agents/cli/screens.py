"""The two screens of a chat: a terminal with a line to type on, and plain lines where there is none."""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from enum import Enum

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, create_app_session, get_app_or_none
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.utils import get_cwidth
from rich.console import Console, RenderableType
from rich.text import Text

from ..conversation.content import shown
from ..conversation.outputs import Output
from ..conversation.threads import Choice
from ..wire import outputs as wire_outputs
from .chat import Chat
from .rendering import PROMPT, Prose, note, one_line, put, put_json, question, stderr

_COMMANDS = ["/stop", "/threads", "/answer", "/help", "/quit"]


class Turned(Enum):
    """Why a line was not typed to its end."""

    TO_QUESTION = "a question has come"
    PUT_OFF = "the question is put off"
    GONE = "the question is no longer open"


@contextlib.contextmanager
def terminal(console: Console) -> Iterator["Terminal"]:
    """Give the screen of the terminal that this process has. All that writes to it must be begun in this context."""
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
    # Nothing here needs to know where the cursor is, and not every terminal answers.
    output.enable_cpr = False
    with create_app_session(output=output):
        yield Terminal(console)


class Terminal:
    """Shows a conversation above a line to type on, which stays where it is while the conversation goes on."""

    streams = True
    recalls = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._prose = Prose()
        self._is_streaming = False
        self._open: Sequence[tuple[str, Choice]] = ()
        self._done: list[Choice] = []
        self._picking: Choice | None = None
        self._chat: Chat | None = None

    async def put(self, *lines: RenderableType) -> None:
        """Show ``lines`` above the line to type on."""
        await self.end_stream()
        with _above_the_prompt():
            for line in lines:
                if isinstance(line, Text):
                    put(self._console, line)
                else:
                    self._console.print(line)

    async def tell(self, text: str) -> None:
        """Show a note among the rest."""
        await self.put(note(text))

    async def stream(self, piece: str) -> None:
        """Show the rows that are full; what is not stands above the line to type on until it is."""
        self._is_streaming = True
        rows = list(self._prose.feed(piece, self._console))
        if rows:
            with _above_the_prompt():
                for row in rows:
                    self._console.print(row, soft_wrap=True)
        self._redraw()

    async def end_stream(self) -> None:
        """Show what is left of the last row."""
        if not self._is_streaming:
            return
        self._is_streaming = False
        rest = self._prose.close()
        if rest:
            with _above_the_prompt():
                self._console.print(rest)
        self._redraw()

    async def log(self, told: Sequence[tuple[int, Output]]) -> None:
        """Do nothing: a person reads the conversation itself."""

    async def ask(self, choices: Sequence[tuple[str, Choice]]) -> None:
        """Have the oldest open question picked from as soon as nothing is being typed."""
        self._open = choices
        app = get_app_or_none()
        if app is None or not app.is_running or app.is_done:
            return
        if self._picking is not None:
            if all(choice != self._picking for _, choice in choices):
                app.exit(result=Turned.GONE)
        elif self._next_question() is not None and not app.current_buffer.text:
            app.erase_when_done = True
            app.exit(result=Turned.TO_QUESTION)

    async def talk(self, chat: Chat) -> None:
        """Read what is typed until the person leaves."""
        self._chat = chat
        with contextlib.suppress(KeyboardInterrupt, EOFError):
            session: PromptSession[str | Turned] = PromptSession(
                self._prompt,
                key_bindings=_keys(),
                history=InMemoryHistory(list(chat.said_before)),
                completer=WordCompleter(_COMMANDS, sentence=True),
                complete_while_typing=False,
                complete_style=CompleteStyle.READLINE_LIKE,
                reserve_space_for_menu=0,
                enable_suspend=True,
                refresh_interval=0.5,
            )
            goes_on = True
            while goes_on:
                asked = self._next_question()
                if asked is not None:
                    await self._pick(chat, *asked)
                    continue
                session.app.erase_when_done = False
                typed = await session.prompt_async()
                if isinstance(typed, str):
                    if typed.split() == ["/answer"]:
                        self._done.clear()
                    else:
                        goes_on = await chat.hear(typed)

    def _next_question(self) -> tuple[str, Choice] | None:
        """Return the oldest open question that was neither answered nor put off, and was asked of nobody else."""
        waiting = (asked for asked in self._open if asked[1] not in self._done and asked[1].user_id is None)
        return next(waiting, None)

    async def _pick(self, chat: Chat, thread_id: str, choice: Choice) -> None:
        self._picking = choice
        try:
            picked = await picker(choice.prompt, choice.choices, choice.default).run_async()
        finally:
            self._picking = None
        if picked is not Turned.GONE:
            self._done.append(choice)
        if isinstance(picked, int):
            await chat.answer(thread_id, choice, picked)
        elif picked is Turned.PUT_OFF:
            await chat.tell(f"put off: {choice.prompt} /answer brings it back")

    def _prompt(self) -> StyleAndTextTuples:
        app = get_app_or_none()
        above: StyleAndTextTuples = []
        if app is not None and not app.is_done and self._chat is not None:
            rest = self._prose.rest.plain
            status = _fitted(self._chat.status, app.output.get_size().columns - 1)
            above = [("", f"{rest}\n" if rest else ""), ("ansibrightblack", f"\n{status}" if status else "")]
        return [*above, ("bold ansigreen", f"\n{PROMPT} ")]

    def _redraw(self) -> None:
        app: Application[object] | None = get_app_or_none()
        if app is not None:
            app.invalidate()


@contextlib.contextmanager
def _above_the_prompt() -> Iterator[None]:
    """Let the console write where the line to type on stands, which is drawn again below.

    The terminal stays as it is meanwhile: given back, as by `in_terminal`, it would write what is typed just then into
    the midst of that.
    """
    app: Application[object] | None = get_app_or_none()
    if app is None or not app.is_running:
        yield
        return
    app.renderer.erase()
    try:
        yield
    finally:
        app.invalidate()


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        """Forget what is being typed; with nothing typed, leave."""
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.erase_when_done = True
            event.app.exit(exception=KeyboardInterrupt())

    return keys


def picker(prompt: str, choices: Sequence[str], default: int) -> Application[int | Turned]:
    """Return what lets a person pick one of the choices, by arrows or by number, and leaves no trace."""
    current = default
    keys = KeyBindings()

    def move(by: int) -> None:
        nonlocal current
        current = (current + by) % len(choices)

    keys.add("up")(lambda _: move(-1))
    keys.add("down")(lambda _: move(1))
    keys.add("enter")(lambda event: event.app.exit(result=current))
    keys.add("escape", eager=True)(lambda event: event.app.exit(result=Turned.PUT_OFF))
    keys.add("c-c")(lambda event: event.app.exit(exception=KeyboardInterrupt()))
    keys.add("<sigint>")(lambda event: event.app.exit(exception=KeyboardInterrupt()))
    for number in range(min(len(choices), 9)):
        keys.add(str(number + 1))(lambda event, number=number: event.app.exit(result=number))

    def rows() -> StyleAndTextTuples:
        told: StyleAndTextTuples = [("bold ansiyellow", f"\n? {shown(prompt)}\n")]
        for number, text in enumerate(choices):
            is_current = number == current
            mark, style = (PROMPT, "bold ansigreen") if is_current else (" ", "")
            told.append((style, f"  {mark} {number + 1}. {one_line(text)}\n"))
            if is_current:
                told.append(("[SetCursorPosition]", ""))
        return [*told, ("ansibrightblack", "  arrows or a number, Enter picks, Esc puts it off")]

    window = Window(FormattedTextControl(rows, focusable=True, show_cursor=False), wrap_lines=True)
    return Application(layout=Layout(window), key_bindings=keys, erase_when_done=True)


def _fitted(text: str, columns: int) -> str:
    line = one_line(text)
    while get_cwidth(line) > columns > 0:
        line = f"{line[:-2]}…"
    return line


class Lines:
    """Shows a conversation as plain lines, whole, and reads what is said from standard input.

    Of what stood before, only a person at a terminal is reminded.
    """

    streams = False

    def __init__(self, console: Console) -> None:
        self.recalls = sys.stdin.isatty()
        self._console = console
        self._asked: set[str] = set()

    async def put(self, *lines: RenderableType) -> None:
        """Print ``lines``."""
        for line in lines:
            if isinstance(line, Text):
                put(self._console, line)
            else:
                self._console.print(line)

    async def tell(self, text: str) -> None:
        """Print a note where it is in nobody's way."""
        put(stderr(), note(text))

    async def stream(self, piece: str) -> None:
        """Wait for the whole."""

    async def end_stream(self) -> None:
        """Wait for the whole."""

    async def log(self, told: Sequence[tuple[int, Output]]) -> None:
        """Do nothing: the lines are the conversation itself."""

    async def ask(self, choices: Sequence[tuple[str, Choice]]) -> None:
        """Print each question once."""
        for _, choice in choices:
            if choice.id not in self._asked:
                self._asked.add(choice.id)
                await self.put(question(choice.prompt, choice.choices), Text("    answer with /answer and a number"))

    async def talk(self, chat: Chat) -> None:
        """Say each line of standard input, and wait until it is answered before the next; a person need not wait."""
        arrived: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                for line in iter(sys.stdin.readline, ""):
                    loop.call_soon_threadsafe(arrived.put_nowait, line)
                loop.call_soon_threadsafe(arrived.put_nowait, "")

        # Not the loop's own threads: it would wait for this one at its end.
        threading.Thread(target=read, daemon=True).start()
        while line := await arrived.get():
            if not await chat.hear(line):
                return
            if not self.recalls:
                await chat.rested()
        await chat.rested()
        if chat.status:
            await chat.tell(f"{chat.status}; `infinity serve` lets it go on")


class Documents(Lines):
    """Prints what people are told, each a JSON document on a line, and nothing else on standard output."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.recalls = False

    async def put(self, *lines: RenderableType) -> None:
        """Print nothing: the documents say it."""

    async def log(self, told: Sequence[tuple[int, Output]]) -> None:
        """Print the documents, as ``infinity tail`` does."""
        for place, output in told:
            put_json({"place": place, **wire_outputs.to_json(output)})
