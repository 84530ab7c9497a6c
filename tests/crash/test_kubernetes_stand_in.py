"""Loads on a stand-in for Kubernetes, with the configuration of docs/spark-clusters.md.

Spark's driver and executors are real, the API server is not, and pods are processes of this machine. What a real
cluster adds (images, DNS, network policies, garbage collection) is not run.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from sandbox.airflow_settings import connection_variables
from tests import documented_kubernetes as documented
from tests.crash.gated_table import START_SECONDS, gated_table
from tests.crash.pipeline_at_risk import SECTIONS, DriverProcess, PipelineAtRisk
from tests.crash.process_tree import ancestor, child, command_of, tree_below
from tests.crash.test_spark_killed import GATED, RETRY_LATER, large, large_topic  # noqa: F401 (fixtures)
from tests.deadlines import until
from tests.integration.pipeline_under_test import password_of_the_database
from tests.kubernetes_stand_in import KubernetesStandIn, Nodes, kubernetes_stand_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pods have addresses of their own, 127.0.0.N")

KAFKA_SECRET = "kafka-s3cret-of-a-pod"
#: Spark waits for executors this long before it lets a job begin, which then waits for them itself; else 30 s.
WAIT = "spark.scheduler.maxRegisteredResourcesWaitingTime"


@dataclass
class Loads:
    """A pipeline whose jobs run on a cluster that is made for one test."""

    pipeline: PipelineAtRisk
    cluster: KubernetesStandIn
    folder: Path

    def start(
        self, *, start_seconds: int = 1_800, port: int = 0, extra: Mapping[str, Any] = MappingProxyType({})
    ) -> DriverProcess:
        """Start a load with the documented connection, and more in its extra."""
        by_file = "spark.authenticate.secret.file" in extra
        template = self.folder / "executor-pod.yaml"
        template.write_text(yaml.safe_dump(documented.executor_template(secret_by_file=by_file)), encoding="utf-8")
        connection = documented.connection()
        connection |= {"host": "k8s://http://127.0.0.1", "port": port or self.cluster.port}
        connection["extra"] |= {
            "spark.kubernetes.executor.podTemplateFile": str(template),
            "spark.pyspark.python": sys.executable,
            **extra,
        }
        hold = {**SECTIONS["hold"], "start_timeout_seconds": start_seconds}
        spark = {"executor_memory": "512m", "conf": {}}
        sections = {**SECTIONS, "limit": {}, "hold": hold, "spark": spark}
        self.pipeline.files.write(self.pipeline.topic.name, **sections)
        kafka = json.loads(os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"])
        kafka["extra"]["sasl.password"] = KAFKA_SECRET
        named = {"spark_default": json.dumps(connection), "kafka_default": json.dumps(kafka)}
        variables = connection_variables(named) | {"SPARK_DRIVER_HOST": "127.0.0.1", "POD_NAME": "airflow-worker-0"}
        return self.pipeline.start_command("run", self.pipeline.name, "--run-id", "killed", environment=variables)

    @property
    def passwords(self) -> tuple[str, ...]:
        return (KAFKA_SECRET, password_of_the_database())


@pytest.fixture
def loads(large: PipelineAtRisk, tmp_path: Path) -> Iterator[Loads]:  # noqa: F811 (the fixture)
    with kubernetes_stand_in(tmp_path, documented.things("Role")) as cluster:
        yield Loads(large, cluster, tmp_path)


def test_records_are_there_once_after_an_executors_pod_was_killed_in_the_middle_of_copy_and_no_pod_is_left(
    loads: Loads,
) -> None:
    cluster = loads.cluster
    with gated_table(loads.pipeline, gated=GATED) as gate:
        job = loads.start()
        worker = gate.waiting_client()
        require_no_secret_outside_of_memory(loads, job)
        os.kill(ancestor(worker, "KubernetesExecutorBackend"), signal.SIGKILL)
        assert job.process.wait(START_SECONDS) == 0, job.output
        # Both attempts of the task, and the publish of what the second one staged.
        assert gate.passages() == 3
    loads.pipeline.require_every_record_once()
    assert (len(cluster.created), cluster.things("pods")) == (3, [])
    # The documented Role is enough: nothing was forbidden.
    assert 403 not in {request.status for request in cluster.requests}
    assert [secret for secret in loads.passwords for request in cluster.requests if secret in request.text] == []
    for pod in cluster.created:
        require_documented(pod)


def test_a_load_whose_pods_find_no_node_ends_for_a_retry_and_takes_them_back(loads: Loads) -> None:
    loads.cluster.nodes = Nodes.FULL
    job = loads.start(start_seconds=3, extra={WAIT: "1s"})
    assert job.process.wait(START_SECONDS) == RETRY_LATER, job.output
    assert "Spark gave the application no executor for 3 seconds" in job.output
    assert "kubectl get events --namespace loads" in job.output
    assert (len(loads.cluster.created), loads.cluster.things("pods")) == (2, [])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["no API server", "no rights", "quota used up"])
def test_a_cluster_that_gives_no_pod_is_told_with_the_place_where_it_says_why(loads: Loads, fault: str) -> None:
    loads.cluster.nodes = Nodes.OVER_QUOTA
    elsewhere = {"namespace": "not-granted"} if fault == "no rights" else {}
    # Nothing listens on port 1, which only root could take.
    job = loads.start(port=1 if fault == "no API server" else 0, extra=elsewhere)
    assert job.process.wait(START_SECONDS) == RETRY_LATER, job.output
    assert "RetryLater: Spark did not start on k8s://http://127.0.0.1:" in job.output
    assert f"kubectl get events --namespace {elsewhere.get('namespace', 'loads')}" in job.output
    assert loads.cluster.things("pods") == []


@pytest.mark.slow
def test_pods_of_a_killed_driver_end_by_themselves_stay_and_belong_to_its_pod(loads: Loads) -> None:
    own = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "airflow-worker-0", "uid": "uid-of-the-worker"}}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    loads.cluster.put("pods", {**own, "spec": {"containers": []}, "status": status})
    with gated_table(loads.pipeline, gated=GATED) as gate:
        job = loads.start(extra={"spark.kubernetes.driver.pod.name": "${env:POD_NAME}"})
        gate.waiting_client()
        jvm = child(job.process.pid, "SparkSubmit")
        assert jvm is not None
        os.kill(jvm, signal.SIGKILL)
        assert job.process.wait(START_SECONDS) == RETRY_LATER, job.output
        until(lambda: loads.cluster.pids == [], "executors have ended without their driver", START_SECONDS)
        loads.pipeline.require_all_or_nothing()
        gate.open()
        assert loads.pipeline.run("killed").state.value == "committed"
    loads.pipeline.require_every_record_once()
    left = [pod for pod in loads.cluster.things("pods") if pod["metadata"]["name"] != "airflow-worker-0"]
    assert [pod["status"]["phase"] in ("Failed", "Succeeded") for pod in left] == [True, True]
    owners = [owner for pod in left for owner in pod["metadata"]["ownerReferences"]]
    assert [owner["uid"] for owner in owners] == ["uid-of-the-worker"] * 2


@pytest.mark.slow
def test_sparks_own_secret_is_in_no_pod_where_a_file_holds_it(loads: Loads) -> None:
    # On the worker and in the pod it is the same mounted secret of Kubernetes; here both are this machine.
    file = loads.folder / "secret"
    file.write_text(secrets.token_hex(32), encoding="utf-8")
    job = loads.start(extra={**documented.secret_by_file(), "spark.authenticate.secret.file": str(file)})
    assert job.process.wait(START_SECONDS) == 0, job.output
    loads.pipeline.require_every_record_once()
    for pod in loads.cluster.created:
        [container] = pod["spec"]["containers"]
        assert "_SPARK_AUTH_SECRET" not in [entry["name"] for entry in container["env"]]
        assert ("spark-auth-volume", "/etc/spark-auth") in [
            (m["name"], m["mountPath"]) for m in container["volumeMounts"]
        ]
    assert file.read_text(encoding="utf-8") not in "".join(request.text for request in loads.cluster.requests)


@pytest.mark.slow
def test_executors_that_cannot_reach_their_driver_end_the_load_for_a_retry(loads: Loads) -> None:
    job = loads.start(extra={"spark.driver.host": "127.0.0.77", "spark.driver.bindAddress": "127.0.0.1"})
    assert job.process.wait(START_SECONDS) == RETRY_LATER, job.output
    assert "Max number of executor failures (4) reached" in job.output
    assert "kubectl get events --namespace loads" in job.output
    assert loads.cluster.things("pods") == []


def require_no_secret_outside_of_memory(loads: Loads, job: DriverProcess) -> None:
    """Passwords are in no pod's environment and on no command line; Spark's own secret is on no command line."""
    pods = [pid for root in loads.cluster.pids for pid in tree_below(root)]
    assert len(loads.cluster.pids) == 2
    environments = [Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace") for pid in pods]
    assert [secret for secret in loads.passwords for text in environments if secret in text] == []
    lines = [command_of(pid) for pid in (*pods, *tree_below(job.process.pid))]
    assert any("KubernetesExecutorBackend" in line for line in lines)
    known = (*loads.passwords, sparks_secret(loads.cluster.created[0]))
    assert [line for line in lines for secret in known if secret in line] == []


def sparks_secret(pod: documented.Thing) -> str:
    """Return the one value in a pod's environment that is a secret."""
    entries = pod["spec"]["containers"][0]["env"]
    found = {
        entry["name"]: str(entry["value"]) for entry in entries if re.fullmatch("[0-9a-f]{64}", entry.get("value", ""))
    }
    assert list(found) == ["_SPARK_AUTH_SECRET"]
    return found["_SPARK_AUTH_SECRET"]


def require_documented(pod: documented.Thing) -> None:
    """A pod is what connection and template of the page say, and what Spark adds for an executor."""
    template = documented.executor_template()
    extra = documented.connection()["extra"]
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    expected_labels = {"spark-role": "executor", "spark-app-name": "kafka-ingest-events"} | template["metadata"][
        "labels"
    ]
    assert expected_labels.items() <= pod["metadata"]["labels"].items()
    assert spec["serviceAccountName"] == extra["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert spec["imagePullSecrets"] == [{"name": extra["spark.kubernetes.container.image.pullSecrets"]}]
    assert (spec["securityContext"], spec["restartPolicy"]) == (template["spec"]["securityContext"], "Never")
    assert spec["automountServiceAccountToken"] is False
    [own] = template["spec"]["containers"]
    assert (container["name"], container["securityContext"]) == (own["name"], own["securityContext"])
    assert container["image"] == extra["spark.kubernetes.container.image"]
    # 512 MiB of the pipeline and the overhead of 1 GiB; one core, as nobody asks for more.
    assert container["resources"] == {"limits": {"memory": "1536Mi"}, "requests": {"memory": "1536Mi", "cpu": "1"}}
    assert [port["containerPort"] for port in container["ports"]] == [extra["spark.blockManager.port"]]
    [volume], [mount] = spec["volumes"], container["volumeMounts"]
    assert (volume["emptyDir"]["sizeLimit"], mount["mountPath"]) == ("1Gi", "/var/data/spark")
