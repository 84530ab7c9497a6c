"""Preflight of Spark: master, authentication, packages of the executors."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

from kafka_ingest.errors import ConfigError
from kafka_ingest.preflight.checks import CheckResult, Verdict, answered
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.spark.archive import job_folder
from kafka_ingest.spark.installation import (
    OLDEST_PACKAGES,
    OLDEST_PYTHON,
    InterpreterFacts,
    default_properties,
    java,
    read_report,
    spark_submit,
    this_interpreter,
)
from kafka_ingest.spark.master import (
    HADOOP_FOLDERS,
    MasterKind,
    SparkMaster,
    conf_of_master,
    is_authenticated,
)
from kafka_ingest.spark.submission import package_report_submission, run_job, spark_submit_command

_PACKAGES = "python packages"
_CONNECT_SECONDS = 5.0
_JARS_OF_YARN = {"spark.yarn.jars", "spark.yarn.archive"}
#: What YARN's own default of an address begins with.
_HOST_OF_SITE = "${yarn.resourcemanager.hostname}"

# ----------
# Facts: what the master says. What an interpreter says is ``InterpreterFacts``, which the cluster's job reports, too.


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """The Spark master.

    Attributes:
        master: As spark-submit gets it.
        unreachable: Addresses of the master that refuse a TCP connection, with the reason.
        reachable: Addresses that accept one; both are empty for a local master.
        is_this_python: Whether tasks run on the interpreter that asks: a local master, and no other Python is named.
        is_authenticated: Whether Spark asks for a secret before it serves what tasks carry, passwords included.
        uploads_spark: Whether each submission uploads Spark's own jars: on YARN, unless they lie there already.
    """

    master: str
    unreachable: tuple[str, ...] = ()
    reachable: tuple[str, ...] = ()
    is_this_python: bool = True
    is_authenticated: bool = True
    uploads_spark: bool = False


# ----------
# The probe asks: it knocks at the master, and runs a small job for the executors' packages.


class SparkPreflight:
    """Spark, where the pipeline's job runs.

    Args:
        settings: The pipeline, which says how its job is run.
        master: Where Spark runs.
    """

    def __init__(self, settings: PipelineSettings, master: SparkMaster) -> None:
        self._settings = settings
        self._master = master

    def master(self) -> MasterFacts:
        """Look for the master.

        Raises:
            ConfigError: Something is missing without which Spark would not start there.
        """
        master, job = self._master, self._settings.job
        conf = default_properties() | conf_of_master(job, master) | dict(job.conf)
        authenticated = is_authenticated(job, master)
        if master.kind is MasterKind.LOCAL:
            is_this_python = "spark.pyspark.python" not in conf
            return MasterFacts(master.url, is_this_python=is_this_python, is_authenticated=authenticated)
        answers = {address: _refusal(address) for address in _addresses(master)}
        return MasterFacts(
            master.url,
            unreachable=tuple(f"{address}: {refusal}" for address, refusal in answers.items() if refusal),
            reachable=tuple(address for address, refusal in answers.items() if not refusal),
            is_this_python=False,
            is_authenticated=authenticated,
            uploads_spark=master.kind is MasterKind.YARN
            and not conf.keys() & {"spark.yarn.jars", "spark.yarn.archive"},
        )

    def executors(self) -> Sequence[InterpreterFacts]:
        """Run a small job that describes the interpreter of every executor.

        Raises:
            ConfigError: spark-submit is missing, or the job failed or got no cores within five minutes.
        """
        with job_folder() as folder:
            report_file = folder / "report.json"
            submission = package_report_submission(self._settings, self._master, report_file)
            output_tail = run_job(spark_submit_command(submission), {**os.environ, **submission.env_vars})
            report = read_report(report_file)
        if report is None:
            raise ConfigError(
                "the job that looks at the packages of Spark's executors failed",
                expected="an answer of every executor",
                found=output_tail,
                next_command="see the logs of Spark's master and workers; docs/deploying.md, section Which packages",
            )
        return report


def _addresses(master: SparkMaster) -> Sequence[str]:
    """Return the addresses of a cluster's master, or masters, of which one leads."""
    if master.kind is MasterKind.YARN:
        return _resource_managers()
    addresses = master.url.removeprefix("k8s://").removeprefix("spark://")
    if master.kind is MasterKind.STANDALONE:
        return addresses.split(",")
    server = urlsplit(addresses if "://" in addresses else f"https://{addresses}")
    return [f"{server.hostname}:{server.port or (80 if server.scheme == 'http' else 443)}"]


def _resource_managers() -> Sequence[str]:
    """Return the addresses of YARN's resource managers, from ``yarn-site.xml`` (names of ``yarn-default.xml``, 3.5)."""
    folder = Path(next(filter(None, map(os.environ.get, HADOOP_FOLDERS)), ""))
    try:
        root = ElementTree.parse(folder / "yarn-site.xml").getroot()  # noqa: S314 (the administrator's own file)
    except (OSError, ElementTree.ParseError) as error:
        raise ConfigError(
            "YARN's address cannot be read",
            expected=f"yarn-site.xml in the folder that {' or '.join(HADOOP_FOLDERS)} names",
            found=str(error),
            next_command="copy it from the cluster; docs/spark-clusters.md",
        ) from None
    site = {entry.findtext("name", ""): entry.findtext("value", "").strip() for entry in root.iter("property")}
    ids = [part.strip() for part in site.get("yarn.resourcemanager.ha.rm-ids", "").split(",")]
    return [_resource_manager(site, f".{name}" if name else "") for name in ids]


def _resource_manager(site: Mapping[str, str], suffix: str) -> str:
    host = site.get(f"yarn.resourcemanager.hostname{suffix}", "0.0.0.0")  # noqa: S104 (YARN's default)
    return site.get(f"yarn.resourcemanager.address{suffix}", f"{host}:8032").replace(_HOST_OF_SITE, host)


def _refusal(address: str) -> str:
    """Return why an address refuses a TCP connection; empty when it accepts one."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS):
            return ""
    except ValueError:
        return "expected HOST:PORT"
    except OSError as error:
        return str(error)


# ----------
# The judge says what the facts mean.


def spark_results(settings: PipelineSettings, probe: SparkPreflight, *, submit_job: bool) -> Iterator[CheckResult]:
    """Ask and judge: the master, and then the packages, as far as they can be seen from here or a job may look."""
    master = probe.master()
    reached = master_result(master)
    yield reached
    yield from answered("spark-submit", installation_results)
    yield from authentication_results(master)
    yield from upload_results(master)
    if submit_job and reached.result is not Verdict.FAIL:
        yield from answered(_PACKAGES, lambda: package_results(this_interpreter(), probe.executors()))
    elif not master.is_this_python:
        yield not_looked_at(settings.pipeline)
    if settings.job.in_process_below_offsets or (master.is_this_python and not submit_job):
        yield from package_results(this_interpreter(), [this_interpreter()])


def installation_results() -> Iterator[CheckResult]:
    """Look for what submits a job and runs its driver, on this machine.

    Raises:
        ConfigError: spark-submit or Java is missing.
    """
    yield CheckResult("spark-submit", Verdict.PASS, f"{spark_submit()} and {java()} on {socket.gethostname()}")


def master_result(master: MasterFacts) -> CheckResult:
    """Judge whether the master can be reached."""
    if not master.unreachable:
        found = f"{master.master} accepts connections" if master.reachable else f"{master.master}: on this machine"
        return CheckResult("spark", Verdict.PASS, found)
    # Of several masters one leads and the others stand by: one that is down is a warning.
    verdict = Verdict.WARN if master.reachable else Verdict.FAIL
    fix = "start it, or correct host and port of the Spark connection; this machine must reach it"
    return CheckResult("spark", verdict, f"{master.master}: {'; '.join(master.unreachable)}", fix)


def authentication_results(master: MasterFacts) -> Iterator[CheckResult]:
    """Warn of a Spark that serves the passwords which tasks carry to everybody who reaches its ports."""
    if not master.is_authenticated:
        found = f"{master.master}: spark.authenticate is off: who reaches a load's ports can read its passwords"
        fix = 'the cluster\'s secret in the extra of the Spark connection: {"spark.authenticate.secret": "..."}'
        yield CheckResult("spark secret", Verdict.WARN, found, f"{fix}; docs/deploying.md, Where secrets lie")


def upload_results(master: MasterFacts) -> Iterator[CheckResult]:
    """Warn of submissions that take Spark's own jars with them each time: 400 MB."""
    if master.uploads_spark:
        found = "each load uploads the jars of Spark to YARN, since none are named there"
        fix = "set spark.yarn.archive or spark.yarn.jars in the Spark connection's extra; docs/spark-clusters.md, YARN"
        yield CheckResult("spark jars", Verdict.WARN, found, fix)


def not_looked_at(pipeline: str) -> CheckResult:
    """Say that only a job could tell the packages of the executors."""
    fix = f"python -m kafka_ingest preflight {pipeline} --spark"
    return CheckResult(_PACKAGES, Verdict.WARN, "not looked at: it takes a job on the cluster", fix)


def package_results(driver: InterpreterFacts, interpreters: Iterable[InterpreterFacts]) -> Iterator[CheckResult]:
    """Judge every interpreter that tasks run on, against what a load imports and against the driver's Python."""
    for interpreter in sorted(set(interpreters), key=lambda facts: (facts.host, facts.python)):
        faults = [*_python_faults(driver, interpreter), *_package_faults(interpreter)]
        versions = ", ".join(f"{name} {version}" for name, version in interpreter.versions)
        what = f"{interpreter.host}: Python {interpreter.python}"
        if not faults:
            yield CheckResult(_PACKAGES, Verdict.PASS, f"{what}, {versions}")
            continue
        fix = "install them into the Python that tasks run on (spark.pyspark.python); docs/deploying.md, Which packages"
        yield CheckResult(_PACKAGES, Verdict.FAIL, f"{what}: {'; '.join(faults)}", fix)


def _python_faults(driver: InterpreterFacts, interpreter: InterpreterFacts) -> Iterator[str]:
    if _numbers(interpreter.python) < _numbers(OLDEST_PYTHON):
        yield f"Python {OLDEST_PYTHON} or newer is needed"
    # PySpark refuses a worker whose minor version differs from the driver's (PYTHON_VERSION_MISMATCH).
    if _numbers(interpreter.python)[:2] != _numbers(driver.python)[:2]:
        yield f"the driver has Python {driver.python}, and minor versions must be equal"


def _package_faults(interpreter: InterpreterFacts) -> Iterator[str]:
    yield from (f"{name} cannot be imported ({reason})" for name, reason in interpreter.faults)
    for name, version in interpreter.versions:
        oldest = OLDEST_PACKAGES[name]
        if _numbers(version) < _numbers(oldest):
            yield f"{name} {version} is older than {oldest}"


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: 2.9.13 is (2, 9, 13), 4.0.0.dev1 is (4, 0, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
