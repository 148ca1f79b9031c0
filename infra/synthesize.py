"""Synthesizes examples as ``cdk synth`` does, and tells what is in them: ``python infra/synthesize.py DIRECTORY...``.

Needs no credentials and no Docker.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path


def main() -> int:
    """Synthesize each directory that has a ``cdk.json``; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(description="Synthesize examples, and print the size of each Lambda package.")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIRECTORY", help="where a cdk.json is")
    began = time.monotonic()
    failed = []
    for directory in parser.parse_args().directories:
        started = time.monotonic()
        output = directory.resolve() / "cdk.out"
        if synthesized(directory, output) != 0:
            failed.append(directory)
            continue
        for line in told(output):
            _say(f"  {line}")
        _say(f"{directory}: synthesized into {output} in {time.monotonic() - started:.0f} s")
    _say(
        f"{'failed: ' + ', '.join(map(str, failed)) if failed else 'all synthesized'}, {time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


def synthesized(directory: Path, output: Path) -> int:
    """Run the app that ``cdk.json`` names, without credentials; return its exit code."""
    described = json.loads((directory / "cdk.json").read_text())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {
        "CDK_OUTDIR": str(output),
        "CDK_CONTEXT_JSON": json.dumps(described.get("context", {})),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    return subprocess.run(  # noqa: S602 - the command in the example's own cdk.json, as the CDK's command line runs it
        described["app"], shell=True, cwd=directory, env=environment, check=False
    ).returncode


def told(assembly: Path) -> Iterator[str]:
    """Tell of each stack how many resources it has, and of each of its packages how large it is."""
    for path in sorted(assembly.glob("*.template.json")):
        resources = json.loads(path.read_text())["Resources"]
        yield f"{path.name.removesuffix('.template.json')}: {len(resources)} resources"
        packages: dict[str, list[str]] = {}
        for name, resource in resources.items():
            key = (
                resource.get("Properties", {}).get("Code", {}).get("S3Key")
                if "::Function" in resource["Type"]
                else None
            )
            if key:
                packages.setdefault(key, []).append(_spoken(name, resource["Properties"].get("Handler", "")))
        for key, functions in sorted(packages.items(), key=lambda item: item[1]):
            zipped, unpacked = sizes(assembly / f"asset.{key.removesuffix('.zip')}")
            yield f"  {zipped:5.1f} MB zipped, {unpacked:5.1f} MB unpacked: {', '.join(functions)}"


def _spoken(name: str, handler: str) -> str:
    parts = handler.split(".")
    return parts[-2] if parts[0] == "infinity_agents" and len(parts) > 2 else name


def sizes(package: Path) -> tuple[float, float]:
    """Return the megabytes of a package, zipped and unpacked."""
    if package.is_file():
        return package.stat().st_size / 1e6, package.stat().st_size / 1e6
    zipped, unpacked = BytesIO(), 0
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            archive.write(path, path.relative_to(package))
            unpacked += path.stat().st_size if path.is_file() else 0
    return zipped.tell() / 1e6, unpacked / 1e6


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
