"""A YARN of its own: one resource manager and a few node managers on loopback, without HDFS.

They are Hadoop's own daemons in processes of their own. ``hadoop-client-minicluster`` has their classes, PySpark's jars
have the rest; no Hadoop distribution, and of Java only the runtime, is needed.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from sandbox.airflow_settings import CONNECTION_PREFIX
from sandbox.errors import SandboxError
from sandbox.java import java
from sandbox.maven import Artifact, check_files, checksums, fetch, made_once, pyspark_jars
from sandbox.paths import SandboxPaths, log_tail, private_folder
from sandbox.ports import PortBook
from sandbox.processes import ManagedProcess

HOST = "127.0.0.1"
START_SECONDS = 120.0  # two idle cores take 6 s; a busy machine took ten times as long for other Java programs
# A node kills its containers at once, and then waits 17 s for those that ended long ago (Hadoop 3.5).
STOP_SECONDS = 3.0
#: That of PySpark 4.2.0's ``hadoop-client-api``, which is on the same class path.
HADOOP_VERSION = "3.5.0"
#: Queues for the ways in which a load can wait or lose what it has. One user may take all that is free.
DEFAULT_QUEUE, NARROW_QUEUE, LOW_QUEUE, HIGH_QUEUE = "default", "narrow", "low", "high"
_BOUNCY_CASTLE = "1.78.1"
_ROOTS = (
    Artifact("org.apache.hadoop", "hadoop-client-minicluster", HADOOP_VERSION, alone=True),
    *(
        Artifact("org.bouncycastle", f"{name}-jdk18on", _BOUNCY_CASTLE, alone=True)
        for name in ("bcprov", "bcpkix", "bcutil")
    ),
)
_CHECKSUMS = Path(__file__).with_name("yarn_jars.sha256")
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_DAEMONS = "org.apache.hadoop.yarn.server"
_PARTS = ("web", "clients", "masters", "nodes", "admin")
# The root cause comes first and is cut after some lines: the end of the log says why a daemon did not start.
_LOGGING = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n%rEx{6}
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
"""
_CAPACITY = "yarn.scheduler.capacity"
_NAMES = (DEFAULT_QUEUE, NARROW_QUEUE, LOW_QUEUE, HIGH_QUEUE)
_QUEUES = {
    f"{_CAPACITY}.root.queues": ",".join(_NAMES),
    # Guaranteed, in percent; each may grow to the whole cluster.
    f"{_CAPACITY}.root.{DEFAULT_QUEUE}.capacity": "40",
    f"{_CAPACITY}.root.{NARROW_QUEUE}.capacity": "10",
    f"{_CAPACITY}.root.{LOW_QUEUE}.capacity": "10",
    f"{_CAPACITY}.root.{HIGH_QUEUE}.capacity": "40",
    **{f"{_CAPACITY}.root.{name}.user-limit-factor": "10" for name in _NAMES},
    # Application masters may fill a queue, but for one queue: YARN then lets one in, and the others wait.
    f"{_CAPACITY}.maximum-am-resource-percent": "1.0",
    f"{_CAPACITY}.root.{NARROW_QUEUE}.maximum-am-resource-percent": "0.01",
    # The low queue alone has to give back what it took beyond its share when another one needs it.
    **{f"{_CAPACITY}.root.{name}.disable_preemption": "true" for name in _NAMES if name != LOW_QUEUE},
}
_PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption"
_SETTINGS = {
    "yarn.resourcemanager.scheduler.class": f"{_DAEMONS}.resourcemanager.scheduler.capacity.CapacityScheduler",
    "yarn.scheduler.minimum-allocation-mb": "64",
    "yarn.resourcemanager.scheduler.monitor.enable": "true",
    # As soon and as much as it can: Hadoop's defaults are 3 s, 15 s, a tenth in a round and a fifth of the rest.
    f"{_PREEMPTION}.monitoring_interval": "200",
    f"{_PREEMPTION}.max_wait_before_kill": "500",
    f"{_PREEMPTION}.total_preemption_per_round": "1.0",
    f"{_PREEMPTION}.natural_termination_factor": "1.0",
    f"{_PREEMPTION}.max_ignored_over_capacity": "0.0",
    # A container starts and ends at a heartbeat of its node; the default is 1 s.
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    # The machine's memory and disk belong to other programs, too.
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    # Logs of containers stay on their nodes: folder/node1/logs/APPLICATION/CONTAINER.
    "yarn.log-aggregation-enable": "false",
}
_LIVING = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"


class YarnCluster:
    """One resource manager, node managers that each offer some memory, and the configuration for clients.

    Containers are processes of this user. They are scheduled by memory alone.

    Args:
        folder: State folder; the ports of the resource manager are remembered in its parent folder.
        nodes: Number of node managers; on Linux each has a loopback address of its own, as Spark starts no speculative
            copy on the host of the running attempt.
        memory_mb: Memory that each node offers.
        cache: Folder for the downloaded jars.
    """

    def __init__(self, folder: Path, *, nodes: int = 1, memory_mb: int = 4096, cache: Path | None = None) -> None:
        self.folder = folder
        self._memory_mb = memory_mb
        self._cache = cache or SandboxPaths(folder).cache
        self._ports = PortBook(folder.parent)
        self._manager = ManagedProcess("resource-manager", folder)
        self._nodes = [ManagedProcess(f"node{number}", folder) for number in range(1, nodes + 1)]

    def start(self) -> None:
        """Start the parts that are not running; return when all nodes are registered. Idempotent.

        Applications that ran when the resource manager ended are forgotten.

        Raises:
            SandboxError: A part did not start; the end of its log is in the message.
        """
        if not self._manager.is_running():
            self.stop()
            self._manager.start_on_free_ports(self._start_manager, taken="Address already in use")
        for number, node in enumerate(self._nodes, start=1):
            if not node.is_running():
                self._start_node(number, node)
        self._manager.wait_until(self._all_registered, timeout_seconds=START_SECONDS)

    def stop(self) -> None:
        """Stop the nodes, with their containers, and the resource manager. Idempotent."""
        for process in (*self._nodes, self._manager):
            process.stop(grace_seconds=STOP_SECONDS)

    def destroy(self) -> None:
        """Stop the cluster and delete its files and its ports. Idempotent."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        for part in _PARTS:
            self._ports.forget(f"yarn-{part}")

    def is_running(self) -> bool:
        """Tell whether resource manager and all nodes live and know each other."""
        return self._manager.is_running() and self._all_registered()

    @property
    def processes(self) -> tuple[ManagedProcess, ...]:
        """Resource manager and nodes, for tests that kill one."""
        return (self._manager, *self._nodes)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a client needs, as on a gateway host: where the settings of YARN and of Spark are."""
        return {
            "HADOOP_CONF_DIR": str(self._hadoop_conf),
            "SPARK_CONF_DIR": str(self._spark_conf),
            "SPARK_LOCAL_IP": HOST,
        }

    @property
    def url(self) -> str:
        """The address of the resource manager's web page and REST interface.

        Raises:
            SandboxError: It was never started.
        """
        return f"http://{self._address('web')}"

    def applications(self) -> dict[str, dict[str, Any]]:
        """Return the applications that have not ended, by id, with ``state``, ``queue``, ``name`` and so on."""
        found = self._ask("GET", f"apps?states={_LIVING}")["apps"] or {}
        return {str(application["id"]): application for application in found.get("app", ())}

    def application(self, application_id: str) -> dict[str, Any]:
        """Return one application, also one that has ended: ``state``, ``finalStatus``, ``diagnostics`` and so on."""
        found: dict[str, Any] = self._ask("GET", f"apps/{application_id}")["app"]
        return found

    def kill(self, application_id: str) -> None:
        """Kill an application, as an administrator does: ``yarn application -kill``. It ends a moment later."""
        self._ask("PUT", f"apps/{application_id}/state", {"state": "KILLED"})

    def occupy(self, queue: str, memory_mb: int) -> str:
        """Submit an application whose one container holds memory of a queue until it is killed; return its id.

        Its container begins a moment later, where there is room for it.
        """
        application_id = str(self._ask("POST", "apps/new-application")["application-id"])
        application = {
            "application-id": application_id,
            "application-name": "occupier",
            "application-type": "SLEEP",
            "queue": queue,
            "max-app-attempts": 1,
            "resource": {"memory": memory_mb, "vCores": 1},
            # It never registers with the resource manager, which gives it ten minutes for that.
            "am-container-spec": {"commands": {"command": "exec sleep 600"}},
        }
        self._ask("POST", "apps", application)
        return application_id

    def fill(self, queue: str) -> list[str]:
        """Occupy all memory that the nodes have left, wait until that is done, and return the applications' ids.

        Raises:
            SandboxError: It was not done in time, because others take the memory.
        """
        # An application goes where it fits: the one for the node with the most room first.
        free = sorted((int(node["availMemoryMB"]) for node in self._nodes_seen()), reverse=True)
        return [self._occupy_now(queue, memory_mb) for memory_mb in free if memory_mb]

    def _occupy_now(self, queue: str, memory_mb: int) -> str:
        application_id = self.occupy(queue, memory_mb)
        self._manager.wait_until(lambda: self.holds_memory(application_id), timeout_seconds=START_SECONDS)
        return application_id

    def holds_memory(self, application_id: str) -> bool:
        """Tell whether an application has a container."""
        return int(self.application(application_id)["allocatedMB"]) > 0

    @property
    def _hadoop_conf(self) -> Path:
        return (self.folder / "hadoop-conf").resolve()

    @property
    def _spark_conf(self) -> Path:
        return (self.folder / "spark-conf").resolve()

    def _start_manager(self) -> None:
        for part in _PARTS:
            self._ports.port_for_start(f"yarn-{part}")
        self._write_settings()
        self._launch(self._manager, "resourcemanager.ResourceManager", {})
        self._manager.wait_until(self._answers, timeout_seconds=START_SECONDS)

    def _start_node(self, number: int, node: ManagedProcess) -> None:
        host = f"127.0.0.{number}" if sys.platform == "linux" else HOST
        folder = (self.folder / node.name).resolve()
        own = {
            "yarn.nodemanager.hostname": host,
            "yarn.nodemanager.bind-host": host,
            # Nobody needs to know these ports before: the node tells them to the resource manager.
            "yarn.nodemanager.address": f"{host}:0",
            "yarn.nodemanager.localizer.address": f"{host}:0",
            "yarn.nodemanager.webapp.address": f"{host}:0",
            "yarn.nodemanager.resource.memory-mb": str(self._memory_mb),
            "yarn.nodemanager.local-dirs": str(folder / "local"),
            "yarn.nodemanager.log-dirs": str(folder / "logs"),
        }
        self._launch(node, "nodemanager.NodeManager", own, host)

    def _write_settings(self) -> None:
        addresses = {
            "webapp.address": "web",
            "address": "clients",
            "scheduler.address": "masters",
            "resource-tracker.address": "nodes",
            "admin.address": "admin",
        }
        own = {f"yarn.resourcemanager.{key}": self._address(part) for key, part in addresses.items()}
        folder, hadoop = self.folder.resolve(), private_folder(self._hadoop_conf)
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "hadoop")}
        _write_xml(hadoop / "core-site.xml", core)
        _write_xml(hadoop / "yarn-site.xml", {**_SETTINGS, "yarn.resourcemanager.bind-host": HOST, **own})
        _write_xml(hadoop / "capacity-scheduler.xml", _QUEUES)
        # Without the first each submission would pack Spark's jars (400 MB), without the second use the home folder.
        spark = {
            "spark.yarn.jars": f"local:{pyspark_jars()}/*",
            "spark.yarn.stagingDir": (self.folder / "staging").as_uri(),
        }
        lines = "".join(f"{key} {value}\n" for key, value in spark.items())
        (private_folder(self._spark_conf) / "spark-defaults.conf").write_text(lines, encoding="utf-8")
        (folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")

    def _launch(self, process: ManagedProcess, daemon: str, settings: Mapping[str, str], host: str = HOST) -> None:
        folder, jars = self.folder.resolve(), yarn_jars(self._cache).resolve()
        temporary = private_folder(folder / "tmp")
        path = os.pathsep.join([str(self._hadoop_conf), f"{jars}/*", f"{pyspark_jars()}/*"])
        command = [
            java(),
            *_JVM,
            f"-Djava.io.tmpdir={temporary}",
            f"-Dlog4j2.configurationFile={folder}/log4j2.properties",
        ]
        command += ["-cp", path, f"{_DAEMONS}.{daemon}"]
        command += [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
        # Containers inherit a node's environment: connections of the cluster's starter must not be there.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(CONNECTION_PREFIX)}
        environment = {
            **inherited,
            "SPARK_LOCAL_IP": host,
            "JAVA_HOME": str(Path(java()).resolve().parents[1]),
            # ``python3`` of the containers is the Python that has the packages.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        }
        process.start(command, env=environment, cwd=folder)

    def _all_registered(self) -> bool:
        if not self._answers():
            return False
        return [node["state"] for node in self._nodes_seen()].count("RUNNING") >= len(self._nodes)

    def _answers(self) -> bool:
        try:
            self._nodes_seen()
        except SandboxError:
            return False
        return True

    def _nodes_seen(self) -> list[dict[str, Any]]:
        nodes: dict[str, list[dict[str, Any]]] = self._ask("GET", "nodes")["nodes"] or {}
        return nodes.get("node", [])

    def _ask(self, method: str, path: str, document: object = None) -> Any:
        body = None if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = urllib.request.Request(f"{self.url}/ws/v1/cluster/{path}", data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise SandboxError(f"YARN refused {method} {path} ({error.code})", found=said) from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            what = f"YARN did not answer {method} {path}: {error}"
            raise SandboxError(what, found=log_tail(self._manager.log)) from error

    def _address(self, part: str) -> str:
        port = self._ports.known(f"yarn-{part}")
        if port is None:
            raise SandboxError("YARN was never started here")
        return f"{HOST}:{port}"


def yarn_jars(cache: Path) -> Path:
    """Return the folder with YARN's jars, fetching them (65 MB) the first time.

    Raises:
        SandboxError: The download failed, or a file is not the expected one.
    """

    def make(draft: Path) -> None:
        print(f"fetching YARN {HADOOP_VERSION} from Maven Central (65 MB, once) ...", flush=True)
        fetch(_ROOTS, draft, ivy_cache=cache / "ivy")
        check_files(draft, checksums(_CHECKSUMS), listed_in=_CHECKSUMS)

    return made_once(cache / "yarn" / HADOOP_VERSION, make)


def _write_xml(path: Path, settings: Mapping[str, str]) -> None:
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    ]
    path.write_text(f"<configuration>\n{''.join(lines)}</configuration>\n", encoding="utf-8")
