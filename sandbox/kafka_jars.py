"""The Kafka broker's jars, fetched once with the Ivy that PySpark ships: no Maven and no Kafka distribution needed.

Each fetched file is compared with its checksum in ``kafka_jars.sha256``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.java import java
from sandbox.paths import log_tail

KAFKA_VERSION = "4.2.0"
# Kafka's jars bring the SLF4J interface without a binding; without one a broker fails silently.
_ROOTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.3"),
)
_CHECKSUMS = Path(__file__).with_name("kafka_jars.sha256")


def kafka_jars(cache: Path) -> Path:
    """Return the folder with the broker's jars, fetching them (44 MB) the first time.

    Safe when several processes ask at once: one fetches, the others wait; a fetch that was cut off leaves no folder.
    ``KAFKA_INGEST_IVY_SETTINGS`` names an Ivy settings file for networks that have a mirror of Maven Central.

    Raises:
        SandboxError: The download failed, or a file is not the expected one.
    """
    folder = cache / "kafka" / KAFKA_VERSION
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder, ivy_cache=cache / "ivy")
    return folder


def _fetch(folder: Path, *, ivy_cache: Path) -> None:
    print(f"fetching the Kafka {KAFKA_VERSION} broker from Maven Central (44 MB, once) ...", flush=True)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        for root in _ROOTS:
            _retrieve(root, draft, ivy_cache)
        _check(draft)
        draft.replace(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _retrieve(root: tuple[str, str, str], folder: Path, ivy_cache: Path) -> None:
    settings = os.environ.get("KAFKA_INGEST_IVY_SETTINGS")
    command = [java(), "-jar", str(_ivy()), *(["-settings", settings] if settings else [])]
    command += ["-cache", str(ivy_cache), "-dependency", *root, "-confs", "default"]
    command += ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
    log = folder.with_name("ivy.log")
    with log.open("ab") as sink:
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, check=False)
    if answer.returncode != 0:
        raise SandboxError(
            f"{root[1]} {root[2]} could not be fetched from Maven Central",
            found=log_tail(log),
            next_step="check the network, or name a mirror in an Ivy settings file: KAFKA_INGEST_IVY_SETTINGS=<file>",
        )


def _ivy() -> Path:
    spec = find_spec("pyspark")
    jars = Path(spec.submodule_search_locations[0]) / "jars" if spec and spec.submodule_search_locations else None
    found = sorted(jars.glob("ivy-*.jar")) if jars else []
    if not found:
        raise SandboxError("PySpark with its jars is missing in this environment", next_step="make setup")
    return found[-1]


def _check(folder: Path) -> None:
    lines = _CHECKSUMS.read_text(encoding="utf-8").splitlines()
    expected = {name: digest for digest, name in (line.split() for line in lines if not line.startswith("#"))}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    differing = sorted(set(expected.items()) ^ set(found.items()))
    if differing:
        raise SandboxError(
            "the jars that were fetched are not those that this project was tested with",
            found=", ".join(sorted({name for name, _ in differing})),
            next_step=f"delete the cache folder and try again; compare with {_CHECKSUMS}",
        )
