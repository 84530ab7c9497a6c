"""A schema registry of its own, Apicurio, which speaks Confluent's API on loopback; schemas survive stop and crash."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.java import java_for_registry
from sandbox.maven import Artifact, made_once, unpack
from sandbox.paths import SandboxPaths, private_folder
from sandbox.ports import PortBook, is_listening
from sandbox.processes import ManagedProcess

HOST = "127.0.0.1"
START_SECONDS = 120.0  # two idle cores take 3 s, a machine that was busy with other tests took 34 s
_ARCHIVE = Artifact("io.apicurio", "apicurio-registry-app", "3.3.3", classifier="all", extension="tar.gz")
_CHECKSUM = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
# With the first compiler alone and one thread of garbage collection it starts with 3.7 s of CPU instead of 6.5 s.
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def client_settings(url: str) -> dict[str, object]:
    """Return the settings of confluent-kafka's client: without a time-out it would wait for ever for a lost answer."""
    return {"url": url, "timeout": 10}


class SchemaRegistry:
    """One registry without login. Every method can be called by any process that names the same folder.

    It differs from Confluent's: nothing has to be compatible until ``set_compatibility`` says so. Its log has a line
    for each request.

    Args:
        folder: State folder of this registry; its ports are remembered in the parent folder.
        cache: Folder for the downloaded program.
    """

    def __init__(self, folder: Path, *, cache: Path | None = None) -> None:
        self.folder = folder
        self._cache = cache or SandboxPaths(folder).cache
        self._ports = PortBook(folder.parent)
        self._process = ManagedProcess("registry", folder)

    def start(self) -> None:
        """Start the registry and wait until it answers; idempotent.

        Raises:
            SandboxError: It did not start; the end of its log is in the message.
        """
        if self.is_running():
            return
        self._process.stop()
        self._process.start_on_free_ports(self._start_once, taken="seems to be in use by another process")

    def stop(self) -> None:
        """Stop the registry in good order. Idempotent."""
        self._process.stop()

    def kill(self) -> None:
        """Kill the registry as a crash would; ``start`` then finds its schemas, on the same port."""
        self._process.kill()

    def destroy(self) -> None:
        """Stop the registry and delete its schemas and its ports. Idempotent."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("", "-management"):
            self._ports.forget(self.folder.name + name)

    def is_running(self) -> bool:
        """Tell whether the registry lives and answers."""
        return self._process.is_running() and self._answers()

    @property
    def url(self) -> str:
        """The address for clients of Confluent's API.

        Raises:
            SandboxError: It was never started.
        """
        return f"http://{HOST}:{self._port()}/apis/ccompat/v7"

    @property
    def log(self) -> Path:
        """The registry's log."""
        return self._process.log

    def _port(self) -> int:
        port = self._ports.known(self.folder.name)
        if port is None:
            raise SandboxError("the schema registry was never started here", next_step="make up REGISTRY=1")
        return port

    def _start_once(self) -> None:
        program = registry_program(self._cache)
        settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": self._ports.port_for_start(self.folder.name),
            "quarkus.management.host": HOST,
            "quarkus.management.port": self._ports.port_for_start(f"{self.folder.name}-management"),
            # H2 writes what was committed half a second later by default (h2database.com, SET WRITE_DELAY).
            "apicurio.datasource.url": f"jdbc:h2:file:{self.folder.resolve()}/data/schemas;WRITE_DELAY=0",
        }
        options = [f"-D{name}={value}" for name, value in settings.items()]
        # Quarkus reads more settings from the working directory: this one has none.
        folder = private_folder(self.folder)
        command = [java_for_registry(), *_JVM, *options, "-jar", str(program / "quarkus-run.jar")]
        self._process.start(command, cwd=folder)
        self._process.wait_until(self._answers, timeout_seconds=START_SECONDS)

    def _answers(self) -> bool:
        if not is_listening(self._port()):
            return False
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False


def registry_program(cache: Path) -> Path:
    """Return the folder with the registry's program (168 MB), fetching it the first time.

    Raises:
        SandboxError: The download failed, or the file is not the expected one.
    """

    def make(draft: Path) -> None:
        print(f"fetching the schema registry Apicurio {_ARCHIVE.version} from Maven Central (159 MB, once) ...")
        unpack(_ARCHIVE, draft, checksum=_CHECKSUM, listed_in=Path(__file__))

    return made_once(cache / "registry" / _ARCHIVE.version, make)
