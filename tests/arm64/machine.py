"""An arm64 machine with Python 3.13, as far as Debian's packages and QEMU make one: no root, nothing installed."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RELEASE = "trixie"
"""The release of Debian whose Python is the one of the functions, and whose QEMU needs no libraries."""
PYTHON = "python3.13"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class NoMachine(Exception):
    """There is none; the text says why, and what to do."""


@dataclass(frozen=True)
class Machine:
    """A directory with what is on the machine, and what runs its programs here."""

    root: Path
    emulator: Path

    def python(self, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run its Python, which sees nothing of this one's environment."""
        command = [str(self.emulator), "-L", str(self.root), str(self.root / "usr" / "bin" / PYTHON), *words]
        return subprocess.run(command, env=dict(environment or {}), capture_output=True, text=True, check=False)


def machine(place: Path, say: Callable[[str], None]) -> Machine:
    """Return the machine in ``place``, which is made at the first time, by apt from the mirror it is configured with.

    Raises:
        NoMachine: apt cannot get it.
    """
    made = Machine(place / "root", place / "qemu-aarch64")
    if (place / ".ready").exists():
        return made
    mirror = _mirror()
    shutil.rmtree(place, ignore_errors=True)
    apt = _Apt.new(place / "apt", mirror)
    say(f"fetching {PYTHON} for arm64, and QEMU, from the mirror of Debian that apt knows")
    apt.run("update")
    apt.run("install", "--download-only", "--yes", PYTHON)
    made.root.mkdir()
    (made.root / "usr" / "lib").mkdir(parents=True)
    (made.root / "lib").symlink_to("usr/lib")
    for package in sorted((apt.place / "archives").glob("*.deb")):
        _unpack(package, made.root)
    here = _said("dpkg", "--print-architecture").strip()
    apt.run("download", f"qemu-user:{here}")
    (emulators,) = apt.place.glob("qemu-user_*.deb")
    _unpack(emulators, place / "emulators")
    shutil.copy2(place / "emulators" / "usr" / "bin" / "qemu-aarch64", made.emulator)
    for left in (place / "emulators", apt.place):
        shutil.rmtree(left)
    (place / ".ready").touch()
    return made


def _mirror() -> str:
    missing = [name for name in ("apt-get", "dpkg", "dpkg-deb") if shutil.which(name) is None]
    if missing:
        raise NoMachine(f"{missing[0]} is not here: run this on Debian, whose packages the machine is made of")
    if not _KEYRING.exists():
        raise NoMachine(
            f"{_KEYRING} is not here, which proves Debian's packages: apt-get install debian-archive-keyring"
        )
    told = _said("apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(SITE)", "Created-By: Packages")
    sites = [line.split("|")[2] for line in told.splitlines() if line.startswith("Debian|Debian|")]
    if not sites:
        raise NoMachine("apt knows no mirror of Debian: run this on Debian, after apt-get update")
    return sites[0]


@dataclass(frozen=True)
class _Apt:
    """Apt with lists and a status of its own, beside those of this machine."""

    place: Path

    @classmethod
    def new(cls, place: Path, mirror: str) -> "_Apt":
        for directory in ("lists/partial", "archives/partial"):
            (place / directory).mkdir(parents=True)
        here = _said("dpkg", "--print-architecture").strip()
        architectures = sorted({"arm64", here})
        (place / "status").touch()
        (place / "sources.list").write_text(
            f"deb [arch={','.join(architectures)} signed-by={_KEYRING}] {mirror} {RELEASE} main\n"
        )
        settings = {
            "APT::Architecture": "arm64",
            "APT::Install-Recommends": "false",
            # Whoever runs this may read what is downloaded; apt's own user may not read this directory.
            "APT::Sandbox::User": "",
            "Dir::State": str(place),
            "Dir::State::lists": str(place / "lists"),
            "Dir::State::status": str(place / "status"),
            "Dir::Cache": str(place),
            "Dir::Cache::archives": str(place / "archives"),
            "Dir::Etc::sourcelist": str(place / "sources.list"),
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::Log": str(place),
        }
        listed = "".join(f'  "{name}";\n' for name in architectures)
        (place / "apt.conf").write_text(
            "#clear APT::Architectures;\nAPT::Architectures {\n"
            + listed
            + "};\n"
            + "".join(f'{name} "{value}";\n' for name, value in settings.items())
        )
        return cls(place)

    def run(self, *words: str) -> None:
        environment = {**os.environ, "APT_CONFIG": str(self.place / "apt.conf")}
        done = subprocess.run(
            ["apt-get", "--quiet", "--quiet", *words],
            cwd=self.place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            told = re.sub(r"//[^/@\s]+@", "//", done.stderr.strip())
            raise NoMachine(f"apt-get {' '.join(words)} failed: is there a network, and the mirror whole?\n{told}")


def _unpack(package: Path, root: Path) -> None:
    _said("dpkg-deb", "--extract", str(package), str(root))


def _said(*command: str) -> str:
    words: Sequence[str] = command
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoMachine(f"{' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout
