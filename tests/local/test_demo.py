"""The demo runs by itself, and tells the truth about it."""

import asyncio
import sys

import pytest

from infinity_agents.local import demo


@pytest.mark.slow
async def test_the_demo_shows_every_part():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "infinity_agents.local.demo", stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), 120)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = out.decode()
    assert process.returncode == 0, text
    for part in demo.PARTS:
        assert f"\N{CHECK MARK} {part.__doc__}" in text
    assert "\N{BALLOT X}" not in text
    assert "[my-conversation] heard text -> called get_time (conversations:2" in text
    assert "person:  What time is it in Tokyo?" in text


@pytest.mark.slow
async def test_the_demo_admits_what_did_not_happen(monkeypatch, tmp_path, capsys):
    async def impossible(stage):
        """Something that never happens."""
        await stage.hear_text("never said")

    monkeypatch.setattr(demo, "_PATIENCE", 0.2)
    monkeypatch.setattr(demo, "PARTS", (impossible,))
    assert not await demo.show(tmp_path / "agent.db")
    out = capsys.readouterr().out
    assert "\N{BALLOT X} Something that never happens. a message with 'never said': not within 0.2 seconds" in out
    assert "0 of 1 parts happened" in out
