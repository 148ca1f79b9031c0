# ruff: noqa: S101 - a contract speaks by assertions, and the name of a test says what it checks
"""What every log of outputs must do."""

from abc import abstractmethod
from collections.abc import Sequence

from ...conversation.outputs import Output
from ...ports.queues import OutputLog


class OutputLogContract:
    """Inherit it, and say how a log is made and reopened."""

    @abstractmethod
    async def make(self) -> OutputLog:
        """Return an empty log."""

    @abstractmethod
    async def reopen(self) -> OutputLog:
        """Return a fresh log over what the one that ``make`` made last has kept."""

    async def test_outputs_are_read_in_the_order_in_which_they_were_sent(self) -> None:
        log = await self.make()
        outputs = [_output(version) for version in range(12)]
        for output in outputs:
            await log.send(output)
        assert _values(await log.outputs()) == outputs
        assert _values(await (await self.reopen()).outputs()) == outputs

    async def test_a_repeat_is_read_once(self) -> None:
        log = await self.make()
        for version in (1, 2, 1, 3, 2):
            await log.send(_output(version))
        assert _values(await log.outputs()) == [_output(1), _output(2), _output(3)]
        await (await self.reopen()).send(_output(1))
        assert len(await log.outputs()) == 3

    async def test_a_reader_goes_on_from_where_it_was(self) -> None:
        log = await self.make()
        assert await log.outputs() == []
        for version in (1, 2, 3):
            await log.send(_output(version))
        (first, _), (second, _), (third, _) = await log.outputs()
        assert first < second < third
        assert _values(await log.outputs(after=first)) == [_output(2), _output(3)]
        assert _values(await log.outputs(after=first, limit=1)) == [_output(2)]
        await log.send(_output(1))
        assert await log.outputs(after=third) == []
        await log.send(_output(4))
        assert _values(await log.outputs(after=third)) == [_output(4)]

    async def test_a_reader_may_begin_at_the_end(self) -> None:
        log = await self.make()
        assert await log.last_place() == 0
        for version in (1, 2, 1):
            await log.send(_output(version))
        assert _values(await log.outputs(after=await log.last_place())) == []
        await log.send(_output(3))
        assert [place for place, _ in await log.outputs()][-1] == await log.last_place()

    async def test_a_reader_may_follow_one_group(self) -> None:
        log = await self.make()
        for version, group_id in enumerate(["a", "b", "a"]):
            await log.send(_output(version, group_id))
        assert [output.seq for output in _values(await log.outputs(group_id="a"))] == [(0, 0), (2, 0)]
        assert [output.seq for output in _values(await log.outputs(group_id="a", limit=1))] == [(0, 0)]
        assert await log.outputs(group_id="c") == []

    async def test_odd_values_come_back(self) -> None:
        log = await self.make()
        await log.send(
            _output(1, text="NUL \x00 and äé", metadata={"a": {"b": None}}, details={"choices": ["x"], "id": 1})
        )
        await log.send(_output(2, text="half \ud83d of a pair"))
        first, second = _values(await log.outputs())
        assert (first.text, first.metadata) == ("NUL \x00 and äé", {"a": {"b": None}})
        assert first.details == {"choices": ["x"], "id": 1}
        assert second.text == "half \N{REPLACEMENT CHARACTER} of a pair"


def _output(version: int, group_id: str = "root", *, text: str = "hi", **fields: object) -> Output:
    return Output("message", text, group_id, group_id, f"{group_id}:{version}:0", (version, 0), **fields)  # type: ignore[arg-type]


def _values(placed: Sequence[tuple[int, Output]]) -> list[Output]:
    return [output for _, output in placed]
