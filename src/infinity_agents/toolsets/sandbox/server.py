"""The tools of the sandbox server."""

import asyncio
import difflib
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ...rap.server import Diff, Image, Result, ToolContext, ToolServer
from .commands import Output, Running, running
from .confinement import Confinement
from .files import OURS, existing, read, resolved, write
from .programs import VersionControlFailed
from .version_control import Conflict, Sandbox
from .workspaces import Sandboxes

PATIENCE = 20.0
"""Seconds for which a command keeps its call; after that it is a subscription, and its thread goes on."""
FIRST_PAUSE = 30.0
"""Seconds between the first two events of a command; each further pause is twice as long, up to ``LONGEST_PAUSE``."""
LONGEST_PAUSE = 600.0
_LONGEST_COMMAND = 100_000
"""In bytes: Linux passes 128 KiB in one argument."""
_MOST_LINES = 2_000
_MOST_TEXT = 200_000
"""Characters of a file, of hits or of a diff that a model is given at once."""


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{text[error.start]!r} at {error.start} is half a character, which nothing here can hold; leave it out"
        ) from None
    return text


_Text = Annotated[str, AfterValidator(_encodable)]
_Path = Annotated[_Text, Field(description="A path below the repository's root, such as src/app.py")]


def sandbox_server(
    sandboxes: Sandboxes, confinement: Confinement, *, bearer_token: str | None = None, patience: float = PATIENCE
) -> ToolServer:
    """Return the server whose tools work on ``sandboxes``, and run commands in ``confinement``."""
    server = ToolServer(
        name="sandbox",
        description="A working copy of a repository for each thread: edit files, run commands, join what children did.",
        bearer_token=bearer_token,
    )
    at_work = _Tools(sandboxes, confinement, patience)
    server.tool(display_script='"Clone " + args.url')(at_work.clone_repo)
    server.tool(destructive=True, long_running=True, display_script='"$ " + args.command')(at_work.execute_command)
    server.tool(read_only=True, display_script='"Read " + args.path')(at_work.read_file)
    server.tool(display_script='"Edit " + args.path')(at_work.edit_file)
    server.tool(display_script='"Create " + args.path')(at_work.create_file)
    server.tool(read_only=True, display_script='"Search for " + args.pattern')(at_work.grep)
    server.tool(read_only=True, display_script='"What changed"')(at_work.describe_changes)
    server.tool(display_script='"Take over the work of " + args.child_thread_id')(at_work.squash_sandbox)
    return server


class _Tools:
    def __init__(self, sandboxes: Sandboxes, confinement: Confinement, patience: float) -> None:
        self._sandboxes = sandboxes
        self._confinement = confinement
        self._patience = patience

    async def clone_repo(
        self, ctx: ToolContext, url: _Text | None = None, revision: _Text = "HEAD", on_top_of: _Text | None = None
    ) -> str:
        """Give this thread a working copy, in place of the one that it may have. Everything else works on it.

        Args:
            url: The https URL of a git repository, for a fresh working copy.
            revision: A branch, a tag or a commit of it.
            on_top_of: In place of a URL: the thread whose working copy, as it is now, is to be copied. A child names
                its parent here, so that the parent can take over its changes with squash_sandbox.
        """
        if (url is None) == (on_top_of is None):
            raise ValueError("give either url or on_top_of")
        if url is not None:
            sandbox = await self._sandboxes.clone(url, revision, ctx.thread_id, _root(ctx))
        else:
            sandbox = await self._sandboxes.clone_on_top(on_top_of or "", ctx.thread_id, _root(ctx))
        names = sorted(path.name + "/" * path.is_dir() for path in sandbox.tree.iterdir() if path.name not in OURS)
        return f"The working copy is at commit {sandbox.start[:12]} and holds: {', '.join(names[:100]) or 'nothing'}"

    async def execute_command(
        self,
        command: Annotated[_Text, Field(min_length=1)],
        ctx: ToolContext,
        timeout_minutes: Annotated[float, Field(gt=0, le=24 * 60)] = 60.0,
    ) -> str:
        """Run a shell command at the repository's root, and return its output and exit code.

        A command that takes longer than some seconds goes on in the background: its output comes as events, with the
        exit code in the last one. Cancelling the call ends it, with every process that it started.

        Args:
            command: What the shell is given. There is no terminal and no input.
            timeout_minutes: After so long it is ended.
        """
        if "\0" in command or len(command.encode()) > _LONGEST_COMMAND:
            raise ValueError(
                f"a command is at most {_LONGEST_COMMAND} bytes without NUL; put more into a file, and run that"
            )
        sandbox = self._sandbox(ctx)
        about = self._sandboxes.command(command, sandbox, _root(ctx))
        async with running(about, self._confinement) as started:
            try:
                async with asyncio.timeout(60 * timeout_minutes):
                    code = await self._code_of(started, ctx)
                told = f"Exit code {code}" if code >= 0 else f"Ended by signal {-code}"
            except TimeoutError:
                await started.kill()
                told = f"Ended after {timeout_minutes:g} minutes, which were allowed"
            text = _with_output(told, started.output)
        await self._show_changes(sandbox, ctx)
        return text

    async def read_file(
        self,
        path: _Path,
        ctx: ToolContext,
        first_line: Annotated[int, Field(ge=1)] = 1,
        last_line: Annotated[int | None, Field(ge=1)] = None,
    ) -> str | Image:
        """Read a text file, each line with its number, or a picture.

        Args:
            path: The file.
            first_line: The first line to return.
            last_line: The last one; at most 2,000 lines are returned at once.
        """
        data = await asyncio.to_thread(read, self._sandbox(ctx).tree, path)
        try:
            picture = Image(data)
        except ValueError:
            return _numbered(_text(data, path), first_line, last_line)
        return picture

    async def edit_file(self, path: _Path, old_text: _Text, new_text: _Text, ctx: ToolContext) -> Result:
        """Replace a piece of a text file. It must stand there exactly so, and once.

        Args:
            path: The file.
            old_text: What is to be replaced, with its white space; take in lines around it until there is only one.
            new_text: What is to stand there instead.
        """
        sandbox = self._sandbox(ctx)
        before = _text(await asyncio.to_thread(read, sandbox.tree, path), path)
        found = before.count(old_text) if old_text else 0
        if found != 1:
            raise ValueError(
                "old_text is empty; to make a new file, use create_file"
                if not old_text
                else f"old_text stands {found} times in {path[:200]!r}, and must stand there once; "
                + ("read the file again" if found == 0 else "take in more of the lines around it")
            )
        after = before.replace(old_text, new_text)
        await asyncio.to_thread(write, sandbox.tree, path, after.encode())
        await self._show_changes(sandbox, ctx)
        return Result(f"{path} is changed.", display=[Diff(path, _patch(path, before, after))])

    async def create_file(self, path: _Path, content: _Text, ctx: ToolContext) -> Result:
        """Write a new text file; the directories above it are made.

        Args:
            path: The file, which must not be there yet.
            content: All that it is to hold.
        """
        sandbox = self._sandbox(ctx)
        try:
            await asyncio.to_thread(write, sandbox.tree, path, content.encode(), new=True)
        except FileExistsError:
            raise ValueError(f"{path[:200]!r} is there already; change it with edit_file") from None
        await self._show_changes(sandbox, ctx)
        return Result(f"{path} is written.", display=[Diff(path, _patch(path, "", content))])

    async def grep(
        self,
        pattern: Annotated[_Text, Field(min_length=1, max_length=2_000)],
        ctx: ToolContext,
        path: _Path = ".",
        ignore_case: bool = False,
    ) -> str:
        """Search the files that git does not ignore for an extended regular expression.

        Args:
            pattern: The expression.
            path: The directory or file to search in.
            ignore_case: Whether capitals match small letters.
        """
        if "\0" in pattern:
            raise ValueError(f"{pattern[:200]!r} holds a NUL, which no line of a text does; leave it out")
        sandbox = self._sandbox(ctx)
        inner = str(existing(sandbox.tree, path).relative_to(sandbox.tree))
        git = self._sandboxes.git(sandbox, _root(ctx))
        options = ["-i"] if ignore_case else []
        hits = await git.run(
            "grep", "-nIE", "--untracked", "--no-color", "--no-textconv", *options, "-e", pattern,
            "--", f":(top,literal){inner}" if inner != "." else ":(top)",
            fine=(0, 1),
        )  # fmt: skip
        return _shortened(hits) or "Nothing was found."

    async def describe_changes(self, ctx: ToolContext, path: _Path | None = None) -> str:
        """Tell what was changed in the working copy since it was made: the files, and the differences.

        Args:
            path: Only of this file or directory.
        """
        sandbox = self._sandbox(ctx)
        inner = str(resolved(sandbox.tree, path).relative_to(sandbox.tree)) if path else None
        changes = await self._sandboxes.changes(sandbox, _root(ctx), path=inner, summary=True)
        return _shortened(changes) or "Nothing was changed."

    async def squash_sandbox(self, child_thread_id: _Text, ctx: ToolContext) -> str:
        """Take what a child thread changed into this thread's working copy. It works after the child was closed too.

        Args:
            child_thread_id: The child, whose sandbox was made on top of this thread's.
        """
        try:
            touched = await self._sandboxes.squash(child_thread_id, ctx.thread_id, _root(ctx))
        except Conflict as conflict:
            raise ValueError(f"Conflict: {conflict}") from None
        await self._show_changes(self._sandbox(ctx), ctx)
        return touched or "The child changed nothing that is not here already."

    # ------------------------------------------------------------------------------------------------------ parts

    def _sandbox(self, ctx: ToolContext) -> Sandbox:
        return self._sandboxes.of(ctx.thread_id, _root(ctx))

    async def _code_of(self, started: Running, ctx: ToolContext) -> int:
        code = await started.over(self._patience)
        if code is not None:
            return code
        await ctx.subscribe(_with_output("It is still running; what it writes comes as events.", started.output))
        pause = FIRST_PAUSE
        while (code := await started.over(pause)) is None:
            if started.output:
                await ctx.tell(_with_output("It is still running, and wrote", started.output))
            pause = min(2 * pause, LONGEST_PAUSE)
        return code

    async def _show_changes(self, sandbox: Sandbox, ctx: ToolContext) -> None:
        try:
            changes = await self._sandboxes.changes(sandbox, _root(ctx))
        except VersionControlFailed as failure:
            # What was asked is done. A model that reads an error would do it again.
            changes = f"The changes cannot be shown: {failure}"
        await ctx.view("diff", {"patch": _shortened(changes)})


def _root(ctx: ToolContext) -> str:
    return ctx.thread_ancestors[0] if ctx.thread_ancestors else ctx.thread_id


def _with_output(told: str, output: Output) -> str:
    written = output.take()
    return f"{told}:\n{written}" if written else f"{told}, and no output"


def _text(data: bytes, path: str) -> str:
    if b"\0" in data[:8_192]:
        raise ValueError(f"{path[:200]!r} holds {len(data)} bytes that are no text; look at it with execute_command")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path[:200]!r} is no UTF-8 ({error.reason} at byte {error.start}); use execute_command"
        ) from None


def _numbered(text: str, first: int, last: int | None) -> str:
    lines = text.splitlines()
    if first > max(1, len(lines)):
        raise ValueError(f"the file has {len(lines)} lines, and none from {first} on")
    end = min(len(lines), last or len(lines), first + _MOST_LINES - 1)
    shown = "\n".join(f"{number}\t{lines[number - 1]}" for number in range(first, end + 1))
    more = f"\n[lines {end + 1} to {len(lines)} follow; read on with first_line={end + 1}]" if end < len(lines) else ""
    return (_shortened(shown) or "The file is empty.") + more


def _shortened(text: str) -> str:
    if len(text) <= _MOST_TEXT:
        return text
    return f"{text[:_MOST_TEXT]}\n[{len(text) - _MOST_TEXT} characters left out; ask for less at once]"


def _patch(path: str, before: str, after: str) -> str:
    lines: Any = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
