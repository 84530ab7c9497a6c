"""What a deployment takes for some traffic: runs, tasks, memory, connections, and how far it may fall behind. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil, inf
from statistics import median
from typing import Any

from kafka_ingest.sizing.costs import HEAP_BYTES, RANGE_BYTES, LoadCost, Loading

HOUR, _DAY = 3_600, 86_400
#: docs/deploying.md, The database.
CONNECTIONS_A_TASK, CONNECTIONS_A_DRIVER = 2, 3
#: The calculation is right within this factor, and who gives a process too little memory loses the load.
MEMORY_MARGIN = 1.5
#: A run should take half of its interval at most, and catching up be twice as quick as producing: what is left is for
#: growth, retries and a machine that others use, too.
BUSY_GOAL, SPEED_GOAL = 0.5, 2.0
#: A task more that makes a run shorter by less than this is not worth its core, and none were ever more than so many.
_LEAST_GAIN, _MOST_TASKS = 0.02, 64


# ----------
# What goes in.


@dataclass(frozen=True, slots=True)
class Traffic:
    """What producers write into all topics together.

    Attributes:
        records_per_day: Records of a busy day.
        record_bytes: Key, value and headers of a record, without compression: the mean.
        peak_factor: Records of the busiest hour, as a multiple of the day's average hour; at least 1.
        largest_bytes: The largest record; 0 where it is not known.
        topics: Number of topics.
        partitions: Number of their partitions.
        retention_hours: How long Kafka keeps a record at least; ``None``: for ever.
    """

    records_per_day: float
    record_bytes: float
    peak_factor: float = 2.0
    largest_bytes: float = 0
    topics: int = 1
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
    interval_seconds: float = HOUR
    follow_up: bool = True
    tasks: int | None = None
    executor_cores: int = 2
    outage_hours: float = 12


# ----------
# The calculation.


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
        hours = self.deployment.interval_seconds / HOUR
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
        busy = self.deployment.pipelines * self.busy_share / BUSY_GOAL
        return max(1, min(self.deployment.pipelines, ceil(busy)))

    @property
    def speed(self) -> float:
        """How fast all pipelines catch up in these slots, as a multiple of the day's average."""
        return self.own_speed * self.slots / self.deployment.pipelines

    @property
    def reaches_goals(self) -> bool:
        """Whether runs leave enough of their interval, and catching up is quick enough."""
        return self.busy_share <= BUSY_GOAL and self.speed >= SPEED_GOAL

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
    def ledger_bytes_a_day(self) -> float:
        """What these rows take."""
        return self.ranges_a_day * RANGE_BYTES

    @property
    def executor_bytes(self) -> float:
        """Memory of one executor: the JVM's heap, and beside it a Python process for each task."""
        task_bytes = self.full_run.task_bytes(self.traffic.largest_bytes)
        return HEAP_BYTES + self.tasks_an_executor * task_bytes * MEMORY_MARGIN

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
        """All records of a day in one load, for what does not depend on how they are cut into runs."""
        return self.cost(self.traffic.records_per_day)

    @property
    def average_run(self) -> LoadCost:
        """One of the day's runs, of which all are alike."""
        return self.cost(self.traffic.records_per_day / self.runs_a_day)

    # Falling behind.

    def catch_up_hours(self, outage_hours: float) -> float:
        """Return how long it takes, after an outage, until nothing waits; infinite for a speed of 1 or less."""
        return outage_hours / (self.speed - 1) if self.speed > 1 else inf

    @property
    def longest_outage_hours(self) -> float:
        """The longest outage after which Kafka still has every record: what is left of retention for it.

        Before it records wait for an interval, and after it the first run has to have read them. Who does not catch up
        survives none: the oldest record only gets older.
        """
        if self.traffic.retention_hours is None:
            return inf
        if self.speed <= 1:
            return 0
        taken = (self.deployment.interval_seconds + self.full_run.run_seconds) / HOUR
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
