"""What a Spark connection says: master, properties, and the protection that every cluster gets unless it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.connections import ConnectionValues
from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.kinds import OWN_SPARK_KEYS
from kafka_ingest.settings import JobSettings
from kafka_ingest.spark.master import MasterKind, SparkMaster, conf_of_master, is_authenticated, spark_master_of

ENCRYPTED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
K8S = "k8s://https://api.example:6443"
IMAGE = {"spark.kubernetes.container.image": "registry.example/kafka-ingest:1"}


def master(host: str | None, port: int | None = None, **extra: Any) -> SparkMaster:
    """Return the master of a connection; ``_`` stands for ``.`` in names of its extra."""
    named = {name.replace("_", "."): value for name, value in extra.items()}
    return spark_master_of(ConnectionValues("cluster", "spark", host=host, port=port, extra=named))


def refused(host: str | None, **extra: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        spark_master_of(ConnectionValues("cluster", "spark", host=host, extra=extra))
    return caught.value.found


@pytest.fixture(autouse=True)
def nothing_else_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop/conf")
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)


@pytest.mark.parametrize(
    ("host", "port", "url", "kind"),
    [
        ("local[2]", None, "local[2]", MasterKind.LOCAL),
        ("local[*]", None, "local[*]", MasterKind.LOCAL),
        ("local", None, "local", MasterKind.LOCAL),
        ("spark://master", 7077, "spark://master:7077", MasterKind.STANDALONE),
        ("master", 7077, "spark://master:7077", MasterKind.STANDALONE),
        ("spark://a:7077,b:7077", None, "spark://a:7077,b:7077", MasterKind.STANDALONE),
        ("yarn", None, "yarn", MasterKind.YARN),
        ("k8s://https://api.example", 6443, K8S, MasterKind.KUBERNETES),
    ],
)
def test_a_master_is_read_as_airflow_reads_it(host: str, port: int | None, url: str, kind: MasterKind) -> None:
    found = master(host, port)
    assert (found.url, found.kind) == (url, kind)


@pytest.mark.parametrize("host", ["mesos://cluster:5050", "yarn-client", "localhost", None])
def test_another_master_is_refused(host: str | None) -> None:
    assert refused(host) == f"its master is {host or 'empty'}"


def test_every_fault_of_a_connection_is_told_at_once() -> None:
    found = refused(
        "yarn",
        **{
            "deploy-mode": "cluster",
            "keytab": "BASE64",
            "spark.authenticate.secret": "s3cret",
            "spark.executor.memory": "4g",
            "spark.jars": ["a.jar"],
            "spark.ssl.keyPassword": "s3cret",
            "spark.executor.extraJavaOptions": "-Dtrust.password=s3cret",
        },
    )
    assert [fault.partition(":")[0].split()[0] for fault in found.split("; ")] == [
        "deploy-mode",
        "keytab",
        "spark.authenticate.secret",
        "spark.executor.memory",
        "spark.jars",
        "spark.ssl.keyPassword",
        "spark.executor.extraJavaOptions",
    ]
    assert "s3cret" not in found
    assert "BASE64" not in found


@pytest.mark.parametrize("key", OWN_SPARK_KEYS)
def test_what_a_pipeline_file_may_not_set_a_connection_may_not_set_either(key: str) -> None:
    assert refused("yarn", **{key: "x"}).startswith(f"{key}: take it out")


def test_properties_of_the_connection_reach_spark_and_airflows_own_keys_are_among_them() -> None:
    extra: dict[str, Any] = {
        "queue": "loads",
        "deploy-mode": "client",
        "spark-binary": "spark-submit",
        "spark.executor.instances": 4,
        "spark.speculation": True,
    }
    found = spark_master_of(ConnectionValues("cluster", "spark", host="yarn", extra=extra))
    assert found.properties == {
        "spark.yarn.queue": "loads",
        "spark.executor.instances": "4",
        "spark.speculation": "true",
    }
    assert conf_of_master(JobSettings(), found).items() >= found.properties.items()


def test_fields_of_airflows_form_that_nobody_filled_in_are_no_properties() -> None:
    extra = {"queue": "", "namespace": None, "spark.yarn.queue": None, "spark.speculation": ""}
    assert spark_master_of(ConnectionValues("cluster", "spark", host="yarn", extra=extra)).properties == {}


def test_names_of_files_and_of_kubernetes_own_secrets_are_no_secrets() -> None:
    extra = {
        "namespace": "loads",
        "spark.kubernetes.authenticate.oauthTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "spark.kubernetes.executor.secrets.spark-secret": "/etc/secrets",
        "spark.authenticate.secret.file": "/etc/secrets/spark",
        **IMAGE,
    }
    found = spark_master_of(ConnectionValues("cluster", "spark", host=K8S, extra=extra))
    assert found.properties["spark.kubernetes.namespace"] == "loads"
    assert found.properties.keys() >= extra.keys() - {"namespace"}


def test_a_secret_is_kept_apart_from_the_properties() -> None:
    found = spark_master_of(
        ConnectionValues("cluster", "spark", host="spark://m:7077", extra={"spark.authenticate.secret": "s3cret"})
    )
    assert found.secret == "s3cret"
    assert "s3cret" not in repr(found)
    assert conf_of_master(JobSettings(), found) == ENCRYPTED


@pytest.mark.parametrize(("host", "properties"), [("yarn", {}), (K8S, IMAGE)])
def test_traffic_is_encrypted_where_spark_makes_a_secret_for_each_application(
    host: str, properties: dict[str, str]
) -> None:
    found = SparkMaster("cluster", host, MasterKind(host.partition(":")[0]), properties)
    assert conf_of_master(JobSettings(), found).items() >= ENCRYPTED.items()
    assert is_authenticated(JobSettings(), found)


@pytest.mark.parametrize("place", ["pipeline", "connection", "spark-defaults.conf"])
@pytest.mark.parametrize("host", ["yarn", "spark://m:7077"])
def test_protection_is_switched_off_by_a_word_in_any_place(host: str, place: str, tmp_path: Path) -> None:
    off = {"spark.authenticate": "false"}
    if place == "spark-defaults.conf":
        (tmp_path / place).write_text("spark.authenticate false\n")
    found = master(host, **({"spark_authenticate": False} if place == "connection" else {}))
    job = JobSettings(conf=tuple(off.items()) if place == "pipeline" else ())
    assert not is_authenticated(job, found)
    conf = conf_of_master(job, found)
    assert [key for key in conf if "crypt" in key] == []
    assert conf.get("spark.authenticate", "false") == "false"


def test_one_kind_of_encryption_can_be_switched_off_alone() -> None:
    job = JobSettings(conf=(("spark.io.encryption.enabled", "false"),))
    conf = conf_of_master(job, master("yarn"))
    assert conf["spark.network.crypto.enabled"] == "true"
    assert "spark.io.encryption.enabled" not in conf


@pytest.mark.parametrize(
    ("host", "missing"),
    [
        ("spark://m:7077", "no spark.authenticate.secret in the extra"),
        ("yarn", "neither YARN_CONF_DIR nor HADOOP_CONF_DIR is set here"),
        (K8S, "no spark.kubernetes.container.image"),
    ],
)
def test_what_spark_could_not_start_without_is_named(host: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR")
    with pytest.raises(ConfigError, match="cluster") as caught:
        conf_of_master(JobSettings(), master(host))
    assert missing in caught.value.found
    assert "preflight" in caught.value.next_command


def test_a_property_whose_variable_is_not_set_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "worker-0")
    job = JobSettings(conf=(*IMAGE.items(), ("spark.driver.host", "${env:POD_NAME}.${env:POD_DOMAIN}")))
    with pytest.raises(ConfigError) as caught:
        conf_of_master(job, master(K8S))
    assert caught.value.found == "spark.driver.host names the variable POD_DOMAIN, which is not set here"


def test_a_pipeline_may_name_the_image_and_a_resource_manager_that_is_down_is_not_waited_for_long() -> None:
    job = JobSettings(conf=tuple(IMAGE.items()))
    assert conf_of_master(job, master(K8S)) == ENCRYPTED
    wait = "spark.hadoop.yarn.resourcemanager.connect.max-wait.ms"
    assert int(conf_of_master(JobSettings(), master("yarn"))[wait]) <= 60_000
    own = JobSettings(conf=((wait, "5"),))
    assert wait not in conf_of_master(own, master("yarn"))
