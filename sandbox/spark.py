"""A Spark standalone cluster of its own, from the PySpark wheel alone: one master and a few workers on loopback."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path

from sandbox.airflow_settings import CONNECTION_PREFIX
from sandbox.errors import SandboxError
from sandbox.java import java
from sandbox.paths import private_folder, tool, write_secret
from sandbox.ports import PortBook
from sandbox.processes import ManagedProcess

HOST = "127.0.0.1"
START_SECONDS = 90.0


class SparkCluster:
    """One master, workers that each offer some cores. Python jobs run on it in client mode only.

    Args:
        folder: State folder; ports are remembered in its parent folder.
        workers: Number of workers; on Linux each has a loopback address of its own, as Spark starts no speculative
            copy on the host of the running attempt.
        cores: Cores that each worker offers.
        memory: Memory that each worker offers, as Spark writes it.
    """

    def __init__(self, folder: Path, *, workers: int = 1, cores: int = 2, memory: str = "1g") -> None:
        self.folder = folder
        self._cores, self._memory = cores, memory
        self._ports = PortBook(folder.parent)
        self._master = ManagedProcess("master", folder)
        self._workers = [ManagedProcess(f"worker{number}", folder) for number in range(1, workers + 1)]

    def start(self) -> None:
        """Start the parts of the cluster that are not running; return when all workers are registered. Idempotent.

        Raises:
            SandboxError: A part did not start; the end of its log is in the message.
        """
        if not self._master.is_running():
            self.stop()
            self._start_master()
        for number, worker in enumerate(self._workers, start=1):
            if not worker.is_running():
                self._start_worker(number, worker)
        self._master.wait_until(self._all_registered, timeout_seconds=START_SECONDS)

    def stop(self) -> None:
        """Stop workers and master. Idempotent."""
        for process in (*self._workers, self._master):
            process.stop(grace_seconds=10)

    def destroy(self) -> None:
        """Stop the cluster and delete its files. Idempotent."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_running(self) -> bool:
        """Tell whether master and all workers live and know each other."""
        return self._master.is_running() and self._all_registered()

    @property
    def master_url(self) -> str:
        """The address for ``spark-submit --master``.

        Raises:
            SandboxError: It was never started.
        """
        return f"spark://{HOST}:{self._port('master')}"

    @property
    def secret(self) -> str:
        """What master, workers and applications must know to talk to each other; made once."""
        path = self.folder / "secret"
        if not path.exists():
            write_secret(path, secrets.token_urlsafe(32))
        return path.read_text(encoding="utf-8")

    @property
    def processes(self) -> tuple[ManagedProcess, ...]:
        """Master and workers, for tests that kill one."""
        return (self._master, *self._workers)

    def _start_master(self) -> None:
        port, web = self._ports.port_for_start("spark-master"), self._ports.port_for_start("spark-master-web")
        master = "org.apache.spark.deploy.master.Master"
        self._launch(self._master, [master, "--host", HOST, "--port", str(port), "--webui-port", str(web)])
        self._master.wait_until(lambda: self._state() is not None, timeout_seconds=START_SECONDS)

    def _start_worker(self, number: int, worker: ManagedProcess) -> None:
        host = f"127.0.0.{number}" if sys.platform == "linux" else HOST
        port = self._ports.port_for_start(f"spark-{worker.name}")
        web = self._ports.port_for_start(f"spark-{worker.name}-web")
        command = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--port", str(port)]
        command += ["--webui-port", str(web), "-c", str(self._cores), "-m", self._memory]
        self._launch(worker, [*command, "-d", str(self.folder / worker.name), self.master_url])

    def _launch(self, process: ManagedProcess, command: list[str]) -> None:
        private_folder(self.folder)
        java()
        # Executors inherit a worker's environment: connections of the cluster's starter must not be there.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(CONNECTION_PREFIX)}
        environment = {
            **inherited,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
            # The master's REST submission server listens without authentication and is not needed.
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            # A process without the secret gets nothing from tasks, and can submit nothing.
            "SPARK_DAEMON_JAVA_OPTS": "-Dspark.authenticate=true -Dspark.network.crypto.enabled=true",
            "_SPARK_AUTH_SECRET": self.secret,
        }
        process.start([tool("spark-class"), *command], env=environment, cwd=self.folder)

    def _all_registered(self) -> bool:
        state = self._state()
        return state is not None and int(state["aliveworkers"]) >= len(self._workers)

    def _state(self) -> dict[str, str] | None:
        url = f"http://{HOST}:{self._port('master-web')}/json/"
        try:
            with urllib.request.urlopen(url, timeout=3) as answer:
                state: dict[str, str] = json.load(answer)
                return state
        # For a moment a new master answers with its page in place of JSON.
        except (urllib.error.URLError, TimeoutError, ConnectionError, json.JSONDecodeError):
            return None

    def _port(self, part: str) -> int:
        port = self._ports.known(f"spark-{part}")
        if port is None:
            raise SandboxError("Spark was never started here", next_step="make up SPARK=cluster")
        return port
