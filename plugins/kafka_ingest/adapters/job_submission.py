"""How the Spark job of a batch is submitted: the same for the operator and for the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_ingest.adapters.connections import (
    ConnectionValues,
    kafka_settings_of,
    postgres_params_of,
    spark_master_of,
    spark_secret_of,
)
from kafka_ingest.adapters.job_archive import entry_script, job_archive
from kafka_ingest.adapters.job_environment import JobEnvironment, hand_over, hand_over_spark_secret
from kafka_ingest.adapters.kafka_config import client_config
from kafka_ingest.adapters.spark_installation import default_properties, spark_submit
from kafka_ingest.adapters.spark_startup import jvm_conf, launcher_options
from kafka_ingest.core.settings import JobSettings, PipelineSettings

_LOOPBACK = "127.0.0.1"
#: A pipeline's own ``conf`` wins over these, and over the options of the JVMs (``spark_startup``).
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The task log belongs to the job's own lines.
    "spark.log.level": "WARN",
    # Spark's default, said here because it decides how often a lost executor is survived; local masters try once.
    "spark.task.maxFailures": "4",
    "spark.python.worker.reuse": "true",
    # Where spark.cores.max is set, wait for most of the executors: their number decides how the ranges are split.
    "spark.scheduler.minRegisteredResourcesRatio": "0.8",
}
AUTHENTICATE = "spark.authenticate"
_LOCAL_CONF = {
    # A driver on a laptop or in a container must not depend on what the machine's own name resolves to.
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    # Tasks carry passwords, and Spark keeps tasks as blocks, which it serves to everybody on the machine who finds the
    # port. With this it asks for a secret, which it makes itself (``SecurityManager.initializeAuth``, Spark 4.2).
    # Nothing is encrypted: the blocks never leave the machine, and ``SPARK_LOCAL_DIRS`` is a folder of this user's own.
    AUTHENTICATE: "true",
}
#: On a cluster that asks for its secret, the same blocks cross the network and may lie on the workers' disks.
_ENCRYPTED = {"spark.network.crypto.enabled": "true", "spark.io.encryption.enabled": "true"}
_LOCAL_DIRS_VARIABLE = "SPARK_LOCAL_DIRS"
#: What Airflow's own settings, connections and variables begin with in its environment. The job has no use for them.
_AIRFLOWS_VARIABLES = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_")
#: Workers that start sooner; the module has to be there before Spark hands out the job's code.
_LOCAL_WORKERS = {"spark.python.daemon.module": "spark_jobs.worker_daemon"}


@dataclass(frozen=True, slots=True)
class JobConnections:
    """The three connections of a pipeline."""

    kafka: ConnectionValues
    postgres: ConnectionValues
    spark: ConnectionValues


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """Everything that spark-submit needs. It holds no secrets, but the paths of files that do.

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
    settings: PipelineSettings, batch_id: str, connections: JobConnections, outcome_file: Path
) -> JobSubmission:
    """Put together the submission of one batch, and write the file with the job's secrets beside the outcome file.

    Args:
        settings: The pipeline.
        batch_id: The planned batch.
        connections: Kafka, target database and Spark.
        outcome_file: A path, not there yet, in a folder of ``adapters/job_folder.py``.

    Raises:
        ConfigError: A connection that cannot be used, or a master that would show the environment.
    """
    return _submission(
        settings.job,
        connections.spark,
        name=f"kafka_ingest.{settings.pipeline}",
        script="load_batch",
        arguments=("--pipeline", settings.pipeline, "--batch-id", batch_id),
        variables=hand_over(_environment(settings, connections), outcome_file)
        | hand_over_spark_secret(spark_secret_of(connections.spark), outcome_file.parent)
        | _local_dirs(settings.job, outcome_file.parent),
    )


def package_report_submission(settings: PipelineSettings, spark: ConnectionValues, report_file: Path) -> JobSubmission:
    """Puts together the submission of the small job that says which packages the executors have.

    Of secrets it gets that of the Spark cluster alone.

    Args:
        settings: The pipeline: the job runs on the Python, with the properties and in the memory of its loads.
        spark: The Spark connection.
        report_file: A path on the machine of the driver (``adapters/python_packages.py``).

    Raises:
        ConfigError: A connection that cannot be used.
    """
    return _report_submission(settings.job, spark, f"kafka_ingest.{settings.pipeline}", report_file)


def start_up_submission(java_options: str, report_file: Path) -> JobSubmission:
    """Puts together the submission of the same small job in one process, with options of its JVM (``spark_archive``).

    Args:
        java_options: Options of the driver's JVM, in place of all others.
        report_file: A path, as above.
    """
    job = JobSettings(conf=(("spark.driver.extraJavaOptions", java_options),))
    local = ConnectionValues("start_up", "spark", host="local[1]")
    return _report_submission(job, local, "kafka_ingest.start_up", report_file)


def _report_submission(job: JobSettings, spark: ConnectionValues, name: str, report_file: Path) -> JobSubmission:
    arguments = ("--report-file", str(report_file))
    secret = hand_over_spark_secret(spark_secret_of(spark), report_file.parent)
    return _submission(job, spark, name=name, script="report_packages", arguments=arguments, variables=secret)


def _submission(
    job: JobSettings,
    spark: ConnectionValues,
    *,
    name: str,
    script: str,
    arguments: tuple[str, ...],
    variables: Mapping[str, str],
) -> JobSubmission:
    master = spark_master_of(spark)
    is_local = master.startswith("local")
    # Without it the driver would take a spark.pyspark.python that names the Python of the cluster's workers.
    own_python = {"spark.pyspark.driver.python": sys.executable}
    own, archive = dict(job.conf), str(job_archive())
    conf = _CONF | own_python | (_LOCAL_CONF if is_local else _cluster_conf(job, spark))
    conf |= jvm_conf(own, is_local=is_local)
    has_own_workers = is_local and "spark.pyspark.python" not in own
    return JobSubmission(
        master=master,
        application=str(entry_script(script)),
        py_files=archive,
        application_args=arguments,
        conf=conf | (_LOCAL_WORKERS if has_own_workers else {}) | own,
        env_vars={
            # spark-submit looks for PySpark with it, and it runs the driver.
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            **launcher_options(),
            **(_local_workers(archive) if has_own_workers else {}),
            # Without it Spark warns about the machine's own name, which the driver does not use.
            **({"SPARK_LOCAL_IP": _LOOPBACK} if is_local else {}),
            **dict.fromkeys([name for name in os.environ if name.startswith(_AIRFLOWS_VARIABLES)], ""),
            **variables,
        },
        name=name,
        driver_memory=job.driver_memory,
        executor_memory=job.executor_memory,
        executor_cores=job.executor_cores,
    )


def is_authenticated(job: JobSettings, spark: ConnectionValues) -> bool:
    """Whether Spark asks for a secret before it serves what tasks carry, as far as this machine's settings tell."""
    set_here = default_properties() | (_LOCAL_CONF if spark_master_of(spark).startswith("local") else {})
    if spark_secret_of(spark):
        set_here |= {AUTHENTICATE: "true"}
    return (set_here | dict(job.conf)).get(AUTHENTICATE, "false").lower() == "true"


def _cluster_conf(job: JobSettings, spark: ConnectionValues) -> dict[str, str]:
    if not is_authenticated(job, spark):
        return {}
    set_elsewhere = default_properties()
    return {AUTHENTICATE: "true"} | {key: value for key, value in _ENCRYPTED.items() if key not in set_elsewhere}


def _local_dirs(job: JobSettings, folder: Path) -> dict[str, str]:
    """What Spark puts on disk lies in the job's folder, which is deleted with it, unless another place is named."""
    is_named = _LOCAL_DIRS_VARIABLE in os.environ or "spark.local.dir" in default_properties() | dict(job.conf)
    return {} if is_named else {_LOCAL_DIRS_VARIABLE: str(folder)}


def spark_submit_command(submission: JobSubmission) -> list[str]:
    """Gives the command line of a submission, for callers without Airflow; its environment is ``env_vars``.

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


def in_process_command(submission: JobSubmission) -> list[str]:
    """Gives the command line that runs the same job without Spark, in one Python process.

    Its environment is ``env_vars`` and the zip on ``PYTHONPATH`` (:func:`in_process_environment`).
    """
    return [sys.executable, submission.application, "--runner", "in-process", *submission.application_args]


def in_process_environment(submission: JobSubmission) -> dict[str, str]:
    """Gives the variables for :func:`in_process_command`, on top of the caller's environment."""
    return {**submission.env_vars, "PYTHONPATH": submission.py_files}


def _environment(settings: PipelineSettings, connections: JobConnections) -> JobEnvironment:
    return JobEnvironment(
        kafka=client_config(
            kafka_settings_of(connections.kafka),
            settings.batch.isolation_level,
            client_id=f"kafka_ingest.{settings.pipeline}",
            connection=settings.batch.kafka_connection,
        ),
        postgres=postgres_params_of(connections.postgres),
        job=settings.job,
        hold=settings.plan.hold,
    )


def _local_workers(archive: str) -> dict[str, str]:
    """Local workers run on the Python that submits, too: it has the libraries, ``python3`` may not.

    Their daemon finds the job's code on PYTHONPATH. Workers of a cluster take the pipeline's ``spark.pyspark.python``,
    or ``python3``: what is installed there is not known here.
    """
    path = os.pathsep.join([archive, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
