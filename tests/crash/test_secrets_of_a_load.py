"""Where secrets lie while a load runs: the table of docs/deploying.md seen from outside, and a theft that fails."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from kafka_ingest.spark.installation import JVM_OPTIONS
from sandbox.airflow_settings import connection_variables, spark_connection
from sandbox.paths import CHECKOUT
from sandbox.processes import ManagedProcess
from sandbox.spark import SparkCluster
from sandbox.yarn import YarnCluster
from tests.certificates import Authority
from tests.crash.gated_table import START_SECONDS, Gate, gated_table
from tests.crash.pipeline_at_risk import SECTIONS, DriverProcess, PipelineAtRisk
from tests.crash.process_tree import child, command_of, listening_ports, tree_below
from tests.crash.test_spark_killed import GATED, RETRY_LATER, large, large_topic  # noqa: F401 (fixtures)
from tests.integration.pipeline_under_test import password_of_the_database

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

LOCAL, STANDALONE, YARN = "local", "standalone", "yarn"
THIEF_SECONDS = 60
#: Log4j's settings of executors; a driver has a property of Spark for it.
EVERYTHING = """\
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%ex
rootLogger.level = debug
rootLogger.appenderRef.console.ref = console
"""
#: What nobody uses, and everybody carries: the broker takes no login.
KAFKA_SECRETS = {
    "sasl.password": "kafka-s3cret-of-the-walk",
    "ssl.key.password": "key-s3cret-of-the-walk",
    "sasl.oauthbearer.client.secret": "client-s3cret-of-the-walk",
}
AIRFLOW_SECRETS = {
    "AIRFLOW__CORE__FERNET_KEY": "fernet-s3cret-of-the-walk",
    "AIRFLOW_CONN_SOMEBODY_ELSES": "other://somebody:other-s3cret-of-the-walk@elsewhere",
    "AIRFLOW_VAR_SOMEBODY_ELSES": "variable-s3cret-of-the-walk",
}


class Cluster(Protocol):
    """What both kinds of cluster have."""

    folder: Path

    def start(self) -> None: ...

    @property
    def processes(self) -> tuple[ManagedProcess, ...]: ...


@dataclass
class HeldLoad:
    """A load that stands in the middle of COPY, with passwords in its tasks. Everything says as much as it can.

    Attributes:
        pipeline: Whose load it is.
        job: The command that submitted it.
        gate: Holds it up.
        secrets: The secrets of Kafka, PostgreSQL and Airflow.
        spark_secret: The cluster's; empty where Spark makes one for each application.
        temporary: The temporary folder of command and driver, with Spark's event log.
        processes: Submitter, JVMs, driver, daemons and workers; those of the cluster, too.
        cluster_folder: Where the cluster keeps its files and logs.
    """

    pipeline: PipelineAtRisk
    job: DriverProcess
    gate: Gate
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


@pytest.fixture(scope="module", autouse=True)
def core_files_are_allowed() -> Iterator[None]:
    """Where they are not allowed, nobody could see that a load writes none. Clusters inherit it, too."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    assert resource.getrlimit(resource.RLIMIT_CORE)[0] != 0
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    spark = SparkCluster(tmp_path_factory.mktemp("cluster") / "spark", workers=1, cores=2)
    yield spark
    spark.destroy()


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    cluster = YarnCluster(tmp_path_factory.mktemp("yarn") / "yarn", cache=CHECKOUT / ".cache")
    yield cluster
    cluster.destroy()


@pytest.fixture(scope="module")
def key_of_the_database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A key that nobody asks for: the server speaks no TLS."""
    folder = tmp_path_factory.mktemp("certificates")
    Authority(folder, "ca").issue("loader")
    return (folder / "loader.key").read_text(encoding="ascii")


@pytest.fixture(params=[LOCAL, STANDALONE, pytest.param(YARN, marks=pytest.mark.slow)])
def held(
    request: pytest.FixtureRequest,
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    standalone: SparkCluster,
    yarn: YarnCluster,
    key_of_the_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[HeldLoad]:
    """Holds a load; afterwards it must come through, and leave nothing in its temporary folder."""
    temporary = tmp_path_factory.mktemp("tmp")
    clusters: dict[str, Cluster] = {STANDALONE: standalone, YARN: yarn}
    cluster = clusters.get(request.param)
    variables, conf = on_master(request.param, standalone, yarn)
    variables |= connections_with_secrets(key_of_the_database) | AIRFLOW_SECRETS | {"TMPDIR": str(temporary)}
    (temporary / "events").mkdir()
    (temporary / "events" / "log4j2.properties").write_text(EVERYTHING)
    conf |= {
        "spark.log.level": "DEBUG",
        "spark.executorEnv.LOG4J_CONFIGURATION_FILE": str(temporary / "events" / "log4j2.properties"),
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (temporary / "events").as_uri(),
    }
    large.files.write(
        large.topic.name, **{**SECTIONS, "limit": {}, "spark": {"executor_memory": "512m", "tasks": 2, "conf": conf}}
    )
    with gated_table(large, gated=GATED, for_long=True) as gate:
        job = large.start_command("run", large.name, "--run-id", "held", environment=variables)
        gate.waiting_client()
        daemons = [pid for process in (cluster.processes if cluster else ()) if (pid := process.pid())]
        processes = [pid for root in (job.process.pid, *daemons) for pid in tree_below(root)]
        body = "".join(key_of_the_database.splitlines()[1:-1])
        secrets = (*KAFKA_SECRETS.values(), password_of_the_database(), body[:48])
        secrets += tuple(re.findall(r"\w+-s3cret-of-the-walk", " ".join(AIRFLOW_SECRETS.values())))
        spark_secret = standalone.secret if request.param == STANDALONE else ""
        folder = cluster.folder if cluster else None
        yield HeldLoad(large, job, gate, secrets, spark_secret, temporary, processes, folder)


def on_master(kind: str, standalone: SparkCluster, yarn: YarnCluster) -> tuple[dict[str, str], dict[str, str]]:
    """Start the cluster of this kind; give variables of the submitter and properties of the job."""
    if kind == STANDALONE:
        standalone.start()
        connection = spark_connection(standalone.master_url, standalone.secret)
        conf = {"spark.cores.max": "2", "spark.pyspark.python": sys.executable}
        return connection_variables({"spark_default": connection}), conf
    if kind == YARN:
        yarn.start()
        connection = json.dumps({"conn_type": "spark", "host": "yarn"})
        variables = {**yarn.environment, **connection_variables({"spark_default": connection})}
        conf = {"spark.executor.instances": "1", "spark.pyspark.python": sys.executable}
        return variables, conf
    return {}, {}


def connections_with_secrets(key_of_the_database: str) -> dict[str, str]:
    kafka = json.loads(os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"])
    kafka["extra"] |= {**KAFKA_SECRETS, "debug": "all"}
    postgres = json.loads(os.environ["AIRFLOW_CONN_POSTGRES_DEFAULT"])
    postgres["extra"] = {"sslkey": key_of_the_database}
    return connection_variables({"kafka_default": json.dumps(kafka), "postgres_default": json.dumps(postgres)})


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


def test_secrets_lie_only_where_the_table_says_and_a_process_without_sparks_gets_none(
    thief: subprocess.Popen[str], held: HeldLoad
) -> None:
    for place, check in PLACES.items():
        check(held)
        assert place
    require_no_theft(thief, held)
    held.gate.open()
    assert held.job.process.wait(START_SECONDS) == 0, held.job.output[-20_000:]
    held.pipeline.require_every_record_once()
    require_nothing_is_left(held)


def require_no_theft(thief: subprocess.Popen[str], held: HeldLoad) -> None:
    ports = listening_ports(held.jvm)
    said, _ = thief.communicate(" ".join(map(str, ports)), timeout=THIEF_SECONDS)
    answers = [json.loads(line) for line in said.splitlines()]
    assert {answer["port"] for answer in answers} == set(ports)
    stolen = [answer for answer in answers if "refused" not in answer]
    readable = [secret for secret in held.secrets for answer in stolen if secret in answer["text"]]
    assert ([(answer["port"], answer["block"], answer["bytes"]) for answer in stolen], readable) == ([], [])


def require_nothing_is_left(held: HeldLoad) -> None:
    """Look at all files and logs once more: an event log is complete only now."""
    folder = held.temporary
    own = [path for path in folder.rglob("*") if path.is_file() and folder / "events" not in path.parents]
    assert [path.name for path in own if path.suffix != ".zip"] == []
    for archive in own:
        with zipfile.ZipFile(archive) as code:
            content = b"".join(code.read(name) for name in code.namelist())
        assert [secret for secret in _all(held) if secret.encode() in content] == []
    assert [path for path in (folder / "events").rglob("*") if path.stat().st_size > 1_000] != []
    for place in (folder, *filter(None, [held.cluster_folder])):
        assert _files_with(_of_the_load(held), place) == []
    _logs_have_no_secret(held)


def test_the_message_of_a_crash_has_no_secret(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    key_of_the_database: str,
    tmp_path: Path,
) -> None:
    message = tmp_path / "hs_err.log"
    # Options of a pipeline's own take the place of ours.
    options = {"spark.driver.defaultJavaOptions": " ".join([*JVM_OPTIONS, f"-XX:ErrorFile={message}"])}
    large.files.write(large.topic.name, **{**SECTIONS, "limit": {}, "spark": {"conf": options}})
    variables = connections_with_secrets(key_of_the_database) | AIRFLOW_SECRETS
    with gated_table(large, gated=GATED) as gate:
        job = large.start_command("run", large.name, "--run-id", "crashes", environment=variables)
        gate.waiting_client()
        jvm = child(job.process.pid, "SparkSubmit")
        assert jvm is not None
        os.kill(jvm, signal.SIGSEGV)
        assert job.process.wait(START_SECONDS) == RETRY_LATER, job.output
    assert [path.name for path in CHECKOUT.glob("core*")] == []
    said = message.read_text(errors="replace") + job.output
    assert "SIGSEGV" in said
    secrets = (*KAFKA_SECRETS.values(), password_of_the_database(), *AIRFLOW_SECRETS.values())
    assert [secret for secret in secrets if secret in said] == []


def test_the_walk_looks_at_every_place_of_the_table() -> None:
    text = (CHECKOUT / "docs" / "deploying.md").read_text(encoding="utf-8")
    section = re.split(r"(?m)^## ", text.partition("\n## Where secrets lie\n")[2])[0]
    rows = re.findall(r"(?m)^\| (.+?) \|", section)
    assert rows[1:] == list(PLACES)


def _airflows_connections_stay_with_the_submitter(held: HeldLoad) -> None:
    assert set(KAFKA_SECRETS.values()) <= {s for s in held.secrets if s in _environment(held.job.process.pid)}
    assert [command_of(pid) for pid in held.below_submitter() for s in held.secrets if s in _environment(pid)] == []


def _the_jobs_files_are_gone(held: HeldLoad) -> None:
    [own] = held.temporary.glob("kafka-ingest-*")
    assert [*own.rglob("settings_*"), *own.glob("job_*/spark_*")] == []
    folders = [own, *own.glob("job_*")]
    assert [oct(folder.stat().st_mode & 0o777) for folder in folders] == ["0o700", "0o700"]


def _no_command_line_event_log_or_page_has_a_secret(held: HeldLoad) -> None:
    lines = [command_of(pid) for pid in held.processes]
    assert any("--py-files" in line for line in lines)
    shown = [*lines, *_pages_of_spark(held)]
    assert [line for line in shown for secret in _all(held) if secret in line] == []
    assert _files_with(_all(held), held.temporary / "events") == []


def _pages_of_spark(held: HeldLoad) -> list[str]:
    """Give the pages of the running application's UI; on YARN it sends everybody to YARN's own proxy."""
    found: list[str] = []
    for port in listening_ports(held.jvm):
        for page in ("environment/", "jobs/", "stages/", "executors/", "api/v1/applications"):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as answer:
                    found.append(answer.read().decode(errors="replace"))
            except (urllib.error.URLError, http.client.HTTPException, OSError):
                break  # another port of the JVM
    assert found or held.cluster_folder, "a UI was asked for"
    return found


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


def _no_process_leaves_a_core_file(held: HeldLoad) -> None:
    driver = child(held.jvm, "load_batch.py")
    assert driver is not None
    workers = [pid for pid in held.processes if "daemon" in command_of(pid) and "python" in command_of(pid)]
    with_tasks = [pid for pid in workers if _core_limit(pid) == "0"]
    assert _core_limit(driver) == "0"
    assert with_tasks != [], [command_of(pid) for pid in workers]
    jvms = [command_of(pid) for pid in held.processes if "java" in command_of(pid).partition(" ")[0]]
    of_the_load = [line for line in jvms if "SparkSubmit" in line or "ExecutorBackend" in line]
    assert of_the_load != []
    assert [line for line in of_the_load if "-XX:-CreateCoredumpOnCrash" not in line] == []


def _core_limit(pid: int) -> str:
    limits = Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
    return str(re.findall(r"(?m)^Max core file size +(\w+)", limits)[0])


def _ports_ask_for_sparks_secret(held: HeldLoad) -> None:
    # What they give to somebody without it is tried afterwards.
    assert "spark.authenticate=true" in command_of(held.jvm)
    if held.cluster_folder:
        assert "spark.network.crypto.enabled=true" in command_of(held.jvm)


def _sparks_folders_hold_no_secret_in_clear(held: HeldLoad) -> None:
    own = next(held.temporary.glob("kafka-ingest-*/job_*"))
    assert any(path.name.startswith("blockmgr-") for path in own.iterdir())
    assert _files_with(held.secrets, held.temporary) == []
    if held.cluster_folder is not None:
        assert list(held.cluster_folder.rglob("blockmgr-*")) != []
        assert _files_with(_of_the_load(held), held.cluster_folder) == []


def _logs_have_no_secret(held: HeldLoad) -> None:
    assert re.search(r"\bDEBUG\b", held.job.output), "the driver says all that it can"
    assert [secret for secret in _all(held) if secret in held.job.output] == []
    if held.cluster_folder is not None:
        logs = [path for path in held.cluster_folder.rglob("stderr") if "app" in str(path)]
        assert any(re.search(r"\bDEBUG\b", path.read_text(errors="replace")) for path in logs), logs


def _no_table_has_a_secret(held: HeldLoad) -> None:
    """Looks at ledger and staging; rendered fields and XCom are looked at in a running Airflow (tests/e2e)."""
    query = held.pipeline.files.query
    schemas = "('kafka_ingest'::regnamespace, 'kafka_ingest_staging'::regnamespace)"
    tables = query(f"SELECT oid::regclass::text FROM pg_class WHERE relnamespace IN {schemas} AND relkind = 'r'")
    assert len(tables) > 5
    assert any("staging" in table for (table,) in tables)
    for (table,) in tables:
        for secret in _all(held):
            assert query(f"SELECT t::text FROM {table} t WHERE strpos(t::text, %s) > 0", secret) == []


def _all(held: HeldLoad) -> tuple[str, ...]:
    return (*held.secrets, *filter(None, [held.spark_secret]))


def _of_the_load(held: HeldLoad) -> tuple[str, ...]:
    """Give what files of a cluster must not have: it has its own secret itself."""
    return held.secrets


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
    "command lines, Spark's properties, its UI and event log": _no_command_line_event_log_or_page_has_a_secret,
    "environment of the job's processes": _only_executors_have_sparks_secret_in_their_environment,
    "memory of the job's processes": _memory_is_the_users_own,
    "core files": _no_process_leaves_a_core_file,
    "ports of Spark": _ports_ask_for_sparks_secret,
    "Spark's folders on disk": _sparks_folders_hold_no_secret_in_clear,
    "logs": _logs_have_no_secret,
    "ledger, staging, XCom, rendered fields": _no_table_has_a_secret,
}
