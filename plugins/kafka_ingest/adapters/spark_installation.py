"""Where Java and Spark are on this machine: the same that ``spark-submit`` finds (its shell scripts, Spark 4.2)."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from kafka_ingest.core.errors import ConfigError

_DEFAULTS_FILE = "spark-defaults.conf"
_PROPERTY = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[=:]?\s*(.*?)\s*$")


def spark_submit() -> str:
    """Gives the spark-submit beside this Python, else that of ``PATH``.

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
    """Gives the Java that runs Spark, with all links resolved.

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
    """Gives Spark's folder: ``SPARK_HOME``, that of an unpacked Spark, or the package ``pyspark``.

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
    """Gives the folder of Spark's configuration; it need not exist.

    Raises:
        ConfigError: Spark is missing.
    """
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")


def default_properties() -> dict[str, str]:
    """Give the properties that ``spark-defaults.conf`` sets; none where it or Spark is missing."""
    try:
        lines = (conf_folder() / _DEFAULTS_FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, ConfigError):
        return {}
    # Java's properties format: the name ends at a blank, at "=" or at ":".
    found = [match for line in lines if (match := _PROPERTY.match(line))]
    return {match[1]: match[2] for match in found}
