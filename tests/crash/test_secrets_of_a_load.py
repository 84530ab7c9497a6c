"""Where secrets lie while a load runs: the table of docs/deploying.md seen from outside, and a theft that fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox.airflow_settings import connection_variables, spark_connection
from sandbox.paths import CHECKOUT
from sandbox.spark import SparkCluster
from tests.crash.gated_table import START_SECONDS, gated_table
from tests.crash.pipeline_at_risk import SECTIONS, DriverProcess, PipelineAtRisk
from tests.crash.process_tree import child, command_of, listening_ports, tree_below
from tests.crash.test_spark_killed import GATED, large, large_topic  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

LOCAL, CLUSTER = "local", "cluster"
KAFKA_SECRET = "kafka-s3cret-of-the-walk"
THIEF_SECONDS = 60


@dataclass
class HeldLoad:
    """A load that stands in the middle of COPY, with passwords in its tasks.

    Attributes:
        pipeline: Whose load it is.
        job: The command that submitted it.
        secrets: The passwords of Kafka and PostgreSQL.
        spark_secret: The cluster's; empty on a local master.
        temporary: The temporary folder of command and driver.
        processes: Submitter, JVMs, driver, daemons and workers; master and worker of the cluster, too.
        cluster_folder: Where master and workers keep their files.
    """

    pipeline: PipelineAtRisk
    job: DriverProcess
    secrets: tuple[str, ...]
    spark_secret: str
    temporary: Path
    processes: list[int]
    cluster_folder: Path | None

    @property
    def jvm(self) -> int:
        found = child(self.job.process.pid, "SparkSubmit")
        assert found is not None
        return found

    def below_submitter(self) -> list[int]:
        return [pid for pid in self.processes if pid != self.job.process.pid]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    spark = SparkCluster(tmp_path_factory.mktemp("cluster") / "spark", workers=1, cores=2)
    yield spark
    spark.destroy()


@pytest.fixture(params=[LOCAL, CLUSTER])
def held(
    request: pytest.FixtureRequest,
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: SparkCluster,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[HeldLoad]:
    """Holds a load; afterwards it must come through, and leave nothing in its temporary folder."""
    temporary = tmp_path_factory.mktemp("tmp")
    kafka = json.loads(os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"])
    kafka["extra"]["sasl.password"] = KAFKA_SECRET
    variables = connection_variables({"kafka_default": json.dumps(kafka)}) | {"TMPDIR": str(temporary)}
    conf = {}
    if request.param == CLUSTER:
        cluster.start()
        variables |= connection_variables({"spark_default": spark_connection(cluster.master_url, cluster.secret)})
        conf = {"spark.cores.max": "2", "spark.pyspark.python": sys.executable}
    spark = {"executor_memory": "512m", "conf": conf}
    large.files.write(large.topic.name, **{**SECTIONS, "limit": {}, "spark": spark})
    with gated_table(large, gated=GATED, for_long=True) as gate:
        job = large.start_command("run", large.name, "--run-id", "held", environment=variables)
        gate.waiting_client()
        daemons = [pid for process in cluster.processes if request.param == CLUSTER and (pid := process.pid())]
        processes = [pid for root in (job.process.pid, *daemons) for pid in tree_below(root)]
        secrets = (KAFKA_SECRET, str(large.files.database["password"]))
        spark_secret = cluster.secret if request.param == CLUSTER else ""
        folder = cluster.folder if request.param == CLUSTER else None
        yield HeldLoad(large, job, secrets, spark_secret, temporary, processes, folder)
        gate.open()
        assert job.process.wait(START_SECONDS) == 0, job.output
    large.require_every_record_once()
    assert [path.name for path in temporary.rglob("*") if path.is_file() and path.suffix != ".zip"] == []


@pytest.fixture
def thief() -> Iterator[subprocess.Popen[str]]:
    """A thief who waits for ports."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "tests.crash.block_thief"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environment, cwd=CHECKOUT, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def test_a_process_without_sparks_secret_gets_none_of_the_blocks_that_carry_passwords(
    thief: subprocess.Popen[str], held: HeldLoad
) -> None:
    ports = listening_ports(held.jvm)
    said, _ = thief.communicate(" ".join(map(str, ports)), timeout=THIEF_SECONDS)
    answers = [json.loads(line) for line in said.splitlines()]
    assert {answer["port"] for answer in answers} == set(ports)
    stolen = [answer for answer in answers if "refused" not in answer]
    readable = [secret for secret in held.secrets for answer in stolen if secret in answer["text"]]
    assert ([(answer["port"], answer["block"], answer["bytes"]) for answer in stolen], readable) == ([], [])


def test_secrets_lie_only_where_the_table_says(held: HeldLoad) -> None:
    for place, check in PLACES.items():
        check(held)
        assert place


def test_the_walk_looks_at_every_place_of_the_table() -> None:
    text = (CHECKOUT / "docs" / "deploying.md").read_text(encoding="utf-8")
    section = re.split(r"(?m)^## ", text.partition("\n## Where secrets lie\n")[2])[0]
    rows = re.findall(r"(?m)^\| (.+?) \|", section)
    assert rows[1:] == list(PLACES)


def _airflows_connections_stay_with_the_submitter(held: HeldLoad) -> None:
    assert KAFKA_SECRET in _environment(held.job.process.pid)
    assert [command_of(pid) for pid in held.below_submitter() if KAFKA_SECRET in _environment(pid)] == []


def _the_jobs_files_are_gone(held: HeldLoad) -> None:
    [own] = held.temporary.glob("kafka-ingest-*")
    assert [*own.rglob("settings_*"), *own.glob("job_*/spark_*")] == []
    folders = [own, *own.glob("job_*")]
    assert [oct(folder.stat().st_mode & 0o777) for folder in folders] == ["0o700", "0o700"]


def _no_command_line_has_a_secret(held: HeldLoad) -> None:
    lines = [command_of(pid) for pid in held.processes]
    assert any("--py-files" in line for line in lines)
    assert [line for line in lines for secret in _all(held) if secret in line] == []


def _only_executors_have_sparks_secret_in_their_environment(held: HeldLoad) -> None:
    drivers = set(tree_below(held.jvm))
    for pid in held.below_submitter():
        environment, may_have = _environment(pid), () if pid in drivers else ("_SPARK_AUTH_SECRET",)
        found = re.findall(r"(?:^|\0)(\w+)=([^\0]*)", environment)
        assert [secret for secret in held.secrets if secret in environment] == [], command_of(pid)
        names = {name for name, value in found if held.spark_secret and held.spark_secret in value}
        assert names <= set(may_have), command_of(pid)


def _memory_is_the_users_own(held: HeldLoad) -> None:
    memories = [Path(f"/proc/{pid}/mem").stat() for pid in held.processes]
    assert {(memory.st_uid, memory.st_mode & 0o777) for memory in memories} == {(os.getuid(), 0o600)}


def _ports_ask_for_sparks_secret(held: HeldLoad) -> None:
    # What they give to somebody without it is a test of its own.
    assert "spark.authenticate=true" in command_of(held.jvm)


def _sparks_folders_hold_no_secret_in_clear(held: HeldLoad) -> None:
    own = next(held.temporary.glob("kafka-ingest-*/job_*"))
    assert any(path.name.startswith("blockmgr-") for path in own.iterdir())
    assert _files_with(held.secrets, held.temporary) == []
    if held.cluster_folder is not None:
        assert list(held.cluster_folder.rglob("blockmgr-*")) != []
        assert _files_with(held.secrets, held.cluster_folder) == []


def _logs_have_no_secret(held: HeldLoad) -> None:
    assert [secret for secret in _all(held) if secret in held.job.output] == []


def _no_table_has_a_secret(held: HeldLoad) -> None:
    """Looks at the ledger; rendered fields and what XCom gets belong to the tests of the operator (tests/dags)."""
    query = held.pipeline.files.query
    tables = query("SELECT relname FROM pg_class WHERE relnamespace = 'kafka_ingest'::regnamespace AND relkind = 'r'")
    assert len(tables) > 5
    for (table,) in tables:
        for secret in _all(held):
            assert query(f"SELECT t::text FROM kafka_ingest.{table} t WHERE strpos(t::text, %s) > 0", secret) == []


def _all(held: HeldLoad) -> tuple[str, ...]:
    return (*held.secrets, *filter(None, [held.spark_secret]))


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return ""


def _files_with(secrets: tuple[str, ...], folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]


PLACES: dict[str, Callable[[HeldLoad], None]] = {
    "Airflow's connections": _airflows_connections_stay_with_the_submitter,
    "the job's files": _the_jobs_files_are_gone,
    "command lines, Spark's properties, its UI and event log": _no_command_line_has_a_secret,
    "environment of the job's processes": _only_executors_have_sparks_secret_in_their_environment,
    "memory of the job's processes": _memory_is_the_users_own,
    "ports of Spark": _ports_ask_for_sparks_secret,
    "Spark's folders on disk": _sparks_folders_hold_no_secret_in_clear,
    "logs": _logs_have_no_secret,
    "ledger, XCom, rendered fields": _no_table_has_a_secret,
}
