"""Airflow of its own: API server, scheduler, DAG processor and triggerer, as ``airflow standalone`` would run them.

They are started one by one, not by ``airflow standalone``: a part that died can then be named and started again alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from sandbox.airflow_client import AirflowClient
from sandbox.airflow_settings import AIRFLOW_SETTINGS, AIRFLOW_VERSION
from sandbox.errors import SandboxError
from sandbox.paths import CHECKOUT, log_tail, private_folder, tool, write_secret
from sandbox.ports import PortBook
from sandbox.processes import ManagedProcess

PARTS = ("api-server", "scheduler", "dag-processor", "triggerer")
USER = "admin"
START_SECONDS = 180.0  # a busy machine with two cores took 48 s
_STOP_SECONDS = 20.0  # a scheduler whose worker was killed does not end by itself

Report = Callable[[str], None]


@dataclass(frozen=True)
class AirflowSetup:
    """The database, connections and folders of one Airflow.

    Attributes:
        database_url: SQLAlchemy's address of an existing, possibly empty database for Airflow's own tables.
        connections: ``AIRFLOW_CONN_*`` variables.
        dags: Folder of DAG files.
        plugins: Folder that Airflow puts on its path and reads plugins from.
        extra_env: More variables for all parts; they win over everything else.
    """

    database_url: str
    connections: Mapping[str, str] = field(default_factory=dict)
    dags: Path = CHECKOUT / "dags"
    plugins: Path = CHECKOUT / "plugins"
    extra_env: Mapping[str, str] = field(default_factory=dict)


class AirflowServer:
    """One Airflow with a user ``admin`` and a random password. Other processes can name the same folder.

    Args:
        folder: State folder (AIRFLOW_HOME, logs, password); ports are remembered in its parent folder.
        setup: Database, connections, folders and variables.
    """

    def __init__(self, folder: Path, setup: AirflowSetup) -> None:
        self.folder = folder
        self.setup = setup
        self._ports = PortBook(folder.parent)
        self._processes = {part: ManagedProcess(part, folder) for part in PARTS}

    def start(self, report: Report = print) -> None:
        """Start the parts that are not running; return when all are healthy. Idempotent.

        Parts that run with other settings than those of the setup are stopped first.

        Raises:
            SandboxError: A part ended or was not healthy in time; the end of its log is in the message.
        """
        self._stop_if_changed(report)
        dead = self.dead_parts()
        for part in dead:
            self._processes[part].stop(grace_seconds=_STOP_SECONDS)
        if "api-server" in dead:
            self._choose_ports()
        self._migrate(report)
        write_secret(self.folder / "variables", self._fingerprint())
        started = datetime.now(UTC)
        for part in dead:
            command = [tool("airflow"), part]
            self._processes[part].start(command, env=self.environment(), cwd=self.folder)
        self._wait_until_healthy(dead, started, report)

    def stop(self) -> None:
        """Stop all parts with their tasks and Spark drivers. Idempotent."""
        # The scheduler first: it ends its tasks, which need the API server for that.
        for part in ("scheduler", "dag-processor", "triggerer", "api-server"):
            self._processes[part].stop(grace_seconds=_STOP_SECONDS)

    def restart(self, report: Report = print) -> None:
        """Stop and start all parts."""
        self.stop()
        self.start(report)

    def destroy(self) -> None:
        """Stop all parts and delete logs, password and settings (not the database). Idempotent."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_running(self) -> bool:
        """Tell whether all parts live and the API server answers."""
        return all(process.is_running() for process in self._processes.values()) and bool(self.client().health())

    def dead_parts(self) -> list[str]:
        """Return the names of the parts that are not running."""
        return [part for part, process in self._processes.items() if not process.is_running()]

    def process(self, part: str) -> ManagedProcess:
        """Return the process of a part (see ``PARTS``), for tests that kill it."""
        return self._processes[part]

    def client(self) -> AirflowClient:
        """Return a client that is logged in as ``admin``."""
        return AirflowClient(self.url, USER, self.password)

    @property
    def url(self) -> str:
        """The address for the browser.

        Raises:
            SandboxError: It was never started.
        """
        return f"http://127.0.0.1:{self._port('api')}"

    @cached_property
    def password(self) -> str:
        """The password of the user ``admin``."""
        return self._secret("password", lambda: secrets.token_urlsafe(12))

    def environment(self) -> dict[str, str]:
        """Return the variables with which every part and every ``airflow`` command of this server runs."""
        inherited = {key: text for key, text in os.environ.items() if not key.startswith("AIRFLOW")}
        scripts = str(Path(sys.executable).parent)
        inherited["PATH"] = os.pathsep.join([scripts, inherited.get("PATH", os.defpath)])
        return {**inherited, **self.variables()}

    def variables(self) -> dict[str, str]:
        """Return the variables that make an ``airflow`` command speak to this server, without those of the machine."""
        return {
            **AIRFLOW_SETTINGS,
            **self._addresses(),
            **self._secrets(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY", ""), "127.0.0.1", "localhost"])),
            **self.setup.connections,
            **self.setup.extra_env,
        }

    def _addresses(self) -> dict[str, str]:
        return {
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.setup.dags),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.setup.plugins),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.folder / "passwords.json"),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self._port("api")),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.setup.database_url,
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(self._port("worker-log")),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(self._port("trigger-log")),
        }

    def _secrets(self) -> dict[str, str]:
        return {
            "AIRFLOW__API_AUTH__JWT_SECRET": self._secret("jwt_secret", lambda: secrets.token_urlsafe(48)),
            "AIRFLOW__API__SECRET_KEY": self._secret("secret_key", lambda: secrets.token_urlsafe(32)),
            "AIRFLOW__CORE__FERNET_KEY": self._secret("fernet_key", _fernet_key),
        }

    def _fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.variables(), sort_keys=True).encode()).hexdigest()

    def _stop_if_changed(self, report: Report) -> None:
        # Parts that still run with an old address or folder would look healthy.
        known = self.folder / "variables"
        if len(self.dead_parts()) < len(PARTS) and known.exists() and known.read_text("utf-8") != self._fingerprint():
            report("Airflow: its settings changed, so it is started anew")
            self.stop()

    def _choose_ports(self) -> None:
        for name in ("api", "worker-log", "trigger-log"):
            self._ports.port_for_start(f"airflow-{name}")

    def _port(self, name: str) -> int:
        port = self._ports.known(f"airflow-{name}")
        if port is None:
            raise SandboxError("Airflow was never started here", next_step="make up")
        return port

    def _secret(self, name: str, make: Callable[[], str]) -> str:
        path = self.folder / name
        if not path.exists():
            write_secret(path, make())
        return path.read_text(encoding="utf-8")

    def _migrate(self, report: Report) -> None:
        private_folder(self.folder)
        write_secret(self.folder / "passwords.json", json.dumps({USER: self.password}))
        done = self.folder / f"migrated-{AIRFLOW_VERSION}"
        if done.exists():
            return
        report("Airflow: making its tables")
        log = self.folder / "migrate.log"
        with log.open("ab") as sink:
            command = [tool("airflow"), "db", "migrate"]
            answer = subprocess.run(
                command, env=self.environment(), cwd=self.folder, stdout=sink, stderr=subprocess.STDOUT, check=False
            )
        if answer.returncode != 0:
            raise SandboxError("airflow db migrate failed", found=log_tail(log))
        done.touch()

    def _wait_until_healthy(self, started: list[str], since: datetime, report: Report) -> None:
        waiting: list[str] = []
        deadline = time.monotonic() + START_SECONDS
        while unhealthy := self._unhealthy(started, since):
            if unhealthy != waiting:
                report(f"Airflow: waiting for {', '.join(unhealthy)}")
            waiting = unhealthy
            for part in self.dead_parts():
                raise SandboxError(f"Airflow's {part} ended", found=log_tail(self._processes[part].log))
            if time.monotonic() > deadline:
                part = unhealthy[0]
                raise SandboxError(f"Airflow's {part} is not healthy", found=log_tail(self._processes[part].log))
            time.sleep(0.5)

    def _unhealthy(self, started: list[str], since: datetime) -> list[str]:
        health = self.client().health()
        return [part for part in PARTS if not _is_healthy(part, health, since if part in started else None)]


def _is_healthy(part: str, health: Mapping[str, Mapping[str, str | None]], since: datetime | None) -> bool:
    if part == "api-server":
        return health.get("metadatabase", {}).get("status") == "healthy"
    name = part.replace("-", "_")
    state = health.get(name, {})
    heartbeat = state.get(f"latest_{name}_heartbeat")
    if state.get("status") != "healthy" or not heartbeat:
        return False
    # The last heartbeat of the process before this one looks healthy for half a minute.
    return since is None or datetime.fromisoformat(heartbeat) >= since


def _fernet_key() -> str:
    return base64.urlsafe_b64encode(os.urandom(32)).decode()
