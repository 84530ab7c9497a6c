"""What a soak does, decided by its seed before anything starts: kinds of run, faults, interventions, their moments.

The same options repeat the same choices exactly. How far the processes are at a moment depends on the machine and is
not repeated.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from sandbox.soak.interventions import Intervention, Span, choose_span, interventions
from sandbox.soak.pipeline import SoakMode


class RunKind(StrEnum):
    """How the pipeline is run in a cycle."""

    IN_PROCESS = "in-process"  #: by the command line, tasks in the driver's own process
    SPARK_LOCAL = "spark-local"  #: by the command line, Spark on local[2]
    SPARK_CLUSTER = "spark-cluster"  #: by the command line, Spark on a standalone cluster: executors of their own
    AIRFLOW = "airflow"  #: a DAG run in a running Airflow, Spark on local[2]


class FaultKind(StrEnum):
    """What happens to a run while it runs. ``kill`` is SIGKILL."""

    KILL_DRIVER = "kill_driver"  #: the job's Python process
    KILL_COMMAND = "kill_command"  #: the command that planned and waits for the job
    KILL_JVM = "kill_jvm"  #: spark-submit's JVM
    KILL_EXECUTOR = "kill_executor"  #: an executor's JVM
    KILL_WORKER = "kill_worker"  #: a Python process that stages
    KILL_POSTGRES = "kill_postgres"  #: the target's server; it is started again
    KILL_BROKER = "kill_broker"  #: Kafka; it is started again
    FREEZE_DRIVER = "freeze_driver"  #: SIGSTOP past the heartbeat, another attempt meanwhile, then SIGCONT
    START_TWICE = "start_twice"  #: the same run once more, at the same time
    START_RIVAL = "start_rival"  #: another run of the pipeline, at the same time
    KILL_SCHEDULER = "kill_scheduler"  #: Airflow's scheduler; its tasks live on as orphans, it is started again
    KILL_TASK = "kill_task"  #: Airflow's task process; spark-submit lives on as an orphan
    KILL_SUPERVISOR = "kill_supervisor"  #: Airflow's process that watches over the task, which lives on
    KILL_API_SERVER = "kill_api_server"  #: the server that tasks report to; it is started again


_FOR_COMMANDS: Mapping[FaultKind, int] = {
    FaultKind.KILL_DRIVER: 5,
    FaultKind.KILL_COMMAND: 2,
    FaultKind.KILL_POSTGRES: 4,
    FaultKind.KILL_BROKER: 2,
    FaultKind.FREEZE_DRIVER: 2,
    FaultKind.START_TWICE: 3,
    FaultKind.START_RIVAL: 2,
}
_FOR_SPARK: Mapping[FaultKind, int] = {**_FOR_COMMANDS, FaultKind.KILL_JVM: 3, FaultKind.KILL_WORKER: 5}
#: Which faults fit a kind of run, and how often each is chosen, as weights.
FAULTS: Mapping[RunKind, Mapping[FaultKind, int]] = {
    RunKind.IN_PROCESS: _FOR_COMMANDS,
    RunKind.SPARK_LOCAL: _FOR_SPARK,
    RunKind.SPARK_CLUSTER: {**_FOR_SPARK, FaultKind.KILL_EXECUTOR: 6},
    RunKind.AIRFLOW: {
        FaultKind.KILL_JVM: 2,
        FaultKind.KILL_DRIVER: 1,
        FaultKind.KILL_TASK: 3,
        FaultKind.KILL_SUPERVISOR: 2,
        FaultKind.KILL_SCHEDULER: 3,
        FaultKind.KILL_API_SERVER: 1,
        FaultKind.KILL_POSTGRES: 2,
        FaultKind.KILL_BROKER: 1,
        FaultKind.FREEZE_DRIVER: 1,
    },
}
#: Workers and executors live only from the claim to the end of staging; all other faults fit everywhere.
_MOMENTS: Mapping[FaultKind, tuple[float, float]] = {
    FaultKind.KILL_WORKER: (0.35, 0.70),
    FaultKind.KILL_EXECUTOR: (0.30, 0.70),
}
_SECOND_FAULT = 0.35  # two faults in one run are the rarer case, and the slower one
_LONGEST_OUTAGE_SECONDS = 3.0
_RELOADS = 0.2  # share of the runs themselves, which faults hit like live ones; other reloads run beside them


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a cycle.

    Attributes:
        kind: What is done.
        moment: When, as a share [0, 1) of the run's progress (``progress.py``).
        outage_seconds: How long a killed server stays away.
        by_rival: Whether the attempt beside a frozen driver belongs to another run, or else to the same one.
    """

    kind: FaultKind
    moment: float
    outage_seconds: float = 0.0
    by_rival: bool = False

    def __str__(self) -> str:
        return f"{self.kind}@{self.moment:.2f}"


@dataclass(frozen=True, slots=True)
class Cycle:
    """One run and what happens to it, in the order of the moments. Numbers begin at 1.

    Attributes:
        number: Its number.
        run: How the pipeline is run.
        faults: What hits the run.
        reload: What the run reads again; ``None``: it goes on from the position.
        interventions: What an operator does before the run and beside it.
    """

    number: int
    run: RunKind
    faults: tuple[Fault, ...]
    reload: Span | None = None
    interventions: tuple[Intervention, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """Return the choices as JSON-safe values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """What decides the choices.

    Attributes:
        cycles: How many runs.
        seed: Where the choices come from.
        airflow: How many of the runs go through Airflow.
        spark: How many of them use Spark by the command line, on local[2] and on a cluster in turn.
        rate: Records per second that the producer sends, on average.
        mode: What the pipeline makes of them.
    """

    cycles: int
    seed: int
    airflow: int = 0
    spark: int = 0
    rate: int = 400
    mode: SoakMode = SoakMode.APPEND


def choose_cycles(options: SoakOptions) -> tuple[Cycle, ...]:
    """Choose all cycles of a soak; the same options always give the same cycles."""
    # Strings seed the same way in every Python since 3.2 (random.seed, version 2).
    chance = random.Random(f"cycles of soak {options.seed}")  # noqa: S311 (chaos, not cryptography)
    kinds = _run_kinds(options)
    chance.shuffle(kinds)
    cycles = [Cycle(number, kind, _choose_faults(kind, chance)) for number, kind in enumerate(kinds, start=1)]
    operator = random.Random(f"operator of soak {options.seed}")  # noqa: S311 (chaos, not cryptography)
    chosen = interventions(operator, options.mode)
    # Before the first run there is no position to change and nothing to read again.
    return (*cycles[:1], *(_with_operator(cycle, next(chosen), operator) for cycle in cycles[1:]))


def _with_operator(cycle: Cycle, chosen: tuple[Intervention, ...], operator: random.Random) -> Cycle:
    reload = choose_span(operator) if operator.random() < _RELOADS else None
    return replace(cycle, reload=reload, interventions=chosen)


def _run_kinds(options: SoakOptions) -> list[RunKind]:
    on_spark = [(RunKind.SPARK_LOCAL, RunKind.SPARK_CLUSTER)[number % 2] for number in range(options.spark)]
    kinds = [RunKind.AIRFLOW] * options.airflow + on_spark
    if len(kinds) > options.cycles:
        raise ValueError(f"{options.airflow} runs by Airflow and {options.spark} by Spark are more than the cycles")
    return kinds + [RunKind.IN_PROCESS] * (options.cycles - len(kinds))


def _choose_faults(run: RunKind, chance: random.Random) -> tuple[Fault, ...]:
    count = 2 if chance.random() < _SECOND_FAULT else 1
    kinds = chance.choices(list(FAULTS[run]), weights=list(FAULTS[run].values()), k=count)
    faults = [
        Fault(
            kind,
            moment=_choose_moment(kind, chance),
            outage_seconds=round(chance.uniform(0, _LONGEST_OUTAGE_SECONDS), 2),
            by_rival=chance.random() < 0.5,
        )
        for kind in kinds
    ]
    return tuple(sorted(faults, key=lambda fault: fault.moment))


def _choose_moment(kind: FaultKind, chance: random.Random) -> float:
    begin, end = _MOMENTS.get(kind, (0.0, 1.0))
    return int(1000 * (begin + (end - begin) * chance.random())) / 1000
