"""What the peers need beyond the project's environment: jars and archives from Maven Central, an environment of pip's.

All of it lies in ``.cache/benchmarks`` of the checkout, is fetched once, and is fetched before anything is timed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import pyspark

from sandbox.errors import SandboxError
from sandbox.java import java
from sandbox.paths import CHECKOUT, log_tail

_CACHE: Final = CHECKOUT / ".cache"
_CHECKSUMS: Final = Path(__file__).with_name("checksums.sha256")
_NAMESPACE: Final = "http://ant.apache.org/ivy/maven"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One artifact on Maven Central: with a classifier it is that archive alone, else a jar with all that it needs."""

    group: str
    name: str
    version: str
    classifier: str = ""
    extension: str = "jar"

    def as_ivy(self) -> str:
        """Return the element of an Ivy file that asks for it."""
        head = f"<dependency org={quoteattr(self.group)} name={quoteattr(self.name)} rev={quoteattr(self.version)}"
        if not self.classifier:
            return f'{head} conf="default"/>'
        kind = quoteattr(self.extension)
        archive = f"<artifact name={quoteattr(self.name)} type={kind} ext={kind}"
        return f'{head} transitive="false">{archive} m:classifier={quoteattr(self.classifier)}/></dependency>'


def fetched(name: str, artifacts: Sequence[Artifact]) -> Path:
    """Return the folder with the files of these artifacts, fetching them the first time, with the Ivy of PySpark.

    ``KAFKA_INGEST_IVY_SETTINGS`` names an Ivy settings file for networks that have a mirror of Maven Central.

    Raises:
        SandboxError: The download failed, or a file is not the expected one.
    """

    def fetch(draft: Path) -> None:
        _retrieve(artifacts, draft)
        _check(name, draft)

    return _made_once(_CACHE / "benchmarks" / name, fetch)


def unpacked(name: str, archive: Artifact) -> Path:
    """Return the folder with what is in this archive, fetching it the first time; raise what :func:`fetched` raises."""

    def unpack(draft: Path) -> None:
        for path in fetched(f"{name}-archive", [archive]).iterdir():
            shutil.unpack_archive(path, draft, filter="data")

    return _made_once(_CACHE / "benchmarks" / name, unpack)


def environment(name: str, requirements: Sequence[str]) -> Path:
    """Return the Python of an environment with these packages, making it the first time.

    Raises:
        SandboxError: pip failed.
    """

    def make(draft: Path) -> None:
        log = draft.with_suffix(".log")
        _run([sys.executable, "-m", "venv", "--copies", str(draft)], log)
        _run([str(draft / "bin" / "python"), "-m", "pip", "install", "--no-input", *requirements], log)

    return _made_once(_CACHE / "benchmarks" / name, make) / "bin" / "python"


def _made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Makes the folder unless it exists; one that was cut off does not. One process makes it, others wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            draft = folder.with_name(f"{folder.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            make(draft)
            draft.replace(folder)
    return folder


def _retrieve(artifacts: Sequence[Artifact], folder: Path) -> None:
    wanted = folder.with_suffix(".xml")
    wanted.write_text(
        f'<ivy-module version="2.0" xmlns:m="{_NAMESPACE}"><info organisation="benchmarks" module="peers"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(artifact.as_ivy() for artifact in artifacts)}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    settings = os.environ.get("KAFKA_INGEST_IVY_SETTINGS")
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    command = [java(), "-jar", str(ivy), *(["-settings", settings] if settings else []), "-ivy", str(wanted)]
    command += ["-cache", str(_CACHE / "ivy"), "-confs", "default"]
    _run([*command, "-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"], folder.with_suffix(".log"))


def _run(command: Sequence[str], log: Path) -> None:
    with log.open("ab") as sink:
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, check=False)
    if answer.returncode != 0:
        raise SandboxError(f"{log.stem} could not be installed", found=log_tail(log), next_step="check the network")


def _check(name: str, folder: Path) -> None:
    lines = (line.split() for line in _CHECKSUMS.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    expected = {path.removeprefix(f"{name}/"): digest for digest, path in lines if path.startswith(f"{name}/")}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    differing = sorted({path for path, _ in expected.items() ^ found.items()})
    if differing:
        raise SandboxError(
            f"what was fetched for {name} is not what the benchmarks were tested with",
            found=", ".join(differing),
            next_step=f"compare with {_CHECKSUMS}; new lines: sha256sum {name}/*",
        )
