"""What is handed to spark-submit, and that secrets are handed over in the environment alone."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.connections import ConnectionValues
from kafka_ingest.errors import ConfigError
from kafka_ingest.settings import HoldSettings, JobSettings
from kafka_ingest.spark.submission import (
    JobEnvironment,
    JobSubmission,
    likely_cause,
    spark_submit_command,
    take_environment,
    take_spark_secret,
)
from kafka_ingest.world import LookUp, World
from tests.builders import pipeline_settings

BATCH_ID = "0b8ee31f-5b0e-4a54-8a5c-0b1f5e1f9f55"
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-CreateCoredumpOnCrash"
SECRETS = ("kafka-s3cret", "pg-s3cret")
_PIPELINE = pipeline_settings("orders")
SETTINGS = replace(
    _PIPELINE,
    pipeline="orders",
    plan=replace(_PIPELINE.plan, hold=HoldSettings(1800, 30, 5)),
    job=JobSettings(conf=(("spark.task.maxFailures", "7"),), driver_memory="2g", executor_cores=3, tasks=5),
)


def connections(master: str = "local[2]", **spark: str) -> LookUp:
    kafka = {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "app",
        "sasl.password": SECRETS[0],
    }
    found = {
        "kafka": ConnectionValues("kafka_default", "kafka", extra=kafka),
        "postgres": ConnectionValues(
            "postgres_default", "postgres", host="db", port=5432, login="etl", password=SECRETS[1], schema="shop"
        ),
        "spark": ConnectionValues("spark_default", "spark", host=master, extra=spark),
    }
    return lambda _, conn_type: found[conn_type]


def submission(outcome_file: Path, master: str = "local[2]", **job: Any) -> JobSubmission:
    settings = replace(SETTINGS, job=replace(SETTINGS.job, **job))
    secret = {"spark.authenticate.secret": "s3cret-of-spark"} if master.startswith("spark://") else {}
    return World(settings, connections(master, **secret)).submission(BATCH_ID, outcome_file)


@pytest.fixture
def outcome(tmp_path: Path) -> Path:
    return tmp_path / "outcome.json"


def test_secrets_stand_in_a_file_of_the_users_own_and_nowhere_else(outcome: Path) -> None:
    submitted = submission(outcome)
    environment = json.dumps(dict(submitted.env_vars))
    shown = " ".join([repr(submitted), *spark_submit_command(submitted), environment])
    [job_file] = outcome.parent.iterdir()
    assert job_file.stat().st_mode & 0o777 == 0o600
    for secret in SECRETS:
        assert secret in job_file.read_text(encoding="utf-8")
        assert secret not in shown


def test_the_job_gets_back_what_was_submitted_once(outcome: Path) -> None:
    variables = submission(outcome).env_vars
    environment, outcome_file = take_environment(variables, JobEnvironment)
    assert environment.kafka["sasl.password"] == SECRETS[0]
    assert environment.kafka["isolation.level"] == "read_committed"
    assert environment.postgres["password"] == SECRETS[1]
    assert environment.job == SETTINGS.job
    assert environment.hold == SETTINGS.plan.hold
    assert outcome_file == outcome
    assert list(outcome.parent.iterdir()) == []
    with pytest.raises(ConfigError, match="cannot take the settings"):
        take_environment(variables, JobEnvironment)


def test_a_job_without_its_environment_says_how_to_start_it() -> None:
    with pytest.raises(ConfigError, match="was started without KAFKA_INGEST_JOB_FILE") as caught:
        take_environment({}, JobEnvironment)
    assert "kafka_ingest run" in caught.value.next_command


def test_a_file_of_another_version_is_refused_without_repeating_it(tmp_path: Path) -> None:
    job_file = tmp_path / "settings.json"
    job_file.write_text(json.dumps({"password": SECRETS[0]}))
    broken = {"KAFKA_INGEST_JOB_FILE": str(job_file), "KAFKA_INGEST_OUTCOME_FILE": "/tmp/o"}
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        take_environment(broken, JobEnvironment)
    assert SECRETS[0] not in str(caught.value)


def test_the_job_inherits_nothing_of_airflows_settings_and_connections(
    outcome: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflows = ("AIRFLOW_CONN_WAREHOUSE", "AIRFLOW_VAR_TOKEN", "AIRFLOW__CORE__FERNET_KEY")
    for name in airflows:
        monkeypatch.setenv(name, "s3cret-of-airflow")
    assert {name: submission(outcome).env_vars[name] for name in airflows} == dict.fromkeys(airflows, "")


def test_a_local_spark_asks_for_a_secret_that_it_makes_itself(outcome: Path) -> None:
    submitted = submission(outcome)
    assert submitted.conf["spark.authenticate"] == "true"
    assert take_spark_secret(submitted.env_vars) == ""


def test_a_clusters_secret_comes_from_its_connection_and_turns_on_encryption(outcome: Path) -> None:
    found = connections("spark://m:7077", **{"spark.authenticate.secret": "s3cret-of-spark"})
    submitted = World(SETTINGS, found).submission(BATCH_ID, outcome)
    assert {key: value for key, value in submitted.conf.items() if "authenticate" in key or "crypt" in key} == {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    }
    assert "s3cret-of-spark" not in " ".join([repr(submitted), *spark_submit_command(submitted)])
    assert take_spark_secret(submitted.env_vars) == "s3cret-of-spark"
    assert len(list(outcome.parent.iterdir())) == 1, "the job's settings alone are left"


def test_a_secret_in_sparks_own_defaults_turns_on_encryption_and_their_choice_stays(
    outcome: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "conf"
    folder.mkdir()
    lines = "# own\nspark.authenticate true\nspark.authenticate.secret=x\nspark.network.crypto.enabled : false\n"
    (folder / "spark-defaults.conf").write_text(lines)
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    submitted = World(SETTINGS, connections("spark://m:7077")).submission(BATCH_ID, outcome)
    assert {key: value for key, value in submitted.conf.items() if "authenticate" in key or "crypt" in key} == {
        "spark.authenticate": "true",
        "spark.io.encryption.enabled": "true",
    }


def test_spark_writes_into_the_jobs_folder_unless_another_is_named(
    outcome: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    assert submission(outcome).env_vars["SPARK_LOCAL_DIRS"] == str(outcome.parent)
    assert "SPARK_LOCAL_DIRS" not in submission(outcome, conf=(("spark.local.dir", "/fast"),)).env_vars
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/fast")
    assert "SPARK_LOCAL_DIRS" not in submission(outcome).env_vars


def test_the_command_names_master_memory_code_and_batch(outcome: Path) -> None:
    command = spark_submit_command(submission(outcome))
    assert command[0].endswith("spark-submit")
    assert command[command.index("--master") + 1] == "local[2]"
    assert command[command.index("--name") + 1] == "kafka_ingest.orders"
    assert command[command.index("--driver-memory") + 1] == "2g"
    assert command[command.index("--executor-cores") + 1] == "3"
    assert command[command.index("--py-files") + 1].endswith(".zip")
    assert command[-5:] == [submission(outcome).application, "--pipeline", "orders", "--batch-id", BATCH_ID]


def test_a_pipelines_conf_wins_over_the_defaults(outcome: Path) -> None:
    assert submission(outcome).conf["spark.task.maxFailures"] == "7"
    assert submission(outcome).conf["spark.ui.enabled"] == "false"


def test_jvms_start_with_options_for_a_short_life_executors_without_the_archive(
    outcome: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafka_ingest.spark.installation.class_archive", lambda: Path("/cache/classes.jsa"))
    local, cluster = submission(outcome), submission(outcome, "spark://master:7077")
    assert local.conf["spark.driver.extraJavaOptions"] == (f'{JVM_OPTIONS} -XX:SharedArchiveFile="/cache/classes.jsa"')
    assert "spark.executor.extraJavaOptions" not in local.conf
    assert cluster.conf["spark.driver.extraJavaOptions"] == local.conf["spark.driver.extraJavaOptions"]
    assert cluster.conf["spark.executor.extraJavaOptions"] == JVM_OPTIONS


@pytest.mark.parametrize("key", ["spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"])
def test_a_pipelines_own_java_options_stay_alone(outcome: Path, key: str) -> None:
    own = submission(outcome, "spark://master:7077", conf=((key, "-XX:+UseG1GC"),)).conf
    assert {name: value for name, value in own.items() if name.startswith("spark.driver") and "Java" in name} == {
        key: "-XX:+UseG1GC"
    }
    assert own["spark.executor.extraJavaOptions"] == JVM_OPTIONS


def test_only_a_local_driver_is_bound_to_the_loopback_and_to_this_python(outcome: Path) -> None:
    local, cluster = submission(outcome), submission(outcome, "spark://master:7077")
    assert local.conf["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in cluster.conf
    assert local.env_vars["PYSPARK_PYTHON"] == sys.executable
    assert "PYSPARK_PYTHON" not in cluster.env_vars
    assert cluster.env_vars["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_the_jvm_that_only_writes_a_command_line_starts_with_few_options(
    outcome: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LAUNCHER_OPTS", raising=False)
    assert submission(outcome).env_vars["SPARK_LAUNCHER_OPTS"] == JVM_OPTIONS
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "-Xmx64m")
    assert "SPARK_LAUNCHER_OPTS" not in submission(outcome).env_vars


def test_local_workers_find_the_code_that_they_load_before_their_first_task(
    outcome: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/opt/plugins")
    local, cluster = submission(outcome), submission(outcome, "spark://master:7077")
    assert local.conf["spark.python.daemon.module"] == "spark_jobs.worker_daemon"
    assert local.env_vars["PYTHONPATH"] == f"{local.py_files}:/opt/plugins"
    assert "spark.python.daemon.module" not in cluster.conf
    assert "PYTHONPATH" not in cluster.env_vars


def test_a_pipeline_may_name_the_python_of_its_workers_and_of_its_driver(outcome: Path) -> None:
    def conf_with(*pairs: tuple[str, str]) -> JobSubmission:
        return submission(outcome, conf=pairs)

    workers = conf_with(("spark.pyspark.python", "/opt/python"))
    assert workers.conf["spark.pyspark.driver.python"] == sys.executable
    assert "PYSPARK_PYTHON" not in workers.env_vars
    assert "spark.python.daemon.module" not in workers.conf
    driver = conf_with(("spark.pyspark.driver.python", "/opt/python"))
    assert driver.conf["spark.pyspark.driver.python"] == "/opt/python"


@pytest.mark.parametrize("master", ["yarn", "k8s://https://cluster:443"])
def test_a_cluster_gets_its_secrets_in_files_too(outcome: Path, master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
    submitted = submission(outcome, master, conf=(("spark.kubernetes.container.image", "spark:1"),))
    shown = " ".join([repr(submitted), *spark_submit_command(submitted)])
    assert [secret for secret in SECRETS if secret in shown] == []
    assert not [key for key in submitted.conf if "Env" in key]
    assert take_environment(submitted.env_vars, JobEnvironment)[0].postgres["password"] == SECRETS[1]


def test_the_cause_of_a_failed_job_is_the_error_of_its_last_task() -> None:
    log = (
        "Traceback (most recent call last):\n"
        "py4j.protocol.Py4JJavaError: An error occurred while calling collect.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 failed 4 times, "
        "most recent failure: Lost task 1.3 in stage 0.0 (TID 7) (w executor 0): "
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "/opt/spark/worker.py", line 9, in main\n'
        "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10\n"
        "\tat org.apache.spark.SomeError: not this\n"
        "Caused by: java.io.IOException: nor this\n"
    )
    assert likely_cause(log) == (
        "; pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10"
    )


def test_the_cause_of_a_job_that_ran_no_task_is_the_first_error_of_its_log() -> None:
    log = "WARN: slow\n: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext\nKeyError: 7\n"
    assert likely_cause(log) == "; java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext"
    assert likely_cause("all is well\n") == ""
