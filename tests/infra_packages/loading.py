"""Run with a package alone on the path: builds what the function's first invocation does, and tells what that took.

``python -I -S loading.py PACKAGE RUNTIME FUNCTION``; RUNTIME holds what Lambda's runtime brings, or is ``-``.
"""

import asyncio
import importlib
import json
import sys

package, runtime, function = sys.argv[1:]
sys.path.insert(0, package)
if runtime != "-":
    sys.path.append(runtime)

if __name__ == "__main__":
    module = importlib.import_module(f"infinity_agents.aws.{function}")
    if not callable(module.handler):
        raise TypeError(f"{module.handler!r} is no handler")
    if hasattr(module, "sandbox"):
        asyncio.run(module.sandbox._build())
    origins = {name: getattr(loaded, "__file__", None) or "" for name, loaded in sys.modules.items()}
    sys.stdout.write(json.dumps(origins))
