"""What a person reads of a calculated deployment: every figure with what it follows from, and what fits. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from kafka_ingest.sizing.costs import DRIVER_BYTES, HEAP_BYTES, MB
from kafka_ingest.sizing.deployment import (
    BUSY_GOAL,
    CONNECTIONS_A_DRIVER,
    CONNECTIONS_A_TASK,
    HOUR,
    MEMORY_MARGIN,
    SPEED_GOAL,
    Deployment,
    Sizing,
)

#: PostgreSQL's defaults: ``max_connections`` 100, of which ``superuser_reserved_connections`` keeps 3.
_DEFAULT_CONNECTIONS = 97
#: As preflight asks for: one interval until the next run, one for a run that fails, one for a person to act.
_RETENTION_INTERVALS = 3
#: Nothing deletes the ranges of committed batches: so much a day is 180 GB in a year.
_LEDGER_GOAL_BYTES = 500 * MB
#: How far a verdict turns the knobs. The greatest limit is what was measured several times (peers-10m).
_LIMITS = (5_000_000, 10_000_000)

# ----------
# Figures.


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. ``unit`` says how it is shown; the value of bytes and seconds is in these, not in greater units."""

    name: str
    value: float | None
    unit: str
    follows_from: str


def figures(size: Sizing) -> Iterator[Figure]:
    """Yield every figure with what it follows from, in the order in which they follow."""
    yield from _of_runs(size)
    yield from _of_processes(size)
    yield from _of_cores_and_connections(size)
    yield from _of_disks(size)
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
    deployment = size.deployment
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
        HEAP_BYTES + DRIVER_BYTES * MEMORY_MARGIN,
        "B",
        "heap (spark.driver_memory: 1g) and Python",
    )


def _of_cores_and_connections(size: Sizing) -> Iterator[Figure]:
    runs, average, full = size.runs_a_day, size.average_run, size.full_run
    spark, database = (runs * seconds / HOUR for seconds in (average.spark_cpu_seconds, average.database_cpu_seconds))
    yield Figure("CPU of Spark a day", spark, "core hours", f"drivers, tasks and JVMs, in {runs:,.0f} runs a day")
    yield Figure("CPU of PostgreSQL a day", database, "core hours", "COPY to staging, and publish")
    yield Figure(
        "cores of PostgreSQL while loads run",
        size.slots * full.database_cpu_seconds / full.load_seconds,
        "",
        "the average of full runs: with fewer, tasks wait",
    )
    yield Figure(
        "connections",
        size.connections,
        "",
        f"{CONNECTIONS_A_TASK} a task and {CONNECTIONS_A_DRIVER} a driver; max_connections is for other clients, too",
    )


def _of_disks(size: Sizing) -> Iterator[Figure]:
    day, run = size.day, size.full_run
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
        size.ledger_bytes_a_day,
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
        f"retention of {retention:g} h, less an interval and a full run; 0 where the speed is 1 or less",
    )
    yield Figure("outage to catch up longer than retention", size.hopeless_outage_hours, "h", "retention x (speed - 1)")


def _counted(number: int, what: str, plural: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else plural}"


def _finite(hours: float) -> float | None:
    return None if hours == inf else hours


# ----------
# Verdicts.

FITS, TIGHT, TOO_MUCH = "fits", "tight", "does not fit"


@dataclass(frozen=True, slots=True)
class SizeVerdict:
    """Whether a part fits: ``fits``, ``tight`` or ``does not fit``, why, and what changes it."""

    part: str
    result: str
    found: str
    knob: str = ""


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
    result = _graded(share, BUSY_GOAL, 1)
    found = f"at the peak runs take {share:.0%} of the interval; {BUSY_GOAL:.0%} or less leaves room for a retry"
    return SizeVerdict("a run in its interval", result, found, "" if result == FITS else _knob(size))


def _speed_verdict(size: Sizing) -> SizeVerdict:
    result = _graded(1 / size.speed, 1 / SPEED_GOAL, 1)
    found = f"full runs load {size.speed:.1f} times what is written; {SPEED_GOAL:g} times or more ends an outage soon"
    return SizeVerdict("catching up", result, found, "" if result == FITS else _knob(size))


def _retention_verdict(size: Sizing, retention_hours: float) -> SizeVerdict:
    wanted = _RETENTION_INTERVALS * size.deployment.interval_seconds / HOUR
    needed = max(wanted, size.catch_up_hours(size.deployment.outage_hours))
    if retention_hours < wanted:
        found = f"{retention_hours:g} h, less than {_RETENTION_INTERVALS} intervals ({wanted:g} h)"
        return SizeVerdict("retention", TOO_MUCH, found, f"retention of {wanted:g} h or more, or a shorter interval")
    if not size.longest_outage_hours:
        found = f"{retention_hours:g} h: loading never catches up, so records expire before they are read"
        return SizeVerdict("retention", TOO_MUCH, found, "catch up faster (above)")
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
    grows = size.ledger_bytes_a_day
    found = f"{grows / MB:,.0f} MB a day in {size.ranges_a_day:,.0f} ranges, which nothing deletes"
    if grows <= _LEDGER_GOAL_BYTES:
        return SizeVerdict("ledger", FITS, found)
    knob = "fewer runs of more offsets each: a longer interval, or a greater limit.offsets_per_run"
    return SizeVerdict("ledger", TIGHT, found, knob)


def _knob(size: Sizing) -> str:
    """Name the first change with which runs and catching up fit."""
    for changed, text in _changes(size.deployment, most_pipelines=size.traffic.topics):
        tried = Sizing(size.traffic, changed)
        if tried.reaches_goals:
            return text.format(tasks=tried.tasks)
    return "no number of tasks is enough: less in a record, or topics that are split, each with a table of its own"


_TASKS_KNOB = "spark.tasks: {tasks} on as many cores"


def _changes(deployment: Deployment, *, most_pipelines: int) -> Iterator[tuple[Deployment, str]]:
    if not deployment.follow_up:
        yield replace(deployment, follow_up=True), "airflow.follow_up: true"
    free = replace(deployment, tasks=None, follow_up=True)
    yield free, _TASKS_KNOB
    for limit in (limit for limit in _LIMITS if limit > deployment.loading.limit_offsets):
        loading = replace(deployment.loading, limit_offsets=limit)
        yield replace(free, loading=loading), f"limit.offsets_per_run: {limit:,}, {_TASKS_KNOB}"
    for times in (2, 4, 8):
        seconds = times * deployment.interval_seconds
        yield replace(free, interval_seconds=seconds), f"a schedule with {seconds / 60:g} minutes between runs"
    pipelines = 2 * deployment.pipelines
    while pipelines <= most_pipelines:
        text = f"{pipelines:,} pipelines, each with topics and a table of its own, {_TASKS_KNOB}"
        yield replace(free, pipelines=pipelines), text
        pipelines *= 2
