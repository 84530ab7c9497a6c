"""One submission of the job: its command line, its environment, and what came of it."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kafka_ingest.errors import Busy, CommitStateUnknown, ConfigError, IngestError, RetryLater, error_from_record
from kafka_ingest.protocol.batch import Batch, BatchState, LoadPhases, TaskSeconds
from kafka_ingest.protocol.ports import Ledger
from kafka_ingest.settings import HoldSettings, JobSettings, PipelineSettings
from kafka_ingest.spark.archive import entry_script, job_archive
from kafka_ingest.spark.installation import default_properties, jvm_conf, launcher_options, spark_submit
from kafka_ingest.spark.master import LOOPBACK, MasterKind, SparkMaster, conf_of_master

# ----------
# What the Spark job gets from its submitter, secrets included: a file that the driver reads and deletes at once.
#
# Arguments and Spark properties are visible on the command line and in Spark's UI. Variables are inherited by the JVM,
# its Python workers and every process that they start, can be read in ``/proc/pid/environ`` as long as one of them
# lives, and hold 128 KB at most (execve(2)). So the environment holds only the paths of this file and of the outcome.

JOB_FILE_VARIABLE = "KAFKA_INGEST_JOB_FILE"
SPARK_SECRET_FILE_VARIABLE = "KAFKA_INGEST_SPARK_SECRET_FILE"  # noqa: S105 (a name)
OUTCOME_VARIABLE = "KAFKA_INGEST_OUTCOME_FILE"

_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """Connections and settings of one submission.

    Attributes:
        kafka: librdkafka configuration, complete, with secrets.
        postgres: libpq parameters, with secrets.
        job: How the job runs.
        hold: Time-outs of the hold.
        registry: Configuration of the schema registry, with secrets; empty for a pipeline without one.
    """

    kafka: Mapping[str, str] = field(repr=False)
    postgres: Mapping[str, str] = field(repr=False)
    job: JobSettings
    hold: HoldSettings
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)


def hand_over(environment: object, outcome_file: Path) -> dict[str, str]:
    """Write the job's file, mode 0600, beside its outcome file; return the variables that name both.

    Args:
        environment: What the job gets, such as :class:`JobEnvironment`: a value of the type that it takes.
        outcome_file: A path in a folder that only this user can enter (``spark/archive.py``).
    """
    job_file = _secret_file(outcome_file.parent, "settings_", msgspec.json.encode(environment))
    return {JOB_FILE_VARIABLE: job_file, OUTCOME_VARIABLE: str(outcome_file)}


def take_environment(variables: Mapping[str, str], kind: type[_Given]) -> tuple[_Given, Path]:
    """Read what :func:`hand_over` wrote, and delete it: it can be taken once.

    Args:
        variables: The environment of the process.
        kind: Type of what was handed over.

    Raises:
        ConfigError: There is no such file, or it holds something else; the message does not repeat it.
    """
    job_file, outcome_file = variables.get(JOB_FILE_VARIABLE, ""), variables.get(OUTCOME_VARIABLE, "")
    if not job_file or not outcome_file:
        raise ConfigError(
            f"The job was started without {JOB_FILE_VARIABLE} and {OUTCOME_VARIABLE}",
            next_command="start it by its DAG, or: python -m kafka_ingest run PIPELINE",
        )
    try:
        return msgspec.json.decode(_taken(Path(job_file)), type=kind), Path(outcome_file)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{JOB_FILE_VARIABLE} cannot be read",
            expected="what the package of the same version wrote",
            found=str(error),
            next_command="install the same version of kafka-ingest where DAGs run and where jobs are submitted",
        ) from None


def hand_over_spark_secret(secret: str, folder: Path) -> dict[str, str]:
    """Write the secret that a Spark cluster asks for, as above; return the variable that names its file."""
    return {SPARK_SECRET_FILE_VARIABLE: _secret_file(folder, "spark_", secret.encode())} if secret else {}


def take_spark_secret(variables: Mapping[str, str]) -> str:
    """Read what :func:`hand_over_spark_secret` wrote, and delete it; empty where the cluster asks for none.

    Raises:
        ConfigError: The file is not there.
    """
    path = variables.get(SPARK_SECRET_FILE_VARIABLE, "")
    return _taken(Path(path)).decode() if path else ""


def _secret_file(folder: Path, prefix: str, content: bytes) -> str:
    handle, name = tempfile.mkstemp(dir=folder, prefix=prefix)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return name


def _taken(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        path.unlink()
    except OSError as error:
        raise ConfigError(
            "The job cannot take the settings that its submitter wrote for it",
            expected="a file that nobody has read before",
            found=str(error),
            next_command="start it by its DAG, or: python -m kafka_ingest run PIPELINE",
        ) from None
    return content


# ----------
# The file through which the Spark job tells its submitter what came of the batch.
#
# spark-submit hands back an exit code and a log; neither can carry a typed error. The file holds ``{"batch":
# summary}``, with ``"phases"`` where the job itself has published, or ``{"error": record}``. It appears whole or not at
# all, and is only a message: the ledger is the truth.


def write_batch(path: Path, summary: Mapping[str, Any], phases: LoadPhases | None = None) -> None:
    """Write the summary of a committed batch (``report.batch_summary``), and where the time went."""
    write_document(path, {"batch": summary, **({"phases": asdict(phases)} if phases else {})})


def write_error(path: Path, error: IngestError) -> None:
    """Write an error that this package recognises."""
    write_document(path, {"error": error.to_record()})


def read_phases(path: Path) -> LoadPhases | None:
    """Return where the job's time went; ``None`` when it did not publish, or ended before it could say so."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    phases = document.get("phases")
    return LoadPhases(**{**phases, "tasks": TaskSeconds(**phases["tasks"])}) if phases else None


def read_outcome(path: Path) -> dict[str, Any] | None:
    """Return the batch's summary; ``None`` when the job ended without one (killed, or an unexpected error).

    Raises:
        IngestError: The job's own error, in its class.
    """
    document = read_document(path)
    return document["batch"] if document else None


def read_document(path: Path) -> dict[str, Any] | None:
    """Return what a job wrote; ``None`` when it ended without.

    Raises:
        IngestError: The job's own error, in its class.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if "error" in document:
        raise error_from_record(document["error"])
    return document


def require_unlocked(batch: Batch, ledger: Ledger) -> None:
    """Check, before a job is started that would only wait for its claim, that no attempt publishes the batch now.

    Raises:
        Busy: The batch is locked: the task asks again without using up a retry.
    """
    try:
        ledger.settle(batch.batch_id)
    except CommitStateUnknown as locked:
        raise Busy(
            "another attempt is publishing this batch",
            expected=locked.expected,
            found=locked.found,
            next_command="none: it is asked for again, and finds the batch committed or loads it",
            pipeline=batch.pipeline,
            batch_id=batch.batch_id,
        ) from locked


def loaded_batch(batch: Batch, ledger: Ledger, outcome_file: Path, output_tail: str) -> Batch:
    """Return the batch, committed, once its job has ended; the ledger decides, not the job's exit code.

    Args:
        batch: The batch that the job was submitted for.
        ledger: The ledger. It is read with a lock: a COMMIT of a killed job may still be under way.
        outcome_file: The file that the job was told to write.
        output_tail: How the job ended, for a job that left no outcome.

    Raises:
        IngestError: The job's own error.
        Busy: Another session has the batch locked: an attempt, or this job's COMMIT, which has not ended yet.
        RetryLater: The batch is not committed, and the job left no error.
    """
    require_unlocked(batch, ledger)
    if ledger.settle(batch.batch_id).state is BatchState.COMMITTED and (committed := ledger.batch(batch.batch_id)):
        return committed
    read_outcome(outcome_file)
    raise RetryLater(
        "the job ended without having committed the batch, and left no error",
        expected="the batch committed, or an error written by the job",
        found=output_tail,
        next_command="the same run again: it loads the same batch; the lines above this message are the job's log",
        pipeline=batch.pipeline,
        batch_id=batch.batch_id,
    )


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write what a job tells its submitter: the file appears whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(document, file)
    Path(name).replace(path)


# ----------
# The submission of a batch's job: the same for the operator and for the command line.

#: A pipeline's own ``conf`` overrides these, and the options of the JVMs (``spark/installation.py``).
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The task log is for the job's own lines.
    "spark.log.level": "WARN",
    # Spark's default, written here because it decides how many lost executors a load survives; local masters try once.
    "spark.task.maxFailures": "4",
    "spark.python.worker.reuse": "true",
    # Where spark.cores.max is set, wait for most of the executors: their number decides how the ranges are split.
    "spark.scheduler.minRegisteredResourcesRatio": "0.8",
}
_LOCAL_DIRS_VARIABLE = "SPARK_LOCAL_DIRS"
#: Prefixes of Airflow's own settings, connections and variables in the environment.
_AIRFLOWS_VARIABLES = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_")
#: Workers that start sooner; the module must be there before Spark hands out the job's code.
_LOCAL_WORKERS = {"spark.python.daemon.module": "spark_jobs.worker_daemon"}


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """Everything that spark-submit needs. It holds no secrets, only the paths of files that do.

    Attributes:
        master: Spark master.
        application: The entry script.
        py_files: The zip with the job's code.
        application_args: Arguments of the entry script.
        conf: Spark properties.
        env_vars: Variables for spark-submit's process, on top of its environment.
        name: Name of the Spark application.
        driver_memory: Heap of the driver.
        executor_memory: Heap of each executor.
        executor_cores: Cores of each executor; ``None`` leaves it to the cluster.
    """

    master: str
    application: str
    py_files: str
    application_args: tuple[str, ...]
    conf: Mapping[str, str]
    env_vars: Mapping[str, str]
    name: str
    driver_memory: str
    executor_memory: str
    executor_cores: int | None


def job_submission(
    pipeline: str, batch_id: str, *, environment: JobEnvironment, spark: SparkMaster, outcome_file: Path
) -> JobSubmission:
    """Put together the submission of one batch, and write the file with the job's secrets beside the outcome file.

    Args:
        pipeline: Name of the pipeline.
        batch_id: The planned batch.
        environment: What the job is to get.
        spark: Where Spark runs.
        outcome_file: A path, not there yet, in a folder of ``spark/archive.py``.

    Raises:
        ConfigError: As ``conf_of_master`` raises it.
    """
    return _submission(
        environment.job,
        spark,
        name=f"kafka_ingest.{pipeline}",
        script="load_batch",
        arguments=("--pipeline", pipeline, "--batch-id", batch_id),
        variables=hand_over(environment, outcome_file)
        | hand_over_spark_secret(spark.secret, outcome_file.parent)
        | _local_dirs(environment.job, spark, outcome_file.parent),
    )


def package_report_submission(settings: PipelineSettings, spark: SparkMaster, report_file: Path) -> JobSubmission:
    """Put together the submission of the small job that reports the executors' packages.

    The only secret that it gets is that of the Spark cluster.

    Args:
        settings: The pipeline: the job uses the Python, the properties and the memory of its loads.
        spark: Where Spark runs.
        report_file: A path on the machine of the driver (``spark/installation.py``).

    Raises:
        ConfigError: As ``conf_of_master`` raises it.
    """
    return _report_submission(settings.job, spark, f"kafka_ingest.{settings.pipeline}", report_file)


def start_up_submission(java_options: str, report_file: Path) -> JobSubmission:
    """Put together the submission of the same small job in one process, with options of its JVM (class archive).

    Args:
        java_options: Options of the driver's JVM, in place of all others.
        report_file: A path, as above.
    """
    job = JobSettings(conf=(("spark.driver.extraJavaOptions", java_options),))
    local = SparkMaster("start_up", "local[1]", MasterKind.LOCAL)
    return _report_submission(job, local, "kafka_ingest.start_up", report_file)


def _report_submission(job: JobSettings, spark: SparkMaster, name: str, report_file: Path) -> JobSubmission:
    arguments = ("--report-file", str(report_file))
    secret = hand_over_spark_secret(spark.secret, report_file.parent)
    return _submission(job, spark, name=name, script="report_packages", arguments=arguments, variables=secret)


def _submission(
    job: JobSettings,
    spark: SparkMaster,
    *,
    name: str,
    script: str,
    arguments: tuple[str, ...],
    variables: Mapping[str, str],
) -> JobSubmission:
    is_local = spark.kind is MasterKind.LOCAL
    # Without it the driver would take a spark.pyspark.python that names the Python of the cluster's workers.
    own_python = {"spark.pyspark.driver.python": sys.executable}
    own, archive = dict(job.conf), str(job_archive())
    conf = _CONF | own_python | jvm_conf({**spark.properties, **own}, is_local=is_local) | conf_of_master(job, spark)
    has_own_workers = is_local and "spark.pyspark.python" not in {*spark.properties, *own}
    return JobSubmission(
        master=spark.url,
        application=str(entry_script(script)),
        py_files=archive,
        application_args=arguments,
        conf=conf | (_LOCAL_WORKERS if has_own_workers else {}) | own,
        env_vars={
            # spark-submit uses it to find PySpark, and to run the driver.
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            **launcher_options(),
            **(_local_workers(archive) if has_own_workers else {}),
            # Without it Spark warns about the machine's own name, which the driver does not use.
            **({"SPARK_LOCAL_IP": LOOPBACK} if is_local else {}),
            **without_airflows_variables(),
            **variables,
        },
        name=name,
        driver_memory=job.driver_memory,
        executor_memory=job.executor_memory,
        executor_cores=job.executor_cores,
    )


def without_airflows_variables() -> dict[str, str]:
    """Return Airflow's own settings, connections and variables as empty ones: a job does not use them."""
    return dict.fromkeys([name for name in os.environ if name.startswith(_AIRFLOWS_VARIABLES)], "")


def _local_dirs(job: JobSettings, spark: SparkMaster, folder: Path) -> dict[str, str]:
    """Put Spark's files into the job's folder, which is deleted with the job, unless another place is configured."""
    configured = default_properties() | dict(spark.properties) | dict(job.conf)
    is_named = _LOCAL_DIRS_VARIABLE in os.environ or "spark.local.dir" in configured
    return {} if is_named else {_LOCAL_DIRS_VARIABLE: str(folder)}


def spark_submit_command(submission: JobSubmission) -> list[str]:
    """Return the command line of a submission, for callers without Airflow; its environment is ``env_vars``.

    Raises:
        ConfigError: spark-submit is neither beside this Python nor on PATH.
    """
    command = [spark_submit(), "--master", submission.master, "--name", submission.name]
    command += ["--driver-memory", submission.driver_memory, "--executor-memory", submission.executor_memory]
    if submission.executor_cores is not None:
        command += ["--executor-cores", str(submission.executor_cores)]
    for key, value in submission.conf.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, "--py-files", submission.py_files, submission.application, *submission.application_args]


def _local_workers(archive: str) -> dict[str, str]:
    """Run local workers on the submitter's Python: it has the libraries, ``python3`` may not.

    Their daemon finds the job's code on PYTHONPATH. Workers of a cluster take the pipeline's ``spark.pyspark.python``,
    or ``python3``: this machine does not know what is installed there.
    """
    path = os.pathsep.join([archive, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}


_LOG = logging.getLogger(__name__)


#: A named error with a message, as Java and Python print it; a trace's own heading has none.
_NAMED_ERROR = re.compile(r"^(?!\s+at ).*?([\w.$]+(?:Error|Exception): (?!Traceback).+)$", re.MULTILINE)


#: Spark's text before the error of the task that made it give up (``TaskSetManager``, Spark 4.2).
_FAILURE = "most recent failure: Lost task"


#: The job itself takes seconds; the rest is time for a busy cluster to give it cores.
_JOB_SECONDS = 300.0


def run_job(command: list[str], environment: dict[str, str]) -> str:
    """Run spark-submit; return how it ended, with the likely cause from its log. The whole log goes to DEBUG."""
    try:
        # The command consists of our own script and validated settings; no shell is involved.
        done = subprocess.run(  # noqa: S603
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_JOB_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it was ended after {_JOB_SECONDS:.0f} s: the cluster may have no free cores or memory for it"
    _LOG.debug("%s", done.stdout)
    return f"exit code {done.returncode}{likely_cause(done.stdout)}"


def likely_cause(log: str) -> str:
    """Return the error of the task that failed last, else the first that a job's log names."""
    cause = _NAMED_ERROR.search(log.rpartition(_FAILURE)[2])
    return f"; {cause[1]}" if cause else ""
