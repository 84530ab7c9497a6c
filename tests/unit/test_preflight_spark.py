"""What preflight makes of Spark, and of the Pythons that tasks run on."""

from __future__ import annotations

import re
import socket
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_ingest.connections import ConnectionValues
from kafka_ingest.preflight.facts import MasterFacts, Verdict
from kafka_ingest.preflight.spark import SparkPreflight, authentication_results, master_result, package_results
from kafka_ingest.settings import JobSettings
from kafka_ingest.spark.installation import (
    OLDEST_PACKAGES,
    OLDEST_PYTHON,
    InterpreterFacts,
    read_report,
    this_interpreter,
    write_report,
)
from kafka_ingest.spark.submission import likely_cause
from tests.builders import pipeline_settings

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
VERSIONS = {"confluent_kafka": "2.16.1", "msgspec": "0.22.0", "psycopg2": "2.9.13", "pyarrow": "26.0.1"}
DRIVER = InterpreterFacts("driver", "3.11.7", (*VERSIONS.items(), ("pyspark", "4.2.0")))


def with_version(name: str, version: str) -> InterpreterFacts:
    return replace(DRIVER, versions=tuple({**dict(DRIVER.versions), name: version}.items()))


def test_the_oldest_versions_are_those_that_the_package_asks_for() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    found = dict(re.findall(r"([\w-]+)>=([\d.]+)", " ".join(asked)))
    modules = {"psycopg2-binary": "psycopg2"}
    assert {modules.get(name, name.replace("-", "_")): version for name, version in found.items()} == OLDEST_PACKAGES
    assert project["requires-python"] == f">={OLDEST_PYTHON}"


@pytest.mark.parametrize(
    ("master", "verdict"),
    [
        (MasterFacts("local[*]"), Verdict.PASS),
        (MasterFacts("spark://a:1", reachable=("a:1",)), Verdict.PASS),
        (MasterFacts("spark://a:1,b:1", reachable=("a:1",), unreachable=("b:1: refused",)), Verdict.WARN),
        (MasterFacts("spark://a:1", unreachable=("a:1: refused",)), Verdict.FAIL),
    ],
)
def test_one_master_of_several_may_be_down(master: MasterFacts, verdict: Verdict) -> None:
    result = master_result(master)
    assert result.result is verdict
    assert all(words in result.found for words in master.unreachable)


def test_an_interpreter_with_everything_passes_with_its_versions() -> None:
    [result] = package_results(DRIVER, [DRIVER, DRIVER])
    assert result.result is Verdict.PASS
    assert result.found == (
        "driver: Python 3.11.7, confluent_kafka 2.16.1, msgspec 0.22.0, psycopg2 2.9.13, pyarrow 26.0.1, pyspark 4.2.0"
    )


@pytest.mark.parametrize(
    ("worker", "fault"),
    [
        (with_version("pyarrow", "16.1.0"), "pyarrow 16.1.0 is older than 17"),
        (with_version("psycopg2", "2.9.8"), "psycopg2 2.9.8 is older than 2.9.9"),
        (
            replace(DRIVER, faults=(("msgspec", "No module named 'msgspec'"),)),
            "msgspec cannot be imported (No module named 'msgspec')",
        ),
        (
            replace(DRIVER, python="3.12.1"),
            "the driver has Python 3.11.7, and minor versions must be equal",
        ),
    ],
)
def test_what_tasks_could_not_run_with_fails(worker: InterpreterFacts, fault: str) -> None:
    worker = replace(worker, host="worker")
    driver, found = package_results(DRIVER, [worker, DRIVER])
    assert (driver.result, found.result) == (Verdict.PASS, Verdict.FAIL)
    assert found.found == f"worker: Python {worker.python}: {fault}"


def test_versions_are_compared_as_numbers() -> None:
    assert [r.result for r in package_results(DRIVER, [with_version("confluent_kafka", "2.10.0rc1")])] == [Verdict.PASS]


def test_this_interpreter_has_what_the_tests_run_with() -> None:
    own = this_interpreter()
    assert [name for name, _ in own.versions] == list(OLDEST_PACKAGES)
    assert own.python == ".".join(str(part) for part in sys.version_info[:3])
    assert own.faults == ()


def test_a_package_that_cannot_be_imported_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert this_interpreter().faults == (("msgspec", "import of msgspec halted; None in sys.modules"),)


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert read_report(path) is None
    found = [DRIVER, replace(DRIVER, faults=(("msgspec", "gone"),))]
    write_report(path, found)
    assert read_report(path) == found


def probe(
    host: str, *, port: int | None = None, conf: tuple[tuple[str, str], ...] = (), secret: str = ""
) -> SparkPreflight:
    settings = replace(pipeline_settings("orders"), job=JobSettings(conf=conf))
    extra = {"spark.authenticate.secret": secret} if secret else {}
    return SparkPreflight(settings, ConnectionValues("spark_default", "spark", host=host, port=port, extra=extra))


@pytest.mark.parametrize(
    ("spark", "warnings"),
    [
        (probe("local[2]"), 0),
        (probe("local[2]", conf=(("spark.authenticate", "false"),)), 1),
        (probe("spark://127.0.0.1:1", secret="s3cret"), 0),
        (probe("spark://127.0.0.1:1"), 1),
    ],
)
def test_a_spark_that_gives_blocks_to_everybody_is_warned_of(spark: SparkPreflight, warnings: int) -> None:
    results = list(authentication_results(spark.master()))
    assert [result.result for result in results] == [Verdict.WARN] * warnings
    assert "s3cret" not in repr(results)
    assert all("spark.authenticate.secret" in result.fix for result in results)


def test_every_address_of_a_standalone_master_is_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        facts = probe(f"spark://127.0.0.1:{port},127.0.0.1:1,nowhere").master()
    assert facts.reachable == (f"127.0.0.1:{port}",)
    assert facts.unreachable == (
        "127.0.0.1:1: [Errno 111] Connection refused",
        "nowhere: expected HOST:PORT",
    )
    assert not facts.is_this_python


def test_tasks_of_a_local_master_run_here_unless_another_python_is_named() -> None:
    assert probe("local[2]").master() == MasterFacts("local[2]")
    other = probe("local[2]", conf=(("spark.pyspark.python", "/opt/python"),)).master()
    assert not other.is_this_python


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
