"""Sleep: passive tools. Whatever arrives wakes the thread, and a timer that is set still fires afterwards."""

from abc import abstractmethod
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..conversation.content import JsonObject
from ..conversation.ledger import Call
from ..errors import TellModel
from ..ports.clock import Clock
from ..ports.tool import CallContext, SliceContext, ToolAnswer, ToolSpec
from .synchronous import BuiltIn, described, object_schema

_LONGEST = timedelta(days=366 * 5)


class _Timed(BuiltIn):
    """Waits for a moment, of which a timer tells."""

    is_passive = True

    async def execute(self, call: Call, context: CallContext) -> None:
        await context.set_timer(call, self.wake_text(call))

    @abstractmethod
    def wake_text(self, call: Call) -> str:
        """Return what the model hears when it wakes."""


class Sleep(_Timed):
    """Sleeps for a number of seconds."""

    spec = ToolSpec(
        "sleep",
        "Do nothing for a number of seconds. Anything that arrives wakes you earlier; the time still comes afterwards, "
        "as an event.",
        object_schema(
            {
                "seconds": described("number", "How long, in seconds.", maximum=_LONGEST.total_seconds()),
                "reason": described("string", "What you sleep for; you are reminded of it when you wake."),
            },
            required=("seconds",),
        ),
    )

    def wakes_at(self, call: Call) -> datetime:
        return call.made_at + timedelta(seconds=_seconds(call))

    def wake_text(self, call: Call) -> str:
        return f"Woke up after {call.arguments['seconds']} seconds{_because(call)}."

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer | None:
        if _seconds(call) == 0:
            return ToolAnswer.of("That time is over already: woke up at once.")
        return None

    def display(self, arguments: JsonObject) -> str:
        return f"sleep {arguments.get('seconds', '?')} s"


class SleepUntil(_Timed):
    """Sleeps until a wall-clock time in a time zone.

    A time that the clock skips is the first instant after the gap; one that comes twice is the first of the two.
    """

    spec = ToolSpec(
        "sleep_until",
        "Do nothing until a date and time. Anything that arrives wakes you earlier; the time still comes afterwards, "
        "as an event.",
        object_schema(
            {
                "date": described("string", "The day, as YYYY-MM-DD."),
                "time": described("string", "The time of day, as HH:MM or HH:MM:SS."),
                "timezone": described("string", "An IANA time zone such as Europe/Berlin. UTC where left out."),
                "reason": described("string", "What you sleep for; you are reminded of it when you wake."),
            },
            required=("date", "time"),
        ),
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def wakes_at(self, call: Call) -> datetime:
        return _moment(call)[0]

    def wake_text(self, call: Call) -> str:
        _, note = _moment(call)
        arguments = call.arguments
        zone = arguments.get("timezone", "UTC")
        return f"It is {arguments['date']} {arguments['time']} ({zone}){_because(call)}.{note}"

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer | None:
        moment, note = _moment(call)
        now = self._clock.now()
        if moment <= now:
            return ToolAnswer.of(f"That time is past already: woke up at once, at {now:%Y-%m-%d %H:%M:%S} UTC.{note}")
        if moment - now > _LONGEST:
            raise TellModel(f"{moment:%Y-%m-%d} is too far away: at most {_LONGEST.days} days.")
        return None

    def display(self, arguments: JsonObject) -> str:
        zone = arguments.get("timezone", "UTC")
        return f"sleep until {arguments.get('date', '?')} {arguments.get('time', '?')} ({zone})"


class SleepUntilEventOrInput(BuiltIn):
    """Sleeps until anything arrives."""

    is_passive = True
    spec = ToolSpec(
        "sleep_until_event_or_input",
        "Do nothing until somebody says something or an event arrives. Use it when you wait for a subscription, a "
        "child, or a result that is still to come.",
        object_schema({}),
    )

    async def execute_synchronous(self, call: Call, context: SliceContext) -> ToolAnswer | None:
        return None

    def display(self, arguments: JsonObject) -> str:
        return "sleep until something happens"


def _seconds(call: Call) -> float:
    """Return how long the call sleeps; a time that lies in the past is no time at all."""
    seconds = call.arguments["seconds"]
    if seconds <= 0:
        return 0.0
    if not seconds <= _LONGEST.total_seconds():
        raise TellModel(f"seconds must be a number up to {_LONGEST.total_seconds():.0f}, not {seconds}")
    return float(seconds)


def _because(call: Call) -> str:
    reason = str(call.arguments.get("reason", "")).strip()
    return f" (for: {reason})" if reason else ""


def _moment(call: Call) -> tuple[datetime, str]:
    """Return the moment in UTC that the arguments name, and a note where the clock skips it or it comes twice."""
    arguments = call.arguments
    zone = _zone(str(arguments.get("timezone", "UTC")))
    try:
        wall = datetime.combine(date.fromisoformat(str(arguments["date"])), time.fromisoformat(str(arguments["time"])))
    except ValueError as error:
        raise TellModel(
            f"date {arguments['date']!r} and time {arguments['time']!r} must be YYYY-MM-DD and HH:MM[:SS]: {error}"
        ) from error
    if wall.tzinfo is not None:
        raise TellModel(f"time {arguments['time']!r} must not carry an offset; name a timezone instead")
    try:
        first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
        second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    except OverflowError as error:
        raise TellModel(f"date {arguments['date']!r} is out of range") from error
    if first == second:
        return first, ""
    if first < second:
        return first, " (That time comes twice on this day; this was the first.)"
    after = _after_gap(zone, second, first)
    local = f"{after.astimezone(zone):%Y-%m-%d %H:%M}"
    return after, f" (The clock skips that time on this day; this is the first instant after the gap, {local}.)"


def _after_gap(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Return the instant at which the offset changes, between two instants that lie around it (to the second)."""
    offset = before.astimezone(zone).utcoffset()
    low, high = int(before.timestamp()), int(after.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, UTC).astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, UTC)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise TellModel(f"timezone {name!r} is unknown: name one of IANA's, such as Europe/Berlin or UTC") from error
