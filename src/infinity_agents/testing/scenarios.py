"""What an agent can live through, as scripts that any adapters and any model protocol can be run through.

Each scenario is a model's script, what comes from outside in stages, and what must be true in the end.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..conversation.folding import COMPACTION_PROMPT
from ..conversation.history import ToolResultEntry
from ..conversation.ledger import CallState
from ..conversation.messages import Control, InputMessage, UserChoiceResponse
from ..conversation.turn import Usage
from ..errors import ContextTooLong
from ..ports.model import ModelRequest
from ..settings import AgentSettings
from .scripted_model import Reply, Rule, Script, ScriptedModel, breaks, calls, heard, says, text_of
from .world import OpenAdapters, World

Stage = Callable[[World], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """``stages`` run one after the other, each until the queue is empty; then ``check`` says what must be so."""

    name: str
    script: Script
    stages: Sequence[Stage]
    check: Stage
    tools: Sequence[str] = ("search",)
    settings: AgentSettings = field(default_factory=AgentSettings)
    window: int = 200_000

    async def finish(self, world: World) -> None:
        """Check what must be so in the end, and what must be so in every end: nothing is among the dead letters."""
        await self.check(world)
        dead = await world.adapters.inputs.dead_letters()
        _that(not dead, f"dead letters: {dead}")

    async def world(self, open_adapters: OpenAdapters) -> World:
        """Return a world in which the scenario can be played; it is not booted yet."""
        model = ScriptedModel(self.script, window=self.window)
        return World(open_adapters, model, tools=self.tools, settings=self.settings)


def by_last_words(rules: Mapping[str, Rule], otherwise: str = "Understood.") -> Script:
    """Return a script that goes by the last thing heard: the first rule whose words are in it."""

    def script(request: ModelRequest) -> Reply:
        last = heard(request)
        for words, rule in rules.items():
            if words in last:
                return rule(request) if callable(rule) else rule
        return says(otherwise)

    return script


def spawns(instructions: str) -> Callable[[ModelRequest], Reply]:
    """Return a rule that spawns a child with these instructions."""
    return lambda request: calls("spawn_thread", {"instructions": instructions, "child_of": list(request.thread_stack)})


def closes(report: str | None = None) -> Callable[[ModelRequest], Reply]:
    """Return a rule that closes the thread that speaks."""

    def rule(request: ModelRequest) -> Reply:
        arguments = {"thread_id": request.thread_stack[-1]}
        return calls("close_thread", arguments if report is None else {**arguments, "report_to_parent": report})

    return rule


def said(thread_id: str, text: str) -> Stage:
    """Return a stage in which a person says something."""
    return lambda world: world.say(thread_id, text)


def answered(tool: str, text: str, *, subscription: bool = False) -> Stage:
    """Return a stage in which the tool server answers the last call of ``tool``."""
    return lambda world: world.answer(world.server.last(tool), text, subscription=subscription)


def happened(tool: str, text: str, event_id: str, *, associative: bool = False, final: bool = False) -> Stage:
    """Return a stage in which an event of the subscription comes that the last call of ``tool`` started."""
    return lambda world: world.event(
        world.server.last(tool), text, event_id=event_id, associative=associative, final=final
    )


def together(*stages: Stage) -> Stage:
    """Return a stage in which several things come before anything is handled."""

    async def stage(world: World) -> None:
        for one in stages:
            await one(world)

    return stage


def later(seconds: float) -> Stage:
    """Return a stage in which time goes by."""

    async def stage(world: World) -> None:
        world.clock.advance(seconds)

    return stage


async def _stop(world: World) -> None:
    await world.person_sends(InputMessage(content=Control("stop"), group_id="t"))


def _expects(*texts: str, threads: int = 1) -> Stage:
    """Return a check that people were told ``texts``, once each and in this order, and how many threads there are."""

    async def check(world: World) -> None:
        told = [output.text for output in (await world.outputs()).values() if output.type == "message"]
        positions = [told.index(text) if told.count(text) == 1 else -1 for text in texts]
        _that(positions == sorted(positions) and -1 not in positions, f"people were told {told}, not {texts}")
        found = await world.adapters.conversations.threads(limit=1000)
        _that(len(found) == threads, f"there are {len(found)} threads, not {threads}")

    return check


def _that(true: bool, otherwise: str) -> None:
    if not true:
        raise AssertionError(otherwise)


async def _states(world: World, thread_id: str = "t") -> dict[str, CallState]:
    return {call.tool: call.state for call in await world.adapters.conversations.calls(thread_id)}


def _ends(also: Stage, /, **states: CallState) -> Stage:
    """Return the check ``also``, and that the thread ``t``'s calls ended in these states."""

    async def both(world: World) -> None:
        await also(world)
        found = await _states(world)
        for tool, state in states.items():
            _that(found.get(tool) is state, f"{tool} is {found.get(tool)}, not {state}")

    return both


# Each scenario.

PLAIN_REPLY = Scenario(
    "plain reply",
    by_last_words({"hello": says("Hello to you.")}),
    [said("t", "hello")],
    _expects("Hello to you."),
)

TOOL_CALL = Scenario(
    "tool call",
    by_last_words({"look": calls("search", {"q": "x"}, text="Let me see."), "found": says("It is found.")}),
    [said("t", "look it up"), answered("search", "found")],
    _ends(_expects("Let me see.", "It is found."), search=CallState.ANSWERED),
)

TWO_ROUNDS = Scenario(
    "two rounds",
    by_last_words(
        {
            "There is no tool": calls("search", "{not json"),
            "look": calls("no_such_tool", {"q": 1}),
            "not valid JSON": calls("search", {"q": "x"}),
            "found": says("It is found."),
        }
    ),
    [said("t", "look it up"), answered("search", "found")],
    _expects("It is found."),
)

SYNCHRONOUS_TOOL = Scenario(
    "synchronous tool",
    by_last_words({"nap": calls("sleep", {"seconds": 0}), "over already": says("That was short.")}),
    [said("t", "take no nap")],
    _expects("That was short."),
)

SPAWN_AND_REPORT = Scenario(
    "spawn and report",
    by_last_words(
        {
            "ask one": spawns("first task"),
            "Started the child thread": says("It is at work."),
            "first task": calls("report_to_parent", {"report": "one is done"}),
            "Reported.": closes(),
            "one is done": lambda request: (
                spawns("second task")(request) if len(request.thread_stack) == 1 else says("That is for my parent.")
            ),
            "second task": closes("two is done"),
            "two is done": says("Both have reported."),
        }
    ),
    [said("t", "ask one")],
    _expects("Both have reported.", threads=3),
)

_SUBSCRIBE: dict[str, Rule] = {
    "watch": calls("subscribe", {"what": "price"}),
    "subscribed": says("I am watching."),
}

THREADED_EVENT = Scenario(
    "threaded event",
    by_last_words({**_SUBSCRIBE, "thread of your own": closes("the price moved"), "price moved": says("It moved.")}),
    [
        said("t", "watch it"),
        answered("subscribe", "subscribed", subscription=True),
        happened("subscribe", "price is 7", "e1"),
    ],
    _ends(_expects("I am watching.", "It moved.", threads=2), subscribe=CallState.SUBSCRIBED),
    tools=("subscribe",),
)

ASSOCIATIVE_EVENT = Scenario(
    "associative event",
    by_last_words({**_SUBSCRIBE, "price is 7": says("Seven.")}),
    [
        said("t", "watch it"),
        answered("subscribe", "subscribed", subscription=True),
        happened("subscribe", "price is 7", "e1", associative=True),
    ],
    _expects("I am watching.", "Seven."),
    tools=("subscribe",),
)

BURST_OF_EVENTS = Scenario(
    "burst of events",
    by_last_words({**_SUBSCRIBE, "thread of your own": closes()}),
    [
        said("t", "watch it"),
        answered("subscribe", "subscribed", subscription=True),
        together(*(happened("subscribe", f"price is {n}", f"e{n}") for n in range(7))),
    ],
    _expects("I am watching.", threads=2),
    tools=("subscribe",),
)

FINAL_EVENT = Scenario(
    "final event",
    by_last_words({**_SUBSCRIBE, "that was all": says("It is over.")}),
    [
        said("t", "watch it"),
        answered("subscribe", "subscribed", subscription=True),
        happened("subscribe", "that was all", "e1", associative=True, final=True),
        happened("subscribe", "one too many", "e2", associative=True),
    ],
    _ends(_expects("I am watching.", "It is over."), subscribe=CallState.ENDED),
    tools=("subscribe",),
)

EVENT_BEFORE_CONFIRMATION = Scenario(
    "event before its confirming result",
    by_last_words({**_SUBSCRIBE, "price is 7": says("Seven.")}),
    [
        said("t", "watch it"),
        happened("subscribe", "price is 7", "e1", associative=True),
        answered("subscribe", "subscribed", subscription=True),
    ],
    _ends(_expects("Seven."), subscribe=CallState.SUBSCRIBED),
    tools=("subscribe",),
)

DETACHED_CALL = Scenario(
    "detached call with a late result",
    by_last_words(
        {"build": calls("search", {"q": "x"}), "lunch": says("Noodles."), "built": says("The build is done.")}
    ),
    [said("t", "build it"), said("t", "what is for lunch?"), answered("search", "built")],
    _ends(_expects("Noodles.", "The build is done."), search=CallState.ANSWERED),
)

STOP = Scenario(
    "stop",
    by_last_words(
        {
            "build": calls("search", {"q": "x"}),
            "ask one": spawns("first task"),
            "Started the child thread": calls("check", {}),
            "first task": calls("wait", {}),
        }
    ),
    [said("t", "build it"), said("t", "ask one"), _stop, answered("search", "built")],
    _ends(_expects(threads=2), search=CallState.CANCELLED, check=CallState.CANCELLED),
    tools=("search", "check", "wait"),
)

DEFERRAL = Scenario(
    "deferral",
    by_last_words(
        {
            **_SUBSCRIBE,
            "build": calls("search", {"q": "x"}),
            "price is 8": says("Built, and it is at eight."),
        }
    ),
    [
        said("t", "watch it"),
        answered("subscribe", "subscribed", subscription=True),
        said("t", "build it"),
        happened("subscribe", "price is 7", "e1", associative=True),
        happened("subscribe", "price is 8", "e2", associative=True),
        answered("search", "built"),
    ],
    _ends(_expects("I am watching.", "Built, and it is at eight."), search=CallState.ANSWERED),
    tools=("search", "subscribe"),
)

SLEEP = Scenario(
    "sleep",
    by_last_words({"wait": calls("sleep", {"seconds": 30, "reason": "tea"}), "Woke up": says("Tea is ready.")}),
    [said("t", "wait for the tea"), later(31)],
    _expects("Tea is ready."),
)

INTERRUPTED_SLEEP = Scenario(
    "interrupted sleep",
    by_last_words(
        {
            "wait": calls("sleep", {"seconds": 30}),
            "hungry": says("Soon."),
            "Woke up": says("Now."),
        }
    ),
    [said("t", "wait"), said("t", "hungry?"), later(31)],
    _expects("Soon.", "Now."),
)


async def _has_summary(world: World) -> None:
    request = world.model.requests[-1]  # type: ignore[attr-defined]
    _that(request.summary == "In short: much.", f"the model read the summary {request.summary!r}")
    _that(heard(request) == "go on", "the model did not hear the person")


COMPACTION = Scenario(
    "compaction",
    by_last_words(
        {
            COMPACTION_PROMPT: says("In short: much."),
            "much": says("Noted.", usage=Usage(input=100, cache_read=800)),
            "go on": says("Going on."),
        }
    ),
    [said("t", "there is much to say"), said("t", "go on")],
    _has_summary,
    window=1000,
)


def _too_much(request: ModelRequest) -> Reply:
    if COMPACTION_PROMPT in heard(request):
        return says("In short: much.")
    if len(request.entries) > 5:
        return breaks(ContextTooLong("too long"))
    return says(f"Heard {heard(request)}.")


OVERFLOW = Scenario(
    "overflow",
    _too_much,
    [said("t", "one"), said("t", "two"), said("t", "three"), said("t", "four")],
    _expects("Heard one.", "Heard two.", "Heard three.", "Heard four."),
)


async def _asks(world: World) -> None:
    await world.ask(world.server.last("search"), "Which?", ["this", "that"])


async def _chooses(world: World) -> None:
    await world.person_sends(
        InputMessage(content=UserChoiceResponse(world.server.last("search"), selected=1), group_id="t")
    )


async def _chose_once(world: World) -> None:
    await _expects("Thanks.")(world)
    _that({selected for _, selected in world.server.answers} == {1}, f"answers: {world.server.answers}")
    complete = [output for output in (await world.outputs()).values() if output.type == "user_choice_complete"]
    _that(len(complete) == 2, f"{len(complete)} answers were acknowledged")


USER_CHOICE = Scenario(
    "user choice",
    by_last_words({"look": calls("search", {"q": "x"}), "that it is": says("Thanks.")}),
    [said("t", "look it up"), _asks, _chooses, _chooses, answered("search", "that it is")],
    _chose_once,
)

THREE_THREADS = Scenario(
    "batch of three threads",
    by_last_words(
        {
            "hello": says("Hello to you."),
            "look": calls("search", {"q": "x"}),
            "wait": calls("sleep", {"seconds": 5}),
            "found": says("It is found."),
            "Woke up": says("Awake."),
        }
    ),
    [
        together(said("a", "hello"), said("b", "look it up"), said("c", "wait")),
        together(answered("search", "found"), later(6)),
    ],
    _expects("Hello to you.", threads=3),
)


async def _lose_acknowledgements(world: World) -> None:
    world.loses_acknowledgements = True


async def _redrive_days_later(world: World) -> None:
    world.loses_acknowledgements = False
    world.clock.advance(3 * 24 * 3600)
    for letter in await world.adapters.inputs.dead_letters():
        await world.adapters.inputs.redrive(letter.queue_id)


REDRIVE = Scenario(
    "redrive days later",
    by_last_words({"look": calls("search", {"q": "x"}), "found": says("It is found.")}),
    [_lose_acknowledgements, said("t", "look it up"), _redrive_days_later, answered("search", "found")],
    _ends(_expects("It is found."), search=CallState.ANSWERED),
)


async def _sweep(world: World) -> None:
    await world.sweep()


DEADLINE = Scenario(
    "deadline",
    by_last_words(
        {"look": calls("search", {"q": "x"}), "No answer came": says("It takes too long."), "at last": says("Oh.")}
    ),
    [
        said("t", "look it up"),
        together(later(6 * 3600 + 1), _sweep),
        answered("search", "at last"),
    ],
    _ends(_expects("It takes too long.", "Oh."), search=CallState.ANSWERED),
)

ROUND_LIMIT = Scenario(
    "limit on rounds",
    by_last_words(
        {
            "loop": calls("sleep", {"seconds": 0}),
            "over already": calls("sleep", {"seconds": 0}),
            "enough": says("Sorry."),
        }
    ),
    [said("t", "loop"), said("t", "enough of that")],
    _expects("Sorry."),
    settings=AgentSettings(rounds_per_slice=3),
)


def _tells_child(text: str) -> Callable[[ModelRequest], Reply]:
    def rule(request: ModelRequest) -> Reply:
        started = next(text_of(entry) for entry in request.entries if "Started the child" in text_of(entry))
        return calls("send_message_to_child", {"thread_id": started.split()[-1].rstrip("."), "message": text})

    return rule


CLOSE_CASCADE = Scenario(
    "closing a family",
    by_last_words(
        {
            "ask one": spawns("first task"),
            "first task": spawns("deeper task"),
            "deeper task": calls("wait", {}),
            "Started the child thread": says("It is at work."),
            "make an end": _tells_child("please end"),
            "please end": closes("done"),
            "Sent.": says("I told it to."),
            "done": says("All is done."),
        }
    ),
    [said("t", "ask one"), said("t", "make an end")],
    _expects("It is at work.", "I told it to.", "All is done.", threads=3),
    tools=("wait",),
)


async def _large_answer(world: World) -> None:
    await world.answer(world.server.last("search"), "found " * 200)


LARGE_VALUES = Scenario(
    "large values",
    by_last_words({"look": calls("search", {"q": "x"}), "found": says("It is found.")}),
    [said("t", "look it up " + "x" * 900), _large_answer],
    _expects("It is found."),
    settings=AgentSettings(inline_bytes=500),
)


async def _refused(world: World) -> None:
    await _expects("It is not possible.")(world)
    history = await world.history("t")
    results = [entry.result for entry in history if isinstance(entry, ToolResultEntry)]
    _that([result.is_error for result in results] == [True], f"results: {results}")


async def _server_refuses(world: World) -> None:
    world.tools["search"] = replace(world.tools["search"], refuses="search: POST answered 403")
    await world.boot(world.faults)


REFUSED_CALL = Scenario(
    "refused call",
    by_last_words({"look": calls("search", {"q": "x"}), "403": says("It is not possible.")}),
    [_server_refuses, said("t", "look it up")],
    _refused,
)

CANCELLED_CALL = Scenario(
    "cancelled call",
    by_last_words(
        {
            "build": calls("search", {"q": "x"}),
            "never mind": lambda request: calls(
                "cancel_tool_call",
                {"tool_call_id": next(entry.call.id for entry in request.entries if entry.kind == "tool_call")},
            ),
            "Cancelled search": says("Forgotten."),
        }
    ),
    [said("t", "build it"), said("t", "never mind"), answered("search", "built")],
    _ends(_expects("Forgotten."), search=CallState.CANCELLED),
)

SCENARIOS: tuple[Scenario, ...] = (
    PLAIN_REPLY,
    TOOL_CALL,
    TWO_ROUNDS,
    SYNCHRONOUS_TOOL,
    SPAWN_AND_REPORT,
    THREADED_EVENT,
    ASSOCIATIVE_EVENT,
    BURST_OF_EVENTS,
    FINAL_EVENT,
    EVENT_BEFORE_CONFIRMATION,
    DETACHED_CALL,
    STOP,
    DEFERRAL,
    SLEEP,
    INTERRUPTED_SLEEP,
    COMPACTION,
    OVERFLOW,
    USER_CHOICE,
    THREE_THREADS,
    REDRIVE,
    DEADLINE,
    ROUND_LIMIT,
    CLOSE_CASCADE,
    LARGE_VALUES,
    REFUSED_CALL,
    CANCELLED_CALL,
)
