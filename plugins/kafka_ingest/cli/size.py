"""Command ``size``: from the traffic, measured or given, to what loading it takes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf, isfinite
from typing import Any

from kafka_ingest.cli.command import Output, Parser, at_least, command, connection, world_of
from kafka_ingest.errors import OK, ConfigError, LedgerOutdated, naming
from kafka_ingest.report import Row, table
from kafka_ingest.settings import BatchSettings, OffsetLimit, PipelineSettings, ValueFormat
from kafka_ingest.sizing.costs import Loading
from kafka_ingest.sizing.deployment import LEAST_BATCHES, LEAST_COMPARED, Deployment, Sizing, Traffic, own_pace
from kafka_ingest.sizing.figures import figures as figures_of
from kafka_ingest.sizing.figures import verdicts as verdicts_of
from kafka_ingest.spark.master import spark_master_of

# ----------
# What goes in: each thing with its option, what is assumed where nothing tells it, and how it is shown.

#: As many as a person looks back: with hourly runs two days.
_BATCHES = 50
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGTP]?)B?")
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_MODES = ("append", "unique_key", "upsert")


def _size(text: str) -> float:
    """Read a number of bytes: 300, 1.5GB, 1TB; powers of ten."""
    found = _SIZE.fullmatch(text)
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"expected bytes, such as 300, 64MB or 1.5TB, found {text[:30]}")
    return float(found[1]) * 1_000.0 ** _POWERS[found[2]]


def _above(least: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", text) and float(text) >= least:
            return float(text)
        raise argparse.ArgumentTypeError(f"expected a number from {least:g} on, found {text[:30]}")

    return read


@dataclass(frozen=True, slots=True)
class _Entry:
    """One thing that goes in.

    Attributes:
        option: Its option.
        read: Reads the option's text, or the texts it may be.
        unit: How it is shown.
        help: What the option says of itself.
        assumed: What is taken where nothing tells it; ``None``: it has to be known.
    """

    option: str
    read: Callable[[str], Any] | Sequence[str]
    unit: str
    help: str
    assumed: Any = None


_ENTRIES: Mapping[str, _Entry] = {
    "records_per_day": _Entry("--records-per-day", at_least(1), "", "records of a busy day"),
    "record_bytes": _Entry("--bytes-per-record", _size, "B", "key, value and headers of a record, not compressed"),
    "peak_factor": _Entry(
        "--peak-factor", _above(1), "x", "records of the busiest hour, against those of an average one", 2.0
    ),
    "largest_bytes": _Entry("--largest-record", _size, "B", "the largest record", 1_000_000.0),
    "topics": _Entry("--topics", at_least(1), "", "number of topics", 1),
    "partitions": _Entry("--partitions", at_least(1), "", "partitions of all topics together", 1),
    "retention_hours": _Entry("--retention-hours", _above(0.01), "h", "how long Kafka keeps a record", 168.0),
    "pipelines": _Entry("--pipelines", at_least(1), "", "pipelines that share the traffic, each equally", 1),
    "interval_minutes": _Entry("--interval-minutes", _above(0.1), "min", "longest time between two runs", 60.0),
    "limit": _Entry("--limit", at_least(1), "", "most offsets of a run", OffsetLimit().total_offsets),
    "tasks": _Entry("--tasks", at_least(1), "", "tasks of a load at once (as many as are needed)", 0),
    "cores": _Entry("--cores", at_least(1), "", "cores of an executor", 2),
    "columns": _Entry("--columns", at_least(1), "", "columns that are filled from a record", 10),
    "format": _Entry(
        "--format",
        [kind.value for kind in ValueFormat],
        "",
        "json_columns: members of JSON; json: all of it in one column",
        ValueFormat.JSON_COLUMNS.value,
    ),
    "mode": _Entry("--mode", _MODES, "", "rows are appended, with or without a unique key, or written over", "append"),
    "follow_up": _Entry(
        "--follow-up", ("yes", "no"), "", "whether a run that reached its limit starts the next", "yes"
    ),
    "outage_hours": _Entry("--outage-hours", _above(0.01), "h", "an outage to be caught up with", 12.0),
    "pace": _Entry("--pace", _above(0.01), "x", "time of a load, against what the benchmark's rates say", 1.0),
}


@dataclass(frozen=True, slots=True)
class _Input:
    """A value that goes in, and where it is from; the value is ``None`` where it is not known."""

    value: Any
    source: str


_Inputs = Mapping[str, _Input]


def _arguments(parser: Parser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE", nargs="?", help="a pipeline whose topics are measured")
    per_day = parser.add_mutually_exclusive_group()
    for key, entry in _ENTRIES.items():
        group = per_day if key == "records_per_day" else parser
        known = entry.assumed is None or key == "tasks"
        told = entry.help if known else f"{entry.help} (default: {_shown(entry.assumed, entry.unit)})"
        if callable(entry.read):
            group.add_argument(entry.option, dest=key, type=entry.read, metavar="N", help=told)
        else:
            group.add_argument(entry.option, dest=key, choices=entry.read, help=told)
    per_day.add_argument("--bytes-per-day", type=_size, metavar="N", help="instead of the records: 1TB, 64GB")


@command(
    "size",
    "calculate tasks, memory, connections, disk and time of loads from the traffic",
    _arguments,
    details="""\
examples: python -m kafka_ingest size orders
          python -m kafka_ingest size --bytes-per-day 1TB --bytes-per-record 300 --topics 1000 --partitions 10000
With PIPELINE it asks Kafka for partitions, retention, records of the last days and a sample of them, and the
ledger for the pipeline's own pace; options override. It joins no group and changes nothing; a reader's role
is enough. Without PIPELINE it calculates from the options alone. Bytes are 300, 64MB or 1.5TB.
What the numbers mean: docs/sizing.md.""",
)
def run_size(options: argparse.Namespace, output: Output) -> int:
    """Calculate, and show what went in, every figure with what it follows from, and what fits."""
    inputs = _of_pipeline(options, output) if options.pipeline else _inputs(options, {})
    _require_sound(inputs, options.pipeline)
    size = _sizing(inputs)
    input_rows = [_input_row(key, inputs[key]) for key in _ENTRIES]
    figure_rows = [asdict(figure) for figure in figures_of(size)]
    verdict_rows = [asdict(verdict) for verdict in verdicts_of(size)]
    output.document(
        _text(input_rows, figure_rows, verdict_rows),
        {"inputs": input_rows, "figures": figure_rows, "verdicts": verdict_rows},
    )
    return OK


# ----------
# Where it is from: what is assumed, the pipeline with its topics and batches, options.


def _inputs(options: argparse.Namespace, found: _Inputs) -> _Inputs:
    """Put together what is assumed, what was found, and what is given, of which the later ones count."""
    assumed = {key: _Input(entry.assumed, "assumed") for key, entry in _ENTRIES.items()}
    values = {key: getattr(options, key) for key in _ENTRIES}
    given = {key: _Input(value, _ENTRIES[key].option) for key, value in values.items() if value is not None}
    inputs = {**assumed, **found, **given}
    if options.bytes_per_day and (record_bytes := inputs["record_bytes"].value):
        source = f"--bytes-per-day, {_shown(options.bytes_per_day, 'B')}"
        inputs["records_per_day"] = _Input(options.bytes_per_day / record_bytes, source)
    for more, less in _AT_LEAST:
        if inputs[more].source == "assumed":
            inputs[more] = _Input(inputs[less].value, "assumed")
    return inputs


def _of_pipeline(options: argparse.Namespace, output: Output) -> _Inputs:
    from kafka_ingest.pipeline_files.files import find_pipeline

    settings = find_pipeline(options.pipeline)
    with naming(settings.pipeline):
        found = {**_of_file(settings), **_of_topics(settings, output)}
        if options.pace is None:
            # Its batches ran as the file says and had this traffic, whatever an option asks for now.
            known = {key: one for key, one in found.items() if one.value is not None}
            found["pace"] = _pace({**_inputs(options, found), **known}, settings)
    return _inputs(options, found)


def _of_file(settings: PipelineSettings) -> _Inputs:
    from kafka_ingest.preflight.kafka import longest_interval_seconds

    batch, source = settings.batch, "pipeline file"
    columns = len(batch.value.columns) + bool(batch.key and batch.key.column) + bool(batch.headers_column)
    found = {
        "limit": _Input(settings.plan.limit.total_offsets, source),
        "columns": _Input(columns, source),
        "format": _Input(batch.value.format.value, source),
        "mode": _Input(_mode(batch), source),
        "follow_up": _Input("yes" if settings.schedule.follow_up else "no", source),
    }
    if interval := longest_interval_seconds(settings.schedule):
        found["interval_minutes"] = _Input(interval / 60, f"schedule {settings.schedule.schedule}, the longest")
    if settings.job.executor_cores:
        found["cores"] = _Input(settings.job.executor_cores, source)
    if tasks := _tasks(settings):
        found["tasks"] = tasks
    return found


def _mode(batch: BatchSettings) -> str:
    if batch.upsert:
        return "upsert"
    return "unique_key" if batch.target.unique_key else "append"


def _tasks(settings: PipelineSettings) -> _Input | None:
    """Return how many tasks run at once, where file or connection say so; a cluster's cores are not known here."""
    named = settings.job.tasks or inf
    try:
        master = spark_master_of(connection(settings.job.spark_connection, "spark")).url
    except ConfigError:
        master = ""
    local = re.fullmatch(r"local(?:\[([0-9]+)(?:,.*)?\])?", master)
    cores = int(local[1] or 1) if local else inf
    if cores < named:
        return _Input(cores, f"connection {settings.job.spark_connection}: {master}")
    return _Input(settings.job.tasks, "spark.tasks") if settings.job.tasks else None


def _of_topics(settings: PipelineSettings, output: Output) -> _Inputs:
    output.note(f"asking Kafka for the topics of {settings.pipeline}")
    found = world_of(settings).traffic(output.note)
    # What Kafka cannot tell is assumed, if it can be.
    return {
        key: _Input(one.value, one.how)
        if one.value is not None
        else _Input(_ENTRIES[key].assumed, f"assumed: {one.how}")
        for key, one in found.items()
    }


def _pace(inputs: _Inputs, settings: PipelineSettings) -> _Input:
    if not inputs["tasks"].value or inputs["tasks"].source == _ENTRIES["tasks"].option:
        return _Input(1.0, "assumed: how many tasks ran at once is not known")
    if any(inputs[key].value is None for key in ("records_per_day", "record_bytes")):
        return _Input(1.0, "assumed")
    try:
        batches = world_of(settings).reports().batches(settings.pipeline, _BATCHES)
    except LedgerOutdated:
        return _Input(1.0, "assumed: there is no ledger yet, or not of this version")
    found = own_pace(batches, _sizing(inputs))
    if found is None:
        return _Input(1.0, f"assumed: fewer than {LEAST_BATCHES} batches of {LEAST_COMPARED:,} offsets in the ledger")
    return _Input(found, "its own batches in the ledger, the median")


def _require_sound(inputs: _Inputs, pipeline: str | None) -> None:
    """Require what nothing can be calculated without, and that everything has a share.

    Raises:
        ConfigError: With all that is missing or contradicts itself.
    """
    missing = {key: one for key, one in inputs.items() if one.value is None}
    short = [pair for pair in _AT_LEAST if inputs[pair[0]].value < inputs[pair[1]].value]
    if missing or short:
        named = (*(_ENTRIES[key].option for key in missing), *(f"as many {more} as {less}" for more, less in short))
        found = (
            *(f"{_named(key)}: {_unknown(one)}" for key, one in missing.items()),
            *(f"{inputs[more].value:,.0f} {more} for {inputs[less].value:,.0f} {less}" for more, less in short),
        )
        raise ConfigError(
            "the sizes cannot be calculated",
            expected=" and ".join(named) + (", or a PIPELINE whose topics have records" if missing else ""),
            found="; ".join(found),
            next_command=" ".join(["python -m kafka_ingest size", *([pipeline] if pipeline else []), _EXAMPLE]),
            pipeline=pipeline,
        )


_EXAMPLE = "--records-per-day 50000000 --bytes-per-record 300"
#: Every topic has a partition, and every pipeline a topic.
_AT_LEAST = (("topics", "pipelines"), ("partitions", "topics"))


def _unknown(one: _Input) -> str:
    return one.source.removeprefix("assumed: ") if one.source != "assumed" else "neither measured nor given"


def _sizing(inputs: _Inputs) -> Sizing:
    value = {key: one.value for key, one in inputs.items()}
    traffic = Traffic(
        records_per_day=value["records_per_day"],
        record_bytes=value["record_bytes"],
        peak_factor=value["peak_factor"],
        largest_bytes=value["largest_bytes"],
        topics=value["topics"],
        partitions=value["partitions"],
        retention_hours=value["retention_hours"] if isfinite(value["retention_hours"]) else None,
    )
    loading = Loading(
        limit_offsets=value["limit"],
        format=ValueFormat(value["format"]),
        columns=value["columns"],
        is_upsert=value["mode"] == "upsert",
        has_unique_key=value["mode"] == "unique_key",
        pace=value["pace"],
    )
    deployment = Deployment(
        loading,
        pipelines=value["pipelines"],
        interval_seconds=60 * value["interval_minutes"],
        follow_up=value["follow_up"] == "yes",
        tasks=value["tasks"] or None,
        executor_cores=value["cores"],
        outage_hours=value["outage_hours"],
    )
    return Sizing(traffic, deployment)


# ----------
# What a person sees.


def _input_row(key: str, one: _Input) -> Row:
    value = None if one.value == inf else one.value
    return {"name": _named(key), "value": value, "unit": _ENTRIES[key].unit, "source": one.source}


def _named(key: str) -> str:
    return _ENTRIES[key].option.removeprefix("--").replace("-", " ")


def _text(inputs: Sequence[Row], figures: Sequence[Row], verdicts: Sequence[Row]) -> str:
    """Return three tables: what went in, what follows, what fits."""
    parts = (
        table([{**row, "input": row["name"], "value": _value(row)} for row in inputs], ("input", "value", "source")),
        table(
            [{**row, "figure": row["name"], "value": _value(row)} for row in figures],
            ("figure", "value", "follows_from"),
        ),
        table(verdicts, ("part", "result", "found", "knob")),
    )
    return "\n\n".join(parts) + "\n"


def _value(row: Row) -> str:
    if row["name"] == "tasks" and not row["value"]:
        return "as needed"
    return _shown(row["value"], row["unit"])


def _shown(value: Any, unit: str) -> str:
    """Return a value with its unit, of bytes and seconds the greatest that it reaches, in three figures."""
    if value is None:
        return "for ever" if unit == "h" else "-"
    if isinstance(value, str):
        return value
    if unit in ("B", "B/s"):
        power = next((power for power in (12, 9, 6, 3) if value >= 10**power), 0)
        return f"{_rounded(value / 10**power)} {dict(_PREFIXES)[power]}{unit}"
    if unit == "s" and value >= _SHORT_SECONDS:
        return f"{_rounded(value / 60)} min"
    return f"{_rounded(value)}{' ' if unit else ''}{_UNITS.get(unit, unit)}"


_PREFIXES = ((0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"))
_UNITS = {"x": "times"}
#: Up to here seconds say more than minutes.
_SHORT_SECONDS = 120


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"


COMMANDS = (run_size,)
