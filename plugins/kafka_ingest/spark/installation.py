"""Where Spark lies, how its JVMs start, and which packages its interpreters have.

Executors import this to tell their packages, which may be missing: so it imports none of them.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kafka_ingest.errors import ConfigError

# Where Java and Spark are on this machine: the same that ``spark-submit`` finds (its shell scripts, Spark 4.2).

_DEFAULTS_FILE = "spark-defaults.conf"
_PROPERTY = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[=:]?\s*(.*?)\s*$")


def spark_submit() -> str:
    """Return the spark-submit beside this Python, else that of ``PATH``.

    Raises:
        ConfigError: There is none.
    """
    beside = Path(sys.executable).parent
    found = shutil.which("spark-submit", path=os.pathsep.join([str(beside), os.environ.get("PATH", "")]))
    if found is None:
        raise ConfigError(
            "spark-submit was not found",
            expected=f"spark-submit in {beside} or on PATH",
            next_command="pip install 'kafka-ingest[spark]', or --runner in-process for a small load",
        )
    return found


def java() -> Path:
    """Return the Java that runs Spark, with all links resolved.

    Raises:
        ConfigError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "")
    if not found.is_file():
        raise ConfigError(
            "Java was not found",
            expected="java in JAVA_HOME or on PATH",
            found=f"JAVA_HOME={home or ''}",
            next_command="install Java 17 or newer",
        )
    return found.resolve()


def spark_home() -> Path:
    """Return Spark's folder: ``SPARK_HOME``, that of an unpacked Spark, or the package ``pyspark``.

    Raises:
        ConfigError: None of them has Spark's jars.
    """
    unpacked, package = Path(spark_submit()).parents[1], find_spec("pyspark")
    candidates = [Path(home)] if (home := os.environ.get("SPARK_HOME")) else [unpacked]
    candidates += [Path(package.origin).parent] if not home and package and package.origin else []
    for folder in candidates:
        if (folder / "jars").is_dir():
            return folder
    raise ConfigError(
        "Spark's jars were not found",
        expected="a folder jars in SPARK_HOME, above bin/spark-submit or in the package pyspark",
        found=f"none in {', '.join(map(str, candidates))}",
        next_command="pip install 'kafka-ingest[spark]', or set SPARK_HOME",
    )


def conf_folder() -> Path:
    """Return the folder of Spark's configuration; it need not exist.

    Raises:
        ConfigError: Spark is missing.
    """
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")


def default_properties() -> dict[str, str]:
    """Return the properties that ``spark-defaults.conf`` sets; none where it or Spark is missing."""
    try:
        lines = (conf_folder() / _DEFAULTS_FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, ConfigError):
        return {}
    # Java's properties format: the name ends at a blank, at "=" or at ":".
    found = [match for line in lines if (match := _PROPERTY.match(line))]
    return {match[1]: match[2] for match in found}


# What lets Spark's JVMs start sooner: their options, and an archive of the classes that the driver loads (AppCDS).
#
# The JVM of a load starts Python, hands out a few tasks and ends: optimising its code costs more than such a short run
# gains from it. A crash leaves no core file, since tasks carry passwords through its memory.
#
# The archive fits one Java and one class path, and a JVM silently ignores any other. So the file's name says what it
# was made for, and an archive that does not fit is not found. ``spark/class_archive.py`` makes it.
#
# Java 17 is the oldest for Spark 4. ``-XX:+AutoCreateSharedArchive`` would need Java 19.

CACHE_VARIABLE = "KAFKA_INGEST_CACHE"
#: Seconds of CPU that a load of one record took: 8.7 with default options, 4.7 with these, 3.5 with the archive, too
#: (single runs on two busy cores, Java 17, Spark 4.2).
JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-CreateCoredumpOnCrash")
_LAUNCHER_VARIABLE = "SPARK_LAUNCHER_OPTS"
#: Folders in these are on the class path beside Spark's jars (``AbstractCommandBuilder.buildClassPath``, Spark 4.2).
_CLASS_PATH_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")


def jvm_conf(conf: Mapping[str, str], *, is_local: bool) -> dict[str, str]:
    """Return the Spark properties with the options of the driver's and of the executors' JVMs.

    Where the pipeline or ``spark-defaults.conf`` sets options of its own, these are not added to them: two choices of a
    garbage collector, for example, keep a JVM from starting.

    Args:
        conf: The pipeline's own properties.
        is_local: Tasks run beside the driver, there are no executors.
    """
    set_elsewhere = default_properties().keys() | conf.keys()
    options = {"driver": driver_options(None if "spark.driver.extraClassPath" in set_elsewhere else class_archive())}
    if not is_local:
        options["executor"] = driver_options(None)
    return {
        f"spark.{who}.extraJavaOptions": text
        for who, text in options.items()
        if not set_elsewhere & {f"spark.{who}.extraJavaOptions", f"spark.{who}.defaultJavaOptions"}
    }


def launcher_options() -> dict[str, str]:
    """Return the variable with the options of the JVM that writes spark-submit's command line; a caller's own stays.

    Source: ``bin/spark-class``, Spark 4.2.
    """
    return {} if _LAUNCHER_VARIABLE in os.environ else {_LAUNCHER_VARIABLE: " ".join(JVM_OPTIONS)}


def driver_options(archive: Path | None) -> str:
    """Return the options of a JVM, with the archive that it is to use."""
    # Spark removes the quotes, as a shell would.
    return " ".join([*JVM_OPTIONS, *([f'-XX:SharedArchiveFile="{archive}"'] if archive else [])])


def class_archive() -> Path | None:
    """Return the archive for the Java and the Spark of this machine; ``None`` without one. Starts no JVM."""
    try:
        path = archive_path()
        return path if _is_trusted(path) else None
    except (ConfigError, OSError):
        return None


def archive_path() -> Path:
    """Return the path of the archive for the Java and the Spark of this machine, whether it is there or not.

    The folder is ``KAFKA_INGEST_CACHE``, else in the virtual environment of this Python, else the user's cache folder.

    Raises:
        ConfigError: Java or Spark is missing, or something else than jars is on Spark's class path.
    """
    _require_jars_only()
    digest = hashlib.sha256("\n".join(_made_for()).encode()).hexdigest()
    return _cache_folder() / f"spark-classes-{digest[:16]}.jsa"


def _made_for() -> Iterator[str]:
    """Yield what a JVM compares (its build; names, sizes and times of the jars, in their order), and the options."""
    yield " ".join(JVM_OPTIONS)
    yield _stamp(java())
    yield _stamp(java().parents[1] / "lib" / "modules")
    # java expands ``jars/*`` in the order of the folder, which is the order of scandir.
    with os.scandir(spark_home() / "jars") as jars:
        yield from [_stamp(Path(jar.path)) for jar in jars]


def _stamp(path: Path) -> str:
    found = path.stat()
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def _require_jars_only() -> None:
    others = [f"{name}={value}" for name in _CLASS_PATH_VARIABLES if (value := os.environ.get(name))]
    folder = conf_folder()
    if folder.is_dir() and any(folder.iterdir()):
        others.append(f"files in {folder}")
    if others:
        # Java's own words: "Cannot have non-empty directory in paths".
        raise ConfigError(
            "Java makes and uses no archive of Spark's classes with this class path",
            expected="nothing but Spark's jars on it: no folder of configuration files",
            found="; ".join(others),
            next_command="none: loads run without it; or give Spark's settings in the pipeline file, under spark.conf",
        )


def _cache_folder() -> Path:
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).absolute()
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "var" / "kafka-ingest"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "kafka-ingest"


def _is_trusted(path: Path) -> bool:
    """Tell whether only those who can change this installation can write to it: a JVM runs its content."""
    owners = {0, os.getuid(), Path(sys.prefix).stat().st_uid}
    return all(part.stat().st_uid in owners and not part.stat().st_mode & 0o022 for part in (path, path.parent))


# The interpreter that runs this, and the packages that a load imports.

#: What a load imports, as modules, and the oldest versions that will do (pyproject.toml).
OLDEST_PACKAGES: Mapping[str, str] = {
    "confluent_kafka": "2.8",
    "msgspec": "0.19",
    "psycopg2": "2.9.9",
    "pyarrow": "17",
    "pyspark": "4.0",
}
OLDEST_PYTHON = "3.11"


@dataclass(frozen=True, slots=True)
class InterpreterFacts:
    """A Python interpreter, and the packages that a load imports.

    Attributes:
        host: Machine.
        python: Version of Python.
        versions: Version by package, for each that can be imported.
        faults: Reason by package, for each that cannot.
    """

    host: str
    python: str
    versions: tuple[tuple[str, str], ...]
    faults: tuple[tuple[str, str], ...] = ()


def this_interpreter() -> InterpreterFacts:
    """Import each package, because one that is installed may lack a native library; return versions and reasons."""
    versions: list[tuple[str, str]] = []
    faults: list[tuple[str, str]] = []
    for name in OLDEST_PACKAGES:
        try:
            # psycopg2 says how it was built behind a space.
            versions.append((name, str(importlib.import_module(name).__version__).split()[0]))
        except ImportError as error:
            faults.append((name, " ".join(str(error).split())))
    return InterpreterFacts(socket.gethostname(), platform.python_version(), tuple(versions), tuple(faults))


def write_report(path: Path, interpreters: Iterable[InterpreterFacts]) -> None:
    """Write what the executors said, for the process that submitted the job."""
    path.write_text(json.dumps([asdict(facts) for facts in interpreters]), encoding="utf-8")


def read_report(path: Path) -> Sequence[InterpreterFacts] | None:
    """Return what :func:`write_report` wrote; ``None`` when the job did not come so far."""
    if not path.is_file():
        return None
    return [_facts(record) for record in json.loads(path.read_text(encoding="utf-8"))]


def _facts(record: dict[str, Any]) -> InterpreterFacts:
    versions = tuple((name, version) for name, version in record["versions"])
    faults = tuple((name, reason) for name, reason in record["faults"])
    return InterpreterFacts(record["host"], record["python"], versions, faults)
