"""The built packages: of the right processor, small, whole, and the same bytes each time."""

import ast
import hashlib
import io
import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from botocore.session import get_session

from infinity_agents.mcp.servers import StdioServer
from infinity_agents.mcp.sessions import McpSession
from infinity_cdk import packages
from infinity_cdk.packages import CLIENTS, KINDS, CannotPackage, McpServer, Target

from .conftest import ARM64, HERE
from .surroundings import RUNTIME, least_environment, linked_runtime

pytestmark = pytest.mark.slow

SOURCES = Path(packages.__file__).parents[2] / "src"
FUNCTIONS = [name for name in KINDS if (SOURCES / f"infinity_agents/aws/{name}.py").exists()]
LARGEST = {"leader": 40, "lean": 7}
"""The largest that a package of a kind may be, in megabytes, zipped."""
AARCH64 = 183


def test_the_functions_that_there_are_have_a_package() -> None:
    handlers = {
        path.stem
        for path in (SOURCES / "infinity_agents/aws").glob("*.py")
        for node in ast.parse(path.read_text()).body
        if (isinstance(node, ast.FunctionDef) and node.name == "handler")
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "handler")
    }
    assert "get_time" in handlers
    assert handlers - {"sandbox_server"} <= set(KINDS)  # that one is a container image


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_binary_is_for_the_processor(package, function) -> None:
    binaries = [path for path in package(function, ARM64).rglob("*") if path.suffix == ".so" or ".so." in path.name]
    assert binaries
    machines = {path: struct.unpack_from("<H", path.read_bytes(), 18)[0] for path in binaries}
    assert set(machines.values()) == {AARCH64}, machines
    assert all(path.read_bytes()[:4] == b"\x7fELF" for path in binaries)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_package_is_as_small_as_was_aimed_at(package, function, capfd) -> None:
    zipped, unpacked = sizes(package(function, ARM64))
    with capfd.disabled():
        sys.stdout.write(f"\n{function}: {zipped:.1f} MB zipped, {unpacked:.1f} MB unpacked\n")
    assert zipped < LARGEST.get(KINDS[function], 50)
    assert unpacked < 250


def test_the_same_sources_make_the_same_bytes(tmp_path, monkeypatch) -> None:
    digests = set()
    for time in ("first", "second"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"{time}-cache"))
        packages.build_function("receiver", ARM64, tmp_path / time)
        digests.add(digest(tmp_path / time))
    assert len(digests) == 1


@pytest.mark.skipif(packages._interpreter("3.13") is None, reason="no Python 3.13 is here to compile with")
def test_the_modules_are_compiled_and_no_source_is_asked_whether_it_changed(package) -> None:
    built = package("receiver", ARM64)
    compiled = built / "infinity_agents" / "aws" / "__pycache__" / "receiver.cpython-313.pyc"
    assert struct.unpack_from("<I", compiled.read_bytes(), 4)[0] == 0b01  # by hash, unchecked
    uncompiled = [
        path
        for path in built.rglob("*.py")
        if not (path.parent / "__pycache__" / f"{path.stem}.cpython-313.pyc").exists()
    ]
    assert uncompiled == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_imported_at_the_start_is_in_the_package_or_the_runtime(package, function) -> None:
    built = package(function, ARM64)
    missing = {
        (path.relative_to(built).as_posix(), name)
        for path in (built / "infinity_agents").rglob("*.py")
        for name in imported_at_once(path)
        if name not in sys.stdlib_module_names and name not in RUNTIME and not is_there(built, name)
    }
    # What a module imports is needed only where the module itself is.
    loaded = {Path(file) for file in load(package, function, "runtime").values()}
    here = package(function, HERE)
    assert {(path, name) for path, name in missing if here / path in loaded} == set()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_first_invocation_finds_all_it_needs_in_the_package(package, function, tmp_path) -> None:
    origins = load(package, function, tmp_path)
    here, runtime = package(function, HERE), tmp_path / "runtime"
    foreign = {
        name: file
        for name, file in origins.items()
        if "site-packages" in file and not file.startswith((str(here), str(runtime)))
    }
    assert foreign == {}
    assert origins["infinity_agents"].startswith(str(here))


@pytest.mark.parametrize("function", sorted(CLIENTS))
def test_a_function_makes_its_clients_with_the_botocore_that_it_brings(package, function) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import botocore.session\n"
        "session = botocore.session.get_session()\n"
        "print(botocore.__file__)\n"
        "for name in sys.argv[2:]:\n"
        "    for region in ('eu-west-1', 'us-east-1', 'us-gov-west-1', 'cn-north-1'):\n"
        "        print(session.create_client(name, region_name=region).meta.endpoint_url)"
    )
    built = package(function, HERE)
    place, *urls = python("-c", script, str(built), *sorted(CLIENTS[function])).split()
    assert place.startswith(str(built))
    kept = {path.name for path in (built / "botocore" / "data").iterdir() if path.is_dir()}
    assert kept == set(CLIENTS[function])
    # With the addresses of these services alone, each is still at the one that the whole botocore knows.
    whole = get_session()
    assert urls == [
        whole.create_client(name, region_name=region).meta.endpoint_url
        for name in sorted(CLIENTS[function])
        for region in ("eu-west-1", "us-east-1", "us-gov-west-1", "cn-north-1")
    ]


def test_the_clients_kept_for_the_leader_are_those_it_makes() -> None:
    named = {
        node.args[0].value
        for path in packages._sources("infinity_agents.aws.leader").values()
        if path.suffix == ".py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"call", "client", "create_client", "_open"}
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert "dynamodb" in named
    # That of bedrock lists models for `infinity doctor`; the receiver of Slack invokes itself.
    services = set(get_session().get_available_services()) - {"bedrock", "lambda"}
    assert named & services == set(CLIENTS["leader"])


# ---------------------------------------------------------------------------------------------------------- errors


def test_a_package_without_a_wheel_is_named_with_what_to_do(tmp_path) -> None:
    directory = tmp_path / "tool"
    directory.mkdir()
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("docopt==0.6.2\n")  # a source distribution, and nothing else
    with pytest.raises(CannotPackage, match=r"(?s)requirements\.txt.*needs a wheel.*pin a version that.*docopt"):
        packages.build_project(directory, requirements, ARM64, tmp_path / "out")


def test_a_requirement_that_contradicts_ours_is_named(tmp_path) -> None:
    directory = tmp_path / "tool"
    directory.mkdir()
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("pydantic==2.9.0\n")
    with pytest.raises(CannotPackage, match=r"(?s)pydantic==2\.9\.0"):
        packages.build_project(directory, requirements, ARM64, tmp_path / "out")


def test_a_project_s_own_tool_server_is_packaged_with_what_it_imports_of_us(tmp_path) -> None:
    directory = tmp_path / "tool"
    (directory / ".venv").mkdir(parents=True)
    (directory / ".venv" / "secret.py").write_text("")
    (directory / "app.py").write_text(
        "import idna\nfrom infinity_agents.aws import tool_handler\nfrom infinity_agents.rap.server import ToolServer\n"
        "server = ToolServer(name='mine')\nhandler = tool_handler(server)\n"
    )
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("idna\n")
    packages.build_project(directory, requirements, HERE, tmp_path / "out")
    said = python(
        "-c", "import sys; sys.path.insert(0, sys.argv[1])\nimport app; print(app.server)", str(tmp_path / "out")
    )
    assert "ToolServer" in said
    assert not (tmp_path / "out" / ".venv").exists()
    before = packages.project_hash(directory, requirements, HERE)
    (directory / "app.py").write_text("changed = True\n")
    assert packages.project_hash(directory, requirements, HERE) != before


def test_a_server_for_node_starts_with_the_node_of_its_package(tmp_path) -> None:
    place = tmp_path / "node"
    place.mkdir()
    packages._install_node_server(McpServer.of("npx semver@7.7.3"), Target("x86_64"), place)
    said = subprocess.run(
        [place / packages.MCP_SERVER, "1.10.0", "1.9.0"],
        env={},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.split() == ["1.9.0", "1.10.0"]
    arm64 = tmp_path / "arm64"
    arm64.mkdir()
    packages._install_node_server(McpServer.of("npx semver@7.7.3"), ARM64, arm64)
    assert struct.unpack_from("<H", (arm64 / "bin" / "node").read_bytes()[:20], 18)[0] == AARCH64


async def test_a_server_for_python_starts_with_what_its_own_package_needs(tmp_path, monkeypatch) -> None:
    server, place = McpServer.of("uvx mcp-server-time@2026.10.19 --local-timezone Asia/Tokyo"), tmp_path / "python"
    place.mkdir()
    packages._install_python_server(server, Target("x86_64", f"{sys.version_info[0]}.{sys.version_info[1]}"), place)
    # What lies where it is started from is the proxy's.
    (tmp_path / "mcp.py").write_text("raise ImportError('another mcp')")
    monkeypatch.chdir(tmp_path)
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    session = McpSession(StdioServer((str(place / packages.MCP_SERVER), *server.arguments), path))
    assert {tool.name for tool in await session.tools()} == {"get_current_time", "convert_time"}
    said = await session.call("get_current_time", {"timezone": "Asia/Tokyo"}, seconds=30, is_repeatable=True)
    assert "Asia/Tokyo" in said.content[0].text
    await session.aclose()


def test_the_package_of_a_server_for_python_is_for_the_processor(tmp_path) -> None:
    output = tmp_path / "package"
    packages.build_server(McpServer.of("uvx mcp-server-time@2026.10.19"), ARM64, output)
    binaries = [path for path in (output / "server").rglob("*") if path.suffix == ".so" or ".so." in path.name]
    assert binaries
    assert {struct.unpack_from("<H", path.read_bytes(), 18)[0] for path in binaries} == {AARCH64}
    assert "python3.13" in (output / packages.MCP_SERVER).read_text()
    assert (output / "infinity_agents" / "aws" / "mcp_proxy.py").is_file()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("uvx docopt@0.6.2", r"(?s)docopt==0\.6\.2 cannot be installed for aarch64.*needs a wheel.*pin a version"),
        ("uvx --from mcp-server-time==2026.10.19 no-such", r"no program 'no-such'.*it has mcp-server-time"),
    ],
)
def test_a_server_for_python_that_cannot_be_packaged_says_what_to_do(tmp_path, command, said) -> None:
    with pytest.raises(CannotPackage, match=said):
        packages._install_python_server(McpServer.of(command), ARM64, tmp_path)


# ----------------------------------------------------------------------------------------------------------- parts


def sizes(package: Path) -> tuple[float, float]:
    """Return the megabytes of a package, zipped and unpacked."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            archive.write(path, path.relative_to(package))
    unpacked = sum(path.stat().st_size for path in package.rglob("*") if path.is_file())
    return zipped.tell() / 1e6, unpacked / 1e6


def digest(package: Path) -> str:
    told = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        told.update(path.relative_to(package).as_posix().encode())
        told.update(path.read_bytes() if path.is_file() else b"")
    return told.hexdigest()


def imported_at_once(path: Path) -> set[str]:
    """Return the packages that a module imports when it is imported itself."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def is_there(package: Path, name: str) -> bool:
    return (package / name).is_dir() or (package / f"{name}.py").exists()


def load(package, function: str, place: Path | str) -> dict[str, str]:
    """Build, in a process with the package alone, what the first invocation does; return where modules came from."""
    built = package(function, HERE)
    runtime = Path(place) if function not in CLIENTS else None
    if runtime is not None:
        runtime = linked_runtime(built.parent if isinstance(place, str) else place)
    said = python(
        str(Path(__file__).with_name("loading.py")),
        str(built),
        str(runtime or "-"),
        function,
        environment=least_environment(function),
    )
    return json.loads(said.splitlines()[-1])


def python(*words: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-S", *words],
        env={"AWS_REGION": "eu-west-1", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
