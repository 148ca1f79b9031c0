"""The app's manifests ask for what the front end uses, and for nothing else."""

import inspect
import json
import re
from pathlib import Path

from infinity_agents.cli.config import read
from infinity_agents.slack.events import read_event

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "slack_agent"
NEEDED = {
    "app_mention": {"app_mentions:read"},
    "assistant_thread_started": {"assistant:write"},
    "message.channels": {"channels:history"},
    "message.groups": {"groups:history"},
    "message.im": {"im:history"},
    "message.mpim": {"mpim:history"},
}
"""The scope that each event needs, by Slack's documentation."""
CALLED = {
    "auth.test": set(),
    "chat.postMessage": {"chat:write", "im:write"},
    "chat.postEphemeral": {"chat:write"},
    "chat.update": {"chat:write"},
    "chat.delete": {"chat:write"},
    "conversations.replies": {"channels:history", "groups:history", "im:history", "mpim:history"},
    "assistant.threads.setStatus": {"chat:write"},
    "assistant.threads.setSuggestedPrompts": {"assistant:write"},
    "files.info": {"files:read"},
    "users.info": {"users:read"},
}
"""The scopes that each method needs."""


def manifest(name):
    return json.loads((EXAMPLE / name).read_text())


def test_the_scopes_are_those_of_what_is_called_and_heard():
    sources = "".join(path.read_text() for path in (ROOT / "src" / "infinity_agents" / "slack").glob("*.py"))
    called = set(re.findall(r'"([a-z]+(?:\.[a-z]+)?\.[a-zA-Z]+)"', sources))
    assert called - {"slack.com"} == set(CALLED)
    heard = set(re.findall(r'case ((?:"\w+"(?: \| )?)+):', inspect.getsource(read_event)))
    assert {told for each in heard for told in re.findall(r"\w+", each)} == {kind.split(".")[0] for kind in NEEDED}
    told = manifest("manifest.json")
    assert set(told["settings"]["event_subscriptions"]["bot_events"]) == set(NEEDED)
    scopes = told["oauth_config"]["scopes"]["bot"]
    assert set(scopes) == set().union(*NEEDED.values(), *CALLED.values())


def test_the_two_manifests_differ_in_how_slack_reaches_the_app():
    told, socket = manifest("manifest.json"), manifest("manifest.socket.json")
    events = told["settings"]["event_subscriptions"].pop("request_url")
    clicks = told["settings"]["interactivity"].pop("request_url")
    assert (events, clicks) == ("https://WEBHOOK_URL/slack/events", "https://WEBHOOK_URL/slack/interactivity")
    assert not told["settings"].pop("socket_mode_enabled")
    assert socket["settings"].pop("socket_mode_enabled")
    assert told == socket


def test_the_agent_of_the_example_can_be_opened():
    assert "Slack" in read(EXAMPLE / "infinity.toml").settings.system_prompt
