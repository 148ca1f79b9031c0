"""``python -m tests.arm64``: the packages of the functions, run on an emulated arm64 machine with their own Python."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from infinity_cdk.packages import CannotPackage
from tests.arm64.machine import NoMachine, machine
from tests.arm64.proving import FUNCTIONS, NEWEST_GLIBC, proved

PLACE = Path(".cache/arm64").absolute()


def main() -> int:
    """Prove each function; return 1 where one does not run."""
    parser = argparse.ArgumentParser(prog="make arm64 ARGS=...", description=__doc__)
    parser.add_argument("functions", nargs="*", default=FUNCTIONS, help="only these")
    parser.add_argument("--json", action="store_true", help="report as JSON on standard output")
    said = parser.parse_args()
    unknown = set(said.functions) - set(FUNCTIONS)
    if unknown:
        parser.error(f"there is no function {min(unknown)!r}; there are {', '.join(FUNCTIONS)}")
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", file=sys.stderr, flush=True)

    try:
        arm64 = machine(PLACE, say)
        with tempfile.TemporaryDirectory() as place:
            proofs = [proved(arm64, function, Path(place), say) for function in said.functions]
    except (NoMachine, CannotPackage) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if said.json:
        print(json.dumps([proof.to_json() for proof in proofs], indent=1))
    else:
        print(f"{'function':<18} {'Python':<8} {'extensions':>10}  {'glibc':<6} first event")
        for proof in proofs:
            print(proof.line())
        bad = [proof.function for proof in proofs if proof.faults]
        wrong = f"wrong: {', '.join(bad)}" if bad else f"all of them run, and none needs a glibc over {NEWEST_GLIBC}"
        print(f"{len(proofs)} packages on aarch64: {wrong}")
    return 1 if any(proof.faults for proof in proofs) else 0


if __name__ == "__main__":
    sys.exit(main())
