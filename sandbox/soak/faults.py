"""Faults that the seed chose, injected into a run."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sandbox.airflow import AirflowServer
from sandbox.errors import SandboxError
from sandbox.processes import ManagedProcess
from sandbox.soak.attempts import Attempt
from sandbox.soak.choices import Fault, FaultKind
from sandbox.soak.journal import Journal
from sandbox.soak.pipeline import HEARTBEAT_TIMEOUT_SECONDS
from sandbox.soak.processes import (
    SeenProcess,
    Test,
    is_airflow_supervisor,
    is_airflow_task,
    is_driver,
    is_executor,
    is_jvm,
    python_workers,
    send,
)
from sandbox.soak.world import SoakWorld

#: A frozen driver that holds locks makes the other attempt wait for them and give up; then the driver goes on.
_LONGEST_FREEZE_SECONDS = 45.0
#: Between two tasks of a DAG run there is no task process for a few seconds.
_TASK_SECONDS = 20.0
#: Spark starts its first Python worker this long after the claim, on a busy machine.
_WORKER_SECONDS = 15.0
_COMES_LATE = (FaultKind.KILL_WORKER, FaultKind.KILL_EXECUTOR)
_ORPHANS = "scheduler-orphans"


@dataclass(frozen=True, slots=True)
class Scene:
    """The run that a fault meets.

    Attributes:
        run_id: Its name.
        processes: Returns the processes of the run that live now.
        command: The command, for a run without Airflow.
        start: Starts another attempt under a run id, beside this one; the end of the cycle waits for it.
    """

    run_id: str
    processes: Callable[[], Sequence[SeenProcess]]
    command: Attempt | None
    start: Callable[[str], Attempt]

    def is_running(self) -> bool:
        """Tell whether the run may still have processes; only a command's end is seen at once."""
        return self.command is None or self.command.is_running()


def _is_worker_of(processes: Sequence[SeenProcess]) -> Test:
    workers = {process.pid for process in python_workers(processes)}
    return lambda process: process.pid in workers


class Faults:
    """The faults of a soak, injected one after another.

    Args:
        world: The servers.
        journal: Where hits are counted.
    """

    def __init__(self, world: SoakWorld, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self._numbers = itertools.count(1)
        self._actions: Mapping[FaultKind, Callable[[Fault, Scene], str | None]] = {
            FaultKind.KILL_POSTGRES: self._kill_postgres,
            FaultKind.KILL_BROKER: self._kill_broker,
            FaultKind.FREEZE_DRIVER: self._freeze_driver,
            FaultKind.START_TWICE: self._start_twice,
            FaultKind.START_RIVAL: self._start_rival,
            FaultKind.KILL_SCHEDULER: self._kill_scheduler,
            FaultKind.KILL_API_SERVER: self._kill_api_server,
            FaultKind.KILL_TASK: self._kill_airflow_process,
            FaultKind.KILL_SUPERVISOR: self._kill_airflow_process,
        }

    def inject(self, fault: Fault, scene: Scene, *, progress: float) -> None:
        """Inject the fault. If its victim does not exist yet or any more, hit a process nearer to the command.

        Raises:
            SandboxError: A killed server did not start again.
        """
        self._journal.event("injecting", fault=str(fault), progress=round(progress, 3), run=scene.run_id)
        victim = self._actions.get(fault.kind, self._kill_process)(fault, scene)
        if victim is None:
            self._journal.late(str(fault))
        else:
            self._journal.hit(victim, fault=str(fault), run=scene.run_id)

    def end_orphans(self) -> None:
        """End the processes that killed schedulers left behind. Idempotent."""
        for pid_file in (self._world.state / "airflow").glob(f"{_ORPHANS}-*.pid"):
            ManagedProcess(pid_file.stem, pid_file.parent).kill()
            pid_file.unlink(missing_ok=True)

    def _kill_process(self, fault: Fault, scene: Scene) -> str | None:
        self._await_first_choice(fault.kind, scene)
        found = self._victim(fault.kind, scene)
        if found is None or not send(found[1], signal.SIGKILL):
            return None
        if scene.command is not None and found[1].pid == scene.command.pid:
            scene.command.is_killed = True
        return found[0]

    def _victim(self, kind: FaultKind, scene: Scene) -> tuple[str, SeenProcess] | None:
        processes = scene.processes()
        tests: dict[str, Test] = {
            "executor": is_executor,
            "Python worker": _is_worker_of(processes),
            "Spark JVM": is_jvm,
            "driver": is_driver,
            "Airflow task": is_airflow_task,
            "command": lambda process: scene.command is not None and process.pid == scene.command.pid,
        }
        for name in itertools.dropwhile(lambda name: name != _FIRST_CHOICE[kind], tests):
            if found := [process for process in processes if tests[name](process)]:
                return name, found[-1]
        return None

    def _await_first_choice(self, kind: FaultKind, scene: Scene) -> None:
        """Wait for a Python worker or executor: they appear seconds after the claim, and may end before the run."""
        deadline = time.monotonic() + _WORKER_SECONDS
        while kind in _COMES_LATE and scene.is_running() and time.monotonic() < deadline:
            found = self._victim(kind, scene)
            if found is not None and found[0] == _FIRST_CHOICE[kind]:
                return
            time.sleep(0.05)

    def _kill_postgres(self, fault: Fault, _: Scene) -> str:
        address = self._world.postgres.port
        self._world.postgres.kill()
        time.sleep(fault.outage_seconds)
        self._world.postgres.start()
        _require_same_address("PostgreSQL", address, self._world.postgres.port)
        return "PostgreSQL"

    def _kill_broker(self, fault: Fault, _: Scene) -> str:
        address = self._world.kafka.bootstrap
        self._world.kafka.kill()
        time.sleep(fault.outage_seconds)
        self._world.kafka.start()
        _require_same_address("Kafka", address, self._world.kafka.bootstrap)
        return "broker"

    def _freeze_driver(self, fault: Fault, scene: Scene) -> str | None:
        found = self._victim(fault.kind, scene)
        if found is None or not send(found[1], signal.SIGSTOP):
            return None
        name, process = found
        try:
            # Past the heartbeat: the frozen attempt has lost its hold before the other one begins.
            time.sleep(HEARTBEAT_TIMEOUT_SECONDS + 1)
            other = scene.start(self._other_run(scene) if fault.by_rival else scene.run_id)
            other.wait(_LONGEST_FREEZE_SECONDS)
        finally:
            send(process, signal.SIGCONT)
        return f"{name} (frozen)"

    def _start_twice(self, _: Fault, scene: Scene) -> str:
        scene.start(scene.run_id)
        return "the same run again"

    def _start_rival(self, _: Fault, scene: Scene) -> str:
        scene.start(self._other_run(scene))
        return "another run"

    def _other_run(self, scene: Scene) -> str:
        return f"{scene.run_id}-rival-{next(self._numbers)}"

    def _kill_airflow_process(self, fault: Fault, scene: Scene) -> str | None:
        is_wanted = is_airflow_task if fault.kind is FaultKind.KILL_TASK else is_airflow_supervisor
        deadline = time.monotonic() + _TASK_SECONDS
        while time.monotonic() < deadline:
            if found := [process for process in scene.processes() if is_wanted(process)]:
                name = "Airflow task" if fault.kind is FaultKind.KILL_TASK else "Airflow supervisor"
                return name if send(found[-1], signal.SIGKILL) else None
            time.sleep(0.1)
        return None

    def _kill_scheduler(self, fault: Fault, _: Scene) -> str | None:
        server = self._world.airflow()
        scheduler = server.process("scheduler")
        pid = scheduler.pid()
        if pid is None:
            return None
        # Under another name its workers and tasks live on beside the next scheduler, as on a machine where only the
        # scheduler died.
        scheduler.pid_file.rename(scheduler.pid_file.with_name(f"{_ORPHANS}-{next(self._numbers)}.pid"))
        send(SeenProcess(pid, 0, 0, ""), signal.SIGKILL)
        self._start_again(server, fault)
        return "Airflow scheduler"

    def _kill_api_server(self, fault: Fault, _: Scene) -> str:
        server = self._world.airflow()
        server.process("api-server").kill()
        self._start_again(server, fault)
        return "Airflow API server"

    def _start_again(self, server: AirflowServer, fault: Fault) -> None:
        time.sleep(fault.outage_seconds)
        server.start(lambda _: None)


#: The process where the search for a victim begins; it goes on towards the command.
_FIRST_CHOICE: Mapping[FaultKind, str] = {
    FaultKind.KILL_EXECUTOR: "executor",
    FaultKind.KILL_WORKER: "Python worker",
    FaultKind.KILL_JVM: "Spark JVM",
    FaultKind.KILL_DRIVER: "driver",
    FaultKind.FREEZE_DRIVER: "driver",
    FaultKind.KILL_COMMAND: "command",
}


def _require_same_address(name: str, before: object, now: object) -> None:
    if before != now:
        raise SandboxError(
            f"{name} came back on another port, so this soak proves nothing",
            found=f"{before}, then {now}",
            next_step="run it again; some other program took the port",
        )
