"""The page that Airflow shows for a pipeline's DAG: what it loads, and what the buttons do."""

from __future__ import annotations

from datetime import UTC, datetime

from kafka_ingest.core.dead_letter_limits import limit_texts
from kafka_ingest.core.schedule_settings import RunEnd
from kafka_ingest.core.settings import FirstRun, FirstRunKind, PartitionFaultPolicy, PipelineSettings
from kafka_ingest.core.target_shape import written_columns

_BUTTONS = """\
### What the buttons do
| you do | what happens |
|---|---|
| **Trigger** | a run reads on from the committed offsets; the form can limit it, reload a span, or only show the plan |
| **Clear** a task or a run | the run's batch is loaded if it was not; a committed batch stays as it is |
| **Backfill** | each run reloads its interval: what was loaded is replaced, what was not is loaded, never a gap |
| **Clear** a backfill run | its interval is reloaded once more |
| **Mark success** of `load_batch` | loads nothing; `audit_batch` fails, and the next run reads the same offsets |
| **Mark failed**, or kill | the Spark job is stopped; a batch that it commits first counts |
| two runs at once | the second waits, without using up retries, until the first has ended or given no sign of life; \
after {busy_timeout_seconds} seconds it fails and names the first |
| delete a run | the ledger keeps its batch; the next run goes on at the committed offsets |

Where it stands: `python -m kafka_ingest status {pipeline}`. More about the buttons: `docs/operating.md`. Faults and
what to do: `docs/runbook.md`.
"""


def pipeline_doc(pipeline: PipelineSettings) -> str:
    """Gives the DAG's documentation as Markdown, made from the settings alone."""
    batch = pipeline.batch
    columns = "\n".join(
        f"| `{c.name}` | {c.type} | {'required' if c.is_not_null else ''} |" for c in written_columns(batch)
    )
    parts = [
        pipeline.schedule.description,
        f"Kafka into PostgreSQL, exactly once, in batches of at most {pipeline.plan.limit.total_offsets:,} offsets.",
        _facts(pipeline),
        f"### Columns of `{batch.target}`\n| column | type | |\n|---|---|---|\n{columns}",
        _BUTTONS.format(pipeline=pipeline.pipeline, busy_timeout_seconds=pipeline.schedule.busy_timeout_seconds),
    ]
    return "\n\n".join(part for part in parts if part)


def _facts(pipeline: PipelineSettings) -> str:
    batch, plan = pipeline.batch, pipeline.plan
    topics = f"all that match `{plan.topics.pattern}`" if plan.topics.pattern else ", ".join(plan.topics.names)
    facts = {
        "topics": topics,
        "from": f"connection `{batch.kafka_connection}`, {batch.isolation_level.value}",
        "into": f"`{batch.target}`, connection `{batch.target_connection}`",
        "value": batch.value.format.value,
        "null values (tombstones)": batch.tombstones.value,
        "first run": _first_run(plan.first_run),
        "a run ends at": _ENDS[pipeline.schedule.end],
        "a partition with a fault": _FAULTS[plan.on_partition_fault],
        "a record that does not fit": (
            "becomes a dead letter, in the table `kafka_ingest.dead_letter`; the run stays green, and the log of "
            "`load_batch` warns with counts, reasons and first offsets"
        ),
        "a batch stops at more than": ", or ".join(limit_texts(batch.dead_letters)),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in facts.items())])


_ENDS = {
    RunEnd.HEAD: "the end of the log",
    RunEnd.INTERVAL: "the first record at or after the end of its data interval",
}

_FAULTS = {
    PartitionFaultPolicy.STOP: "stops the whole run before anything is read",
    PartitionFaultPolicy.LEAVE_OUT: "is left out: the others are loaded, and the run ends red",
}


def _first_run(first_run: FirstRun) -> str:
    if first_run.kind is FirstRunKind.TIMESTAMP and first_run.timestamp_ms is not None:
        return f"from {datetime.fromtimestamp(first_run.timestamp_ms / 1000, UTC).isoformat()} on"
    return {
        FirstRunKind.EARLIEST: "from the log start",
        FirstRunKind.LATEST: "from the end of the log on",
    }.get(first_run.kind, "from the offsets in the file")
