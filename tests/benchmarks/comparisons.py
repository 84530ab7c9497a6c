"""Which contenders meet on which load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tests.benchmarks.contenders import (
    ALL,
    CONSUME_JAVA,
    CONSUME_ONE,
    CONSUME_TWO,
    COPY_BINARY,
    COPY_THEN_INSERT,
    DEBEZIUM_FULL_UPSERT,
    DEBEZIUM_UPSERT,
    INSERT_SELECT,
    ONE_RECORD,
    OURS,
    OURS_AVRO,
    OURS_FULL_STATE,
    OURS_IN_1_GB,
    OURS_JSON_SCHEMA,
    OURS_PROTOBUF,
    OURS_STATE,
    OURS_WITH_KEY,
    PYTHON_COPY,
    PYTHON_COPY_PLAIN,
    PYTHON_FULL_UPSERT,
    PYTHON_UPSERT,
    SPARK_AVRO,
    SPARK_JDBC,
    SPARK_STAGED,
    Contender,
)
from tests.benchmarks.rounds import Comparison
from tests.benchmarks.workloads import LARGE, MANY_PARTITIONS, NARROW, ORDERS, ORDERS_STATE, SKEW, WIDE, Workload

_LIMITS = (CONSUME_ONE, CONSUME_TWO, COPY_BINARY, INSERT_SELECT, COPY_THEN_INSERT)
#: The product without a registry, the product with one, and what one would use instead for Avro.
_FORMATS = (OURS, OURS_AVRO, OURS_PROTOBUF, OURS_JSON_SCHEMA, SPARK_AVRO)
_QUICK_ONES = (OURS, SPARK_JDBC, SPARK_STAGED, PYTHON_COPY, PYTHON_COPY_PLAIN, *_LIMITS)


def _comparison(
    name: str,
    workload: Workload,
    records: int,
    contenders: Sequence[Contender],
    usual_rounds: int,
    rounds: int | None,
) -> Comparison:
    return Comparison(name, workload, records, contenders, rounds or usual_rounds)


_DEFINITIONS: tuple[tuple[str, Workload, int, Sequence[Contender], int], ...] = (
    ("quick-1m", ORDERS, 1_000_000, (OURS, *_LIMITS), 1),
    ("peers-1m", ORDERS, 1_000_000, _QUICK_ONES, 3),
    ("peers-2m", ORDERS, 2_000_000, _QUICK_ONES, 3),
    ("peers-10m", ORDERS, 10_000_000, ALL, 3),
    ("same-promise-10m", ORDERS, 10_000_000, (OURS, SPARK_JDBC, SPARK_STAGED, COPY_BINARY, COPY_THEN_INSERT), 2),
    ("formats-1m", ORDERS, 1_000_000, _FORMATS, 3),
    ("state-2m", ORDERS_STATE, 2_000_000, (OURS_STATE, PYTHON_UPSERT, DEBEZIUM_UPSERT), 3),
    ("full-state-2m", ORDERS_STATE, 2_000_000, (OURS_FULL_STATE, PYTHON_FULL_UPSERT, DEBEZIUM_FULL_UPSERT), 3),
    ("consuming-2m", ORDERS, 2_000_000, (CONSUME_ONE, CONSUME_TWO, CONSUME_JAVA), 3),
    ("one-record", ORDERS, 1, ONE_RECORD, 5),
    *((f"size-{records}", ORDERS, records, (OURS, PYTHON_COPY), 3) for records in (50_000, 200_000, 500_000)),
    ("unique-key", ORDERS, 2_000_000, (OURS, OURS_WITH_KEY), 3),
    ("narrow", NARROW, 2_000_000, (OURS, SPARK_JDBC), 3),
    ("wide", WIDE, 500_000, (OURS, SPARK_JDBC), 3),
    # Spark's JDBC writer ends with an OutOfMemoryError in its default memory, with 10 rows a batch, too.
    ("large", LARGE, 1_000, (OURS, PYTHON_COPY), 3),
    ("many-partitions", MANY_PARTITIONS, 300_000, (OURS, SPARK_JDBC), 3),
    ("even-2m", ORDERS, 2_000_000, (OURS,), 3),
    ("skew-2m", SKEW, 2_000_000, (OURS,), 3),
    ("memory-2m", ORDERS, 2_000_000, (OURS_IN_1_GB,), 1),
    ("memory-20m", ORDERS, 20_000_000, (OURS_IN_1_GB,), 1),
)

#: A comparison by its name, made for a number of rounds (``None``: its own).
COMPARISONS: Mapping[str, Callable[[int | None], Comparison]] = {
    definition[0]: partial(_comparison, *definition) for definition in _DEFINITIONS
}

_GROWTH = "tests.benchmarks.growth"
#: Modules, with arguments, that measure something else than loads side by side, by the name of their results.
SCRIPTS: Mapping[str, Sequence[str]] = {
    "airflow-run": ("tests.benchmarks.airflow_run",),
    "small-batches": ("tests.benchmarks.small_batches",),
    "installation": ("tests.benchmarks.installation",),
    "consuming-buffers": ("tests.benchmarks.limits.consume_buffers",),
    "nothing-to-read": (f"{_GROWTH}.nothing_to_read",),
    "planning": (f"{_GROWTH}.planning", "--rounds", "21"),
    "publishing": (f"{_GROWTH}.publishing", "--rounds", "3"),
    "parsing": (f"{_GROWTH}.parsing",),
    "looking": (f"{_GROWTH}.looking", "--rounds", "21"),
}
FULL = (*(name for name in COMPARISONS if name != "quick-1m"), *SCRIPTS)
QUICK = ("quick-1m", "one-record")
