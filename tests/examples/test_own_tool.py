"""The path of a person who has never seen it: a tool from the page about tools, an agent, a question, an answer."""

import re
import subprocess
import sys

import pytest

from infinity_agents import LocalAgent
from tests.examples.conftest import PATIENCE, ROOT


@pytest.fixture
def shop(tmp_path):
    """The first block of the page, in a file of its own, which serves on a free port."""
    page = (ROOT / "docs" / "tools.md").read_text()
    first = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "shop.py").write_text(first[1].replace("8001", "0"))
    server = subprocess.Popen(
        [sys.executable, "shop.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
    yield server.stdout.readline().split()[-1]
    server.terminate()
    server.communicate(timeout=PATIENCE)


async def test_a_tool_from_the_documents_answers_an_agent(shop, tmp_path):
    agent = LocalAgent.open(tmp_path / "agent.db", tool_servers=[shop])
    async with agent.host():
        await agent.send("shopping", 'call price {"fruit": "apples", "kilos": 2}')
        outputs = [output async for _, output in agent.follow("shopping")]
    await agent.aclose()
    assert [(output.type, output.text) for output in outputs] == [
        ("tool_call", 'price(fruit="apples", kilos=2)'),
        ("message", "(demo model) price says: 2 kg of apples cost 5.00 dollars"),
    ]
