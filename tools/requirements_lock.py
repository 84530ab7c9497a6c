"""Pins what is installed: ``lock`` writes the lock files and the constraints, ``verify`` fails when they are stale.

``lock`` asks the package index through uv, for every platform and every Python from 3.11 on, and keeps the versions
that are in the files; what follows the word goes to uv (``lock --upgrade-package pandas``). ``verify`` needs no
network: it compares the head of each file with its source, and every pinned version with the one that is installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

CHECKOUT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = "3.11"
#: Versions without hashes: pip asks for hashes of everything, a wheel of one's own too, when a constraint has one.
CONSTRAINTS = "constraints.txt"
_HEAD = """\
# Made of {source} by `make lock-requirements`; do not edit.
# sha256 of {source}: {digest}
"""


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file: what it is made of, and what else uv is told."""

    made: str
    source: str
    options: tuple[str, ...] = ()


RUNTIME = Lock("requirements.txt", "requirements.in")
#: The others take the versions of the first, so that all can be installed together.
SAME = ("--constraints", RUNTIME.made)
LOCKS = (
    RUNTIME,
    Lock("requirements-dev.txt", "requirements-dev.in", SAME),
    Lock("requirements-executor.txt", "pyproject.toml", (*SAME, "--extra", "registry")),
)


def lock() -> list[str]:
    """Write every lock file, and the constraints from the first of them."""
    for each in LOCKS:
        _compile(each)
    head = _HEAD.format(source=RUNTIME.made, digest=_digest(CHECKOUT / RUNTIME.made))
    lines = "".join(f"{pin}\n" for pin, _ in pins(CHECKOUT / RUNTIME.made))
    (CHECKOUT / CONSTRAINTS).write_text(head + lines, encoding="utf-8")
    return []


def verify() -> list[str]:
    """Return what is stale, a line for each fault."""
    return [*_stale(), *_not_installed(), *_unhashed()]


def pins(made: Path) -> Iterator[tuple[Requirement, frozenset[str]]]:
    """Yield the requirements of a lock file, each with the hashes of its files."""
    for line in made.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            requirement, *hashes = line.split(" --hash=")
            yield Requirement(requirement), frozenset(found.strip() for found in hashes)


def _compile(made: Lock) -> None:
    every_platform = ("--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes")
    plain = ("--no-header", "--no-annotate", "--quiet", "--output-file", made.made)
    command = [sys.executable, "-m", "uv", "pip", "compile", made.source, *made.options, *every_platform, *plain]
    subprocess.run([*command, *sys.argv[2:]], cwd=CHECKOUT, check=True)
    path = CHECKOUT / made.made
    head = _HEAD.format(source=made.source, digest=_digest(CHECKOUT / made.source))
    path.write_text(head + path.read_text(encoding="utf-8"), encoding="utf-8")


def _stale() -> Iterator[str]:
    sources = [(each.made, each.source) for each in LOCKS]
    for made, source in [*sources, (CONSTRAINTS, RUNTIME.made)]:
        if f"sha256 of {source}: {_digest(CHECKOUT / source)}\n" not in (CHECKOUT / made).read_text(encoding="utf-8"):
            yield f"{made} was not made of this {source}: make lock-requirements"


def _not_installed() -> Iterator[str]:
    for made in [*(each.made for each in LOCKS), CONSTRAINTS]:
        for pin, _ in pins(CHECKOUT / made):
            installed = _installed_version(pin.name)
            if _applies(pin) and (installed is None or not pin.specifier.contains(installed, prereleases=True)):
                yield f"{made} has {pin}, but {installed or 'nothing'} is installed: make setup, or lock-requirements"


def _unhashed() -> Iterator[str]:
    for made in (each.made for each in LOCKS):
        unhashed = [pin.name for pin, hashes in pins(CHECKOUT / made) if not hashes]
        yield from (f"{made} has no hash of {name}: make lock-requirements" for name in unhashed)


def _installed_version(package: str) -> str | None:
    try:
        return distribution(package).version
    except PackageNotFoundError:
        return None


def _applies(pin: Requirement) -> bool:
    return pin.marker is None or pin.marker.evaluate()


def _digest(source: Path) -> str:
    """Return the hash of what a source asks for: comments, and the rest of a project's file, may change."""
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".toml":
        project = tomllib.loads(text)["project"]
        lines = [*project["dependencies"], *project["optional-dependencies"]["registry"]]
    else:
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def main() -> int:
    """Run ``lock`` or ``verify``; the exit status is 1 when something is stale."""
    faults = {"lock": lock, "verify": verify}[sys.argv[1]]()
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
