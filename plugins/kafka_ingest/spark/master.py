"""Where Spark runs, as an Airflow connection of type ``spark`` says it, and what keeps its traffic secret there.

The driver always runs beside its submitter (client mode): it gets its secrets in a file, and executors get theirs with
their tasks. Nothing secret is a property, because properties stand on the command line, in Spark's UI and event log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kafka_ingest.connections import ConnectionValues, environment_variable
from kafka_ingest.errors import ConfigError
from kafka_ingest.secrets import is_secret_name
from kafka_ingest.settings import JobSettings
from kafka_ingest.spark.installation import default_properties

AUTHENTICATE = "spark.authenticate"
#: Spark's own name of the property, as master and workers have it.
SPARK_SECRET = "spark.authenticate.secret"  # noqa: S105 (a name)
LOOPBACK = "127.0.0.1"
#: Where Hadoop's client looks for ``yarn-site.xml``; spark-submit wants one of them.
HADOOP_FOLDERS = ("YARN_CONF_DIR", "HADOOP_CONF_DIR")

_LOCAL_CONF = {
    # A driver on a laptop or in a container must not depend on how the machine's own name resolves.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    # Tasks carry passwords. Spark keeps tasks as blocks, and serves them to everybody on the machine who finds the
    # port. With this it asks for a secret, which it makes itself (``SecurityManager.initializeAuth``, Spark 4.2).
    # Nothing is encrypted: the blocks never leave the machine, and ``SPARK_LOCAL_DIRS`` is a folder of this user's own.
    AUTHENTICATE: "true",
}
#: On a cluster the same blocks cross the network and may be on the workers' disks.
_ENCRYPTED = {
    AUTHENTICATE: "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
#: Hadoop's client would ask a resource manager that is down for 15 minutes (``yarn-default.xml``, Hadoop 3.5).
_YARN_CONF = {
    "spark.hadoop.yarn.resourcemanager.connect.max-wait.ms": "60000",
    "spark.hadoop.yarn.resourcemanager.connect.retry-interval.ms": "5000",
}
#: One of them names the image of the executors (Spark 4.2, "Running Spark on Kubernetes").
_IMAGES = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
#: Other keys of the extra that Airflow's form of the connection has, and the properties that they stand for.
_PROPERTY_OF = {"queue": "spark.yarn.queue", "namespace": "spark.kubernetes.namespace"}
#: What options of spark-submit say: ``pipeline_files/kinds.py`` refuses the same and names the place of each.
_DECIDED_ELSEWHERE = frozenset(
    {"spark.master", "spark.app.name", "spark.driver.memory", "spark.executor.memory", "spark.executor.cores"}
)
#: Properties that name a secret of Kubernetes or a file that holds one.
_NAMES_NO_SECRET = re.compile(r"(?i)file$|^spark\.kubernetes\.(\w+\.secret(s|KeyRef)\.|container\.image\.pullSecrets$)")
#: A variable of the driver's environment; Spark leaves one that it does not find as it is (``ConfigReader``, 4.2).
_VARIABLE = re.compile(r"\$\{env:(\S+?)\}")
_HOLDS_SECRET = re.compile(r"(?i)(passw\w*|secret|token)\s*=")


class MasterKind(StrEnum):
    """What runs the tasks."""

    LOCAL = "local"
    STANDALONE = "spark"
    YARN = "yarn"
    KUBERNETES = "k8s"


@dataclass(frozen=True, slots=True)
class SparkMaster:
    """Where Spark runs.

    Attributes:
        conn_id: The Airflow connection, for messages.
        url: As spark-submit gets it.
        kind: What it is.
        properties: Spark properties of the connection; those of a pipeline go before them.
        secret: The secret that a standalone cluster asks for; empty where there is none.
    """

    conn_id: str
    url: str
    kind: MasterKind
    properties: Mapping[str, str] = field(default_factory=dict)
    secret: str = field(default="", repr=False)


def spark_master_of(values: ConnectionValues) -> SparkMaster:
    """Return the Spark master of a connection of type ``spark``; the host is read as Airflow's SparkSubmitHook does it.

    Raises:
        ConfigError: Another type, another master than those of :class:`MasterKind`, cluster mode, or an extra that
            cannot be used; all faults at once. No value of the extra is repeated.
    """
    url = _url(values)
    kind = _kind(url)
    faults = [*_faults(values, kind)]
    if kind is None or faults:
        master = [] if kind else [f"its master is {url or 'empty'}"]
        raise ConfigError(
            f"Connection {values.conn_id} cannot be used",
            expected="a connection of type spark in client mode whose host is local, local[N], local[*], "
            "spark://HOST:PORT, yarn or k8s://https://HOST:PORT, and an extra of Spark properties without secrets",
            found="; ".join([*master, *faults]),
            next_command=f"correct {environment_variable(values.conn_id)}, or the connection in Airflow; "
            "docs/spark-clusters.md",
        )
    # Airflow's form keeps the keys of fields that nobody filled in.
    extra = {_PROPERTY_OF.get(key, key): value for key, value in values.extra.items() if value not in (None, "")}
    properties = {key: _text(value) for key, value in extra.items() if key.startswith("spark.") and key != SPARK_SECRET}
    return SparkMaster(values.conn_id, url, kind, properties, str(values.extra.get(SPARK_SECRET) or ""))


def is_authenticated(job: JobSettings, master: SparkMaster) -> bool:
    """Tell whether Spark asks for a secret before it serves tasks, as far as this machine's settings show.

    YARN and Kubernetes make one for each application, and so does a local master; a standalone cluster has its own.
    """
    chosen = _set_here(job, master).get(AUTHENTICATE)
    if chosen is not None:
        return chosen.lower() == "true"
    return master.kind is not MasterKind.STANDALONE or bool(master.secret)


def conf_of_master(job: JobSettings, master: SparkMaster) -> dict[str, str]:
    """Return the properties that the kind of master asks for, with those of the connection.

    The traffic between driver and executors and what they put on disk is encrypted on every cluster, unless a pipeline,
    the connection or ``spark-defaults.conf`` switches that off.

    Raises:
        ConfigError: Something is missing without which Spark could not start there, or would serve passwords to
            everybody who reaches its ports.
    """
    if master.kind is MasterKind.LOCAL:
        return {**_LOCAL_CONF, **master.properties}
    set_here = _set_here(job, master)
    if faults := [*_missing(job, master, set_here)]:
        raise _cannot_start(master, faults)
    encrypted = _ENCRYPTED if is_authenticated(job, master) else {}
    ours = encrypted | (_YARN_CONF if master.kind is MasterKind.YARN else {})
    unset = {key: value for key, value in ours.items() if key == AUTHENTICATE or key not in set_here}
    return unset | dict(master.properties)


def _url(values: ConnectionValues) -> str:
    host = values.host or ""
    # SparkSubmitHook (provider 6.3): a host with a protocol or without a port is the whole master.
    master = host if "://" in host or not values.port else f"spark://{host}"
    return f"{master}:{values.port}" if values.port else master


def _kind(url: str) -> MasterKind | None:
    if url == "yarn":
        return MasterKind.YARN
    if re.fullmatch(r"local(\[.*\])?", url):
        return MasterKind.LOCAL
    kind = url.partition("://")[0]
    return MasterKind(kind) if kind in (MasterKind.STANDALONE, MasterKind.KUBERNETES) else None


def _faults(values: ConnectionValues, kind: MasterKind | None) -> Iterator[str]:
    if values.conn_type != "spark":
        yield f"it is of type {values.conn_type or '(none)'}"
    deploy_mode = values.extra.get("deploy-mode") or "client"
    if deploy_mode != "client":
        yield f"deploy-mode {deploy_mode}: take it out, the driver runs where the task runs"
    for key in ("keytab", "principal"):
        if values.extra.get(key):
            # Airflow's hook writes the keytab into the temporary folder, where everybody on the machine can read it.
            yield f"{key} stands in the extra: name a keytab file of the worker in spark.kerberos.{key}"
    yield from (fault for key, value in values.extra.items() if (fault := _property_fault(key, value, kind)))


def _property_fault(key: str, value: object, kind: MasterKind | None) -> str:
    if key == SPARK_SECRET:
        if not isinstance(value, str | None):
            return f"{key} in the extra is not a text: put the cluster's secret in quotes"
        makes_its_own = value and kind in (MasterKind.YARN, MasterKind.KUBERNETES)
        return f"{key}: take it out, on {kind} Spark makes one for each application" if makes_its_own else ""
    if not key.startswith("spark.") or value is None:
        return ""
    if key in _DECIDED_ELSEWHERE or key.startswith("spark.submit."):
        return f"{key}: take it out, the job's submission and the pipeline file decide it"
    if not isinstance(value, str | int | float):
        return f"{key} is not a text, a number, true or false"
    if (is_secret_name(key) and not _NAMES_NO_SECRET.search(key)) or _HOLDS_SECRET.search(str(value)):
        return f"{key} is or holds a secret, and properties stand on the command line"
    return ""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _set_here(job: JobSettings, master: SparkMaster) -> dict[str, str]:
    return default_properties() | dict(master.properties) | dict(job.conf)


def _missing(job: JobSettings, master: SparkMaster, set_here: Mapping[str, str]) -> Iterator[str]:
    if AUTHENTICATE not in set_here and not is_authenticated(job, master):
        yield (
            f"no {SPARK_SECRET} in the extra: tasks carry passwords, and Spark would send them in clear. Add the "
            f'cluster\'s secret, or switch this protection off: {{"{AUTHENTICATE}": "false"}}'
        )
    if master.kind is MasterKind.YARN and not any(map(os.environ.get, HADOOP_FOLDERS)):
        yield f"neither {' nor '.join(HADOOP_FOLDERS)} is set here: name the folder with yarn-site.xml"
    if master.kind is MasterKind.KUBERNETES and not set_here.keys() & {*_IMAGES}:
        yield f"no {_IMAGES[0]}: name the image of the executors"
    for key, value in set_here.items():
        for name in _VARIABLE.findall(value):
            if name not in os.environ:
                yield f"{key} names the variable {name}, which is not set here"


def _cannot_start(master: SparkMaster, faults: list[str]) -> ConfigError:
    return ConfigError(
        f"Spark cannot be used on {master.url} as connection {master.conn_id} and this machine say",
        expected="what docs/spark-clusters.md lists for this kind of cluster",
        found="\n".join(faults),
        next_command="correct the extra of the connection, spark.conf of the pipeline or the environment of Airflow's "
        "workers, then: python -m kafka_ingest preflight PIPELINE --spark",
    )
