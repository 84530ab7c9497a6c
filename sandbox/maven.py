"""Files of Maven Central, each fetched once, with the Ivy that PySpark ships: no Maven is needed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from sandbox.errors import SandboxError
from sandbox.java import java
from sandbox.paths import log_tail

_NAMESPACE = "http://ant.apache.org/ivy/maven"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One artifact: a jar with all the jars that it needs; with a classifier that archive alone.

    Attributes:
        group: Maven's group id.
        name: Maven's artifact id.
        version: Version.
        classifier: Which of its archives; empty for the jar.
        extension: How the file's name ends.
        alone: Without the jars that it needs.
    """

    group: str
    name: str
    version: str
    classifier: str = ""
    extension: str = "jar"
    alone: bool = False

    @property
    def file_name(self) -> str:
        """The name that :func:`fetch` gives its own file."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.extension}"

    def as_ivy(self) -> str:
        """Return the element of an Ivy file that asks for it."""
        head = f"<dependency org={quoteattr(self.group)} name={quoteattr(self.name)} rev={quoteattr(self.version)}"
        if not self.classifier:
            return f'{head} conf="default" transitive="{str(not self.alone).lower()}"/>'
        kind = quoteattr(self.extension)
        archive = f"<artifact name={quoteattr(self.name)} type={kind} ext={kind}"
        return f'{head} transitive="false">{archive} m:classifier={quoteattr(self.classifier)}/></dependency>'


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return the folder; the first time, ``make`` fills it.

    Safe when several processes ask at once: one makes it, the others wait. One that was cut off leaves no folder.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            draft = folder.with_name(f".{folder.name}.{os.getpid()}")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            try:
                make(draft)
                draft.replace(folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return folder


def fetch(artifacts: Sequence[Artifact], folder: Path, *, ivy_cache: Path) -> None:
    """Write the artifacts' files into an existing folder, as ``name-version(-classifier).extension``.

    Jars that several of them need are fetched once, in the newest version that one of them names.

    ``KAFKA_INGEST_IVY_SETTINGS`` names an Ivy settings file for networks that have a mirror of Maven Central.

    Raises:
        SandboxError: The download failed; the end of Ivy's log is in the message.
    """
    settings, log = os.environ.get("KAFKA_INGEST_IVY_SETTINGS"), folder.with_name("ivy.log")
    command = [java(), "-jar", str(_ivy()), *(["-settings", settings] if settings else []), "-cache", str(ivy_cache)]
    command += ["-confs", "default", "-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]", "-ivy"]
    with tempfile.NamedTemporaryFile("w", suffix=".xml", encoding="utf-8") as wanted, log.open("ab") as sink:
        wanted.write(_ivy_file(artifacts))
        wanted.flush()
        answer = subprocess.run(
            [*command, wanted.name], stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, check=False
        )
    if answer.returncode != 0:
        raise SandboxError(
            f"{', '.join(f'{one.name} {one.version}' for one in artifacts)} could not be fetched from Maven Central",
            found=log_tail(log),
            next_step="check the network, or name a mirror in an Ivy settings file: KAFKA_INGEST_IVY_SETTINGS=<file>",
        )


def unpack(archive: Artifact, folder: Path, *, checksum: str, listed_in: Path) -> None:
    """Write what is in an archive into an existing folder; of the download itself nothing is kept.

    Raises:
        SandboxError: The download failed, or the archive has another SHA-256 sum; ``listed_in`` is where that stands.
    """
    # Ivy's cache goes with the archive: nothing else needs what is in it.
    temporary = folder / "temporary"
    download = temporary / "files"
    download.mkdir(parents=True)
    fetch([archive], download, ivy_cache=temporary / "ivy")
    check_files(download, {archive.file_name: checksum}, listed_in=listed_in)
    shutil.unpack_archive(download / archive.file_name, folder, filter="data")
    shutil.rmtree(temporary)


def checksums(path: Path) -> dict[str, str]:
    """Return the SHA-256 sums of a file that sha256sum wrote, by file name; lines with ``#`` are comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines if not line.startswith("#"))}


def check_files(folder: Path, expected: Mapping[str, str], *, listed_in: Path) -> None:
    """Compare the files of a folder with their SHA-256 sums, by name; ``listed_in`` is where the sums stand.

    Raises:
        SandboxError: A file is missing, is too many or has another sum.
    """
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    differing = sorted({name for name, _ in expected.items() ^ found.items()})
    if differing:
        raise SandboxError(
            "what was fetched is not what this project was tested with",
            found=", ".join(differing),
            next_step=f"delete the cache folder and try again; compare with {listed_in}",
        )


def pyspark_jars() -> Path:
    """Return the folder of PySpark's jars.

    Raises:
        SandboxError: PySpark is missing.
    """
    spec = find_spec("pyspark")
    jars = Path(spec.submodule_search_locations[0]) / "jars" if spec and spec.submodule_search_locations else None
    if jars is None or not jars.is_dir():
        raise SandboxError("PySpark with its jars is missing in this environment", next_step="make setup")
    return jars


def _ivy_file(artifacts: Sequence[Artifact]) -> str:
    return (
        f'<ivy-module version="2.0" xmlns:m="{_NAMESPACE}"><info organisation="sandbox" module="files"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(artifact.as_ivy() for artifact in artifacts)}</dependencies></ivy-module>"
    )


def _ivy() -> Path:
    found = sorted(pyspark_jars().glob("ivy-*.jar"))
    if not found:
        raise SandboxError("PySpark's jars are without Ivy", next_step="make setup")
    return found[-1]
