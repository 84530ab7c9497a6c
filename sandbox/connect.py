"""A Kafka Connect of its own: one standalone worker on loopback, with Debezium's connector for PostgreSQL.

Its offsets survive stop and crash. Its connectors do not, as a standalone worker keeps them in memory: after a new
start they are created again, and go on where their offsets are.
"""

from __future__ import annotations

import http.client
import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sandbox.errors import SandboxError
from sandbox.java import java
from sandbox.kafka_jars import KAFKA_VERSION
from sandbox.maven import Artifact, check_files, checksums, fetch, made_once, unpack
from sandbox.paths import SandboxPaths, log_tail, private_folder
from sandbox.ports import PortBook, is_listening
from sandbox.processes import ManagedProcess

HOST = "127.0.0.1"
START_SECONDS = 120.0  # two idle cores take 8 s; a busy machine took four times as long for other Java programs
CONNECTOR_SECONDS = 60.0  # the first connector takes 2 s
_REQUEST_SECONDS = 60.0  # a connector's settings are tried (a login, say) before the answer
# Connect runs beside the broker, in its version.
_ROOTS = (
    Artifact("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.3"),
)
_CHECKSUMS = Path(__file__).with_name("connect_jars.sha256")
_DEBEZIUM = Artifact("io.debezium", "debezium-connector-postgres", "3.6.1.Final", "plugin", "tar.gz")
_DEBEZIUM_CHECKSUM = "408b00c073b27ddaa7af34684f60fcf5bbf6605de68a8662ec9462f2a88880d2"
# Seven connectors took 520 MB with this heap. With the first compiler alone and one thread of garbage collection it
# starts with 1.3 s of CPU instead of 2.4 s.
_JVM = ("-Xms128m", "-Xmx768m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# The root cause comes first and is cut after some lines: the end of the log says why the worker did not start.
_LOGGING = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n%rEx{8}
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
logger.requests.name = org.apache.kafka.connect.runtime.rest.RestServer
logger.requests.level = WARN
logger.settings.name = org.apache.kafka.common.config.AbstractConfig
logger.settings.level = WARN
"""
_SETTINGS = {
    # The jars' own lists of what they bring are enough; to look into each class takes three times as long.
    "plugin.discovery": "service_load",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


class ConnectWorker:
    """One worker. Every method can be called by any process that names the same folder.

    Args:
        folder: State folder of this worker; its port is remembered in the parent folder.
        bootstrap: Address of its Kafka, which need not run before ``start``.
        cache: Folder for the downloaded jars.
        plugins: Folder with the folders of its plugins; Debezium's connector for PostgreSQL by default.
        settings: Settings of the worker beside those that it needs, or instead of them.
        jvm: Options of Java.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        *,
        cache: Path | None = None,
        plugins: Path | None = None,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = _JVM,
    ) -> None:
        self.folder = folder
        self._bootstrap = bootstrap
        self._cache = cache or SandboxPaths(folder).cache
        self._plugins = plugins
        self._settings = dict(settings or {})
        self._jvm = jvm
        self._ports = PortBook(folder.parent)
        self._process = ManagedProcess("connect", folder)

    def start(self) -> None:
        """Start the worker, without connectors, and wait until it answers; idempotent.

        Raises:
            SandboxError: It did not start; the end of its log is in the message.
        """
        if self.is_running():
            return
        self._process.stop()
        self._process.start_on_free_ports(self._start_once, taken="Address already in use")

    def stop(self) -> None:
        """Stop the worker in good order: its connectors end, and their offsets are written. Idempotent."""
        self._process.stop()

    def kill(self) -> None:
        """Kill the worker as a crash would: offsets since the last ``offset.flush.interval.ms`` are lost."""
        self._process.kill()

    def destroy(self) -> None:
        """Stop the worker and delete its offsets and its port. Idempotent."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._ports.forget(self.folder.name)

    def is_running(self) -> bool:
        """Tell whether the worker lives and answers."""
        return self._process.is_running() and self._answers()

    @property
    def url(self) -> str:
        """The address of its REST interface.

        Raises:
            SandboxError: It was never started.
        """
        port = self._ports.known(self.folder.name)
        if port is None:
            raise SandboxError("Kafka Connect was never started here")
        return f"http://{HOST}:{port}"

    @property
    def log(self) -> Path:
        """The worker's log."""
        return self._process.log

    def create_connector(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, which begins at once; ``wait_running`` waits until it does.

        Raises:
            SandboxError: The worker refuses it; what it says about the settings is in the message.
        """
        # The request that creates it ends with a NullPointerException when a setting of Debezium's is refused
        # (AbstractHerder.maybeAddConfigErrors, Kafka 4.2, Debezium 3.6): so they are validated before.
        plugin = config["connector.class"].rpartition(".")[2]
        validated = self._ask("PUT", f"/connector-plugins/{quote(plugin)}/config/validate", {**config, "name": name})
        values = [setting["value"] for setting in validated["configs"] if setting["value"]]
        errors = [f"{value['name']}: {error}" for value in values for error in value["errors"]]
        if errors:
            raise SandboxError(f"Kafka Connect refuses the settings of {name}", found="\n".join(errors))
        self._ask("POST", "/connectors", {"name": name, "config": dict(config)})

    def delete_connector(self, name: str) -> None:
        """Stop and delete a connector; its offsets stay. Nothing happens when there is none of that name."""
        if name in self.connectors():
            self._ask("DELETE", f"/connectors/{quote(name)}")

    def connectors(self) -> list[str]:
        """Return the names of its connectors."""
        return [str(name) for name in self._ask("GET", "/connectors")]

    def status(self, name: str) -> dict[str, Any]:
        """Return what the worker says about a connector: ``connector`` and each of ``tasks`` with a ``state``.

        Raises:
            SandboxError: There is no connector of that name, or the worker does not answer.
        """
        found: dict[str, Any] = self._ask("GET", f"/connectors/{quote(name)}/status")
        return found

    def is_connector_running(self, name: str) -> bool:
        """Tell whether a connector and its tasks run; False while it is starting.

        Raises:
            SandboxError: The connector or one of its tasks failed; the root cause is in the message.
        """
        status = self.status(name)
        parts = [status["connector"], *status["tasks"]]
        for part in parts:
            if part["state"] == "FAILED":
                found = f"{_cause(part.get('trace', ''))}\n{log_tail(self.log)}"
                raise SandboxError(f"the connector {name} failed", found=found)
        return len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts)

    def wait_running(self, name: str, *, timeout_seconds: float = CONNECTOR_SECONDS) -> None:
        """Wait until a connector and its tasks run.

        Raises:
            SandboxError: It failed, or did not begin in time; the reason or the end of the log is in the message.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self.is_connector_running(name):
            if time.monotonic() > deadline:
                what = f"the connector {name} did not begin within {timeout_seconds:.0f} s"
                raise SandboxError(what, found=log_tail(self.log))
            time.sleep(0.1)

    def _start_once(self) -> None:
        jars = connect_jars(self._cache)
        plugins = self._plugins or debezium_plugins(self._cache)
        folder = private_folder(self.folder)
        settings = {
            **_SETTINGS,
            "bootstrap.servers": self._bootstrap,
            "listeners": f"http://{HOST}:{self._ports.port_for_start(folder.name)}",
            "plugin.path": str(plugins.resolve()),
            "offset.storage.file.filename": str((folder / "connect.offsets").resolve()),
            **self._settings,
        }
        properties, logging = folder / "worker.properties", folder / "log4j2.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        logging.write_text(_LOGGING, encoding="utf-8")
        command = [java(), *self._jvm, f"-Dlog4j2.configurationFile={logging.resolve()}", "-cp", f"{jars.resolve()}/*"]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone", str(properties.resolve())]
        self._process.start(command, cwd=folder)
        self._process.wait_until(self._answers, timeout_seconds=START_SECONDS)

    def _answers(self) -> bool:
        port = self._ports.known(self.folder.name)
        if port is None or not is_listening(port):
            return False
        try:
            with urllib.request.urlopen(f"{self.url}/connectors", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError):
            return False

    def _ask(self, method: str, path: str, document: object = None) -> Any:
        body = None if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise SandboxError(f"Kafka Connect refused {method} {path} ({error.code})", found=said) from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            what = f"Kafka Connect did not answer {method} {path}: {error}"
            raise SandboxError(what, found=log_tail(self.log)) from error


def connect_jars(cache: Path) -> Path:
    """Return the folder with Connect's jars, fetching them (36 MB) the first time.

    Raises:
        SandboxError: The download failed, or a file is not the expected one.
    """

    def make(draft: Path) -> None:
        print(f"fetching Kafka Connect {KAFKA_VERSION} from Maven Central (36 MB, once) ...", flush=True)
        fetch(_ROOTS, draft, ivy_cache=cache / "ivy")
        check_files(draft, checksums(_CHECKSUMS), listed_in=_CHECKSUMS)

    return made_once(cache / "connect" / KAFKA_VERSION, make)


def debezium_plugins(cache: Path) -> Path:
    """Return the folder with Debezium's plugin for PostgreSQL (its driver included), fetching it the first time.

    Raises:
        SandboxError: The download failed, or the archive is not the expected one.
    """

    def make(draft: Path) -> None:
        print(f"fetching Debezium {_DEBEZIUM.version} from Maven Central (25 MB, once) ...", flush=True)
        unpack(_DEBEZIUM, draft, checksum=_DEBEZIUM_CHECKSUM, listed_in=Path(__file__))

    return made_once(cache / "debezium-postgres" / _DEBEZIUM.version, make)


def _cause(trace: str) -> str:
    """Return the line of a Java trace that names its root cause."""
    lines = [line for line in trace.splitlines() if line and not line.startswith(("\t", " "))]
    return lines[-1].removeprefix("Caused by: ") if lines else ""
