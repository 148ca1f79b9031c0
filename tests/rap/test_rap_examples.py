"""The tool servers among the examples, as their READMEs promise them."""

import importlib.util
from pathlib import Path

import pytest

from infinity_agents.rap.conformance import check
from tests.rap.conftest import Answer

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(path):
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestWeather:
    PATH = EXAMPLES / "weather_tool" / "weather.py"

    @pytest.fixture
    async def source(self, raw_server):
        """Answers as wttr.in does."""

        def answer(request):
            known = request.path.startswith("/New%20York?")
            return Answer(200, "New York: ⛅ +12°C\n".encode()) if known else Answer(404, b"unknown location")

        return await raw_server(answer)

    @pytest.fixture
    async def url(self, serve, source):
        module = load(self.PATH)
        module.SOURCE = source.url
        return await serve(module.server)

    def test_it_is_as_short_as_its_readme_says(self):
        lines = len(self.PATH.read_text().splitlines())
        assert lines < 15
        assert f"{lines} lines" in self.PATH.with_name("README.md").read_text()

    async def test_it_tells_the_weather(self, url, result_of):
        assert (await result_of(url, "get_weather", {"city": "New York"}))["text"] == "New York: ⛅ +12°C"

    async def test_an_unknown_city_is_an_error(self, url, result_of):
        told = await result_of(url, "get_weather", {"city": "Nowhere"})
        assert told["is_error"] is True
        assert "404" in told["text"]

    async def test_it_keeps_the_protocol(self, url, http):
        findings = await check(url, http=http, examples={"get_weather": {"city": "New York"}}, settle=0.05)
        assert [finding for finding in findings if finding.verdict == "broken"] == []


class TestPriceWatch:
    @pytest.fixture
    async def url(self, serve):
        module = load(EXAMPLES / "price_watch" / "prices.py")
        module.SECONDS_PER_DAY = 0
        return await serve(module.server)

    async def test_each_fall_is_an_event(self, url, invoke, receiver):
        await invoke(url, "watch_price", {"symbol": "ACME", "below": 100})
        confirmed, first, second, last = [request.json for request in await receiver.heard(4)]
        assert confirmed["subscription"] is True
        assert first["text"] == "ACME fell below 100: 99.80 on 2026-03-05"
        assert second["text"] == "ACME fell below 100: 97.45 on 2026-03-10"
        assert last["text"] == "The data end with ACME at 101.80."
        assert [event["final"] for event in (first, second, last)] == [False, False, True]
        assert len({event["event_id"] for event in (first, second, last)}) == 3

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [({"symbol": "ACME", "below": -1}, "give a positive one"), ({"symbol": "X", "below": 1}, "'ACME' or 'GLOBEX'")],
    )
    async def test_what_cannot_be_watched_is_refused(self, url, result_of, arguments, reason):
        told = await result_of(url, "watch_price", arguments)
        assert (told["is_error"], told["subscription"]) == (True, False)
        assert reason in told["text"]

    async def test_it_tells_a_price_and_keeps_the_protocol(self, url, http, result_of):
        assert (await result_of(url, "get_price", {"symbol": "GLOBEX"}))[
            "text"
        ] == "GLOBEX stands at 58.10 on 2026-03-02"
        examples = {"watch_price": {"symbol": "ACME", "below": 100}}
        findings = await check(url, http=http, examples=examples, settle=0.05)
        assert [finding for finding in findings if finding.verdict == "broken"] == []
