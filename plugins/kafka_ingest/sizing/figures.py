"""From traffic to figures, each with what it follows from, and to verdicts with the knob to turn. Pure calculation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil, inf
from statistics import median
from typing import Any

from kafka_ingest.sizing.costs import DRIVER_BYTES, HEAP_BYTES, MB, RANGE_BYTES, LoadCost, Loading

_HOUR, _DAY = 3_600, 86_400
CONNECTIONS_A_TASK, CONNECTIONS_A_DRIVER = 2, 3
#: PostgreSQL's defaults: ``max_connections`` 100, of which ``superuser_reserved_connections`` keeps 3.
_DEFAULT_CONNECTIONS = 97
#: The calculation is right within this factor, and who gives a process too little memory loses the load.
_MEMORY_MARGIN = 1.5
#: A run should take half of its interval at most, and catching up be twice as quick as producing: what is left is for
#: growth, retries and a machine that others use, too.
_BUSY_GOAL, _SPEED_GOAL = 0.5, 2.0
#: As preflight asks for: one interval until the next run, one for a run that fails, one for a person to act.
_RETENTION_INTERVALS = 3
#: Nothing deletes the ranges of committed batches: so much a day is 180 GB in a year.
_LEDGER_GOAL_BYTES = 500 * MB
#: How far a verdict turns the knobs. Limits: what was measured several times (peers-10m) is the greatest.
_MOST_TASKS, _LIMITS, _MOST_PIPELINES = 64, (5_000_000, 10_000_000), 1_024
#: A task more that makes a run shorter by less than this is not worth its core.
_LEAST_GAIN = 0.02


@dataclass(frozen=True, slots=True)
class Traffic:
    """What producers write into all topics together.

    Attributes:
        records_per_day: Records of a busy day.
        record_bytes: Key, value and headers of a record, without compression: the mean.
        peak_factor: Records of the busiest hour, as a multiple of the day's average hour; at least 1.
        largest_bytes: The largest record; 0 where it is not known.
        partitions: Number of their partitions.
        retention_hours: How long Kafka keeps a record at least; ``None``: for ever.
    """

    records_per_day: float
    record_bytes: float
    peak_factor: float = 2.0
    largest_bytes: float = 0
    partitions: int = 1
    retention_hours: float | None = 168.0

    @property
    def per_second(self) -> float:
        """Records a second, the average over a busy day."""
        return self.records_per_day / _DAY


@dataclass(frozen=True, slots=True)
class Deployment:
    """Pipelines that share the traffic, each with as much as the others, and how they run.

    Attributes:
        pipelines: Their number.
        interval_seconds: Longest time between two runs of one.
        follow_up: Whether a run that used its limit up starts the next one at once.
        tasks: Tasks that run at once in a load; ``None``: as many as are needed.
        executor_cores: Cores of an executor.
        outage_hours: How long an outage is, for the time that catching up takes.
        loading: How records are loaded; its tasks are those of the field above.
    """

    loading: Loading
    pipelines: int = 1
    interval_seconds: float = _HOUR
    follow_up: bool = True
    tasks: int | None = None
    executor_cores: int = 2
    outage_hours: float = 12


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. ``unit`` says how it is shown; the value of bytes and seconds is in these, not in greater units."""

    name: str
    value: float | None
    unit: str
    follows_from: str


@dataclass(frozen=True, slots=True)
class SizeVerdict:
    """Whether a part fits: ``fits``, ``tight`` or ``does not fit``, why, and what changes it."""

    part: str
    result: str
    found: str
    knob: str = ""


@dataclass(frozen=True)
class Sizing:
    """What a deployment takes for some traffic."""

    traffic: Traffic
    deployment: Deployment

    # Loads and runs of one pipeline.

    @cached_property
    def tasks(self) -> int:
        """Tasks that run at once in a load: those that are given, else the fewest that reach the goals.

        Where none do, as many as still make a full run noticeably shorter.
        """
        if self.deployment.tasks is not None:
            return self.deployment.tasks
        tried = [Sizing(self.traffic, replace(self.deployment, tasks=n)) for n in range(1, _MOST_TASKS + 1)]
        enough = (size.tasks for size in tried if size.reaches_goals)
        too_many = (
            fewer.tasks
            for fewer, more in pairwise(tried)
            if more.full_run.load_seconds > fewer.full_run.load_seconds * (1 - _LEAST_GAIN)
        )
        return next(enough, None) or next(too_many, _MOST_TASKS)

    def cost(self, records: float) -> LoadCost:
        """Return what a load of so many records by one pipeline takes."""
        partitions = ceil(self.traffic.partitions / self.deployment.pipelines)
        return LoadCost(records, self.traffic.record_bytes, partitions, self.loading)

    @property
    def loading(self) -> Loading:
        """How records are loaded, with the tasks."""
        return replace(self.deployment.loading, tasks=self.tasks)

    @property
    def full_run(self) -> LoadCost:
        """A run of as many records as the limit lets it read."""
        return self.cost(self.deployment.loading.limit_offsets)

    @property
    def peak_records(self) -> float:
        """What waits for one pipeline after an interval with the busiest hour in it; never more than its days."""
        hours = self.deployment.interval_seconds / _HOUR
        in_hours = self.traffic.peak_factor * self.traffic.records_per_day / 24 * hours
        return min(in_hours, self.traffic.records_per_day * max(1.0, hours / 24)) / self.deployment.pipelines

    @property
    def peak_runs(self) -> int:
        """Runs, one after another, that read it: each up to the limit."""
        return max(1, ceil(self.peak_records / self.deployment.loading.limit_offsets))

    @property
    def usual_run(self) -> LoadCost:
        """One of these runs, of which all are alike."""
        return self.cost(self.peak_records / self.peak_runs)

    @property
    def peak_seconds(self) -> float:
        """How long they take."""
        return self.peak_runs * self.usual_run.run_seconds

    @property
    def busy_share(self) -> float:
        """The part of the interval that they take. Without follow-ups only one of them has its turn in an interval."""
        if self.deployment.follow_up or self.peak_runs == 1:
            return self.peak_seconds / self.deployment.interval_seconds
        return max(float(self.peak_runs), self.peak_seconds / self.deployment.interval_seconds)

    @property
    def own_speed(self) -> float:
        """How fast a pipeline that never waits for others catches up, as a multiple of its share of the traffic."""
        seconds = self.full_run.run_seconds
        if not self.deployment.follow_up:
            seconds = max(seconds, self.deployment.interval_seconds)
        return self.full_run.records / seconds / (self.traffic.per_second / self.deployment.pipelines)

    # All pipelines together.

    @property
    def slots(self) -> int:
        """Loads at once: so many that all pipelines are done in half an interval at the peak."""
        busy = self.deployment.pipelines * self.busy_share / _BUSY_GOAL
        return max(1, min(self.deployment.pipelines, ceil(busy)))

    @property
    def speed(self) -> float:
        """How fast all pipelines catch up in these slots, as a multiple of the day's average."""
        return self.own_speed * self.slots / self.deployment.pipelines

    @property
    def reaches_goals(self) -> bool:
        """Whether runs leave enough of their interval, and catching up is quick enough."""
        return self.busy_share <= _BUSY_GOAL and self.speed >= _SPEED_GOAL

    @property
    def executors(self) -> int:
        """Executors of all loads at once."""
        return self.slots * ceil(self.tasks / self.deployment.executor_cores)

    @property
    def tasks_an_executor(self) -> int:
        """Tasks that run at once in one executor."""
        return min(self.tasks, self.deployment.executor_cores)

    @property
    def ranges_a_day(self) -> float:
        """Rows that the ledger gets, one for each partition that a run reads."""
        return self.runs_a_day * self.full_run.partitions

    @property
    def executor_bytes(self) -> float:
        """Memory of one executor: the JVM's heap, and beside it a Python process for each task."""
        task_bytes = self.full_run.task_bytes(self.traffic.largest_bytes)
        return HEAP_BYTES + self.tasks_an_executor * task_bytes * _MEMORY_MARGIN

    @property
    def connections(self) -> int:
        """Connections to the database of all loads at once."""
        return self.slots * (CONNECTIONS_A_TASK * self.tasks + CONNECTIONS_A_DRIVER)

    @property
    def runs_a_day(self) -> float:
        """Runs of all pipelines on an average day, as the schedule and the limit make them."""
        intervals = _DAY / self.deployment.interval_seconds
        share = self.traffic.records_per_day / self.deployment.pipelines / intervals
        return self.deployment.pipelines * intervals * max(1, ceil(share / self.deployment.loading.limit_offsets))

    @property
    def day(self) -> LoadCost:
        """A whole day's records, for what does not depend on how they are cut into runs."""
        return LoadCost(self.traffic.records_per_day, self.traffic.record_bytes, 0, self.loading)

    # Falling behind.

    def catch_up_hours(self, outage_hours: float) -> float:
        """Return how long it takes, after an outage, until nothing waits; infinite for a speed of 1 or less."""
        return outage_hours / (self.speed - 1) if self.speed > 1 else inf

    @property
    def longest_outage_hours(self) -> float:
        """The longest outage after which Kafka still has every record: what is left of retention for it.

        Before it records wait for an interval, and after it the first run has to have read them.
        """
        if self.traffic.retention_hours is None:
            return inf
        taken = (self.deployment.interval_seconds + self.full_run.run_seconds) / _HOUR
        return max(0.0, self.traffic.retention_hours - taken)

    @property
    def hopeless_outage_hours(self) -> float:
        """The outage from which on catching up takes longer than retention: a second one would lose records."""
        if self.traffic.retention_hours is None:
            return inf
        return self.traffic.retention_hours * max(0.0, self.speed - 1)


# ----------
# The pipeline's own pace.

#: Smaller batches are all start, and fewer than three are an accident.
LEAST_COMPARED, LEAST_BATCHES = 100_000, 3


def own_pace(batches: Sequence[Mapping[str, Any]], calculated: Sizing) -> float | None:
    """Return how long a pipeline's own batches took from plan to commit, as a multiple of the calculation.

    Args:
        batches: Rows of ``PostgresReports.batches``. Committed live ones of 100,000 offsets and more count.
        calculated: The same pipeline, with the tasks that the batches ran with and a pace of 1.

    Returns:
        The median; ``None`` for fewer than three batches.
    """
    ratios = [
        (row["committed_at"] - row["planned_at"]).total_seconds() / calculated.cost(row["offsets"]).load_seconds
        for row in batches
        if row["state"] == "committed" and row["kind"] == "live" and row["offsets"] >= LEAST_COMPARED
    ]
    return median(ratios) if len(ratios) >= LEAST_BATCHES else None


# ----------
# What a person reads: figures by subject, and verdicts.


def figures(size: Sizing) -> Iterator[Figure]:
    """Yield every figure with what it follows from, in the order in which they follow."""
    yield from _of_runs(size)
    yield from _of_processes(size)
    yield from _of_the_database(size)
    yield from _of_falling_behind(size)


def _of_runs(size: Sizing) -> Iterator[Figure]:
    run, full = size.usual_run, size.full_run
    limit = size.deployment.loading.limit_offsets
    yield Figure(
        "records of an interval", size.peak_records, "", "of one pipeline, with the busiest hour of the day in it"
    )
    yield Figure(
        "runs of an interval", size.peak_runs, "", f"one after another, as a run reads at most {limit:,} offsets"
    )
    yield Figure(
        "time of a run",
        run.run_seconds,
        "s",
        f"{run.run_seconds - run.load_seconds:.0f} s plan, audit and Airflow, {run.load_seconds:.0f} s load: "
        f"{run.task_seconds / run.tasks:.1f} s stage, {run.publish_seconds:.1f} s publish, the rest start",
    )
    yield Figure("busy", 100 * size.busy_share, "%", "of the interval, at the peak")
    yield Figure("time of a full run", full.run_seconds, "s", f"{limit:,} offsets, as after an outage")


def _of_processes(size: Sizing) -> Iterator[Figure]:
    deployment, day = size.deployment, size.day
    chosen = "the fewest that are enough" if size.reaches_goals else "more would hardly make a run shorter"
    told = chosen if deployment.tasks is None else "as they are"
    yield Figure("tasks", size.tasks, "", f"of a load, at once (spark.tasks): {told}")
    yield Figure(
        "loads at once",
        size.slots,
        "",
        f"slots of an Airflow pool: with {_counted(deployment.pipelines, 'pipeline')}, done in half an interval",
    )
    yield Figure("executors", size.executors, "", f"of {deployment.executor_cores} cores, for all loads at once")
    task_bytes = size.full_run.task_bytes(size.traffic.largest_bytes)
    yield Figure(
        "memory of an executor",
        size.executor_bytes,
        "B",
        f"heap (spark.executor_memory: 1g), and {_counted(size.tasks_an_executor, 'task')} of {task_bytes / MB:.0f} MB "
        "in Python beside it, with half as much again in reserve",
    )
    yield Figure(
        "memory of a driver",
        HEAP_BYTES + DRIVER_BYTES * _MEMORY_MARGIN,
        "B",
        "heap (spark.driver_memory: 1g) and Python",
    )
    runs = size.runs_a_day
    start = replace(day, records=0)
    executors = day.executor_cpu_seconds + (runs - 1) * start.executor_cpu_seconds
    database = day.database_cpu_seconds + (runs - 1) * start.database_cpu_seconds
    yield Figure("CPU of Python a day", executors / _HOUR, "core hours", f"driver and tasks, in {runs:,.0f} runs a day")
    yield Figure("CPU of PostgreSQL a day", database / _HOUR, "core hours", "COPY to staging and publish")


def _of_the_database(size: Sizing) -> Iterator[Figure]:
    day, run = size.day, size.full_run
    yield Figure(
        "connections",
        size.connections,
        "",
        f"{CONNECTIONS_A_TASK} a task and {CONNECTIONS_A_DRIVER} a driver; max_connections is for other clients, too",
    )
    yield Figure(
        "staging",
        size.slots * run.staging_bytes,
        "B",
        f"{run.staging_bytes / run.records:.0f} bytes a row, full runs; as much again for each killed attempt",
    )
    written = "as if each record wrote a row" if run.loading.is_upsert else "rows are written once, staging writes none"
    yield Figure("WAL of a full run", run.wal_bytes, "B", f"{run.wal_bytes / run.records:.0f} bytes a row: {written}")
    yield Figure("WAL a day", day.wal_bytes, "B", "what replicas and archives take")
    grows = "at most, if no key came twice" if run.loading.is_upsert else "rows and indexes"
    yield Figure(
        "growth of the tables a day", day.table_bytes, "B", f"{day.table_bytes / day.records:.0f} bytes a row: {grows}"
    )
    yield Figure(
        "growth of the ledger a day",
        size.ranges_a_day * RANGE_BYTES,
        "B",
        f"{size.ranges_a_day:,.0f} ranges: every run with all partitions of its pipeline",
    )
    written_bytes = run.staging_bytes + run.table_bytes + run.wal_bytes
    yield Figure(
        "writes while loads run",
        size.slots * written_bytes / run.load_seconds,
        "B/s",
        "staging, table and WAL of full runs: the disks have to take it",
    )
    yield Figure(
        "cores of PostgreSQL while loads run",
        size.slots * run.database_cpu_seconds / run.load_seconds,
        "",
        "the average of full runs: with fewer, tasks wait",
    )


def _of_falling_behind(size: Sizing) -> Iterator[Figure]:
    outage, retention = size.deployment.outage_hours, size.traffic.retention_hours
    yield Figure("catching up", size.speed * size.traffic.per_second, "records/s", "full runs without a pause")
    yield Figure("speed", size.speed, "x", "of what producers write on the average of a busy day")
    yield Figure(f"catching up after {outage:g} h", _finite(size.catch_up_hours(outage)), "h", "outage / (speed - 1)")
    if retention is None:
        return
    yield Figure(
        "longest outage",
        size.longest_outage_hours,
        "h",
        f"retention of {retention:g} h, less an interval and a full run",
    )
    yield Figure("outage to catch up longer than retention", size.hopeless_outage_hours, "h", "retention x (speed - 1)")


def _counted(number: int, what: str, plural: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else plural}"


def _finite(hours: float) -> float | None:
    return None if hours == inf else hours


FITS, TIGHT, TOO_MUCH = "fits", "tight", "does not fit"


def verdicts(size: Sizing) -> Iterator[SizeVerdict]:
    """Yield what fits and what does not, with the knob to turn."""
    yield _time_verdict(size)
    yield _speed_verdict(size)
    if size.traffic.retention_hours is not None:
        yield _retention_verdict(size, size.traffic.retention_hours)
    yield _connection_verdict(size)
    yield _ledger_verdict(size)


def _graded(found: float, good: float, bad: float) -> str:
    """Grade a number of which less is better."""
    return FITS if found <= good else TIGHT if found <= bad else TOO_MUCH


def _time_verdict(size: Sizing) -> SizeVerdict:
    share = size.busy_share
    result = _graded(share, _BUSY_GOAL, 1)
    found = f"at the peak runs take {share:.0%} of the interval; {_BUSY_GOAL:.0%} or less leaves room for a retry"
    return SizeVerdict("a run in its interval", result, found, "" if result == FITS else _knob(size))


def _speed_verdict(size: Sizing) -> SizeVerdict:
    result = _graded(1 / size.speed, 1 / _SPEED_GOAL, 1)
    found = f"full runs load {size.speed:.1f} times what is written; {_SPEED_GOAL:g} times or more ends an outage soon"
    return SizeVerdict("catching up", result, found, "" if result == FITS else _knob(size))


def _retention_verdict(size: Sizing, retention_hours: float) -> SizeVerdict:
    wanted = _RETENTION_INTERVALS * size.deployment.interval_seconds / _HOUR
    needed = max(wanted, size.catch_up_hours(size.deployment.outage_hours))
    if retention_hours < wanted:
        found = f"{retention_hours:g} h, less than {_RETENTION_INTERVALS} intervals ({wanted:g} h)"
        return SizeVerdict("retention", TOO_MUCH, found, f"retention of {wanted:g} h or more, or a shorter interval")
    outage = size.deployment.outage_hours
    if retention_hours < needed or size.longest_outage_hours < outage:
        found = f"{retention_hours:g} h: an outage of {outage:g} h, or catching up after it, takes longer"
        return SizeVerdict("retention", TIGHT, found, "longer retention, or catch up faster (above)")
    found = f"{retention_hours:g} h: catching up after an outage of {outage:g} h ends within it"
    return SizeVerdict("retention", FITS, found)


def _connection_verdict(size: Sizing) -> SizeVerdict:
    found = f"{size.connections:,} of loads; PostgreSQL's default leaves {_DEFAULT_CONNECTIONS} to all clients"
    if size.connections <= _DEFAULT_CONNECTIONS:
        return SizeVerdict("connections", FITS, found)
    knob = f"max_connections above {size.connections:,}, a pooler in transaction mode, or a smaller Airflow pool"
    return SizeVerdict("connections", TIGHT, found, knob)


def _ledger_verdict(size: Sizing) -> SizeVerdict:
    grows = size.ranges_a_day * RANGE_BYTES
    found = f"{grows / MB:,.0f} MB a day in {size.ranges_a_day:,.0f} ranges, which nothing deletes"
    if grows <= _LEDGER_GOAL_BYTES:
        return SizeVerdict("ledger", FITS, found)
    knob = "fewer runs of more offsets each: a longer interval, or a greater limit.offsets_per_run"
    return SizeVerdict("ledger", TIGHT, found, knob)


def _knob(size: Sizing) -> str:
    """Name the first change with which runs and catching up fit."""
    for changed, text in _changes(size.deployment):
        tried = Sizing(size.traffic, changed)
        if tried.reaches_goals:
            return text.format(tasks=tried.tasks)
    return "fewer columns or bytes, or several databases: no number of tasks and pipelines is enough for one"


def _changes(deployment: Deployment) -> Iterator[tuple[Deployment, str]]:
    if not deployment.follow_up:
        yield replace(deployment, follow_up=True), "airflow.follow_up: true"
    free = replace(deployment, tasks=None, follow_up=True)
    yield free, "spark.tasks: {tasks}"
    for limit in (limit for limit in _LIMITS if limit > deployment.loading.limit_offsets):
        loading = replace(deployment.loading, limit_offsets=limit)
        yield replace(free, loading=loading), f"limit.offsets_per_run: {limit:,} with spark.tasks: {{tasks}}"
    pipelines = 2 * deployment.pipelines
    while pipelines <= _MOST_PIPELINES:
        text = f"{pipelines:,} pipelines, each with topics and a table of its own, with spark.tasks: {{tasks}}"
        yield replace(free, pipelines=pipelines), text
        pipelines *= 2
