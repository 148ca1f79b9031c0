"""The sandbox server: over real HTTP, on a real git, with and without bubblewrap."""

import asyncio
import base64
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from infinity_agents.errors import Misconfigured
from infinity_agents.toolsets.sandbox import commands, workspaces
from infinity_agents.toolsets.sandbox.confinement import Unconfined, confinement
from infinity_agents.toolsets.sandbox.files import resolved
from infinity_agents.toolsets.sandbox.server import sandbox_server
from infinity_agents.toolsets.sandbox.workspaces import Sandboxes

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def git(directory, *arguments):
    return subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *arguments],
        cwd=directory, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


@pytest.fixture
def origin(tmp_path):
    """A repository to clone."""
    directory = tmp_path / "origin"
    (directory / "src").mkdir(parents=True)
    git(directory, "init", "-q", "-b", "main")
    (directory / "README.md").write_text("# Origin\n")
    (directory / "src" / "app.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    (directory / ".gitignore").write_text("build/\n")
    (directory / "pixel.png").write_bytes(PIXEL)
    git(directory, "add", ".")
    git(directory, "commit", "-qm", "first")
    return directory


def can_confine():
    program = shutil.which("bwrap")
    return (
        program is not None
        and subprocess.run([program, "--unshare-all", "--ro-bind", "/", "/", "true"], check=False).returncode == 0
    )


@pytest.fixture(params=["unconfined", "bubblewrap"])
def confined(request):
    if request.param == "unconfined":
        return Unconfined()
    if not can_confine():
        pytest.skip("there is no bubblewrap here, or no user namespaces")
    return confinement()


@pytest.fixture(params=["git", "jj"])
def vcs(request):
    """What keeps the versions of the sandboxes."""
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param} on PATH")
    return request.param


class Agent:
    """Calls the tools of a server as the runtime does, and waits for what they post."""

    def __init__(self, url, receiver):
        self.url = url
        self.receiver = receiver
        self.calls = 0

    async def start(self, operation, thread="root", ancestors=(), **arguments):
        self.calls += 1
        body = {
            "operation": operation,
            "arguments": arguments,
            "id": f"call-{self.calls}",
            "call_id": None,
            "callback_url": f"{self.receiver.url}/callback",
            "group_id": thread,
        } | ({"thread_ancestors": list(ancestors)} if ancestors else {})
        async with httpx.AsyncClient() as client:
            # Not with json=: it cannot send half a character, and a program can.
            (await client.post(f"{self.url}/invoke", content=json.dumps(body))).raise_for_status()
        return body["id"]

    async def answer(self, call_id, kind="tool_result"):
        while True:
            for request in self.receiver.requests:
                told = request.json
                if told["type"] == kind and (told.get("id") or told.get("tool_call_id")) == call_id:
                    return told
            await asyncio.sleep(0.005)

    async def call(self, operation, thread="root", ancestors=(), **arguments):
        told = await asyncio.wait_for(self.answer(await self.start(operation, thread, ancestors, **arguments)), 60)
        if told.get("is_error"):
            raise AssertionError(told["text"])
        return told.get("text") or told["content"]

    async def refused(self, operation, thread="root", ancestors=(), **arguments):
        told = await asyncio.wait_for(self.answer(await self.start(operation, thread, ancestors, **arguments)), 60)
        assert told["is_error"], told
        return told["text"]

    async def cancel(self, call_id, thread="root"):
        async with httpx.AsyncClient() as client:
            await client.post(f"{self.url}/cancel_tool_call", json={"thread_id": thread, "tool_call_id": call_id})


@pytest.fixture
async def agent_on(tmp_path, origin, serve, receiver, vcs):
    async def make(confined=None, patience=20.0):
        server = sandbox_server(
            Sandboxes(tmp_path / "sandboxes", allowed=[origin], vcs=vcs), confined or Unconfined(), patience=patience
        )
        agent = Agent(await serve(server), receiver)
        agent.vcs = vcs
        return agent

    return make


@pytest.fixture
async def agent(agent_on, origin):
    agent = await agent_on()
    await agent.call("clone_repo", url=str(origin))
    return agent


def tree_of(tmp_path, thread="root", root="root"):
    return Sandboxes(tmp_path / "sandboxes").of(thread, root).tree


class TestFiles:
    async def test_a_clone_says_what_it_holds(self, agent_on, origin):
        assert "README.md" in await (await agent_on()).call("clone_repo", url=str(origin), revision="main")

    async def test_lines_and_pictures_are_read(self, agent):
        assert await agent.call("read_file", path="src/app.py", first_line=2, last_line=2) == (
            "2\ttwo = 2\n[lines 3 to 3 follow; read on with first_line=3]"
        )
        [picture] = await agent.call("read_file", path="pixel.png")
        assert (picture["type"], base64.b64decode(picture["data"])) == ("image", PIXEL)

    async def test_an_edit_shows_its_diff_and_updates_the_view(self, agent, receiver):
        call = await agent.start("edit_file", path="src/app.py", old_text="two = 2", new_text="two = 22")
        told = await agent.answer(call)
        [shown] = told["display_as"]
        assert shown["type"] == "diff"
        assert "-two = 2\n+two = 22\n" in shown["content"]["patch"]
        [view] = [request.json for request in receiver.requests if request.json["type"] == "view_update"]
        assert "+two = 22" in view["content"]["patch"]
        assert "+two = 22" in await agent.call("describe_changes")

    @pytest.mark.parametrize(
        ("old", "said"), [("four", "0 times"), ("= ", "3 times"), ("", "create_file")], ids=["none", "many", "empty"]
    )
    async def test_an_edit_must_meet_one_place(self, agent, old, said):
        assert said in await agent.refused("edit_file", path="src/app.py", old_text=old, new_text="x")

    async def test_a_file_is_created_once(self, agent):
        await agent.call("create_file", path="new/deep/file.txt", content="hello\n")
        assert await agent.call("read_file", path="new/deep/file.txt") == "1\thello"
        assert "edit_file" in await agent.refused("create_file", path="new/deep/file.txt", content="again")

    async def test_grep_finds_new_files_too(self, agent):
        await agent.call("create_file", path="new.txt", content="find me\n")
        assert await agent.call("grep", pattern="find [m]e") == "new.txt:1:find me\n"
        assert await agent.call("grep", pattern="FIND ME", ignore_case=True, path="new.txt") == "new.txt:1:find me\n"
        assert await agent.call("grep", pattern="nowhere at all") == "Nothing was found."

    async def test_without_a_sandbox_it_says_how_to_make_one(self, agent_on):
        assert "clone_repo" in await (await agent_on()).refused("read_file", path="README.md")

    async def test_what_is_no_text_is_named(self, agent):
        await agent.call("execute_command", command=r"printf 'a\0b' > nul; printf '\377' > latin")
        assert "no text" in await agent.refused("read_file", path="nul")
        assert "no UTF-8" in await agent.refused("read_file", path="latin")


class TestEscapes:
    @pytest.mark.parametrize(
        "path",
        [
            "../outside",
            "src/../../outside",
            "/etc/passwd",
            "link/passwd",
            "file-link",
            ".git",
            "src/../.git",
            ".jj/repo",
            "",
            "a\0b",
        ],
    )
    async def test_no_path_leads_out(self, agent, tmp_path, path):
        await agent.call("execute_command", command="ln -s /etc link; ln -s /etc/passwd file-link")
        (tmp_path / "sandboxes" / "outside").write_text("secret")
        for operation, arguments in [
            ("read_file", {}),
            ("create_file", {"content": "x"}),
            ("edit_file", {"old_text": "root", "new_text": "x"}),
            ("grep", {"pattern": "root"}),
        ]:
            text = await agent.refused(operation, path=path, **arguments)
            assert "secret" not in text
            assert "root:" not in text

    async def test_a_link_within_the_tree_is_followed(self, agent):
        await agent.call("execute_command", command="ln -s src/app.py app")
        assert (await agent.call("read_file", path="app")).startswith("1\tone = 1")

    def test_a_link_that_is_put_there_meanwhile_is_not_followed(self, tmp_path, monkeypatch):
        from infinity_agents.toolsets.sandbox import files

        tree = tmp_path / "tree"
        (tree / "inner").mkdir(parents=True)
        (tree / "inner" / "file").write_text("mine")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "file").write_text("not mine")

        def and_then(tree, path):
            found = resolved(tree, path)
            (tree / "inner").rename(tree / "moved")
            (tree / "inner").symlink_to(tmp_path / "other")
            return found

        monkeypatch.setattr(files, "resolved", and_then)
        with pytest.raises(ValueError, match="no file"):
            files.read(tree, "inner/file")

    @pytest.mark.parametrize("thread", ["../../other", "/etc", "a/b\0c", "x" * 128])
    async def test_a_thread_id_is_no_path(self, agent, origin, tmp_path, thread):
        await agent.call("clone_repo", thread=thread, url=str(origin))
        made = tree_of(tmp_path, thread, thread)
        assert made.is_relative_to(tmp_path / "sandboxes")

    @pytest.mark.parametrize(
        "url",
        [
            "ext::sh -c touch% /tmp/owned",
            "--upload-pack=touch /tmp/owned",
            "file:///etc",
            "/etc",
            "git://example.com/x",
            "http://example.com/x",
            "https://user:password@example.com/x",
            "",
        ],
    )
    async def test_what_may_not_be_cloned(self, agent, url):
        assert await agent.refused("clone_repo", url=url)

    @pytest.mark.parametrize("revision", ["--exec=x", "a..b", "", "HEAD\nx", "nowhere", "@{-1}"])
    async def test_a_revision_is_no_option(self, agent, origin, revision):
        assert await agent.refused("clone_repo", url=str(origin), revision=revision)

    async def test_what_a_command_does_to_git_does_not_reach_the_server(self, agent, tmp_path):
        """A configuration that git would run programs from, in every place where a command can put one."""
        owned = tmp_path / "owned"
        await agent.call(
            "execute_command",
            command=f"""
            mkdir evil && cd evil && git init -q . && git config core.fsmonitor 'touch {owned}' && cd ..
            rm -rf .git; mv evil/.git .git; printf '* filter=x diff=x\\n' > .gitattributes
            git config filter.x.clean 'touch {owned}'; git config diff.x.textconv 'touch {owned}'
            printf '[core]\\nfsmonitor = touch {owned}\\n' > "$HOME/.gitconfig"; echo x > new
            """,
        )
        assert "new" in await agent.call("describe_changes")
        await agent.call("grep", pattern="x")
        assert not owned.exists()

    async def test_a_command_that_deletes_git_harms_its_own_copy_alone(self, agent):
        await agent.call("execute_command", command="rm -rf .git; echo new > new")
        await agent.call("clone_repo", thread="child", ancestors=["root"], on_top_of="root")
        assert "new" in await agent.call("describe_changes")
        assert "1\tnew" in await agent.call("read_file", "child", ["root"], path="new")

    async def test_a_repository_within_is_files_like_any_other(self, agent):
        told = await agent.call(
            "execute_command",
            command="git init -q sub; mkdir -p sub/d; echo x > sub/d/a; echo 'out/' > sub/.gitignore; mkdir sub/out;"
            " echo no > sub/out/b; git init -q two; cd two; git config user.email a@b; git config user.name a;"
            " echo 1 > one; git add one; git commit -qm one; echo 2 > precious; echo WORKED",
        )
        assert told == "Exit code 0:\nWORKED\n"
        changes = await agent.call("describe_changes")
        assert all(name in changes for name in ("sub/d/a", "sub/.gitignore", "two/one", "two/precious"))
        assert "sub/out" not in changes
        assert "Subproject" not in changes
        await agent.call("clone_repo", thread="child", ancestors=["root"], on_top_of="root")
        assert await agent.call("read_file", "child", ["root"], path="two/precious") == "1\t2"
        await agent.call("create_file", path="sub/d/new", content="later")
        assert "sub/d/new" in await agent.call("describe_changes")

    async def test_what_is_git_s_in_any_spelling(self, agent):
        assert "git's own" in await agent.refused("create_file", path="src/.GIT/x", content="x")

    async def test_a_command_of_any_length(self, agent):
        assert "100000 bytes" in await agent.refused("execute_command", command="#" + "é" * 99_000)
        assert "NUL" in await agent.refused("execute_command", command="echo \0")

    async def test_what_a_command_does_to_jj_does_not_reach_the_server(self, agent, tmp_path):
        """A workspace of another store, whose settings run programs, in place of ours; and none at all."""
        if agent.vcs != "jj":
            pytest.skip("without jj, .jj is a directory like any other")
        owned = tmp_path / "owned"
        await agent.call(
            "execute_command",
            command=f"""
            jj git init --no-colocate --config user.name=x evil; rm -rf .jj; mv evil/.jj .jj; echo x > new
            printf 'fsmonitor.backend="watchman"\n[signing]\nbehavior="force"\nbackend="ssh"\n' > .jj/repo/config.toml
            printf '[signing.backends.ssh]\nprogram="touch {owned}"\n' >> .jj/repo/config.toml
            """,
        )
        assert (tree_of(tmp_path) / ".jj" / "repo").is_file()
        assert "new" in await agent.call("describe_changes")
        await agent.call("execute_command", command="rm -rf .jj README.md; echo y > other")
        changes = await agent.call("describe_changes")
        assert all(name in changes for name in ("new", "other", "README.md"))
        await agent.call("clone_repo", thread="child", ancestors=["root"], on_top_of="root")
        assert "1\ty" in await agent.call("read_file", "child", ["root"], path="other")
        assert not owned.exists()

    async def test_commands_read_jj_and_cannot_write_it(self, agent_on, origin, tmp_path):
        if not can_confine():
            pytest.skip("there is no bubblewrap here, or no user namespaces")
        agent = await agent_on(confinement())
        if agent.vcs != "jj":
            pytest.skip("without jj, .jj is a directory like any other")
        await agent.call("clone_repo", url=str(origin))
        told = await agent.call(
            "execute_command", command="jj log --ignore-working-copy --no-graph -r @- -T description"
        )
        assert told == "Exit code 0:\nfirst\n"
        told = await agent.call(
            "execute_command",
            command="jj new; git clean -fdxq; rm -rf .jj; mv .jj x; echo evil > .jj/repo; echo x > new; git status -s",
        )
        assert told.count("Read-only file system") >= 2
        assert told.endswith("?? new\n")
        assert "new" in await agent.call("describe_changes")
        assert _is_whole(tree_of(tmp_path))

    async def test_words_that_a_store_gives_another_meaning_go_no_further(self, agent, tmp_path):
        if agent.vcs != "jj":
            pytest.skip("git has no templates of a repository's own")
        [store] = (tmp_path / "sandboxes").glob("*/*.git/jj/.jj/repo")
        (store / "config.toml").write_text("[template-aliases]\ncommit_id = '\"--output=owned\"'\n")
        assert "'--output=owned' for a commit" in await agent.refused("describe_changes")

    async def test_another_conversation_has_no_part_in_it(self, agent):
        text = await agent.refused("clone_repo", thread="stranger", on_top_of="root")
        assert "has no sandbox" in text


def _is_whole(tree):
    return (tree / ".jj" / "working_copy" / "checkout").is_file() and "evil" not in (tree / ".jj" / "repo").read_text()


class TestCommands:
    async def test_output_and_exit_code(self, agent_on, origin, confined):
        agent = await agent_on(confined)
        await agent.call("clone_repo", url=str(origin))
        assert await agent.call("execute_command", command="cat README.md; echo oh >&2; exit 3") == (
            "Exit code 3:\n# Origin\noh\n"
        )
        assert "README.md" in await agent.call("execute_command", command="git log --stat; git status --short")
        assert await agent.call("execute_command", command="echo x > made.txt") == "Exit code 0, and no output"
        assert await agent.call("read_file", path="made.txt") == "1\tx"

    async def test_a_command_that_was_ended_from_outside_is_no_success(self, agent_on, origin):
        agent = await agent_on(Unconfined())
        await agent.call("clone_repo", url=str(origin))
        told = await agent.call("execute_command", command="kill -TERM $PPID; sleep 60")
        assert told.startswith("Exit code 143")

    async def test_no_credential_is_inherited(self, agent_on, origin, confined, monkeypatch):
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-credential")
        monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")
        monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
        agent = await agent_on(confined)
        await agent.call("clone_repo", url=str(origin))
        told = await agent.call("execute_command", command="env")
        assert "HOME=" in told
        assert "AWS" not in told
        assert "LD_LIBRARY_PATH" not in told
        assert "a-credential" not in told

    async def test_bubblewrap_hides_the_rest_of_the_machine(self, agent_on, origin, tmp_path):
        if not can_confine():
            pytest.skip("there is no bubblewrap here, or no user namespaces")
        agent = await agent_on(confinement())
        await agent.call("clone_repo", url=str(origin))
        secret = tmp_path / "secret"
        secret.write_text("a secret")
        told = await agent.call(
            "execute_command",
            command=f"cat {secret} /etc/shadow; ls /home /root; echo x > {secret}; ps ax | wc -l;"
            " echo x > .git; echo x >> $(git rev-parse --git-common-dir)/config; ls /proc | grep -c '^[0-9]'",
        )
        assert "a secret" not in told
        assert secret.read_text() == "a secret"
        assert told.count("Read-only file system") == 2
        assert await agent.call("describe_changes") == "Nothing was changed."

    @pytest.mark.parametrize("way", ["end", "cancel", "timeout"])
    async def test_no_process_is_left(self, agent_on, origin, confined, tmp_path, way):
        """Of a group, of another session, and of a double fork that has shed its environment too."""
        agent = await agent_on(confined, patience=60 if way == "end" else 0.2)
        await agent.call("clone_repo", url=str(origin))
        seconds = [f"{1000 + number}.{os.getpid()}" for number in range(4)]
        command = (
            f"sleep {seconds[0]} & setsid sleep {seconds[1]} & sleep {seconds[2]} > /dev/null 2>&1 &"
            f" env -i setsid sh -c '(setsid sleep {seconds[3]} > /dev/null 2>&1 &) &'; sleep 0.2; touch begun;"
        )
        command += "exit 3" if way == "end" else f"sleep {seconds[0]}"
        call = await agent.start("execute_command", command=command, timeout_minutes=0.02 if way == "timeout" else 60)
        told = await agent.answer(call)
        if way == "end":
            assert told["text"] == "Exit code 3, and no output"
        else:
            assert "still running" in told["text"]
        while not (tree_of(tmp_path) / "begun").exists():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
        if way == "cancel":
            assert any(seconds[3] in running for running in _command_lines())
            await agent.cancel(call)
        elif way == "timeout":
            told = await agent.answer(call, "subscription_event")
            assert (told["final"], "were allowed" in told["text"]) == (True, True)
        await asyncio.wait_for(_none_left(*seconds), 10)

    async def test_a_server_that_is_killed_leaves_no_process(self, tmp_path, confined):
        seconds = f"2000.{os.getpid()}"
        (tmp_path / "repository").mkdir()
        program = f"""
import asyncio
from pathlib import Path
from infinity_agents.toolsets.sandbox.commands import running
from infinity_agents.toolsets.sandbox.confinement import *

async def main():
    here = Path({str(tmp_path)!r})
    text = "env -i setsid sh -c '(sleep {seconds} &) &'; echo begun; sleep {seconds}"
    command = Command(text, here, here, here / "repository", ())
    async with running(command, {"Unconfined()" if isinstance(confined, Unconfined) else "confinement()"}) as started:
        while not started.output:
            await asyncio.sleep(0.01)
        print("begun", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": "src"}
        )
        assert await process.stdout.readline() == b"begun\n"
        process.kill()
        await process.wait()
        await asyncio.wait_for(_none_left(seconds), 10)

    async def test_how_a_command_ended_is_told(self, agent_on, origin, confined):
        agent = await agent_on(confined)
        await agent.call("clone_repo", url=str(origin))
        told = await agent.call("execute_command", command="kill -SEGV $$")
        assert told.startswith("Ended by signal 11" if isinstance(confined, Unconfined) else "Exit code 139")
        told = await agent.call("execute_command", command="trap 'kill 0' EXIT; yes | head -1; sleep 1000 & true")
        assert told in {"Ended by signal 15:\ny\n", "Exit code 143:\ny\n"}

    async def test_a_long_command_speaks_as_it_goes(self, agent_on, origin, monkeypatch):
        monkeypatch.setattr("infinity_agents.toolsets.sandbox.server.FIRST_PAUSE", 0.2)
        agent = await agent_on(patience=0.2)
        await agent.call("clone_repo", url=str(origin))
        call = await agent.start(
            "execute_command", command="echo one; sleep 0.3; echo two; sleep 0.5; echo three; exit 4"
        )
        told = await agent.answer(call)
        assert (told["subscription"], "one" in told["text"]) == (True, True)
        events = []
        while not (events and events[-1]["final"]):
            await asyncio.sleep(0.02)
            events = [
                request.json for request in agent.receiver.requests if request.json["type"] == "subscription_event"
            ]
        assert all(event["associative"] for event in events)
        assert "two" in events[0]["text"]
        assert events[-1]["text"].startswith("Exit code 4")

    async def test_a_flood_is_cut_in_the_middle(self, agent):
        told = await agent.call("execute_command", command="echo first; yes | head -c 3000000; echo last")
        assert len(told) < 40_000
        assert "first" in told
        assert "last" in told
        assert "bytes left out" in told

    def test_without_bubblewrap_it_is_refused(self, tmp_path):
        with pytest.raises(Misconfigured, match="apt install bubblewrap"):
            confinement(environ={"PATH": str(tmp_path)})
        assert isinstance(confinement(unconfined=True, environ={}), Unconfined)


async def _none_left(*command_lines):
    while any(line in running for line in command_lines for running in _command_lines()):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.02)


def _command_lines():
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield (entry / "cmdline").read_text()
            except OSError:
                continue


class TestChildren:
    async def children(self, agent):
        for child in ("left", "right"):
            await agent.call("clone_repo", thread=child, ancestors=["root"], on_top_of="root")

    async def test_two_children_at_once_and_the_parent_gets_both(self, agent):
        await agent.call("create_file", path="mine.txt", content="not committed\n")
        await self.children(agent)
        await asyncio.gather(
            agent.call("edit_file", "left", ["root"], path="src/app.py", old_text="one = 1", new_text="one = 11"),
            agent.call("create_file", "right", ["root"], path="docs/new.md", content="new\n"),
        )
        assert (await agent.call("read_file", "left", ["root"], path="mine.txt")) == "1\tnot committed"
        await agent.call("edit_file", path="src/app.py", old_text="three = 3", new_text="three = 33")
        touched = await asyncio.gather(
            agent.call("squash_sandbox", child_thread_id="left"), agent.call("squash_sandbox", child_thread_id="right")
        )
        assert "src/app.py" in touched[0]
        assert "docs/new.md" in touched[1]
        assert await agent.call("read_file", path="src/app.py") == "1\tone = 11\n2\ttwo = 2\n3\tthree = 33"
        assert await agent.call("read_file", path="docs/new.md") == "1\tnew"

    async def test_more_children_at_once_than_there_are_threads(self, agent):
        # As many as the default executor has, and some more.
        children = [f"child-{number}" for number in range(min(32, (os.cpu_count() or 1) + 4) + 4)]
        clones = (agent.call("clone_repo", thread=child, ancestors=["root"], on_top_of="root") for child in children)
        assert len(await asyncio.gather(*clones)) == len(children)

    async def test_a_conflict_is_told_and_nothing_is_lost(self, agent):
        await self.children(agent)
        await agent.call("edit_file", "left", ["root"], path="src/app.py", old_text="two = 2", new_text="two = 'left'")
        await agent.call(
            "edit_file", "right", ["root"], path="src/app.py", old_text="two = 2", new_text="two = 'right'"
        )
        await agent.call("squash_sandbox", child_thread_id="left")
        text = await agent.refused("squash_sandbox", child_thread_id="right")
        assert "Conflict" in text
        assert "src/app.py" in text
        assert "two = 'left'" in await agent.call("read_file", path="src/app.py")
        assert "two = 'right'" in await agent.call("read_file", "right", ["root"], path="src/app.py")

    async def test_squashing_again_brings_what_is_new(self, agent):
        await self.children(agent)
        await agent.call("create_file", "left", ["root"], path="a.txt", content="a\n")
        await agent.call("squash_sandbox", child_thread_id="left")
        await agent.call("create_file", "left", ["root"], path="b.txt", content="b\n")
        touched = await agent.call("squash_sandbox", child_thread_id="left")
        assert "b.txt" in touched
        assert "a.txt" not in touched

    async def test_a_large_file_of_a_child_is_taken_over(self, agent, tmp_path):
        await self.children(agent)
        await agent.call("execute_command", "left", ["root"], command="head -c 3000000 /dev/zero > large")
        assert "large" in await agent.call("squash_sandbox", child_thread_id="left")
        assert (tree_of(tmp_path) / "large").stat().st_size == 3_000_000

    async def test_a_file_that_the_parent_ignores_is_in_the_way(self, agent, tmp_path):
        await self.children(agent)
        await agent.call("create_file", path="build/x", content="the parent's")
        await agent.call(
            "execute_command", "left", ["root"], command="echo > .gitignore; mkdir build; echo child > build/x"
        )
        assert "build/x" in await agent.refused("squash_sandbox", child_thread_id="left")
        assert (tree_of(tmp_path) / "build" / "x").read_text() == "the parent's"
        assert await agent.call("describe_changes") == "Nothing was changed."

    async def test_what_a_command_writes_while_it_is_joined_stays(self, agent):
        await self.children(agent)
        await agent.call("create_file", "left", ["root"], path="a.txt", content="a\n")
        call = await agent.start(
            "execute_command", command="for n in $(seq 300); do echo $n > late; sleep 0.01; done; echo end > late"
        )
        assert "a.txt" in await agent.call("squash_sandbox", child_thread_id="left")
        await agent.answer(call)
        assert await agent.call("read_file", path="late") == "1\tend"
        assert "a.txt" in await agent.call("describe_changes")

    async def test_a_file_that_is_renamed_and_changed(self, agent, tmp_path):
        """Git joins the two. jj knows no renames, and says that it cannot."""
        await self.children(agent)
        await agent.call("execute_command", "left", ["root"], command="mv src/app.py src/main.py")
        await agent.call("edit_file", path="src/app.py", old_text="three = 3", new_text="three = 33")
        if agent.vcs == "git":
            assert "main.py" in await agent.call("squash_sandbox", child_thread_id="left")
            assert "three = 33" in (tree_of(tmp_path) / "src" / "main.py").read_text()
        else:
            assert "Conflict: both sides changed src/app.py" in await agent.refused(
                "squash_sandbox", child_thread_id="left"
            )
            assert "three = 33" in (tree_of(tmp_path) / "src" / "app.py").read_text()

    async def test_a_branch_that_is_gone_takes_no_sandbox_with_it(self, agent, origin):
        git(origin, "checkout", "-qb", "short")
        (origin / "short.txt").write_text("short\n")
        git(origin, "add", ".")
        git(origin, "commit", "-qm", "second")
        await agent.call("clone_repo", thread="child", ancestors=["root"], url=str(origin), revision="short")
        await agent.call("create_file", "child", ["root"], path="mine.txt", content="mine\n")
        git(origin, "checkout", "-q", "main")
        git(origin, "branch", "-qD", "short")
        await agent.call("clone_repo", url=str(origin))
        assert await agent.call("read_file", "child", ["root"], path="short.txt") == "1\tshort"
        changes = await agent.call("describe_changes", "child", ["root"])
        assert "mine.txt" in changes
        assert "short.txt" not in changes

    async def test_what_no_branch_has_is_cloned(self, agent, origin):
        git(origin, "checkout", "-q", "--detach")
        (origin / "later.txt").write_text("later\n")
        git(origin, "add", ".")
        git(origin, "commit", "-qm", "second")
        assert "later.txt" in await agent.call("clone_repo", url=str(origin))
        assert await agent.call("execute_command", command="git status --short") == "Exit code 0, and no output"

    async def test_only_a_child_of_ones_own(self, agent, origin):
        await agent.call("clone_repo", thread="other", ancestors=["root"], url=str(origin))
        assert "was not made on top of this one" in await agent.refused("squash_sandbox", child_thread_id="other")
        assert "has no sandbox" in await agent.refused("squash_sandbox", child_thread_id="nobody")

    async def test_a_fresh_clone_takes_the_place_of_the_old(self, agent, origin):
        await agent.call("create_file", path="a.txt", content="a\n")
        (origin / "later.txt").write_text("later\n")
        git(origin, "add", ".")
        git(origin, "commit", "-qm", "second")
        assert "later.txt" in await agent.call("clone_repo", url=str(origin))
        assert await agent.call("describe_changes") == "Nothing was changed."


class TestVersionControl:
    def test_what_keeps_no_versions_is_refused(self, tmp_path, monkeypatch):
        with pytest.raises(Misconfigured, match="'svn' keeps no versions of sandboxes; say git or jj"):
            Sandboxes(tmp_path, vcs="svn")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(Misconfigured, match="there is no jj on PATH; install it, or leave it at git"):
            Sandboxes(tmp_path, vcs="jj")

    async def test_a_sandbox_is_kept_as_it_was_made(self, tmp_path, origin):
        if shutil.which("jj") is None:
            pytest.skip("there is no jj on PATH")
        for first, then in (("git", "jj"), ("jj", "git")):
            root = tmp_path / first
            made = await Sandboxes(root, allowed=[origin], vcs=first).clone(str(origin), "HEAD", "root", "root")
            (made.tree / "new").write_text("x")
            sandboxes = Sandboxes(root, allowed=[origin], vcs=then)
            child = await sandboxes.clone_on_top("root", "child", "root")
            assert (child.vcs, (child.tree / "new").read_text()) == (first, "x")
            (child.tree / "newer").write_text("x")
            assert "newer" in await sandboxes.squash("child", "root", "root")
            fresh = await sandboxes.clone(str(origin), "HEAD", "root", "root")
            assert (fresh.vcs, (fresh.tree / "new").exists()) == (then, False)


async def test_what_is_old_goes(agent, origin, tmp_path):
    old, somebodys = tmp_path / "sandboxes" / ("0" * 32), tmp_path / "sandboxes" / "a project of my own"
    for directory in (old, somebodys):
        directory.mkdir()
        os.utime(directory, (0, 0))
    await agent.call("clone_repo", thread="another", url=str(origin))
    assert (old.exists(), somebodys.exists()) == (False, True)
    assert tree_of(tmp_path).exists()
    assert workspaces.KEPT_DAYS == 30


def test_output_is_bounded():
    output = commands.Output()
    for _ in range(1_000):
        output.add(b"x" * 1_000)
    text = output.take()
    assert len(text) < 26_000
    assert "976000 bytes left out" in text
    assert not output
    assert output.take() == ""


STRINGS = {
    "create_file": ("path", "content"),
    "read_file": ("path",),
    "edit_file": ("path", "old_text", "new_text"),
    "grep": ("pattern", "path"),
    "describe_changes": ("path",),
    "clone_repo": ("url", "revision", "on_top_of"),
    "squash_sandbox": ("child_thread_id",),
    "execute_command": ("command",),
}
"""Every argument that is a string, by its tool."""
GOOD = {
    "path": "src/app.py",
    "content": "x",
    "old_text": "two",
    "new_text": "two",
    "pattern": "two",
    "child_thread_id": "nobody",
    "command": "true",
}
PIECES = [
    *(
        "\0",
        "\n",
        "\r",
        "\ud800",
        "\udc80",
        "é",
        "\u202e",
        "../",
        "/",
        "//",
        "./",
        "~",
        "-",
        "--output=owned",
        "*",
        "(",
    ),
    *("[", "\\", "'", '"', "$(touch owned)", ";", "%", ":(top)", ":!", "@{0}", "..", ".git/config", ".jj", "src", " "),
    *("app.py", "/proc/self/", "link/", "n" * 256, "d/" * 3_000, "x" * 140_000),
]
KNOWN = r"Invalid arguments|ValueError|OutsideSandbox|VersionControlFailed|NoSandbox"
RAW = re.compile(rf"Errno|Traceback|embedded null|codec can|^(?!{KNOWN})")


@pytest.mark.slow
@pytest.mark.parametrize("operation", STRINGS)
async def test_no_string_is_too_nasty(agent, tmp_path, origin, operation):
    """What is refused is told in words that name the value, and nothing outside the sandbox changes."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "app.py").write_text("two")
    tree = tree_of(tmp_path)
    (tree / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(tree / "fifo")
    chance = random.Random(operation)
    nasty = ["", ".", "src", "src/app.py/x", "fifo", "link", *PIECES]
    nasty += ["".join(chance.choices(PIECES[:-3], k=chance.randint(2, 4))) for _ in range(12)]
    for wrong in STRINGS[operation]:
        for text in nasty:
            arguments = {name: GOOD[name] for name in STRINGS[operation] if name in GOOD} | {wrong: text}
            if wrong == "revision":
                arguments["url"] = str(origin)
            told = await asyncio.wait_for(agent.answer(await agent.start(operation, **arguments)), 60)
            assert not (told["is_error"] and RAW.search(told["text"])), (arguments, told["text"][:500])
    assert not {"owned"} & {path.name for path in tmp_path.iterdir()}
    assert [path.read_text() for path in (tmp_path / "outside").iterdir()] == ["two"]
