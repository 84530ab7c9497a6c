"""The servers that the tests share, and fresh databases and topics in them.

They are PostgreSQL, Kafka, a schema registry, and for change events Kafka Connect and a PostgreSQL that is its source.

By default a pytest run starts its own servers in ``.sandbox/test-<pid>`` on first use and deletes it at the end. With
``KAFKA_INGEST_TEST_SERVICES`` naming an env file with a line ``KAFKA_INGEST_TEST_STATE=<folder>`` it uses those that
run in that folder and leaves them running; ``python -m tests.services <folder>`` starts PostgreSQL and Kafka there and
prints that line. The first test that asks for one of the others starts it, there as well.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg2
from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg2 import sql

from sandbox.connect import ConnectWorker
from sandbox.kafka import KafkaBroker
from sandbox.paths import CHECKOUT, private_folder
from sandbox.postgres import PostgresServer
from sandbox.processes import stop_all_below
from sandbox.registry import SchemaRegistry
from tests.deadlines import until

KAFKA_SECONDS = 30.0
#: What is in Kafka is written down at once: tests wait for it, see ``DebeziumSource.wait_until_captured``.
CONNECT_SETTINGS = {"offset.flush.interval.ms": "100"}
#: The default of both is 10: each connector of a test has a slot and a sender.
_LOGICAL_DECODING = {"wal_level": "logical", "max_replication_slots": "60", "max_wal_senders": "60"}


class TopicFactory(Protocol):
    """Makes a topic with a unique name and gives the name back when all its partitions have leaders."""

    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


class ProducerFactory(Protocol):
    """Makes a producer (idempotent, acks=all); keyword arguments are more settings, ``_`` standing for ``.``."""

    def __call__(self, **settings: Any) -> Producer: ...


@dataclass(frozen=True)
class TestServices:
    """Where the services of this run live.

    Attributes:
        folder: State folder; the servers are its ``postgres``, ``kafka``, ``registry``, ``connect`` and ``source``.
        shared: They belong to somebody else, who also stops them.
    """

    __test__ = False

    folder: Path
    shared: bool

    @property
    def postgres(self) -> PostgresServer:
        return PostgresServer(self.folder / "postgres", fsync=False)

    @property
    def kafka(self) -> KafkaBroker:
        return KafkaBroker(self.folder / "kafka", for_tests=True)

    @property
    def registry(self) -> SchemaRegistry:
        return SchemaRegistry(self.folder / "registry")

    @property
    def connect(self) -> ConnectWorker:
        """Kafka Connect on this Kafka, which has to have been started once."""
        return ConnectWorker(self.folder / "connect", self.kafka.bootstrap, settings=CONNECT_SETTINGS)

    @property
    def source(self) -> PostgresServer:
        """The server whose changes Kafka Connect captures."""
        return PostgresServer(self.folder / "source", fsync=False)

    def start_registry(self) -> SchemaRegistry:
        """Start the registry, unless one of the runs that share the folder did."""
        with self._alone("registry"):
            self.registry.start()
        return self.registry

    def start_connect(self) -> ConnectWorker:
        """Start Kafka Connect, unless one of the runs that share the folder did; Kafka has to run."""
        with self._alone("connect"):
            self.connect.start()
        return self.connect

    def start_source(self) -> PostgresServer:
        """Start the server of the changes, unless one of the runs that share the folder did."""
        with self._alone("source"):
            start_for_logical_decoding(self.source)
        return self.source

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        with (private_folder(self.folder) / f"{name}.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def remove(self) -> None:
        """Stops all of them, and what else was started in the folder, and deletes what they wrote."""
        stop_all_below(self.folder / "connect")  # before what it needs to stop in good order
        stop_all_below(self.folder)
        for server in (self.postgres, self.source, self.kafka):
            server.destroy()
        shutil.rmtree(self.folder, ignore_errors=True)


def services_of_this_run() -> TestServices:
    env_file = os.environ.get("KAFKA_INGEST_TEST_SERVICES")
    if not env_file:
        return TestServices(CHECKOUT / ".sandbox" / f"test-{os.getpid()}", shared=False)
    found = re.search(r"^(?:export )?KAFKA_INGEST_TEST_STATE=(.+)$", Path(env_file).read_text(encoding="utf-8"), re.M)
    if found is None:
        raise ValueError(f"{env_file} has no line KAFKA_INGEST_TEST_STATE=<folder>")
    return TestServices(Path(found.group(1).strip("'\"")), shared=True)


def services_of_one_test() -> TestServices:
    """Yield a pair, not started, that one test may stop and kill as it likes; remove it afterwards."""
    return TestServices(CHECKOUT / ".sandbox" / f"test-{os.getpid()}-{uuid.uuid4().hex[:8]}", shared=False)


def remove_left_overs() -> None:
    """Removes the services of pytest runs that were killed before they could do it."""
    for folder in (CHECKOUT / ".sandbox").glob("test-*"):
        pid = folder.name.split("-")[1]
        if pid.isdigit() and not _lives(int(pid)):
            TestServices(folder, shared=False).remove()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def start_for_logical_decoding(server: PostgresServer) -> None:
    """Start a server that logs what logical decoding needs; the first time it is restarted for it. Idempotent."""
    server.start()
    with closing(_connect(server)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW wal_level")
        if cursor.fetchone() == ("logical",):
            return
        for name, value in _LOGICAL_DECODING.items():
            cursor.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    server.stop()
    server.start()


#: The roles of every test's database, by what they are for, as ``python -m kafka_ingest roles`` makes them.
ROLES = {"owner": "test_owner", "loader": "test_loader", "reader": "test_reader"}
_ROLE_PASSWORD = "A-password-1"


def as_role(role: str, database: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a test's database with another role's login: owner, loader or reader of the ledger."""
    return {**database, "user": ROLES[role], "password": _ROLE_PASSWORD}


@contextmanager
def fresh_database(server: PostgresServer) -> Iterator[dict[str, Any]]:
    """Yield a superuser's connection parameters of a new database with the current ledger; drop it afterwards.

    The ledger belongs to ``owner``. Loads connect as ``loader``, which has what ``roles`` grants, and on schemas and
    tables that the superuser makes what ``roles`` would grant on a target; it may make schemas.
    """
    name = f"test_{uuid.uuid4().hex[:16]}"
    template = _ledger_template(server)
    _administer(server, "CREATE DATABASE {} TEMPLATE {}", name, template)
    _administer(server, "GRANT CREATE ON DATABASE {} TO {}", name, ROLES["loader"])
    try:
        yield server.params(name)
    finally:
        _administer(server, "DROP DATABASE {} WITH (FORCE)", name)


def _ledger_template(server: PostgresServer) -> str:
    """Return the name of a database with every migration applied, making it once for each state of ``sql/``."""
    name = f"ledger_{_ledger_hash()}"
    with closing(_connect(server)) as connection, connection.cursor() as cursor:
        # Several pytest runs may share the server: one of them makes the template, the others wait here.
        cursor.execute("SELECT pg_advisory_lock(hashtext(%s))", (name,))
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
        if cursor.fetchone() is None:
            draft = f"{name}_draft"
            _administer(server, "DROP DATABASE IF EXISTS {} WITH (FORCE)", draft)
            _administer(server, "CREATE DATABASE {}", draft)
            _make_ledger(server, draft)
            _administer(server, "ALTER DATABASE {} RENAME TO {}", draft, name)
    return name


#: On what a test makes as a superuser: what ``roles`` grants on the tables of a pipeline.
_ON_TARGETS = """
ALTER DEFAULT PRIVILEGES GRANT USAGE, CREATE ON SCHEMAS TO {loader};
ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {loader};
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SEQUENCES TO {loader};
"""


def _ledger_hash() -> str:
    package = CHECKOUT / "plugins" / "kafka_ingest" / "postgres"
    files = [*sorted((CHECKOUT / "sql" / "migrations").glob("*")), package / "migrations.py", package / "rights.py"]
    digest = hashlib.sha256()
    for path in [*files, Path(__file__)]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _make_ledger(server: PostgresServer, database: str) -> None:
    """Migrate as the owner, between the two times that an administrator runs what ``roles`` prints."""
    # Only here: services are started and removed without the package, too.
    from kafka_ingest.postgres.migrations import migrate
    from kafka_ingest.postgres.rights import Roles, role_statements

    statements = role_statements(Roles(ROLES["owner"], ROLES["loader"], ROLES["reader"]), database, ())
    passwords = "".join(f"ALTER ROLE {name} PASSWORD '{_ROLE_PASSWORD}';" for name in ROLES.values())
    with closing(_connect(server, database)) as connection, connection.cursor() as cursor:
        cursor.execute(statements + passwords)
        migrate(as_role("owner", server.params(database)))
        cursor.execute(statements + _ON_TARGETS.format(loader=ROLES["loader"]))


def _administer(server: PostgresServer, statement: str, *names: str) -> None:
    with closing(_connect(server)) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _connect(server: PostgresServer, database: str = "postgres") -> Any:
    connection = psycopg2.connect(**server.params(database))
    connection.autocommit = True
    return connection


class FreshTopics:
    """Makes topics with unique names and deletes them at the end."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._names: list[str] = []

    def create(self, partitions: int = 1, config: Mapping[str, str] | None = None, *, name: str | None = None) -> str:
        name = name or f"test-{uuid.uuid4().hex[:16]}"
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        self._admin.create_topics([topic])[name].result(KAFKA_SECONDS)
        self._names.append(name)
        _wait_for_leaders(self._admin, name)
        return name

    def delete_all(self) -> None:
        if not self._names:
            return
        for deleted in self._admin.delete_topics(self._names).values():
            _ignore_missing(deleted)


def _wait_for_leaders(admin: AdminClient, name: str) -> None:
    until(lambda: _has_leaders(admin, name), f"every partition of {name} has a leader", KAFKA_SECONDS)


def _has_leaders(admin: AdminClient, name: str) -> bool:
    try:
        description = admin.describe_topics(TopicCollection([name]))[name].result(KAFKA_SECONDS)
    except KafkaException:  # a topic that was just created may be unknown to the next request for a moment
        return False
    return all(partition.leader is not None for partition in description.partitions)


def _ignore_missing(deleted: Any) -> None:
    try:
        deleted.result(KAFKA_SECONDS)
    except KafkaException as error:
        if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":  # a test that deletes its own topic is welcome to
            raise


class Producers:
    """Makes producers; at the end everything they hold must have been delivered."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: list[Producer] = []

    def create(self, **settings: Any) -> Producer:
        # What it could not deliver, flush_all says. A broker that a test stops is no news.
        quiet = {"log_level": 0}
        config = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "acks": "all", **quiet}
        producer = Producer({**config, **{key.replace("_", "."): value for key, value in settings.items()}})
        self._producers.append(producer)
        return producer

    def flush_all(self) -> None:
        for producer in self._producers:
            assert producer.flush(KAFKA_SECONDS) == 0, "records were not delivered"


def main() -> None:
    """Starts a pair for several pytest runs, or with ``--remove-left-overs`` stops those of runs that were killed."""
    if sys.argv[1:] == ["--remove-left-overs"]:
        remove_left_overs()
        return
    services = TestServices(Path(sys.argv[1]).resolve(), shared=True)
    services.postgres.start()
    services.kafka.start()
    sys.stdout.write(f"KAFKA_INGEST_TEST_STATE={services.folder}\n")


if __name__ == "__main__":
    main()
