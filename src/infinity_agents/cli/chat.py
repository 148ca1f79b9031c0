"""A conversation as a person sees it, whoever hosts the file.

Nothing is kept here but what has been shown. Whatever ends the process, the conversation stands in the file.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeVar, assert_never

from rich.console import RenderableType
from rich.text import Text

from ..conversation import content
from ..conversation.content import plain_text, shown
from ..conversation.events import (
    AgentEvent,
    CallAnswered,
    CallMade,
    Failed,
    Noted,
    ReasoningStreamed,
    StepFinished,
    TextStreamed,
    Told,
    TurnDropped,
)
from ..conversation.history import (
    AssistantEntry,
    Entry,
    EventEntry,
    ResultBody,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from ..conversation.messages import Control, UserChoiceResponse
from ..conversation.outputs import Output
from ..conversation.threads import Choice
from ..errors import InfinityError
from ..runtime.notices import SET_ASIDE
from .following import News, Place, end_of, keep_place, news_since, place_shown
from .opening import Agent
from .rendering import call_text, came, doing_text, entry_text, note, output_text, thread_trees
from .waiting import counted

HELP = """\
/stop         stop what the thread is doing; calls that run are cancelled
/threads      the thread and its children: state, and what each waits for
/answer [N]   answer the oldest open question with its choice N
/help         this list
/quit         leave; so do Ctrl-C and Ctrl-D. Nothing is lost: the next chat goes on
Anything else is said to the agent. A text that begins with a slash needs a space before it."""

_LOOK_EVERY = 0.1
"""Seconds between two questions to the file whether another process has written to it."""
_LOOK_AT_LEAST_EVERY = 1.0
_RECALLED = 6
"""How many entries that were shown before are shown again."""
_MOST_AT_ONCE = 200

T = TypeVar("T")


class Screen(Protocol):
    """Where a conversation is shown; ``streams`` tells whether what the model says is shown as it comes.

    ``recalls`` tells whether it goes on where the last one stopped; what does not is no place to have seen anything.
    """

    streams: bool
    recalls: bool

    async def put(self, *lines: RenderableType) -> None:
        """Show ``lines`` below all that was shown before."""
        ...

    async def tell(self, text: str) -> None:
        """Show what is not of the conversation: what the chat itself has to say."""
        ...

    async def stream(self, piece: str) -> None:
        """Show a piece of what the model says as it comes."""
        ...

    async def end_stream(self) -> None:
        """Show what follows on a line of its own."""
        ...

    async def log(self, told: Sequence[tuple[int, Output]]) -> None:
        """Take note of all that people were told since the chat began, with its places in the log, as it comes."""
        ...

    async def ask(self, choices: Sequence[tuple[str, Choice]]) -> None:
        """Take note of the questions that are open now, each with its thread, oldest first."""
        ...


class Chat:
    """One conversation on one screen. It is an ``Observer``, for the host that may run in this process."""

    def __init__(self, agent: Agent, thread_id: str, screen: Screen) -> None:
        self.agent = agent
        self.thread_id = thread_id
        self.news = News()
        self.said_before: Sequence[str] = ()
        self.has_set_aside = False
        """Whether a message to the thread was set aside since the chat began."""
        self._screen = screen
        self._said: list[str] = []
        self._turn = ""
        # Turns that are on the screen, and not yet known to be committed: of the step that runs, and of those before.
        self._turns: list[str] = []
        self._turns_over: list[str] = []
        self._calls: dict[str, str] = {}
        self._answered: set[str] = set()
        # Calls and answers that are on the screen, and not yet known to be committed.
        self._made: set[tuple[str, str]] = set()
        self._answers: set[tuple[str, str]] = set()
        self._is_about_news = False
        self._told_failure = ""
        self._events: deque[AgentEvent] = deque()
        self._arrived = asyncio.Event()
        self._rests = asyncio.Event()
        self._version = -1
        self._looked_at = 0.0

    # What people do.

    async def hear(self, line: str) -> bool:
        """Do what a person typed; return whether the chat goes on."""
        if not line.strip():
            return True
        command, _, rest = line.strip().partition(" ") if line.startswith("/") else ("", "", "")
        try:
            match command:
                case "":
                    await self.say(line.strip())
                case "/quit" | "/exit":
                    return False
                case "/stop":
                    await self._send(Control("stop"))
                    await self.tell("asked to stop")
                case "/threads":
                    await self._screen.put(*thread_trees(list(self.news.family.values()), self._now()))
                case "/answer":
                    await self._answer_oldest(rest.strip())
                case "/help":
                    await self._screen.put(Text(HELP, style="dim"))
                case _:
                    await self._screen.put(note(f"there is no {command}; /help lists what there is"))
        except InfinityError as error:
            await self._screen.put(Text(f"  ! {shown(str(error))}", style="red"))
        return True

    async def say(self, text: str) -> None:
        """Say ``text`` to the agent.

        Raises:
            Reject: it is too large for a message.
            StoreUnavailable: the file cannot be written now.
        """
        await self._send(text)
        self._said.append(text)

    async def answer(self, thread_id: str, choice: Choice, selected: int) -> None:
        """Answer ``choice``, which was asked in ``thread_id``, with its alternative ``selected``."""
        await self._send(UserChoiceResponse(choice.id, selected), thread_id)

    async def rested(self) -> None:
        """Return once nothing is left to happen by itself but what time, people or events bring."""
        await self._rests.wait()

    async def _send(self, content: str | Control | UserChoiceResponse, thread_id: str | None = None) -> None:
        await self.agent.send(thread_id or self.thread_id, content)
        self._rests.clear()
        self._stale()

    async def _answer_oldest(self, number: str) -> None:
        if not self.news.choices:
            await self._screen.put(note("no question is open"))
            return
        thread_id, choice = self.news.choices[0]
        if not number.isdecimal() or not 1 <= int(number) <= len(choice.choices):
            await self._screen.put(note(f"/answer takes the number of a choice, 1 to {len(choice.choices)}"))
            return
        await self.answer(thread_id, choice, int(number) - 1)

    # What they see.

    async def begin(self) -> None:
        """Show how the conversation stood when it was shown last, and what has come since, on a screen that recalls."""
        end = await end_of(self.agent, self.thread_id)
        if not self._screen.recalls:
            place = Place(end, await self.agent.outputs_log.last_place())
            self.news = await news_since(self.agent, self.thread_id, place)
            return
        shown_to = await place_shown(self.agent, self.thread_id) or Place()
        first = max(end - _MOST_AT_ONCE, 0)
        news = await news_since(self.agent, self.thread_id, Place(first, shown_to.output))
        first = end - len(news.entries)
        old = max(min(shown_to.position, end) - first, 0)
        again = max(old - _RECALLED, 0)
        self.said_before = [plain_text(entry.content) for entry in news.entries if isinstance(entry, UserEntry)]
        lines = [entry_text(entry) for entry in news.entries[again:old] if not self._is_on_screen(entry)]
        for line in lines:
            line.stylize("dim")
        if first + again > 0 and news.family:
            lines.insert(0, note(f"what came before: infinity show {self.thread_id}"))
        fresh = [entry_text(entry) for entry in news.entries[old:] if not self._is_on_screen(entry)] + self._told(news)
        if old and fresh:
            lines.append(note("since you left:"))
        self.news = news
        await self._show(news, [*lines, *fresh])

    async def follow(self) -> None:
        """Show what comes, for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            self._arrived.clear()
            await self._hear_events()
            version = self.agent.database.data_version()
            if version != self._version or clock() - self._looked_at > _LOOK_AT_LEAST_EVERY:
                self._version, self._looked_at = version, clock()
                await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._arrived.wait()

    async def finish(self) -> None:
        """Show what came while the host wound down."""
        await self._hear_events()
        await self._look()

    @property
    def status(self) -> str:
        """What goes on now, in one line; nothing where nothing does."""
        now = self._now()
        state = self.news.family.get(self.thread_id)
        doing = ["thinking"] if self.news.queued else []
        doing += [doing_text(wait, now) for wait in (state.waits if state else ()) if wait.kind != "slice"]
        children = [s for name, s in self.news.family.items() if name != self.thread_id and not s.thread.closed]
        if children:
            doing.append(f"{counted(len(children), 'child', 'children')} at work")
        return " · ".join(doing)

    def observe(self, event: AgentEvent) -> None:
        """Take note of what the host in this process does."""
        self._events.append(event)
        self._arrived.set()

    async def tell(self, text: str) -> None:
        """Show what the chat itself has to say."""
        await self._screen.tell(text)

    def _stale(self) -> None:
        self._version = -1
        self._arrived.set()

    def _now(self) -> datetime:
        return self.agent.services.clock.now()

    async def _hear_events(self) -> None:
        """Show what has been observed up to now; what comes while that is drawn waits for the next time."""
        for _ in range(len(self._events)):
            await self._hear(self._events.popleft())

    async def _hear(self, event: AgentEvent) -> None:
        own = event.thread_id == self.thread_id and self._screen.streams
        match event:
            case CallAnswered(call_id=call_id, text=text) if own and text.strip():
                self._is_about_news = True
                if (call_id, text) not in self._answers:
                    self._answers.add((call_id, text))
                    await self._screen.put(self._answer_text(event))
            # Whatever it is that the model answers stands before the answer, or else it is shown whole, in its place.
            case TextStreamed(text=text) if own and (self._said or self._is_about_news):
                self._turn += text
                await self._screen.stream(shown(text))
            case CallMade(call_id=call_id) if own and (self._said or self._is_about_news):
                await self._end_turn()
                self._calls[call_id] = event.tool
                if (call_id, event.display) not in self._made:
                    self._made.add((call_id, event.display))
                    await self._screen.put(call_text(event.display))
            case TurnDropped(reason=reason) if event.thread_id == self.thread_id:
                await self._failed(reason)
            case StepFinished():
                await self._step_is_over(event)
            case Told():
                self._stale()
            case TextStreamed() | CallMade() | TurnDropped() | ReasoningStreamed() | CallAnswered() | Noted():
                pass
            case _:
                assert_never(event)

    async def _step_is_over(self, event: StepFinished) -> None:
        self._stale()
        if event.thread_id != self.thread_id:
            return
        await self._end_turn()
        self._turns_over += self._turns
        self._turns.clear()
        self._is_about_news = False
        if isinstance(event.outcome, Failed):
            await self._failed(str(event.outcome.error))
        else:
            self._told_failure = ""

    def _answer_text(self, event: CallAnswered) -> Text:
        """Return what came, and of which call where that is not the one right above."""
        tool, is_result = self._calls.get(event.call_id, "an event"), event.call_id not in self._answered
        self._answered.add(event.call_id)
        if is_result and next(reversed(self._calls), None) == event.call_id:
            return came(event.text, is_error=event.is_error)
        return came(f"{'a child reports' if tool == 'spawn_thread' else tool}: {event.text}", is_error=event.is_error)

    async def _end_turn(self) -> None:
        if self._turn:
            self._turns.append(shown(self._turn))
        self._turn = ""
        await self._screen.end_stream()

    async def _failed(self, reason: str) -> None:
        """Say once that the step begins again, and why; what was streamed of it is void."""
        begun, self._turn = bool(self._turn), ""
        await self._screen.end_stream()
        if begun or reason != self._told_failure:
            self._told_failure = reason
            await self._screen.put(Text(f"  ! {shown(reason)}", style="red"), note("it is tried again"))

    async def _look(self) -> None:
        news = await news_since(self.agent, self.thread_id, self.news.place)
        moved = news.place != self.news.place
        self.news = news
        # Of whatever a step commits, its events tell first: only once they are heard is known what is on the screen.
        await self._hear_events()
        await self._screen.log(news.told)
        lines = [entry_text(entry) for entry in news.entries if not self._is_on_screen(entry)] + self._told(news)
        # What a step has committed was among the entries; the rest of its turns is void.
        self._turns_over.clear()
        self.has_set_aside |= any(
            output.thread_id == self.thread_id and _is_set_aside(output) for output in news.outputs
        )
        if moved or lines:
            await self._show(news, lines)
        else:
            await self._screen.ask(news.choices)
        is_busy = news.queued or self._events or any(state.is_busy for state in news.family.values())
        # What was sent or written in between may have moved what was awaited to where it had been looked for.
        if not is_busy and self.agent.database.data_version() == self._version:
            self._rests.set()

    async def _show(self, news: News, lines: Sequence[Text]) -> None:
        if lines:
            await self._screen.put(*lines)
        await self._screen.ask(news.choices)
        if self._screen.recalls:
            await keep_place(self.agent, self.thread_id, news.place)

    def _told(self, news: News) -> list[Text]:
        # Open questions are the screen's to put.
        return [output_text(output) for output in news.outputs if output.type != "user_choice_required" and output.text]

    def _is_on_screen(self, entry: Entry) -> bool:
        match entry:
            case UserEntry(content=parts):
                return _taken(plain_text(parts), self._said)
            case AssistantEntry():
                text = shown(entry.text)
                return not text.strip() or _taken(text, self._turns_over) or _taken(text, self._turns)
            case ToolCallEntry(call=call):
                self._calls[call.id] = call.name
                return _taken((call.id, entry.display_as or call.name), self._made)
            case ToolResultEntry(result=result):
                self._answered.add(result.id)
                return _taken((result.id, _text_of(result)), self._answers)
            case EventEntry(result=result, tool_call_id=call_id):
                return _taken((call_id, _text_of(result)), self._answers)
            case _:
                assert_never(entry)


def _is_set_aside(output: Output) -> bool:
    return output.type == "error" and output.text.removeprefix(f"[{output.thread_id}] ").startswith(SET_ASIDE)


def _taken(one: T, of: list[T] | set[T]) -> bool:
    """Take ``one`` out of the others; return whether it was there."""
    is_there = one in of
    if is_there:
        of.remove(one)
    return is_there


def _text_of(result: ResultBody) -> str:
    # As ``CallAnswered`` has it.
    return shown(" ".join(part.text for part in result.content if isinstance(part, content.Text)))
