"""What the peers need beyond the project's environment: jars and archives from Maven Central, an environment of pip's.

All of it lies in ``.cache/benchmarks`` of the checkout, is fetched once, and is fetched before anything is timed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sandbox.errors import SandboxError
from sandbox.maven import Artifact, check_files, fetch, made_once
from sandbox.paths import CHECKOUT, log_tail

_CACHE: Final = CHECKOUT / ".cache"
_CHECKSUMS: Final = Path(__file__).with_name("checksums.sha256")


def fetched(name: str, artifacts: Sequence[Artifact]) -> Path:
    """Return the folder with the files of these artifacts, fetching them the first time.

    Raises:
        SandboxError: The download failed, or a file is not the expected one.
    """

    def make(draft: Path) -> None:
        fetch(artifacts, draft, ivy_cache=_CACHE / "ivy")
        _check(name, draft)

    return made_once(_CACHE / "benchmarks" / name, make)


def unpacked(name: str, archive: Artifact) -> Path:
    """Return the folder with what is in this archive, fetching it the first time; raise what :func:`fetched` raises."""

    def unpack(draft: Path) -> None:
        for path in fetched(f"{name}-archive", [archive]).iterdir():
            shutil.unpack_archive(path, draft, filter="data")

    return made_once(_CACHE / "benchmarks" / name, unpack)


def environment(name: str, requirements: Sequence[str]) -> Path:
    """Return the Python of an environment with these packages, making it the first time.

    Raises:
        SandboxError: pip failed.
    """

    def make(draft: Path) -> None:
        log = draft.with_name(f"{name}.log")
        _run([sys.executable, "-m", "venv", "--copies", str(draft)], log)
        _run([str(draft / "bin" / "python"), "-m", "pip", "install", "--no-input", *requirements], log)

    return made_once(_CACHE / "benchmarks" / name, make) / "bin" / "python"


def _run(command: Sequence[str], log: Path) -> None:
    with log.open("ab") as sink:
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, check=False)
    if answer.returncode != 0:
        raise SandboxError(f"{log.stem} could not be installed", found=log_tail(log), next_step="check the network")


def _check(name: str, folder: Path) -> None:
    lines = (line.split() for line in _CHECKSUMS.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    expected = {path.removeprefix(f"{name}/"): digest for digest, path in lines if path.startswith(f"{name}/")}
    check_files(folder, expected, listed_in=_CHECKSUMS)
