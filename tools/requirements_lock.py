"""Pins what is installed: ``lock`` writes the requirements files, ``verify`` fails when they are stale.

Neither needs the network. ``verify`` compares the hash of the .in file with that in the head of the .txt file, and
every pinned version with the one that is installed.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parent.parent
FILES = ("requirements", "requirements-dev")
_HEAD = """\
# Made of {source} by `make lock-requirements`; do not edit.
# sha256 of {source}: {digest}
"""
Wanted = tuple[str, frozenset[str]]


def lock() -> list[str]:
    """Write every requirements file from the versions that are installed."""
    already: set[str] = set()
    for name in FILES:
        source = CHECKOUT / f"{name}.in"
        pinned = {package: version for package, version in _closure(_wanted(source)) if package not in already}
        already |= set(pinned)
        lines = [f"{package}=={version}\n" for package, version in sorted(pinned.items())]
        head = _HEAD.format(source=source.name, digest=_digest(source))
        (CHECKOUT / f"{name}.txt").write_text(head + "".join(lines), encoding="utf-8")
    return []


def verify() -> list[str]:
    """Return what is stale, a line for each fault."""
    return [fault for name in FILES for fault in _faults(CHECKOUT / f"{name}.in", CHECKOUT / f"{name}.txt")]


def _faults(source: Path, made: Path) -> Iterator[str]:
    text = made.read_text(encoding="utf-8")
    if f"sha256 of {source.name}: {_digest(source)}" not in text:
        yield f"{made.name} was not made of this {source.name}: make lock-requirements"
    for line in text.splitlines():
        package, separator, version = line.partition("==")
        installed = _installed_version(package) if separator else version
        if installed != version:
            yield f"{made.name} has {line}, but {installed or 'nothing'} is installed: make setup, or lock-requirements"


def _installed_version(package: str) -> str | None:
    try:
        return distribution(package).version
    except PackageNotFoundError:
        return None


def _closure(wanted: Iterable[Wanted]) -> Iterator[tuple[str, str]]:
    """Walk from the wanted packages, with their extras, to all that they need on this machine."""
    waiting, seen = list(wanted), set[Wanted]()
    while waiting:
        package, extras = waiting.pop()
        if (package, extras) in seen:
            continue
        seen.add((package, extras))
        found = distribution(package)
        yield package, found.version
        waiting += [_as_wanted(need) for need in map(Requirement, found.requires or ()) if _applies(need, extras)]


def _wanted(source: Path) -> list[Wanted]:
    lines = (line.strip() for line in source.read_text(encoding="utf-8").splitlines())
    return [_as_wanted(Requirement(line)) for line in lines if line and not line.startswith("#")]


def _as_wanted(requirement: Requirement) -> Wanted:
    return canonicalize_name(requirement.name), frozenset(requirement.extras)


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""}))


def _digest(path: Path) -> str:
    # Comments may change without making the file stale.
    lines = re.sub(r"(?m)^#.*\n|^\s*\n", "", path.read_text(encoding="utf-8"))
    return hashlib.sha256(lines.encode()).hexdigest()


def main() -> int:
    """Run ``lock`` or ``verify``; the exit status is 1 when something is stale."""
    faults = {"lock": lock, "verify": verify}[sys.argv[1]]()
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
