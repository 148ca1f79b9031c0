"""What is the messages' fault and what is not: outages, graceful stops, and messages that kill the host."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from infinity_agents.adapters.sqlite import HostLock
from infinity_agents.errors import Misconfigured, ModelOverloaded
from infinity_agents.local.identity import Identity
from infinity_agents.local.wiring import LocalAgent
from infinity_agents.settings import AgentSettings
from infinity_agents.testing.scripted_model import ScriptedModel, breaks, heard, says

from .conftest import until

QUICK = {"first_delay": 0.01, "longest_delay": 0.02}
ONE_TRY = AgentSettings(model_tries=1)


async def test_an_outage_of_any_length_parks_nothing_and_people_hear_of_it_once(open_agent):
    left = [breaks(ModelOverloaded("the service is down"))] * 12
    model = ScriptedModel(lambda request: left.pop() if left else says("Here I am."))
    agent = open_agent(model=model, settings=ONE_TRY)
    async with agent.hosted(**QUICK):
        await agent.send("c", "hello")
        await agent.hears("Here I am.", "c")
    (notice,) = await agent.told("c", "error")
    assert "tried again by itself" in notice
    assert "the service is down" in notice
    assert await agent.queue.dead_letters() == []


async def test_an_outage_that_outlasts_all_patience_parks_the_message(open_agent):
    model = ScriptedModel(lambda request: breaks(ModelOverloaded("the service is down")))
    agent = open_agent(model=model, settings=ONE_TRY)
    async with agent.hosted(patience=0.0, **QUICK):
        await agent.send("c", "hello")
        await agent.hears("set aside", "c", "error")
    assert len(await agent.queue.dead_letters()) == 1


class Endless:
    """Speaks to nobody's end."""

    name = "endless"

    def context_window(self, model):
        return 100_000

    def reads_images(self, model):
        return False

    async def stream(self, request):
        await asyncio.Event().wait()
        yield


async def test_stopping_the_host_again_and_again_in_the_middle_of_a_turn_parks_nothing(open_agent):
    agent = open_agent(model=Endless())
    await agent.send("c", "hello")
    for _ in range(7):
        async with agent.hosted(grace=0.05) as host:

            async def it_runs(host=host):
                return bool(host._slices)

            await until(it_runs)
    assert await agent.queue.dead_letters() == []
    assert await agent.told("c", "error") == []
    assert await agent.queue.outstanding() == {"c": 1}


async def test_a_message_that_has_outlived_five_hosts_is_parked_and_the_next_one_goes_on(open_agent):
    agent = open_agent(model=ScriptedModel(lambda request: says(f"heard {heard(request)}")))
    await agent.send("c", "deadly")
    for _ in range(5):
        await agent.queue.receive(groups=1, batch=1, visibility=60)
        await agent.queue.reclaim()
    await agent.send("c", "harmless")
    async with agent.hosted():
        await agent.hears("heard harmless", "c")
    (letter,) = await agent.queue.dead_letters()
    assert "Deadly" in letter.reason
    assert len(await agent.told("c", "error")) == 1


DEADLY_HOST = textwrap.dedent("""
    import asyncio, os, sys
    from infinity_agents import LocalAgent
    from infinity_agents.testing.scripted_model import ScriptedModel, heard, says

    def script(request):
        if heard(request) == "kill":
            os._exit(137)
        return says(f"heard {heard(request)}")

    async def main():
        agent = LocalAgent.open(sys.argv[1], model=ScriptedModel(script))
        async with agent.host():
            async for _, output in agent.follow("good"):
                if output.type == "message":
                    break
            async for _, output in agent.follow("victim"):
                pass
        await agent.aclose()

    asyncio.run(main())
""")


@pytest.mark.slow
async def test_a_message_that_kills_the_host_is_found_and_no_other_is_parked_for_it(tmp_path):
    agent = LocalAgent.open(tmp_path / "agent.db")
    await agent.send("victim", "kill")
    await agent.send("good", "hello")
    for _ in range(10):
        process = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", DEADLY_HOST, str(tmp_path / "agent.db")], timeout=60, check=False
        )
        if process.returncode == 0:
            break
    else:
        pytest.fail("the host never came through")
    told = [(output.thread_id, output.type) for _, output in await agent.outputs()]
    assert ("good", "message") in told
    (letter,) = await agent.queue.dead_letters()
    assert letter.group_id == "victim"
    await agent.aclose()


def test_two_names_of_one_file_are_one_file(tmp_path):
    real, alias = tmp_path / "real.db", tmp_path / "alias.db"
    real.touch()
    alias.symlink_to(real)
    assert Identity.beside(real) == Identity.beside(alias)
    with HostLock(real), pytest.raises(Misconfigured, match=r"real\.db"):
        HostLock(alias)


async def test_the_file_is_for_its_owner_alone(tmp_path):
    agent = LocalAgent.open(tmp_path / "agent.db")
    await agent.send("c", "a secret")
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("agent.db", "agent.db-wal", "agent.db-shm", "agent.db.callbacks"), "0o600"
    )
    await agent.aclose()
