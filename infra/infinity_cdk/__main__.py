"""Runs a CDK app on a node that is there: ``"app": "python3 -m infinity_cdk app.py"`` in ``cdk.json``."""

import runpy
import sys
from pathlib import Path

_USAGE = 'usage: python3 -m infinity_cdk app.py  (in cdk.json: "app": "python3 -m infinity_cdk app.py")'


def main() -> None:
    """Run the program that the first argument names; this package has chosen the node by now."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        raise SystemExit(_USAGE)
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
