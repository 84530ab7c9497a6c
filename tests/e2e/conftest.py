"""One Airflow for the whole rung; a test that needs a pipeline adds it while Airflow runs."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import psycopg2
import pytest
from psycopg2 import sql

from sandbox.airflow import AirflowServer, AirflowSetup
from sandbox.airflow_settings import connection_variables, postgres_connection, spark_connection
from sandbox.kafka import KafkaBroker
from sandbox.paths import CHECKOUT
from sandbox.postgres import PostgresServer
from sandbox.showcase import Showcase
from tests.e2e.airflow_world import KAFKA_PASSWORD, PASSWORD, SHOWCASE_PREFIX, AirflowWorld
from tests.inbox import Inbox, open_inbox
from tests.integration.pipeline_under_test import PipelineUnderTest, set_connections
from tests.services import ROLES, FreshTopics, TestServices, fresh_database

#: A task or scheduler that gives no sign of life is given up after 40 s and 25 s instead of 300 s and 30 s; the tasks
#: of a dead scheduler are watched over again only when the next one has adopted them, which it looks for every 300 s by
#: default.
QUICK_TO_GIVE_UP = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "5",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "40",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "25",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
}
#: Who logs in, with a role of the simple auth manager; its subclass in the folder ``auth`` knows the outsider.
PEOPLE = {
    "AIRFLOW__CORE__AUTH_MANAGER": "limited_auth_manager.LimitedAuthManager",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer,outsider:viewer",
    "PYTHONPATH": str(Path(__file__).with_name("auth")),
}
#: Workers give Airflow's API server 5 s by default, too few where a Spark job has the two cores.
PATIENT = {"AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60"}
_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


@pytest.fixture(scope="session")
def world(
    services: TestServices,
    postgres_server: PostgresServer,
    kafka_broker: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AirflowWorld]:
    with running_world(services, postgres_server, kafka_broker, tmp_path_factory) as world:
        yield world


@pytest.fixture(scope="module")
def inbox() -> Iterator[Inbox]:
    with open_inbox() as inbox:
        yield inbox


@pytest.fixture(scope="module")
def telling_world(
    services: TestServices,
    postgres_server: PostgresServer,
    kafka_broker: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
    inbox: Inbox,
) -> Iterator[AirflowWorld]:
    """An Airflow of its own, which tells an inbox what the examples of notifiers tell."""
    config = tmp_path_factory.mktemp("config")
    shutil.copy(CHECKOUT / "docs" / "examples" / "notify.py", config)
    (config / "airflow_local_settings.py").write_text("from notify import task_policy\n")
    with running_world(
        services, postgres_server, kafka_broker, tmp_path_factory, config=config, **inbox.connections()
    ) as world:
        yield world


@contextmanager
def running_world(
    services: TestServices,
    postgres_server: PostgresServer,
    kafka_broker: KafkaBroker,
    tmp_path_factory: pytest.TempPathFactory,
    *,
    config: Path | None = None,
    **variables: str,
) -> Iterator[AirflowWorld]:
    """Starts an Airflow, with Airflow's configuration folder and more variables where a test is about them."""
    pipelines, own_dags = tmp_path_factory.mktemp("pipelines"), tmp_path_factory.mktemp("own_dags")
    topics = FreshTopics(kafka_broker.bootstrap)
    with (
        fresh_database(postgres_server) as own,
        database_user(postgres_server) as user,
        fresh_database(postgres_server) as warehouse,
    ):
        own_variables = {"KAFKA_INGEST_PIPELINES": str(pipelines), **bundles(own_dags), **QUICK_TO_GIVE_UP, **PATIENT}
        setup = AirflowSetup(
            database_url=postgres_server.dsn(own["dbname"], scheme="postgresql+psycopg2"),
            connections=connections(kafka_broker.bootstrap, {**warehouse, **user}),
            extra_env={**own_variables, **PEOPLE, **variables},
        )
        # Ports are remembered beside the folder: several pytest runs may share the services.
        folder = services.folder / f"airflow-{uuid.uuid4().hex[:8]}"
        if config:
            shutil.copytree(config, folder / "state" / "config")
        server = AirflowServer(folder / "state", setup)
        try:
            server.start(report=lambda _: None)
            metadata = postgres_server.params(own["dbname"])
            yield AirflowWorld(server, kafka_broker.bootstrap, warehouse, metadata, pipelines, own_dags, topics)
        finally:
            server.destroy()
            shutil.rmtree(folder, ignore_errors=True)
            topics.delete_all()


@pytest.fixture(scope="session")
def showcase(world: AirflowWorld) -> Iterator[Showcase]:
    with pytest.MonkeyPatch.context() as patch:
        set_connections(patch, bootstrap=world.bootstrap, database=world.warehouse)
        patch.setenv("KAFKA_INGEST_PIPELINES", str(world.pipelines))
        showcase = Showcase(
            prefix=SHOWCASE_PREFIX,
            bootstrap=world.bootstrap,
            pipelines=world.pipelines,
            airflow=world.airflow,
            metadata=world.metadata,
            warehouse=world.warehouse,
            load=lambda name: loaded_here(name, world),
        )
        showcase.open()
        yield showcase


def loaded_here(name: str, world: AirflowWorld) -> None:
    """Loads a pipeline in this process: Spark takes half a minute to start."""
    capture = cast("pytest.CaptureFixture[str]", None)  # only commands need it
    PipelineUnderTest(name, world.pipelines, world.warehouse, capture).load_here()


@contextmanager
def database_user(server: PostgresServer) -> Iterator[dict[str, str]]:
    """Makes a loader whose password needs quoting in a shell, in JSON and in a URL; drops it after its tables."""
    name = f"loader_{uuid.uuid4().hex[:8]}"
    role, password, loader = sql.Identifier(name), sql.Literal(PASSWORD), sql.Identifier(ROLES["loader"])
    execute(server.params(), sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}").format(role, password, loader))
    yield {"user": name, "password": PASSWORD}
    execute(server.params(), sql.SQL("DROP ROLE {}").format(role))


def execute(params: Mapping[str, Any], statement: sql.Composed) -> None:
    with closing(psycopg2.connect(**dict[str, Any](params))) as connection:
        connection.autocommit = True
        connection.cursor().execute(statement)


def connections(bootstrap: str, warehouse: Mapping[str, Any]) -> dict[str, str]:
    kafka = {"bootstrap.servers": bootstrap, "security.protocol": "PLAINTEXT", "sasl.password": KAFKA_PASSWORD}
    return connection_variables(
        {
            "kafka_default": json.dumps({"conn_type": "kafka", "extra": kafka}),
            "postgres_default": postgres_connection(warehouse),
            "spark_default": spark_connection("local[2]"),
        }
    )


def bundles(own_dags: Path) -> dict[str, str]:
    """Give Airflow a second folder of DAG files, beside that of the checkout."""
    folders = [
        {"name": "dags-folder", "classpath": _BUNDLE, "kwargs": {}},
        {"name": "own-dags", "classpath": _BUNDLE, "kwargs": {"path": str(own_dags)}},
    ]
    return {"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(folders)}
