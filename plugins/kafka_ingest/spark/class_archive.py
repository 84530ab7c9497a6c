"""Make the archive of the classes that a Spark driver loads, and check that a second start uses it."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kafka_ingest.errors import ConfigError
from kafka_ingest.spark.installation import archive_path, driver_options
from kafka_ingest.spark.packages import read_report
from kafka_ingest.spark.submission import run_job, spark_submit_command, start_up_submission

#: What a JVM says of a class from the archive of an application (``-Xlog:class+load``, Java 17).
_FROM_ARCHIVE = "source: shared objects file (top)"
#: Each class that cannot be archived is a warning; the second start shows whether it worked.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


@dataclass(frozen=True, slots=True)
class PreparedArchive:
    """An archive that was just made and checked.

    Attributes:
        path: Where it is.
        archived_classes: Classes that the second start took from it.
        loaded_classes: Classes that the second start loaded in all.
        cpu_seconds_without: CPU time of the smallest job from start to exit, without it. Not the time by the clock:
            that depends on what else the machine does.
        cpu_seconds_with: The same with it.
    """

    path: Path
    archived_classes: int
    loaded_classes: int
    cpu_seconds_without: float
    cpu_seconds_with: float


def prepare_archive() -> PreparedArchive:
    """Make the archive for the Java and the Spark of this machine, and replace an older one.

    Runs a job of one small task on ``local[1]`` three times: as it is, to make the archive, and with it. The file
    appears under its name only when the third run has used it.

    Raises:
        ConfigError: Java or Spark is missing, no archive can be made with this class path, or it was not used.
    """
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka_ingest_archive_", dir=path.parent) as folder:
        draft, class_log = Path(folder) / path.name, Path(folder) / "classes.log"
        without = _cpu_seconds(driver_options(None), Path(folder))
        _cpu_seconds(f'{driver_options(None)} -XX:ArchiveClassesAtExit="{draft}" {_QUIET}', Path(folder))
        used = _cpu_seconds(f'{driver_options(draft)} -Xlog:class+load:file="{class_log}"', Path(folder))
        archived, loaded = _classes(class_log)
        if not archived:
            raise _failed("a second start that takes classes from the archive", f"none of {loaded:,}")
        # Every user of this installation may use it; only its owner may change it.
        draft.chmod(0o644)
        draft.replace(path)
    return PreparedArchive(path, archived, loaded, without, used)


def _cpu_seconds(java_options: str, folder: Path) -> float:
    report_file = folder / "report.json"
    report_file.unlink(missing_ok=True)
    submission = start_up_submission(java_options, report_file)
    began = _children_cpu_seconds()
    output_tail = run_job(spark_submit_command(submission), {**os.environ, **submission.env_vars})
    if not read_report(report_file):
        raise _failed("a job of one small task to succeed", output_tail)
    return _children_cpu_seconds() - began


def _children_cpu_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _classes(class_log: Path) -> tuple[int, int]:
    lines = class_log.read_text(encoding="utf-8").splitlines()
    return sum(line.endswith(_FROM_ARCHIVE) for line in lines), sum(" source: " in line for line in lines)


def _failed(expected: str, found: str) -> ConfigError:
    return ConfigError(
        "the archive of Spark's classes was not made",
        expected=expected,
        found=found,
        next_command="none: loads run without it; the cause may be seen with: python -m kafka_ingest preflight --spark",
    )
