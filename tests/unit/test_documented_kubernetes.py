"""The configuration of Kubernetes on docs/spark-clusters.md: every block can be read, and they fit each other."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from kafka_ingest.connections import ConnectionValues
from kafka_ingest.settings import JobSettings
from kafka_ingest.spark.master import MasterKind, conf_of_master, spark_master_of
from tests import documented_kubernetes as documented

EXTRA = documented.connection()["extra"]


def test_every_block_can_be_read() -> None:
    assert [json.loads(block) for block in documented.blocks("json")]
    assert all(list(yaml.safe_load_all(block)) for block in documented.blocks("yaml"))
    # A block in another language would be read by nobody here.
    assert set(re.findall(r"(?m)^```(.*)$", documented.section())[::2]) == {"json", "yaml"}


def test_the_connection_is_one_that_loads_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_DRIVER_HOST", "10.0.0.7")
    shown = documented.connection()
    extra = shown["extra"] | documented.secret_by_file()
    values = ConnectionValues("spark_default", shown["conn_type"], shown["host"], shown["port"], extra=extra)
    master = spark_master_of(values)
    assert (master.url, master.kind) == ("k8s://https://kubernetes.default.svc:443", MasterKind.KUBERNETES)
    assert conf_of_master(JobSettings(), master)["spark.kubernetes.namespace"] == "loads"


def test_accounts_roles_and_namespaces_are_those_of_the_connection() -> None:
    [role], [binding] = documented.things("Role"), documented.things("RoleBinding")
    [namespace], [account] = documented.things("Namespace"), documented.things("ServiceAccount")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    of_executors = {thing["metadata"]["namespace"] for thing in (role, binding, account)}
    assert of_executors == {namespace["metadata"]["name"]} == {EXTRA["namespace"]}
    assert account["metadata"]["name"] == EXTRA["spark.kubernetes.authenticate.executor.serviceAccountName"]


def test_policies_open_the_ports_of_the_connection_with_their_retries() -> None:
    of_driver, of_executors = documented.things("NetworkPolicy")
    opened = [(port["port"], port["endPort"]) for port in of_driver["spec"]["ingress"][0]["ports"]]
    ports = [EXTRA["spark.driver.port"], EXTRA["spark.driver.blockManager.port"]]
    # ``spark.port.maxRetries`` is 16.
    assert opened == [(port, port + 16) for port in ports]
    assert of_executors["spec"]["ingress"][0]["ports"] == [{"port": EXTRA["spark.blockManager.port"]}]
    [service] = documented.things("Service")
    assert (service["spec"]["clusterIP"], [port["port"] for port in service["spec"]["ports"]]) == ("None", ports)


def test_both_ways_of_the_address_set_the_variable_of_the_connection() -> None:
    [service] = documented.things("Service")
    by_address, by_name = (yaml.safe_load(values["extraEnv"]) for values in documented.helm_values())
    assert {f"${{env:{variables[-1]['name']}}}" for variables in (by_address, by_name)} == {EXTRA["spark.driver.host"]}
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert by_name[-1]["value"] == f"$({by_name[0]['name']}).{name}.{namespace}.svc.cluster.local"
