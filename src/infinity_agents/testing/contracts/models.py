# ruff: noqa: S101 - a contract speaks by assertions, and the name of a test says what it checks
"""What every model must do: live through every scenario as the scripted one does, and make no turn of nonsense."""

import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ...conversation.content import Document, Image, Text
from ...conversation.events import Completed, Failed
from ...conversation.history import (
    INJECTED_CALL,
    AssistantEntry,
    CallBody,
    Entry,
    EventEntry,
    Reasoning,
    ResultBody,
    SaidText,
    ToolCallEntry,
    ToolResultEntry,
    UserEntry,
)
from ...conversation.transcript import ModelTurn, UserTurn, transcript
from ...conversation.turn import (
    ArgumentsDelta,
    CallFinished,
    CallStarted,
    ModelEvent,
    Stopped,
    Turn,
    TurnBuffer,
    Usage,
    Used,
)
from ...errors import (
    ContextTooLong,
    Misconfigured,
    ModelError,
    ModelForbidden,
    ModelInterrupted,
    ModelInvalid,
    ModelOverloaded,
    ModelThrottled,
)
from ...ports.model import Model, ModelRequest
from ...ports.tool import ToolSpec
from ..model_servers import Fault, ModelServer
from ..scenarios import PLAIN_REPLY, SCENARIOS, Scenario
from ..scripted_model import Reply, Script, ScriptedModel, breaks, calls, says
from ..world import OpenAdapters, World

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SEARCH = ToolSpec("search", "Searches.", {"type": "object", "properties": {"q": {"type": "string"}}})


@dataclass(frozen=True, slots=True)
class Provided:
    """A model to be tested, and its service, where it has one."""

    model: Model
    server: ModelServer | None = None


class Watched:
    """Passes on to ``model``; keeps the requests, and sees to it that what comes back is a stream of the port."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.requests: list[ModelRequest] = []

    @property
    def name(self) -> str:
        return self._model.name

    def context_window(self, model: str) -> int:
        return self._model.context_window(model)

    def reads_images(self, model: str) -> bool:
        return self._model.reads_images(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        heard: list[ModelEvent] = []
        async for event in self._model.stream(request):
            heard.append(event)
            yield event
        assert_is_stream(heard)


def assert_is_stream(events: Sequence[ModelEvent]) -> None:
    """Fail unless ``events`` are a whole stream: one end, one call at most, and its arguments within it."""
    kinds = [type(event) for event in events]
    assert kinds.count(Stopped) == 1, kinds
    assert kinds[-1] is Stopped
    assert kinds.count(CallStarted) <= 1, kinds
    assert kinds.count(CallFinished) <= kinds.count(CallStarted)
    if CallStarted not in kinds:
        assert ArgumentsDelta not in kinds
        return
    rest = kinds[kinds.index(CallStarted) + 1 :]
    assert set(rest) <= {ArgumentsDelta, CallFinished, Used, Stopped}, "the model spoke on after its call"


class ModelContract:
    """Inherit it, and say how a model is opened that answers by a script."""

    @abstractmethod
    def provided(self, script: Script, *, window: int = 200_000) -> AbstractAsyncContextManager[Provided]:
        """Open a model that answers by ``script`` and takes ``window`` tokens."""

    @abstractmethod
    def embedding(self) -> OpenAdapters:
        """Return the way to open adapters over fresh data."""

    # ------------------------------------------------------------------------------------------------- scenarios

    @pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
    async def test_a_scenario_ends_as_with_the_scripted_model(self, scenario: Scenario) -> None:
        scripted = ScriptedModel(scenario.script, window=scenario.window)
        expected, told = await self._play(scenario, scripted)
        async with self.provided(scenario.script, window=scenario.window) as provided:
            watched = Watched(provided.model)
            left, tells = await self._play(scenario, watched)
        for key in expected.keys() | left.keys():
            assert left.get(key) == expected.get(key), key
        assert tells == told
        if provided.server is not None:
            assert provided.server.refused == []
            heard = [_heard(request) for request in provided.server.requests]
            assert sorted(heard) == sorted(_heard(request) for request in watched.requests)

    async def _play(self, scenario: Scenario, model: Model) -> tuple[dict[str, Any], list[Any]]:
        """Return what is left, without the ids that models give their calls, and what each slice used."""
        world = World(self.embedding(), model, tools=scenario.tools, settings=scenario.settings)
        await world.boot()
        for stage in scenario.stages:
            await stage(world)
            await world.settle()
        await scenario.finish(world)
        left = await world.state()
        await world.adapters.close()
        outcomes = [
            (thread, replace(outcome, context_window=0) if isinstance(outcome, Completed) else type(outcome))
            for thread, outcome in world.outcomes
        ]
        return {
            key: [_without_call_id(entry) for entry in value] if key.startswith("history ") else value
            for key, value in left.items()
        }, outcomes

    # --------------------------------------------------------------------------------------------------- replies

    async def test_text_and_usage(self) -> None:
        used = Usage(input=100, output=20, cache_read=800, cache_write=30)
        turn = await self.turn(says("Grüße, 世界! \N{WAVING HAND SIGN}", usage=used))
        assert turn.text == "Grüße, 世界! \N{WAVING HAND SIGN}"
        assert turn.call is None
        assert turn.usage == used
        assert turn.usage.context == 950

    async def test_a_huge_chunk(self) -> None:
        text = "word \N{SNOWMAN} " * 150_000
        assert (await self.turn(says(text))).text == text

    @pytest.mark.parametrize("text", ["", "  \n"])
    async def test_blank_text_is_no_error(self, text: str) -> None:
        turn = await self.turn(says(text))
        assert (turn.text.strip(), turn.call) == ("", None)

    @pytest.mark.parametrize("arguments", [{"q": 'a "quoted" \N{SNOWMAN}', "n": [1, {"x": None}]}, {}])
    async def test_a_call(self, arguments: Mapping[str, Any]) -> None:
        turn = await self.turn(calls("search", arguments, text="Let me see."))
        assert turn.text == "Let me see."
        assert turn.call is not None
        assert turn.call.name == "search"
        assert turn.call.call_id
        assert json.loads(turn.call.arguments or "{}") == arguments

    async def test_broken_arguments_are_passed_on_as_they_came(self) -> None:
        turn = await self.turn(calls("search", '{"q": "unfin'))
        assert turn.call is not None
        assert turn.call.arguments == '{"q": "unfin'

    async def test_a_call_that_is_cut_is_none(self) -> None:
        turn = await self.turn(calls("search", {"q": "x"}, text="So far.", unfinished=True))
        assert (turn.text, turn.call) == ("So far.", None)

    async def test_the_blocks_decide_and_not_the_reason(self) -> None:
        turn = await self.turn(calls("search", {"q": "x"}, reason="a_reason_that_nobody_knows"))
        assert turn.call is not None
        assert turn.reason == "a_reason_that_nobody_knows"

    async def test_reasoning_is_kept_with_the_model_that_gave_it(self) -> None:
        async with self.provided(lambda _: calls("search", reasoning="I wonder. " * 10, text="Well.")) as provided:
            turn = await heard_from(provided.model, _asked(provided.model, _HELLO))
            first = turn.said[0]
            assert isinstance(first, Reasoning)
            assert (first.text, first.model) == ("I wonder. " * 10, provided.model.name)
            call = CallBody("call-1", "search", {})
            later = (*_HELLO, AssistantEntry(turn.said), ToolCallEntry(call), _result("call-1"))
            # It is replayed, or left out, but never refused.
            assert (await heard_from(provided.model, _asked(provided.model, later))).call is not None
        if provided.server is not None:
            assert provided.server.refused == []

    @pytest.mark.parametrize("error", [ModelThrottled, ModelOverloaded, ContextTooLong, ModelForbidden, ModelInvalid])
    async def test_an_error_has_its_type(self, error: type[ModelError]) -> None:
        with pytest.raises(error):
            await self.turn(breaks(error("no")))

    async def test_an_error_within_the_stream(self) -> None:
        with pytest.raises(ModelOverloaded):
            await self.turn(breaks(ModelOverloaded("busy"), text="So far"))
        with pytest.raises(ModelThrottled):
            await self.turn(breaks(ModelThrottled("slower"), text="So far"))

    # --------------------------------------------------------------------------------------------- what is sent

    @pytest.mark.parametrize("name", ["t" * 128, "a" * 60 + "_b"])
    async def test_a_tool_is_known_by_its_name_however_long(self, name: str) -> None:
        tools = (SEARCH, ToolSpec(name, "", {"anyOf": [{"required": ["a"]}], "properties": {"a": {}}}))
        async with self.provided(lambda request: calls(request.tools[-1].name, {"a": 1})) as provided:
            turn = await heard_from(provided.model, _asked(provided.model, _HELLO, tools=tools))
        assert turn.call is not None
        assert turn.call.name == name

    async def test_every_history_is_taken(self) -> None:
        async with self.provided(lambda _: says("Yes.")) as provided:
            model = provided.model
            for name, entries in _histories(model.name).items():
                for tools in ((SEARCH,), ()):
                    for summary in (None, "Much was said."):
                        turn = await heard_from(model, _asked(model, entries, tools=tools, summary=summary))
                        assert turn.text == "Yes.", name
        if provided.server is not None:
            assert provided.server.refused == []

    async def turn(self, reply: Reply, faults: Sequence[Fault | None] = ()) -> Turn:
        """Return the turn that ``reply`` makes; ``faults`` only where there is a service."""
        async with self.provided(lambda _: reply) as provided:
            if provided.server is not None:
                provided.server.faults.extend(faults)
            return await heard_from(provided.model, _asked(provided.model, _HELLO, tools=(SEARCH,)))


class ServedModelContract(ModelContract):
    """Inherit it where the model is behind a service, and say also how it is misconfigured."""

    @abstractmethod
    def opened(self, *, api_key: str | None = None, base_url: str | None = None) -> Model:
        """Return a model of this provider."""

    key_variable: str
    """The environment variable that holds the key."""
    path: str
    """The path of the base URL."""

    @pytest.mark.parametrize(
        ("status", "error"),
        [
            (400, ModelInvalid),
            (401, ModelForbidden),
            (402, ModelForbidden),
            (403, ModelForbidden),
            (404, ModelInvalid),
            (408, ModelInterrupted),
            (413, ContextTooLong),
            (422, ModelInvalid),
            (429, ModelThrottled),
            (500, ModelOverloaded),
            (503, ModelOverloaded),
            (529, ModelOverloaded),
        ],
    )
    async def test_a_status_has_its_error(self, status: int, error: type[ModelError]) -> None:
        with pytest.raises(ModelError) as raised:
            await self.turn(says("no"), [status])
        assert type(raised.value) is error
        assert "http://127.0.0.1:" in str(raised.value)

    @pytest.mark.parametrize(
        ("fault", "error"),
        [
            ("no final event", ModelInterrupted),
            ("garbage", ModelInterrupted),
            ("hang up", ModelInterrupted),
            ("not a stream", ModelInvalid),
        ],
    )
    async def test_a_stream_that_is_none(self, fault: Fault, error: type[ModelError]) -> None:
        with pytest.raises(ModelError) as raised:
            await self.turn(says("So far, so good."), [fault])
        assert type(raised.value) is error

    async def test_of_two_calls_the_first_is_used(self) -> None:
        turn = await self.turn(calls("search", {"q": "x"}), ["two calls"])
        assert turn.call is not None
        assert json.loads(turn.call.arguments) == {"q": "x"}
        cut = await self.turn(calls("search", {"q": "x"}, unfinished=True), ["two calls"])
        assert cut.call is not None, "only the last call of a turn can be cut"

    @pytest.mark.parametrize("fault", [429, 500, "no final event", "garbage", "hang up"])
    async def test_a_thread_gets_over_a_fault(self, fault: Fault) -> None:
        expected, told = await self._play(PLAIN_REPLY, ScriptedModel(PLAIN_REPLY.script))
        async with self.provided(PLAIN_REPLY.script) as provided:
            assert provided.server is not None
            provided.server.faults.append(fault)
            assert await self._play(PLAIN_REPLY, provided.model) == (expected, told)

    async def test_people_are_told_where_the_key_is_refused(self) -> None:
        async with self.provided(PLAIN_REPLY.script) as provided:
            assert provided.server is not None
            provided.server.faults.extend([401] * 3)
            world = World(self.embedding(), provided.model)
            await world.boot()
            await world.say("t", "hello")
            await world.settle()
            told = [output.text for output in (await world.outputs()).values() if output.type == "error"]
            await world.adapters.close()
        assert all(isinstance(outcome, Failed) for _, outcome in world.outcomes)
        assert len(told) == 1
        assert self.key_variable in told[0]

    async def test_no_error_tells_a_secret(self) -> None:
        async with self.provided(PLAIN_REPLY.script) as provided:
            assert provided.server is not None
            url = provided.server.url.replace("http://", "http://user:password@")
            model = self.opened(api_key="the-wrong-key", base_url=f"{url}{self.path}")
            with pytest.raises(ModelForbidden) as raised:
                await heard_from(model, _asked(model, _HELLO))
            await model.aclose()  # type: ignore[attr-defined]
        assert "key" in str(raised.value)
        assert "wrong-key" not in str(raised.value)
        assert "password" not in str(raised.value)

    async def test_a_stream_that_nobody_hears_to_the_end(self) -> None:
        async with self.provided(lambda _: says("word " * 100)) as provided:
            stream = provided.model.stream(_asked(provided.model, _HELLO))
            await anext(stream)
            await stream.aclose()  # type: ignore[attr-defined]
            assert (await heard_from(provided.model, _asked(provided.model, _HELLO))).text == "word " * 100

    async def test_a_service_that_is_not_there(self) -> None:
        model = self.opened(api_key="k", base_url="http://127.0.0.1:9/v1")
        with pytest.raises(ModelInterrupted, match=r"http://127\.0\.0\.1:9"):
            await heard_from(model, _asked(model, _HELLO))

    @pytest.mark.parametrize("base_url", ["ftp://example.com", "localhost:8000/v1", "http://", "nonsense"])
    def test_a_wrong_base_url(self, base_url: str) -> None:
        model = self.opened(api_key="k", base_url=base_url)
        with pytest.raises(Misconfigured, match=r"base URL|cannot be made"):
            model.check()  # type: ignore[attr-defined]

    @pytest.mark.parametrize("key", [None, "", "  ", "two\nlines", "schlüssel"])
    def test_a_missing_or_impossible_key(self, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(self.key_variable, raising=False)
        with pytest.raises(Misconfigured, match=self.key_variable):
            self.opened(api_key=key).check()  # type: ignore[attr-defined]

    async def test_the_models_are_listed(self) -> None:
        async with self.provided(PLAIN_REPLY.script) as provided:
            listed = await provided.model.list_models()  # type: ignore[attr-defined]
        assert provided.model.name in listed
        with pytest.raises(ModelInterrupted):
            await self.opened(api_key="k", base_url="http://127.0.0.1:9").list_models()  # type: ignore[attr-defined]


async def heard_from(model: Model, request: ModelRequest) -> Turn:
    """Return the whole turn with which ``model`` answers ``request``."""
    heard = TurnBuffer(request.model)
    async for event in Watched(model).stream(request):
        heard.hear(event)
    return heard.whole()


def _asked(
    model: Model, entries: Sequence[Entry], *, tools: Sequence[ToolSpec] = (SEARCH,), summary: str | None = None
) -> ModelRequest:
    return ModelRequest(model.name, "Be brief.", entries, tools, ("t",), summary)


_HELLO = (UserEntry((Text("hello"),)),)


def _result(call_id: str, *parts: Text | Image, is_error: bool = False) -> ToolResultEntry:
    return ToolResultEntry(ResultBody(call_id, parts or (Text("found"),), is_error=is_error))


def _histories(model: str) -> Mapping[str, tuple[Entry, ...]]:
    """Return histories that the runtime makes and services are particular about."""
    go_on = UserEntry((Text("go on"),))
    picture = Image(PNG, "image/png")
    call = ToolCallEntry(CallBody("call-1", "search", {"q": "x"}))
    event = EventEntry(
        CallBody("event-1", INJECTED_CALL, {"original_tool_call_id": "call-1"}),
        ResultBody("event-1", (Text("at last"),)),
        tool_call_id="call-1",
    )
    foreign = Reasoning("I think.", "a signature of another", model="another:model")
    unsigned = Reasoning("I was thinking when", model=model)
    return {
        "several from people": (*_HELLO, go_on, go_on),
        "nothing said": (*_HELLO, AssistantEntry(()), go_on),
        "blank said": (*_HELLO, AssistantEntry((SaidText("  "),)), go_on),
        "a detached call": (*_HELLO, call, _result("call-1", Text("Still running.")), go_on, event),
        "an event after text": (*_HELLO, AssistantEntry((SaidText("Well."),)), event, _event_again(event, 2)),
        "an error": (*_HELLO, call, _result("call-1", Text("no such thing"), is_error=True)),
        "odd names": (*_HELLO, ToolCallEntry(CallBody("call-1", "no such tool! " * 20, {})), _result("call-1")),
        "ids used by models before": (*_HELLO, *(entry for n in range(3) for entry in _numbered(n))),
        "reasoning of another model": (*_HELLO, AssistantEntry((foreign, SaidText("Hm."))), go_on),
        "reasoning that was cut": (*_HELLO, AssistantEntry((unsigned,)), go_on),
        "pictures": (UserEntry((Text("see"), picture)), call, _result("call-1", Text("here"), picture), go_on),
        "a picture that is none": (UserEntry((Image("aGVsbG8=", "image/png"), Image(PNG + "!", "image/png"))),),
        "a wrong label": (UserEntry((Image(PNG, "image/jpeg"),)),),
        "documents": (
            UserEntry((Document("JVBERi0xLjcK", "application/pdf", "a.pdf"), Document("YQ==", "text/csv", "b.csv"))),
        ),
    }


def _event_again(event: EventEntry, number: int) -> EventEntry:
    """Return another event like ``event``."""
    call_id = f"event-{number}"
    return replace(event, invocation=replace(event.invocation, id=call_id), result=replace(event.result, id=call_id))


def _numbered(number: int) -> tuple[Entry, ...]:
    call = CallBody(f"call-{number}", "search", {}, call_id="call_0")
    return ToolCallEntry(call), ToolResultEntry(ResultBody(call.id, (Text("found"),), call_id="call_0"))


def _without_call_id(entry: Entry) -> Entry:
    match entry:
        case ToolCallEntry(call=call):
            return replace(entry, call=replace(call, call_id=None))
        case ToolResultEntry(result=result):
            return replace(entry, result=replace(result, call_id=None))
        case EventEntry(invocation=call, result=result):
            return replace(entry, invocation=replace(call, call_id=None), result=replace(result, call_id=None))
        case _:
            return entry


def _heard(request: ModelRequest) -> str:
    """Return what ``request`` says, whatever a protocol makes of its entries."""
    entries = [_without_call_id(entry) for entry in request.entries]
    turns = transcript(entries, summary=request.summary, replays=lambda _: True)
    return repr([_plain(turn) for turn in turns]) + repr(request.thread_stack)


def _plain(turn: UserTurn | ModelTurn) -> Any:
    return [
        replace(block, arguments=dict(block.arguments)) if isinstance(block, CallBody) else block
        for block in turn.blocks
    ]
