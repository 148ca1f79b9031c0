"""Run on the arm64 machine with a package alone on the path: does what the function's sandbox does first.

``python -I -S inside.py PACKAGE RUNTIME HANDLER EVENT``: RUNTIME holds what Lambda's runtime brings, or is ``-``;
EVENT is JSON, or ``-`` where the first event would need a service. Tells as JSON what came of it.
"""

import asyncio
import importlib
import importlib.machinery
import json
import platform
import sys
from pathlib import Path

package, runtime, handler, event = sys.argv[1:]
sys.path.insert(0, package)
if runtime != "-":
    sys.path.append(runtime)


class Context:
    """What Lambda passes besides the event."""

    aws_request_id = "id"

    def get_remaining_time_in_millis(self) -> int:
        return 300_000


def main() -> None:
    module_name, _, name = handler.rpartition(".")
    module = importlib.import_module(module_name)
    function = getattr(module, name)
    if hasattr(module, "sandbox"):
        asyncio.run(module.sandbox._build())
    answer = None if event == "-" else function(json.loads(event), Context())
    told = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "extensions": extensions(),
        "compiled": Path(module.__spec__.cached).exists(),
        "answer": answer,
    }
    sys.stdout.write(json.dumps(told) + "\n")


def extensions() -> int:
    """Load every extension module of the package; return how many there are."""
    count = 0
    for path in sorted(Path(package).rglob("*.so")):
        ending = next((each for each in importlib.machinery.EXTENSION_SUFFIXES if path.name.endswith(each)), None)
        if ending is None or path.parent.name.endswith(".libs"):
            continue  # loaded by what needs it
        parts = path.relative_to(package).with_name(path.name.removesuffix(ending)).parts
        importlib.import_module(".".join(parts))
        count += 1
    return count


if __name__ == "__main__":
    main()
