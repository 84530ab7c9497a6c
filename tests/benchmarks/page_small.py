"""The sections of the page about small batches: from trigger to green, and an installation of many pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks.installation import IN_PROCESS as ALL_IN_PROCESS
from tests.benchmarks.installation import SPARK as SOME_WITH_SPARK
from tests.benchmarks.page_tables import markdown_table, thousands
from tests.benchmarks.small_batches import BEFORE, EMPTY, IN_PROCESS, SPARK
from tests.benchmarks.statistics import spread

_MINUTE = 60.0


def ratio_to_empty(found: Mapping[str, Any], contender: str) -> float:
    """Return how many times as long as the empty DAG a run took, round by round; the median."""
    return spread([run["seconds"] / empty["seconds"] for run, empty in _beside_empty(found, contender)]).median


def small_batches(found: Mapping[str, Any]) -> str:
    """Return the section about one run."""
    contenders = [name for name in (EMPTY, BEFORE, SPARK, IN_PROCESS) if _runs_of(found, name)]
    parts = list(
        dict.fromkeys(part for name in reversed(contenders) for run in _runs_of(found, name) for part in run["parts"])
    )
    rows = [
        ("from trigger to green", *(_spread_of(found, name, lambda run: run["seconds"]) for name in contenders)),
        ("times the empty DAG", *(f"{ratio_to_empty(found, name):.2f}" for name in contenders)),
        *((f"— {part}", *(_part(found, name, part) for name in contenders)) for part in parts),
    ]
    return (
        f"{thousands(found['records'])} `orders` in 4 partitions, {len(_runs_of(found, EMPTY))} rounds in one Airflow "
        "(LocalExecutor): seconds from the moment the run is queued to its end, beside a DAG of four empty tasks, one "
        "after another. *Before* is the version before tasks started light, in the same rounds. *In process* has "
        "`spark.in_process_below_offsets`. *Scheduling* is Airflow's time around tasks; an empty DAG has more of it: "
        "its tasks end at once, and the scheduler sleeps for a second when it has found nothing to do. A run has three "
        "processes where it had four, since the audit skips `follow_up` without starting it. Parts are medians.\n\n"
        + markdown_table(("seconds", *contenders), rows)
        + f"\n\nOf the run with Spark {_spark_seconds(found):.1f} s are Spark's start: its JVM, its session and its "
        "Python workers."
    )


def installation(found: Mapping[str, Any]) -> str:
    """Return the section about many pipelines."""
    ways = [name for name in (SOME_WITH_SPARK, ALL_IN_PROCESS) if name in found["ways"]]
    measured = [found["ways"][name] for name in ways]
    most = max(way["pipelines"] for way in measured)
    rows = [
        ("pipelines that were run", *(f"{way['pipelines']}" for way in measured)),
        ("minutes until all are green", *(f"{_minutes(way):.1f}" for way in measured)),
        (f"the same for {most}", *(f"{_minutes(way) * most / way['pipelines']:.1f}" for way in measured)),
        ("CPU seconds a run", *(f"{way['busy_cpu_seconds'] / way['pipelines']:.1f}" for way in measured)),
        (f"CPU seconds an hour for {most}", *(thousands(round(_hour(found, way, most))) for way in measured)),
        ("median run, s", *(f"{way['median_run_seconds']:.1f}" for way in measured)),
        ("plan, median and 95 %, s", *(_plan(way) for way in measured)),
        ("most sessions of PostgreSQL, of them of loads", *(_sessions(way) for way in measured)),
        ("looks that found the scheduler unhealthy", *(_looks(way) for way in measured)),
    ]
    return (
        f"{most} pipelines with {found['records']} new records each, all triggered at the same moment, on the two "
        "cores of this machine with everything else: Airflow (four tasks at a time), Kafka and PostgreSQL. The last "
        "pipeline has the greatest lag: its records wait until all are green. With Spark fewer pipelines were run, and "
        "what more would take is in proportion. CPU is that of the whole machine; an hour has an idle rest, in which "
        f"Airflow, Kafka and PostgreSQL keep {found['idle_cores']:.2f} cores busy.\n\n"
        + markdown_table(("", *ways), rows)
    )


def _runs_of(found: Mapping[str, Any], contender: str) -> Sequence[Mapping[str, Any]]:
    return [run for run in found["runs"] if run["contender"] == contender]


def _beside_empty(found: Mapping[str, Any], contender: str) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    empty = {run["round"]: run for run in _runs_of(found, EMPTY)}
    return [(run, empty[run["round"]]) for run in _runs_of(found, contender)]


def _spread_of(found: Mapping[str, Any], contender: str, figure: Any) -> str:
    known = spread([figure(run) for run in _runs_of(found, contender)])
    return f"{known.median:.1f} ({known.least:.1f}-{known.greatest:.1f})"


def _part(found: Mapping[str, Any], contender: str, part: str) -> str:
    figures = [run["parts"][part] for run in _runs_of(found, contender) if part in run["parts"]]
    return f"{spread(figures).median:.2f}" if figures else ""


def _spark_seconds(found: Mapping[str, Any]) -> float:
    starts = ("load: spark-submit, JVM, driver", "load: session", "load: start of Python workers")
    return spread([sum(run["parts"][part] for part in starts) for run in _runs_of(found, SPARK)]).median


def _minutes(way: Mapping[str, Any]) -> float:
    return float(way["seconds_until_all_are_green"]) / _MINUTE


def _hour(found: Mapping[str, Any], way: Mapping[str, Any], pipelines: int) -> float:
    share = pipelines / way["pipelines"]
    rest = max(0.0, 60 * _MINUTE - way["seconds_until_all_are_green"] * share)
    return float(way["busy_cpu_seconds"] * share + found["idle_cores"] * rest)


def _plan(way: Mapping[str, Any]) -> str:
    return f"{way['plan_seconds']['median']:.2f}, {way['plan_seconds']['p95']:.2f}"


def _sessions(way: Mapping[str, Any]) -> str:
    return f"{way['most_sessions']}, {way['most_own_sessions']}"


def _looks(way: Mapping[str, Any]) -> str:
    return f"{way['looks_with_unhealthy_scheduler']} of {way['looks']}"
