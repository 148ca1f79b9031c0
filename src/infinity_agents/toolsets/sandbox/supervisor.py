"""Runs a program; when it is over, or this is told to end, nothing that it started is left.

It is a script of Linux: ``python supervisor.py PARENT PROGRAM ARGUMENT...``. It ends as the program did. SIGTERM ends
the program, and so does the death of the process PARENT.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

_SET_PDEATHSIG, _SET_DUMPABLE, _SET_CHILD_SUBREAPER = 1, 4, 36
_PAUSE = 0.005


def main(parent: int, *argv: str) -> None:
    """Run ``argv`` for the process ``parent``."""
    prctl = ctypes.CDLL(None).prctl
    # Whatever loses its parent becomes a child of this process, in whatever session or environment it is.
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    waited = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return
    os.environ.pop("LD_LIBRARY_PATH", None)  # it was for the Python that runs this
    # In a session of its own: a script that signals its group means itself.
    python_ignores = [signal.SIGPIPE, signal.SIGXFSZ]
    program = os.posix_spawnp(argv[0], argv, os.environ, setsid=True, setsigmask=[], setsigdef=python_ignores)
    status = None
    while status is None and signal.sigwait(waited) == signal.SIGCHLD:
        status = _reaped().get(program)
    _end_all()
    if status is None:
        sys.exit(128 + signal.SIGTERM)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        sys.exit(code)
    prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # no core for the second time
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, waited)
    os.kill(os.getpid(), -code)


def _reaped() -> dict[int, int]:
    """Return the children that are over, with the status of each.

    Raises:
        ChildProcessError: there is no child at all.
    """
    over: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            if not over:
                raise
            return over
        if not pid:
            return over
        over[pid] = status


def _end_all() -> None:
    """End the descendants; those that belong to another user cannot be ended."""
    while True:
        ended = refused = False
        for pid in _descendants():
            try:
                os.kill(pid, signal.SIGKILL)
                ended = True
            except ProcessLookupError:
                ended = True
            except PermissionError:
                refused = True
        try:
            _reaped()
        except ChildProcessError:
            return
        if refused and not ended:
            return
        time.sleep(_PAUSE)


def _descendants() -> list[int]:
    """Return the living processes below this one."""
    children: dict[int, list[tuple[int, bool]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            children.setdefault(int(parent), []).append((int(entry.name), state not in {b"Z", b"X"}))
    found, at = [(os.getpid(), False)], 0
    while at < len(found):
        found += children.get(found[at][0], [])
        at += 1
    return [pid for pid, lives in found if lives]


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
