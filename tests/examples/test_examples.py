"""Each example does what its README says."""

import re
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.examples.conftest import PATIENCE, ROOT, assert_in_order
from tests.toolsets.test_sandbox import can_confine


def test_every_example_is_told_in_its_readme_and_run_here():
    names = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    on_aws = {"example_agent", "minimal_agent", "slack_agent"}  # tests/infra/ synthesizes them
    assert names == {"weather_tool", "price_watch", "code_review", "coding_agent", "reminder", "embed"} | on_aws
    for name in names:
        readme = (ROOT / "examples" / name / "README.md").read_text()
        # The project's own cdk.json deploys the example agent.
        assert f"\n```sh\ncd {'../..' if name == 'example_agent' else f'examples/{name}'}\n" in readme
        assert "\n## Make it your own\n" in readme
        for link in re.findall(r"\]\(([^)\s#]+)", readme):
            assert link.startswith("https://") or (ROOT / "examples" / name / link).exists(), f"{name}: {link}"


@contextmanager
def weather_service():
    """A stand-in for wttr.in."""

    class Weather(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path.startswith("/Oslo") else 404)
            self.end_headers()
            self.wfile.write(b"Oslo: fine\n")

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Weather) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(PATIENCE)


def test_weather_tool(example):
    with weather_service() as source:
        weather = example("weather_tool", port=8001, replaced=[('"https://wttr.in"', f'"{source}"')])
        serve, call, check, chat = weather.commands
        with weather.serving(serve):
            assert "Oslo: fine" in weather.printed(call)
            assert "nothing broken" in weather.printed(check)
            said = weather.printed(chat, said='call get_weather {"city": "Oslo"}\n')
            assert "get_weather says: Oslo: fine" in said


def test_price_watch(example):
    watch = example("price_watch", port=8002)
    with watch.serving("python prices.py", SECONDS_PER_DAY="0.1"):
        assert_in_order(watch.shown, watch.printed("python watch.py"))


def test_price_watch_started_again_asks_nothing_again(example):
    watch = example("price_watch", port=8002)
    with watch.serving("python prices.py", SECONDS_PER_DAY="0"):
        first = watch.printed("python watch.py", "--file", "kept.db")
        assert watch.printed("python watch.py", "--file", "kept.db") == first


def test_price_watch_without_its_server_says_so(example):
    watch = example("price_watch", port=8002)
    printed = watch.printed("python watch.py")
    assert f"error: Some tools are missing: The tool set '127.0.0.1:{watch.port}' is missing" in printed
    watch.left.remove("python prices.py")


def test_code_review(example):
    review = example("code_review")
    assert_in_order(review.shown, review.printed("python review.py ../price_watch"))


def test_code_review_finds_what_is_wrong_in_each_of_many_files(example):
    review = example("code_review")
    directory = review.directory.with_name("price_watch")
    for path in directory.glob("*.py"):
        path.unlink()
    for number in range(20):
        (directory / f"part {number:02}.py").write_text(f"def _{number}(a=[]):\n    try: ...\n    except: ...\n")
    (directory / "broken.py").write_text("def :\n")
    printed = review.printed("python review.py ../price_watch")
    wanted = ["broken.py:", "  line 1: invalid syntax"]
    for number in range(20):
        wanted += [
            f"part {number:02}.py:",
            f"  line 1: _{number} shares one default value between its calls",
            "  line 3: a bare except also catches Ctrl-C; name the exception",
        ]
    assert_in_order(wanted, printed)
    assert len(printed.splitlines()) == len(wanted) + sum("files are reviewed" in line for line in printed.splitlines())


def test_code_review_by_an_unknown_model_says_so(example):
    review = example("code_review")
    process = review.started("python review.py ../price_watch", "--model", "openai:")
    _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert complaint == "there is no model 'openai:'; a model is demo, openai:NAME, anthropic:NAME or bedrock:NAME\n"


class Chat:
    """The reminder's terminal."""

    def __init__(self, process):
        self.process = process

    def say(self, text):
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def hear(self, text):
        """Return the next line that holds ``text``."""
        for line in self.process.stdout:
            if text in line:
                return line
        pytest.fail(f"it ended without {text!r}: {self.process.stderr.read()}")


@contextmanager
def chatting(reminder):
    with reminder.started("python reminder.py") as process:
        # Nothing here can wait for longer.
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        try:
            yield Chat(process)
        finally:
            watchdog.cancel()
            process.kill()


def test_reminder_comes_though_people_talk_and_the_program_is_killed(example):
    reminder = example("reminder")
    with chatting(reminder) as chat:
        assert chat.hear("Try: Remind me on ")
        due = datetime.now(UTC) + timedelta(seconds=5)
        chat.say(f"Remind me on {due:%Y-%m-%d at %H:%M:%S} UTC to stretch")
        assert chat.hear("tool_call: ") == f"tool_call: sleep until {due:%Y-%m-%d %H:%M:%S} (UTC)\n"
        chat.say("How are you?")
        assert "How are you?" in chat.hear("message: ")
        chat.process.kill()
        assert chat.process.wait(PATIENCE) == -9
    with chatting(reminder) as chat:
        told = f"message: (demo model) It is {due:%Y-%m-%d %H:%M:%S} (UTC) (for: stretch).\n"
        assert chat.hear("(for: stretch)") == told
        assert datetime.now(UTC) >= due.replace(microsecond=0)
        # Nothing more is said, and nothing more is to come.
        chat.process.stdin.close()
        assert chat.process.wait(PATIENCE) == 0


def test_embed(example):
    kitchen = example("embed")
    printed = kitchen.printed("python kitchen.py")
    assert printed.splitlines() == kitchen.shown
    again = kitchen.printed("python kitchen.py")
    assert_in_order([line for line in kitchen.shown if "held:" not in line], again)


def test_a_coding_agent(example):
    coding = example("coding_agent", port=8003)
    confined = [] if can_confine() else ["--unconfined"]
    printed = coding.printed("python coder.py", *confined)
    assert_in_order(coding.shown, printed)
    assert "+    return sorted(name for name, count in wanted.items() if stock.get(name, 0) < count)" in printed
    assert printed.count("Take over the work of coding.") == 2
