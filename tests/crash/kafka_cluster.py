"""A Kafka cluster of one controller and two brokers, for what needs a leader and a follower."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sandbox.java import java
from sandbox.kafka import KAFKA_SETTINGS
from sandbox.kafka_jars import kafka_jars
from sandbox.paths import SandboxPaths, private_folder
from sandbox.ports import PortBook, is_listening
from sandbox.processes import ManagedProcess
from tests.deadlines import until
from tests.services import KAFKA_SECONDS

CONTROLLER, BROKERS = 1, (11, 12)
START_SECONDS = 90.0
#: A killed broker is taken out of the replicas in sync, and let in again, when its session has ended.
_QUICK = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
_LOGGING = (
    'Configuration: {Appenders: {Console: {name: C, PatternLayout: {pattern: "%d %p %c{1} %m%n"}}}, '
    "Loggers: {Root: {level: WARN, AppenderRef: {ref: C}}}}\n"
)


class KafkaCluster:
    """Three KRaft processes of 300 MB.

    Args:
        folder: State folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = private_folder(folder)
        self._cache = SandboxPaths(folder).cache
        ports = PortBook(folder)
        self._ports = {node: ports.port_for_start(f"node-{node}") for node in (CONTROLLER, *BROKERS)}
        self._processes = {node: ManagedProcess(f"node-{node}", folder) for node in self._ports}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self._ports[node]}" for node in BROKERS)

    def start(self) -> None:
        """Starts the nodes that do not run; returns when both brokers are known."""
        for node in self._ports:
            self._start(node)
        until(lambda: self._known_brokers() == 2, "both brokers are known", START_SECONDS)

    def start_broker(self, node: int) -> None:
        """Starts a broker; returns when it answers."""
        self._start(node)
        until(lambda: is_listening(self._ports[node]), f"broker {node} listens", START_SECONDS)
        until(lambda: self._known_brokers() > 0, f"broker {node} is known", START_SECONDS)

    def kill(self, node: int) -> None:
        self._processes[node].kill()

    def remove(self) -> None:
        for process in self._processes.values():
            process.stop(grace_seconds=1)
        shutil.rmtree(self._folder, ignore_errors=True)

    def create_topic(self, name: str) -> None:
        """Creates a topic with one partition on both brokers, which accepts records while one of them is in sync."""
        topic = NewTopic(name, num_partitions=1, replication_factor=2, config={"min.insync.replicas": "1"})
        admin = self._admin()
        admin.create_topics([topic])[name].result(KAFKA_SECONDS)
        until(lambda: len(self.in_sync(name)) == 2, f"{name} is on both brokers", KAFKA_SECONDS)

    def in_sync(self, topic: str) -> set[int]:
        """Return the replicas in sync of the topic's partition; none while the topic is unknown."""
        partition = self._partition(topic)
        return set(partition.isrs) if partition else set()

    def has_leader(self, topic: str) -> bool:
        """Whether the brokers know a leader; ``False`` also while they do not answer."""
        partition = self._partition(topic)
        return partition is not None and partition.leader >= 0

    def lacks_leader(self, topic: str) -> bool:
        """Whether the brokers say that there is none."""
        partition = self._partition(topic)
        return partition is not None and partition.leader < 0

    def elect_uncleanly(self, topic: str) -> None:
        """Makes a replica the leader that is not in sync: what it does not have is lost."""
        admin = self._admin()
        admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, 0)]).result(KAFKA_SECONDS)
        until(lambda: self.has_leader(topic), f"{topic} has a leader", KAFKA_SECONDS)

    def _start(self, node: int) -> None:
        folder = private_folder(self._folder / str(node))
        properties, logging = folder / "server.properties", folder / "log4j2.yaml"
        properties.write_text(self._properties(node, folder), encoding="utf-8")
        logging.write_text(_LOGGING, encoding="utf-8")
        program = [java(), "-Xmx300m", f"-Dlog4j2.configurationFile={logging}", "-cp", f"{kafka_jars(self._cache)}/*"]
        if not (folder / "data" / "meta.properties").exists():
            tool = [*program, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
            subprocess.run(tool, check=True, capture_output=True)
        self._processes[node].start([*program, "kafka.Kafka", str(properties)], cwd=folder)

    def _properties(self, node: int, folder: Path) -> str:
        is_controller = node == CONTROLLER
        address = f"{'CONTROLLER' if is_controller else 'PLAINTEXT'}://127.0.0.1:{self._ports[node]}"
        settings = {
            **KAFKA_SETTINGS,
            **_QUICK,
            "node.id": str(node),
            "process.roles": "controller" if is_controller else "broker",
            "listeners": address,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self._ports[CONTROLLER]}",
            "log.dirs": str(folder / "data"),
        }
        if is_controller:
            del settings["inter.broker.listener.name"]
        else:
            settings["advertised.listeners"] = address
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _admin(self) -> AdminClient:
        # A client of its own each time, which knows living brokers only: others keep it waiting.
        living = [f"127.0.0.1:{self._ports[node]}" for node in BROKERS if self._processes[node].is_running()]
        return AdminClient({"bootstrap.servers": ",".join(living), "log_level": 0})

    def _known_brokers(self) -> int:
        try:
            return len(self._admin().list_topics(timeout=2).brokers)
        except KafkaException:
            return 0

    def _partition(self, topic: str) -> Any:
        try:
            return self._admin().list_topics(topic, timeout=5).topics[topic].partitions.get(0)
        except KafkaException:
            return None


_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"  # of Kafka's quickstart; any 16 bytes will do
