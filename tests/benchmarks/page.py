"""Writes docs/benchmarks.md from the results: ``python -m tests.benchmarks.page`` (``--check`` only compares)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox.paths import CHECKOUT
from tests.benchmarks.contenders import (
    CONSUME_ONE,
    CONSUME_TWO,
    COPY_BINARY,
    COPY_THEN_INSERT,
    DEBEZIUM,
    DEBEZIUM_FULL_UPSERT,
    DEBEZIUM_UNNEST,
    DEBEZIUM_UPSERT,
    DLT,
    EXECUTE_VALUES,
    ONE_RECORD,
    OURS,
    OURS_AVRO,
    OURS_FULL_STATE,
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
from tests.benchmarks.limits.consume_buffers import BUFFERS, LIBRARY, ONE_TASK, READING, TWO_TASKS
from tests.benchmarks.limits.consume_buffers import OURS as OUR_READER
from tests.benchmarks.page_small import installation, ratio_to_empty, small_batches
from tests.benchmarks.page_tables import figures_table, markdown_table, ratios_table, spread_text, thousands
from tests.benchmarks.page_targets import GrowthTarget, Target, targets_table
from tests.benchmarks.results import RESULTS, read_results
from tests.benchmarks.small_batches import IN_PROCESS, SPARK
from tests.benchmarks.statistics import Runs, of_contender, ratio, spread
from tests.benchmarks.workloads import STATE_KEYS

PAGE = CHECKOUT / "docs" / "benchmarks.md"
_OWN_KINDS = ("java", "python")
_KINDS = (*_OWN_KINDS, "postgres", "kafka")
#: Comparisons with all or most peers, by their records.
_PEERS = {1_000_000: "peers-1m", 2_000_000: "peers-2m", 10_000_000: "peers-10m"}
_FORMATS = (OURS, OURS_AVRO, OURS_PROTOBUF, OURS_JSON_SCHEMA, SPARK_AVRO)
_NO_RESULTS = "Not measured: `python -m tests.benchmarks {name}` does it."

_TOP = """\
# Benchmarks

How fast a load is, against what one would use instead and against what the machine allows. Every figure on this page
comes from a file in `tests/benchmarks/results/`; `make bench` measures them anew and writes the page
(`make bench-quick` takes minutes and shows only the product and the limits).

All contenders read the same topic into the same kind of table in the same PostgreSQL server, with `fsync` and
`synchronous_commit` on and all guards of the product on. They take turns, round by round; each run starts in a fresh
database after a database checkpoint, and its rows are counted afterwards. Slow peers load fewer records in the same
rounds (each table says how many): by then their rate is steady. Trust the ratios more than the figures: they
were measured side by side, the figures belong to this machine, which others use too: between two sections it can be
twice as fast. Figures are medians, with the range of all rounds.

The records of `orders` are JSON of about 300 bytes (two integers, five short texts, a decimal, a time, a note of 60 to
80 characters, an array of two objects) in 4 partitions, compressed with lz4. They become 8 typed columns and the
metadata columns. What the peers are and how they are set: `tests/benchmarks/peers/README.md`.
"""

_READING = """\
- A load has three parts: Spark starts (the row "One record" below is all of it), tasks stage the rows side by side, and
  one transaction publishes them. The first is the same for one record and for ten million, the second grows with the
  cores, the third is one PostgreSQL session and so an upper bound: `INSERT … SELECT` among the limits.
- The publish of 10 M rows takes longer for each row than that of 1 M, as `INSERT … SELECT` does by itself: the kernel
  has to find new memory for 9 GB of staging, table and WAL. A backlog is loaded in runs of at most 2 M offsets unless
  `limit` says otherwise.
- Tasks are cut by offsets, 25,000 at least, or by bytes, 8 MB at least, where a sample finds larger records.
- Every row is written twice, to staging and to the table. That is what it costs that a reader sees all of a batch or
  nothing, that a killed or doubled task changes nothing, and that a bad record becomes a dead letter. A Python process
  that copies straight into the table and commits as it goes writes once: on two cores it is as fast as the product
  when it decodes with typed fields and streams its COPY. Written as most people do, with `json` and `csv`, it is not.
- One peer loads each record exactly once, too, as long as every record fits: Spark's JDBC writer fills a staging table,
  then one transaction writes `INSERT … SELECT` and the offsets. It writes every row twice as the product does.
- What this protocol allows on the machine is the limit that copies finished rows into staging by two streams, then
  publishes them: a load also has to start, read and decode.
- The peers in Java get quicker while their code is compiled, so they gain on larger loads.
- With more cores the peers in Python stay where they are (one process is one core); staging does not.
"""

TARGETS = (
    Target("whole load of 10 M records", "peers-10m", OURS, SPARK_JDBC, least=3.0),
    Target("whole load of 10 M records", "same-promise-10m", OURS, SPARK_STAGED, least=2.0),
    Target("whole load of 2 M records", "peers-2m", OURS, SPARK_STAGED, least=2.0),
    Target("whole load of 10 M records", "same-promise-10m", OURS, COPY_THEN_INSERT, least=0.55),
    Target("whole load of 10 M records", "peers-10m", OURS, COPY_BINARY, least=0.30),
    Target("whole load of 10 M records", "peers-10m", OURS, PYTHON_COPY_PLAIN, least=3.0),
    Target("whole load of 10 M records", "peers-10m", OURS, PYTHON_COPY, least=3.0),
    Target("whole load of 10 M records", "peers-10m", OURS, DEBEZIUM, least=4.0),
    Target("whole load of 10 M records", "peers-10m", OURS, DEBEZIUM_UNNEST, least=4.0),
    Target("whole load of 10 M records", "peers-10m", OURS, EXECUTE_VALUES, least=6.0),
    Target("whole load of 10 M records", "peers-10m", OURS, DLT, least=10.0),
    Target("staging alone, of 10 M records", "peers-10m", OURS, CONSUME_ONE, least=0.40, figure="staging_per_second"),
    Target("whole load of 1 M Avro records", "formats-1m", OURS_AVRO, OURS, least=1.2),
    Target("whole load of 1 M Protobuf records", "formats-1m", OURS_PROTOBUF, OURS, least=0.7),
    Target("whole load of 1 M records with a JSON Schema", "formats-1m", OURS_JSON_SCHEMA, OURS, least=0.9),
    Target("2 M records of 500,000 keys", "state-2m", OURS_STATE, DEBEZIUM_UPSERT, least=3.0),
    Target("2 M records of 500,000 keys", "state-2m", OURS_STATE, PYTHON_UPSERT, least=2.0),
    Target("the same, into a full table", "full-state-2m", OURS_FULL_STATE, DEBEZIUM_FULL_UPSERT, least=3.0),
    Target("the same, into a full table", "full-state-2m", OURS_FULL_STATE, PYTHON_FULL_UPSERT, least=2.0),
    Target("seconds for one record", "one-record", ONE_RECORD[0], ONE_RECORD[1], most=0.4, figure="seconds"),
)


def page() -> str:
    """Return the page."""
    sections = [("Targets", _targets()), *((title, _section(name, write)) for title, name, write in _SECTIONS)]
    return "\n".join((_TOP, *(f"## {title}\n\n{text}\n" for title, text in sections)))


def _section(name: str, write: Callable[[Mapping[str, Any]], str]) -> str:
    if not (RESULTS / f"{name}.json").exists():
        return _NO_RESULTS.format(name=name)
    found = read_results(name)
    return f"{write(found)}\n\nMeasured at {found['measured_at']}."


def _targets() -> str:
    return targets_table(TARGETS, _growth_targets()) + "\n\n" + _READING.strip()


def _growth_targets() -> tuple[GrowthTarget, ...]:
    return (
        GrowthTarget("plan with nothing to read", "`list_offsets` and two queries", 3, "nothing-to-read", _ratio),
        GrowthTarget("plan of 2,000 partitions", "`list_offsets` of them", 3, "planning", _ratio),
        GrowthTarget("load of a skewed topic, 2 M records", "the same of an even one", 1.3, "skew-2m", _skew_ratio),
        GrowthTarget("memory of a load of 20 M records", "that of 2 M", 1.1, "memory-20m", _memory_ratio),
        GrowthTarget("page of 300 pipelines, 5 M rows of ledger: seconds", "the clock", 0.5, "looking", _page_seconds),
        GrowthTarget("1,000 records from trigger to green, with Spark", _EMPTY, 1.8, "small-batches", _with_spark),
        GrowthTarget("the same in process", _EMPTY, 1.3, "small-batches", _in_process),
        GrowthTarget("DAG run of 1 M records: seconds on top", "the load alone", 30, "airflow-run", _on_top_seconds),
    )


_EMPTY = "a DAG of four empty tasks"


def _with_spark(found: Mapping[str, Any]) -> float:
    return ratio_to_empty(found, SPARK)


def _in_process(found: Mapping[str, Any]) -> float:
    return ratio_to_empty(found, IN_PROCESS)


def _ratio(found: Mapping[str, Any]) -> float:
    return float(found["ratio"])


def _page_seconds(found: Mapping[str, Any]) -> float:
    return float(found["median_seconds"]["overview"])


def _skew_ratio(found: Mapping[str, Any]) -> float:
    return of_contender(found["runs"], OURS.name, "seconds").median / _even_seconds()


def _memory_ratio(found: Mapping[str, Any]) -> float:
    small, large = read_results("memory-2m")["runs"][0]["peak_rss_mb"], found["runs"][0]["peak_rss_mb"]
    return float(max(large[kind] / small[kind] for kind in _OWN_KINDS))


def _on_top_seconds(found: Mapping[str, Any]) -> float:
    return spread([run["dag_run"]["seconds"] - run["load_seconds"] for run in found["runs"]]).median


def _machine(found: Mapping[str, Any]) -> str:
    return markdown_table(("what", "value"), list(found["machine"].items()))


def _against(found: Mapping[str, Any]) -> str:
    return figures_table(found["runs"], against=OURS.name)


def _consuming(found: Mapping[str, Any]) -> str:
    return (
        "One and two processes with librdkafka, and Kafka's own performance tool in Java (one consumer, without the "
        "time in which it joins its group):\n\n" + figures_table(found["runs"], against=CONSUME_ONE.name)
    )


def _buffers(found: Mapping[str, Any]) -> str:
    figures = ("seconds", "cpu_seconds", "whole_cpu_seconds")
    load = spread([run["load_average"] for run in found["trial_runs"]])
    reading = [
        (name, *_buffer_figures(found, READING, name, "seconds", "cpu_seconds", "bytes_seconds"))
        for name in (LIBRARY, OUR_READER, BUFFERS)
    ]
    staging = [
        (f"{what}, {name}", *_buffer_figures(found, what, name, *figures))
        for what in (ONE_TASK, TWO_TASKS)
        for name in (OUR_READER, BUFFERS)
    ]
    gains = [
        (what, *(spread_text(ratio(_buffer_runs(found, what), OUR_READER, BUFFERS, figure)) for figure in figures))
        for what in (READING, ONE_TASK, TWO_TASKS)
    ]
    return (
        f"A trial: {thousands(found['records'])} `orders` from librdkafka {found['librdkafka']} into Arrow's buffers "
        "by a C function, without a Python object for each record and with the interpreter's lock released, beside the "
        "product's reader, which makes batches of Message objects. Reading ends with a bytes object of each value, as "
        "decoders want it; a staging task is the product's with either reader. Microseconds are CPU time of one "
        f"record. The load average was {spread_text(load, decimals=0)} on {found['cores']} cores before the runs: "
        "where it is above the number of cores, CPU time says more than seconds.\n\n"
        + markdown_table(("reading", "seconds", "CPU, µs", "of it bytes objects, µs"), reading)
        + "\n\n"
        + markdown_table(("", "seconds", "CPU of tasks, µs", "with PostgreSQL and Kafka, µs"), staging)
        + "\n\nHow many times as much the product's reader takes, round by round:\n\n"
        + markdown_table(("", "seconds", "CPU of tasks", "with PostgreSQL and Kafka"), gains)
        + "\n\nWhat speaks against it, and why the product does not have it: "
        "[ADR 0017](adr/0017-message-objects-stay.md)."
    )


def _buffer_figures(found: Mapping[str, Any], what: str, name: str, *figures: str) -> tuple[str, ...]:
    """Return medians and ranges: seconds as they are, CPU time as µs a record."""
    scales = {figure: 1.0 if figure == "seconds" else found["records"] / 1e6 for figure in figures}
    runs = _buffer_runs(found, what)
    return tuple(spread_text(of_contender(runs, name, figure), scale) for figure, scale in scales.items())


def _buffer_runs(found: Mapping[str, Any], what: str) -> Runs:
    own = [run for run in found["trial_runs"] if run["what"] == what]
    return [{**run, "whole_cpu_seconds": run["cpu_seconds"] + sum(run["server_cpu_seconds"].values())} for run in own]


def _one_record(found: Mapping[str, Any]) -> str:
    return (
        "A topic with one record: nothing but the start is measured. The other is a `spark-submit` with default "
        "options that reads the record through Spark's Kafka source and ends.\n\n"
        + figures_table(found["runs"], against=OURS.name, figure="seconds", unit="s", decimals=1)
    )


def _sizes(_: Mapping[str, Any]) -> str:
    rows = []
    for records in (50_000, 200_000, 500_000, *_PEERS):
        name = _PEERS.get(records, f"size-{records}")
        if not (RESULTS / f"{name}.json").exists():
            continue
        runs = read_results(name)["runs"]
        ours, theirs = (of_contender(runs, one.name, "seconds") for one in (OURS, PYTHON_COPY))
        rows.append(
            (f"{records:,}", f"{ours.median:.1f}", f"{theirs.median:.1f}", f"{theirs.median / ours.median:.2f}")
        )
    return "One Python process with COPY has no JVM to start. Seconds from start to exit:\n\n" + markdown_table(
        ("records", "ours, s", "Python consumer with COPY, s", "theirs / ours"), rows
    )


def _formats(found: Mapping[str, Any]) -> str:
    runs: Runs = found["runs"]
    rows = [(contender.name, *_format_figures(runs, contender)) for contender in _FORMATS]
    head = (
        "contender",
        "k records/s",
        "this / ours",
        "staging alone",
        "CPU of Python, µs a record",
        "decoding, µs a record",
    )
    return (
        "The same `orders` as JSON and, behind a schema registry, as Avro, Protobuf and JSON with a JSON Schema: the "
        "amount is a decimal and the time a timestamp, where the format has them. A load of JSON has no registry, and "
        "Spark's `from_avro` is given the one schema that it can read. Microseconds are those of one record: CPU time "
        "of the driver and the tasks, and time that tasks spent decoding, by the clock.\n\n"
        + markdown_table(head, rows)
        + "\n\nTwo tasks decode at a time. A load of JSON that decoded at no cost would be "
        + f"{_without_decoding(runs):.2f} times as quick: no other format can gain more by its decoding."
    )


def _without_decoding(runs: Runs) -> float:
    """Return how many times quicker our load of JSON would be if decoding took its two tasks no time."""
    own = [run for run in runs if run["contender"] == OURS.name]
    return spread([run["seconds"] / (run["seconds"] - run["phases"]["tasks"]["decode"] / 2) for run in own]).median


def _format_figures(runs: Runs, contender: Contender) -> tuple[str, ...]:
    own = [run for run in runs if run["contender"] == contender.name]
    rate, share = of_contender(runs, contender.name).median / 1_000, ratio(runs, contender.name, OURS.name)
    cpu = spread([run["cpu_seconds"].get("python", 0.0) / run["records"] * 1e6 for run in own]).median
    row = (f"{rate:.0f}", f"{share.median:.2f} ({share.least:.2f}-{share.greatest:.2f})")
    if contender is SPARK_AVRO:
        return (*row, "", f"{cpu:.1f}", "")
    staging = ratio(runs, contender.name, OURS.name, "staging_per_second").median
    decoding = spread([run["phases"]["tasks"]["decode"] / run["records"] * 1e6 for run in own]).median
    return (*row, f"{staging:.2f}", f"{cpu:.1f}", f"{decoding:.1f}")


def _state(found: Mapping[str, Any]) -> str:
    runs: Runs = [*found["runs"], *_full_state_runs()]
    rows = []
    for ours, against in (
        (OURS_STATE, (PYTHON_UPSERT, DEBEZIUM_UPSERT)),
        (OURS_FULL_STATE, (PYTHON_FULL_UPSERT, DEBEZIUM_FULL_UPSERT)),
    ):
        for contender in (ours, *against) if any(run["contender"] == ours.name for run in runs) else ():
            rate, share = of_contender(runs, contender.name).median / 1_000, ratio(runs, ours.name, contender.name)
            told = "1" if contender is ours else f"{share.median:.2f} ({share.least:.2f}-{share.greatest:.2f})"
            rows.append((contender.name, f"{rate:.0f}", told))
    superseded = 1 - STATE_KEYS / found["runs"][0]["records"]
    return (
        "`mode: upsert` with `order: offset`, into an empty table and into one with an older row of every key. Each "
        f"key comes equally often: {superseded:.0%} of the records are superseded within the batch. The sink writes "
        "in its mode `upsert`; the Python process copies 50,000 records at a time into a temporary table and writes "
        "the newest of each key from it. Our figures hold Spark's start, those of the sink leave Connect's start out."
        "\n\n" + markdown_table(("contender", "k records/s", "ours / this"), rows) + "\n\n" + _state_bound(runs)
    )


def _full_state_runs() -> Runs:
    is_measured = (RESULTS / "full-state-2m.json").exists()
    return read_results("full-state-2m")["runs"] if is_measured else []


def _state_bound(runs: Runs) -> str:
    own = [run for run in runs if run["contender"] == OURS_STATE.name]
    stage, publish = (spread([run["phases"][phase] for run in own]).median for phase in ("stage", "publish"))
    whole, theirs = (of_contender(runs, one.name, "seconds").median for one in (OURS_STATE, PYTHON_UPSERT))
    return (
        f"Of our {whole:.0f} s into the empty table two tasks stage for {stage:.0f} s, and one session of PostgreSQL "
        f"folds and writes for {publish:.0f} s. Without that it would be {theirs / (whole - publish):.1f} times "
        "as quick as the Python process, which keeps one core busy, and PostgreSQL the other: with two cores that is "
        "the bound."
    )


def _key(found: Mapping[str, Any]) -> str:
    return (
        "`unique_key: true` gives a created table a unique key of topic, generation, partition and offset. The ledger "
        "keeps rows unique without it.\n\n" + ratios_table(found["runs"], OURS_WITH_KEY.name, against=OURS.name)
    )


def _shapes(_: Mapping[str, Any]) -> str:
    parts = []
    for name, unit, meaning in (
        ("narrow", "k records/s", "2 M records of about 60 bytes, 4 columns"),
        ("wide", "k records/s", "0.5 M records of about 600 bytes, 60 columns"),
        ("large", "records/s", "1,000 records of 1 MB, with which Spark's JDBC writer runs out of its default memory"),
        ("many-partitions", "k records/s", "0.3 M `orders` in 300 partitions"),
    ):
        if (RESULTS / f"{name}.json").exists():
            table = figures_table(read_results(name)["runs"], against=OURS.name, unit=unit)
            parts.append(f"**{meaning}**\n\n{table}")
    return "\n\n".join(parts)


def _skew(found: Mapping[str, Any]) -> str:
    skewed, even = of_contender(found["runs"], OURS.name, "seconds"), _even_seconds()
    return (
        "2 M `orders`, once spread evenly over 4 partitions and once with 90 % of them in one. A large partition is "
        "read by several tasks.\n\n"
        + markdown_table(
            ("topic", "seconds"),
            [("even", f"{even:.1f}"), ("skewed", f"{skewed.median:.1f}"), ("ratio", f"{_skew_ratio(found):.2f}")],
        )
    )


def _even_seconds() -> float:
    return of_contender(read_results("even-2m")["runs"], OURS.name, "seconds").median


def _memory(found: Mapping[str, Any]) -> str:
    small = read_results("memory-2m")["runs"][0]["peak_rss_mb"]
    large = found["runs"][0]["peak_rss_mb"]
    rows = [
        (kind, f"{small[kind]:.0f}", f"{large[kind]:.0f}", f"{large[kind] / small[kind]:.2f}") for kind in _OWN_KINDS
    ]
    return (
        "A driver and executors with 1 GB, `local[2]`; the greatest resident memory of any one process of a kind, "
        "in MB.\n\n" + markdown_table(("process", "2 M records", "20 M records", "ratio"), rows)
    )


def _airflow(found: Mapping[str, Any]) -> str:
    runs: Sequence[Mapping[str, Any]] = found["runs"]
    parts = list(dict.fromkeys(part for run in runs for part in run["dag_run"]["parts_seconds"]))
    rows = [("load alone", *(f"{run['load_seconds']:.1f}" for run in runs))]
    rows.append(("whole DAG run", *(f"{run['dag_run']['seconds']:.1f}" for run in runs)))
    rows.append(("on top", *(f"{run['dag_run']['seconds'] - run['load_seconds']:.1f}" for run in runs)))
    rows += [(f"— {part}", *(f"{run['dag_run']['parts_seconds'].get(part, 0):.1f}" for run in runs)) for part in parts]
    head = ("seconds", *(f"round {run['round'] + 1}" for run in runs))
    return (
        f"{thousands(found['records'])} records, triggered in Airflow with LocalExecutor; from the moment the run is "
        "queued to its end. “before …” is Airflow's time between two tasks.\n\n" + markdown_table(head, rows)
    )


def _phases(found: Mapping[str, Any]) -> str:
    runs = [run for run in found["runs"] if run["contender"] == OURS.name]
    clock = [(phase, [run["phases"][phase] for run in runs]) for phase in ("session", "stage", "publish")]
    start = (
        "start and end of the processes",
        [run["seconds"] - sum(run["phases"][p] for p, _ in clock) for run in runs],
    )
    tasks = [
        (f"task-seconds: {part}", [run["phases"]["tasks"][part] for run in runs]) for part in ("read", "decode", "copy")
    ]
    cpu = [(f"CPU: {kind}", [run["cpu_seconds"].get(kind, 0.0) for run in runs]) for kind in _KINDS]
    rows = [(name, *(f"{figure:.1f}" for figure in figures)) for name, figures in (*clock, start, *tasks, *cpu)]
    return (
        "Seconds by the clock, then what the two tasks at a time spent in sum, then CPU time: `java` is Spark's JVM, "
        "`python` the driver and the tasks.\n\n"
        + markdown_table(("seconds", *(f"round {run['round'] + 1}" for run in runs)), rows)
        + "\n\n"
        + _bound(found["runs"])
    )


def _bound(runs: Runs) -> str:
    """Says how far a load could get that stages as fast as one can consume: what is left is start and publish."""
    ours = [run for run in runs if run["contender"] == OURS.name]
    records = ours[0]["records"]
    beside = spread([run["seconds"] - run["phases"]["stage"] for run in ours]).median
    consuming = records / of_contender(runs, CONSUME_TWO.name).median
    bound = records / (beside + consuming)
    times = ", ".join(
        f"{bound / of_contender(runs, peer.name).median:.1f} times {peer.name}"
        for peer in (SPARK_JDBC, PYTHON_COPY, DEBEZIUM, DEBEZIUM_UNNEST, COPY_BINARY)
    )
    return (
        f"Start and publish alone take {beside:.0f} s of a load. If staging took no longer than the {consuming:.0f} s "
        f"in which two processes merely consume the topic, a load would reach {bound / 1_000:.0f} k records/s: {times}."
    )


def _nothing(found: Mapping[str, Any]) -> str:
    return (
        "A plan that finds nothing to read ends the run; no JVM is started. Beside it `list_offsets` and two queries, "
        "both with clients opened anew, in a process that has its libraries loaded. Medians of "
        f"{found['rounds']} rounds.\n\n"
        + markdown_table(
            ("what", "ms"),
            [
                ("plan", f"{found['plan_seconds'] * 1e3:.1f}"),
                ("list_offsets and two queries", f"{found['plain_seconds'] * 1e3:.1f}"),
                ("ratio (target ≤ 3)", f"{found['ratio']:.2f}"),
            ],
        )
    )


def _planning(found: Mapping[str, Any]) -> str:
    rows = [
        ("one `list_offsets`", f"{found['list_offsets_seconds']:.3f}", "1"),
        ("three `list_offsets`", "", f"{found['ratio_of_three_list_offsets']:.2f}"),
        ("plan (target ≤ 3)", f"{found['plan_seconds']:.3f}", f"{found['ratio']:.2f}"),
    ]
    return (
        f"A topic of {thousands(found['partitions'])} partitions on a real broker, without new records. A plan needs "
        "three offsets of each partition: log start, last stable offset and high watermark. With a record in every "
        f"partition the ratio is {found['ratio_of_full_plan']:.2f}. A plan of "
        f"{thousands(found['fake_partitions'])} partitions in memory takes {found['fake_plan_seconds']:.2f} s.\n\n"
        + markdown_table(("what", "seconds", "ratio"), rows)
    )


def _publishing(found: Mapping[str, Any]) -> str:
    rows = []
    for records in sorted({run["records"] for run in found["runs"]}):
        runs = [run for run in found["runs"] if run["records"] == records]
        seconds = [
            f"{spread([run[name] for run in runs]).median:.1f}"
            for name in ("seconds", "xmin_seconds", "replica_lag_seconds", "replica_sees_after_seconds")
        ]
        wal = spread([run["wal_bytes"] for run in runs]).median / records
        rows.append((thousands(records), *seconds, f"{wal:.0f}"))
    return (
        "The publish is one transaction: until its COMMIT VACUUM keeps what it might still see (its xmin), and a "
        "replica replays its WAL as it comes. The default limit of 2,000,000 offsets a run is chosen from this table: "
        "longer transactions gain nothing, because the time grows with the rows. A streaming replica ran on the same "
        "machine.\n\n"
        + markdown_table(
            (
                "rows",
                "seconds",
                "xmin held, s",
                "replica behind, s",
                "seen on replica after COMMIT, s",
                "WAL bytes a row",
            ),
            rows,
        )
    )


def _parsing(found: Mapping[str, Any]) -> str:
    return (
        f"The DAG file with {found['files']} pipeline files, each read once: "
        f"{found['file_ms_per_file']:.1f} ms a file, of which {found['read_ms_per_file']:.1f} ms read and check the "
        f"file; most of the rest is Airflow's own work for a DAG. Imports take {found['import_seconds']:.2f} s, once."
    )


def _looking(found: Mapping[str, Any]) -> str:
    rows = [
        (name, f"{seconds:.3f}", f"{found['ratio_to_indexed_query'][name]:.1f}")
        for name, seconds in found["median_seconds"].items()
    ]
    sizes, ledger = found["rows"], thousands(sum(found["rows"].values()))
    return (
        f"The page inside Airflow over a ledger of {ledger} rows: {sizes['pipeline']} pipelines, "
        f"{thousands(sizes['committed_offset'])} partitions, {thousands(sizes['batch'])} batches. Each answer is "
        "whole: new connections, questions and HTML, and nothing is kept from one to the next. The indexed query is a "
        "batch by its id, on a new connection, too. A wide pipeline has 2,000 partitions; its page shows 1,000 of them "
        "at first.\n\n" + markdown_table(("what", "seconds", "ratio"), rows)
    )


_SECTIONS: tuple[tuple[str, str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("Machine", "peers-10m", _machine),
    ("1 M records", "peers-1m", _against),
    ("2 M records", "peers-2m", _against),
    ("10 M records, all contenders", "peers-10m", _against),
    ("10 M records, the peer with the same promise", "same-promise-10m", _against),
    ("Where the time of a load goes (10 M records)", "peers-10m", _phases),
    ("Consuming alone", "consuming-2m", _consuming),
    ("Records without message objects", "consuming-buffers", _buffers),
    ("One record", "one-record", _one_record),
    ("From which size on", "peers-1m", _sizes),
    ("Formats with a schema registry", "formats-1m", _formats),
    ("Current state", "state-2m", _state),
    ("Unique key", "unique-key", _key),
    ("Other records", "many-partitions", _shapes),
    ("Skew", "skew-2m", _skew),
    ("Memory", "memory-20m", _memory),
    ("Small batches", "small-batches", small_batches),
    ("An installation of many pipelines", "installation", installation),
    ("A whole run in Airflow", "airflow-run", _airflow),
    ("Nothing to read", "nothing-to-read", _nothing),
    ("Planning many partitions", "planning", _planning),
    ("The publish transaction", "publishing", _publishing),
    ("Parsing pipeline files", "parsing", _parsing),
    ("The page", "looking", _looking),
)


def main() -> None:
    """Writes the page, or says that it is not what the results give."""
    text = page()
    if "--check" in sys.argv:
        if PAGE.read_text(encoding="utf-8") != text:
            sys.exit(f"{PAGE} is not what the results give: run python -m tests.benchmarks.page")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
