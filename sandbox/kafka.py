"""A Kafka broker of its own: one KRaft process on loopback, data that survives stop and crash."""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sandbox.errors import SandboxError
from sandbox.java import java
from sandbox.kafka_jars import kafka_jars
from sandbox.paths import SandboxPaths, private_folder
from sandbox.ports import PortBook, is_listening
from sandbox.processes import ManagedProcess

START_SECONDS = 90.0  # a busy machine with two cores took 22 s
_LOGGING = (
    'Configuration: {Appenders: {Console: {name: C, PatternLayout: {pattern: "%d %p %c{1} %m%n"}}}, '
    "Loggers: {Root: {level: WARN, AppenderRef: {ref: C}}}}\n"
)


class KafkaBroker:
    """One broker, PLAINTEXT only. Every method can be called by any process that names the same folder.

    Args:
        folder: State folder of this broker; its ports are remembered in the parent folder.
        cache: Folder for the downloaded jars.
        for_tests: Retention, compaction and the return after a kill take seconds instead of minutes.
        proxied_as: ``host:port`` of a proxy. The broker then has a second listener (``proxied_port``) that advertises
            that address, so clients that come through the proxy stay on it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cache: Path | None = None,
        for_tests: bool = False,
        proxied_as: str | None = None,
    ) -> None:
        self.folder = folder
        self._cache = cache or SandboxPaths(folder).cache
        self._for_tests = for_tests
        self._proxied_as = proxied_as
        self._ports = PortBook(folder.parent)
        self._process = ManagedProcess("kafka", folder)
        self._jvm_options: tuple[str, ...] = ()

    def start(self) -> None:
        """Start the broker and wait until it answers; the first time, format its data folder. Idempotent.

        Raises:
            SandboxError: It did not start; the end of its log is in the message.
        """
        if self.is_running():
            return
        self._process.stop()
        self._process.start_on_free_ports(self._start_once, taken="Address already in use")

    def stop(self) -> None:
        """Stop the broker in good order. Idempotent."""
        self._process.stop()

    def kill(self) -> None:
        """Kill the broker as a crash would; ``start`` then recovers its data on the same port."""
        self._process.kill()

    def destroy(self) -> None:
        """Stop the broker and delete its data and its ports. Idempotent."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("", "-controller", "-proxied"):
            self._ports.forget(self.folder.name + name)

    def is_running(self) -> bool:
        """Tell whether the broker lives and answers."""
        return self._process.is_running() and self._answers()

    def pid(self) -> int | None:
        """Return the pid of the broker process, or None."""
        return self._process.pid()

    @property
    def bootstrap(self) -> str:
        """The address for clients, ``127.0.0.1:port``.

        Raises:
            SandboxError: It was never started.
        """
        return f"127.0.0.1:{self._port('')}"

    @property
    def proxied_port(self) -> int:
        """The port to which the proxy of ``proxied_as`` has to connect."""
        return self._port("-proxied")

    @property
    def log(self) -> Path:
        """The broker's log."""
        return self._process.log

    def _port(self, part: str) -> int:
        port = self._ports.known(self.folder.name + part)
        if port is None:
            raise SandboxError("Kafka was never started here", next_step="make up")
        return port

    def _start_once(self) -> None:
        private_folder(self.folder)
        properties = self.folder / "server.properties"
        properties.write_text(self._properties(), encoding="utf-8")
        logging = self.folder / "log4j2.yaml"
        logging.write_text(_LOGGING, encoding="utf-8")
        # Twice the heap that the broker takes in the tests; Java would take a quarter of the machine.
        options = ["-Xms128m", "-Xmx512m", f"-Dlog4j2.configurationFile={logging}", *self._jvm_options]
        command = [java(), *options, "-cp", self._classpath()]
        if not (self.folder / "data" / "meta.properties").exists():
            self._format([*command, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(properties)])
        self._process.start([*command, "kafka.Kafka", str(properties)], cwd=self.folder)
        self._process.wait_until(self._answers, timeout_seconds=START_SECONDS)

    def _classpath(self) -> str:
        return f"{kafka_jars(self._cache)}/*"

    def _format(self, command: list[str]) -> None:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise SandboxError("Kafka's data folder cannot be made", found=(answer.stdout + answer.stderr).strip())

    def _answers(self) -> bool:
        if not is_listening(self._port("")):
            return False
        try:
            # A new client each time: one that met a dead broker waits longer and longer before it tries again.
            # Its complaints about refused connections are expected, so they are not shown.
            metadata = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=2)
        except KafkaException:
            return False
        return bool(metadata.brokers)

    def _properties(self) -> str:
        name = self.folder.name
        client = f"PLAINTEXT://127.0.0.1:{self._ports.port_for_start(name)}"
        controller = f"127.0.0.1:{self._ports.port_for_start(name + '-controller')}"
        listeners, advertised = [client, f"CONTROLLER://{controller}"], [client]
        if self._proxied_as:
            listeners.append(f"PROXIED://127.0.0.1:{self._ports.port_for_start(name + '-proxied')}")
            advertised.append(f"PROXIED://{self._proxied_as}")
        settings = {
            **KAFKA_SETTINGS,
            **(_FOR_TESTS if self._for_tests else {}),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self.folder / "data"),
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())


def _cluster_id() -> str:
    """Return a new id that does not begin with ``-``: StorageTool's command line would take it for an option.

    Kafka's own ``Uuid.randomUuid`` draws again for the same reason (clients, 4.2).
    """
    while (drawn := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return drawn


# Settings that docker-compose.yaml has in common with this broker; a test compares them.
KAFKA_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # One broker: nothing can have a second copy.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
_FOR_TESTS = {
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    # A killed broker is let in again when its old session has ended (9 s by default).
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}
