"""Runs targets with inputs that a seed decides, for as long as is said, and keeps what breaks a promise."""

import ast
import asyncio
import hashlib
import json
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

MOST_STEPS = 10_000_000
STEPS_PER_BYTE = 200
"""How many calls of functions one input may cost, beside those for its size: more is a hang, on any machine."""
LONGEST = 15.0
"""Seconds of the process's own time after which a case is broken off: what hangs in one call counts no steps."""

Check = Callable[[Any], Awaitable[None] | None]


@dataclass(frozen=True)
class Target:
    """One way in. ``make`` makes an input of what a seed decides: text, bytes, or a tuple of such.

    ``opened`` gives what checks an input, while it is open: whatever that raises is a broken promise.
    """

    name: str
    make: Callable[[Random], Any]
    opened: Callable[[], AbstractAsyncContextManager[Check]]


@dataclass(frozen=True)
class Fault:
    """A broken promise, and the smallest input that was seen to break it."""

    target: str
    number: int
    error: str
    place: str
    told: str
    made: Any
    count: int = 1

    @property
    def key(self) -> tuple[str, str, str]:
        return self.target, self.error, self.place

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "case": self.number,
            "error": self.error,
            "place": self.place,
            "count": self.count,
            "bytes": len(repr(self.made)),
        }


class TooManySteps(BaseException):
    """The input costs more than its size allows. No handler of errors may take it for one."""


@dataclass
class Run:
    """One run: every case follows from ``seed``, the name of its target and its number."""

    targets: Sequence[Target]
    seed: int
    keep: Path | None = None
    faults: dict[tuple[str, str, str], Fault] = field(default_factory=dict)
    cases: dict[str, int] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)

    def made(self, target: Target, number: int) -> Any:
        return target.make(Random(f"{self.seed}/{target.name}/{number}"))

    async def for_seconds(self, seconds: float, tell: Callable[[str], None]) -> None:
        """Run for about that long; each target gets an equal share."""
        end, told = time.monotonic() + seconds, 0.0
        async with AsyncExitStack() as stack:
            checks = {target.name: await stack.enter_async_context(target.opened()) for target in self.targets}
            while (now := time.monotonic()) < end:
                target = min(self.targets, key=lambda each: self.spent.get(each.name, 0.0))
                await self.case(target, checks[target.name], self.cases.get(target.name, 0))
                if now - told >= 1:
                    tell(f"{end - now:4.0f} s left: {sum(self.cases.values())} cases, {len(self.faults)} faults")
                    told = now

    async def for_cases(self, count: int, *, first: int = 0) -> None:
        """Run ``count`` cases of each target, from the one of number ``first`` on."""
        for target in self.targets:
            async with target.opened() as check:
                for number in range(first, first + count):
                    await self.case(target, check, number)

    async def with_input(self, made: Any) -> None:
        """Run each target with ``made``."""
        for target in self.targets:
            async with target.opened() as check:
                await self._checked(target, check, 0, made)

    async def case(self, target: Target, check: Check, number: int) -> None:
        began = time.monotonic()
        self.cases[target.name] = self.cases.get(target.name, 0) + 1
        await self._checked(target, check, number, self.made(target, number))
        self.spent[target.name] = self.spent.get(target.name, 0.0) + time.monotonic() - began

    async def _checked(self, target: Target, check: Check, number: int, made: Any) -> None:
        try:
            with _Limits(len(repr(made)) if not isinstance(made, str | bytes) else len(made)):
                found = check(made)
                if found is not None:
                    await found
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a fault
            self._note(target, number, made, error)

    def _note(self, target: Target, number: int, made: Any, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "infinity_agents" in frame.filename] or frames
        place = f"{'/'.join(Path(ours[-1].filename).parts[-2:])}:{ours[-1].lineno}"
        told = "".join(traceback.format_exception(error))[-6_000:]
        fault = Fault(target.name, number, type(error).__name__, place, told, made)
        before = self.faults.get(fault.key)
        if before is not None:
            smaller = fault if len(repr(made)) < len(repr(before.made)) else before
            fault = Fault(**{**smaller.__dict__, "count": before.count + 1})
        self.faults[fault.key] = fault
        if self.keep is not None and (before is None or fault.made is made):
            self.keep.mkdir(parents=True, exist_ok=True)
            name = hashlib.sha256("/".join(fault.key).encode()).hexdigest()[:8]
            path = self.keep / f"{target.name}-{name}"
            path.with_suffix(".input").write_text(repr(made), "utf-8", "surrogatepass")
            path.with_suffix(".told").write_text(
                f"seed {self.seed}, case {number}\n{told}", "utf-8", "backslashreplace"
            )

    def report(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "cases": self.cases,
            "faults": [fault.to_json() for fault in self.faults.values()],
        }


def kept_input(path: Path) -> Any:
    """Return the input that a file holds."""
    return ast.literal_eval(path.read_text("utf-8", "surrogatepass"))


class _Limits:
    """Counts the calls of this thread while it is open, and breaks off what costs too much for ``size`` bytes."""

    def __init__(self, size: int) -> None:
        self._left = MOST_STEPS + STEPS_PER_BYTE * size

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGVTALRM, self._ring)
        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
        sys.setprofile(self._step)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._before)

    def _step(self, frame: FrameType, event: str, argument: object) -> None:
        self._left -= 1
        if self._left < 0:
            sys.setprofile(None)
            raise TooManySteps("the input costs more calls of functions than its size allows")

    def _ring(self, number: int, frame: FrameType | None) -> None:
        raise TooManySteps(f"one case took more than {LONGEST:.0f} seconds of the process's own time")


def shortened(value: Any, most: int = 400) -> str:
    text = ascii(value)
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]} ({len(text)} characters)"


def as_json(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=1)
