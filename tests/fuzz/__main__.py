"""``python -m tests.fuzz``: hostile input at everything that reads bytes from outside, for as long as is said."""

import argparse
import asyncio
import logging
import secrets
import sys
from pathlib import Path

from tests.fuzz.running import Run, as_json, kept_input, shortened
from tests.fuzz.targets import TARGETS

KEPT = Path(".cache/fuzz")


def main() -> int:
    """Run; return 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="make fuzz ARGS=...", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, help="what decides the inputs; another one each time, where it is not said")
    parser.add_argument("--target", action="append", help="only this one; may be said several times; --list names them")
    parser.add_argument("--case", type=int, help="only the case of this number, as a report told it")
    parser.add_argument("--input", type=Path, help="only the input in this file, as it was kept")
    parser.add_argument("--keep", type=Path, default=KEPT, help=f"where failing inputs are kept ({KEPT})")
    parser.add_argument("--json", action="store_true", help="report as JSON on standard output")
    parser.add_argument("--list", action="store_true", help="list the targets")
    said = parser.parse_args()
    names = [target.name for target in TARGETS]
    unknown = set(said.target or ()) - set(names)
    if said.list or unknown:
        print(*names, sep="\n")
        return 2 if unknown else 0
    logging.disable(logging.CRITICAL)
    targets = [target for target in TARGETS if not said.target or target.name in said.target]
    run = Run(targets, secrets.randbelow(2**32) if said.seed is None else said.seed, said.keep)
    print(f"seed {run.seed}, {len(targets)} targets", file=sys.stderr)
    if said.input is not None:
        asyncio.run(run.with_input(kept_input(said.input)))
    elif said.case is not None:
        asyncio.run(run.for_cases(1, first=said.case))
    else:
        asyncio.run(run.for_seconds(said.seconds, _tell))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if said.json:
        print(as_json(run.report()))
    else:
        _print(run)
    return 1 if run.faults else 0


def _tell(line: str) -> None:
    print(f"{line:<70}", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)


def _print(run: Run) -> None:
    for fault in run.faults.values():
        told = f"{fault.error} at {fault.place}, {fault.count} times"
        print(f"\n{fault.target}: {told}, in case {fault.number}")
        print(f"  again: make fuzz ARGS='--seed {run.seed} --target {fault.target} --case {fault.number}'")
        print(f"  input: {shortened(fault.made)}")
        print("  " + "\n  ".join(fault.told.strip().splitlines()[-3:]))
    if run.faults and run.keep is not None:
        print(f"\nthe inputs are kept in {run.keep}")
    print(f"\nseed {run.seed}: {sum(run.cases.values())} cases of {len(run.targets)} targets, {len(run.faults)} faults")


if __name__ == "__main__":
    sys.exit(main())
