"""The form that Airflow shows when somebody triggers a pipeline's DAG: the keys of ``core.run_form``.

The schema keeps the kinds of values apart, so that Airflow shows the right field for each. What the keys say about each
other, and times, are checked by ``core.run_form`` in plan_batch, with every fault in one message.

Airflow's form (3.3.2, ``ui/src/components/FlexibleForm``) marks a field as required, and shows it in red while it is
empty, when its type does not allow null: so every type does that has not a value from the start.
"""

from __future__ import annotations

from airflow.sdk import Param

from kafka_ingest.core.form_values import GREATEST_NUMBER
from kafka_ingest.core.run_form import DEFAULTS, LABELS
from kafka_ingest.core.run_options import RunMode


def run_params(zone: str) -> dict[str, Param]:
    """Gives the form; its defaults are a plain live run, which is what the schedule does.

    Args:
        zone: IANA time zone of times without an offset.
    """
    return {
        "mode": Param(
            DEFAULTS["mode"],
            title=LABELS["mode"],
            type="string",
            enum=[mode.value for mode in RunMode],
            values_display={
                RunMode.LIVE.value: "live: go on from the committed offsets",
                RunMode.RELOAD.value: "reload: read a span again and replace its rows",
                RunMode.PLAN_ONLY.value: "plan only: show what would be read, write nothing",
            },
            description_md="`live` is what scheduled runs do. `reload` reads a span of times or offsets again and "
            "replaces its rows in one transaction; what lies above the committed offsets is loaded, too, and moves "
            "them. `plan_only` logs what a live run would read, or a reload where a span is given.",
        ),
        "from": Param(
            DEFAULTS["from"],
            title=LABELS["from"],
            type=["null", "string"],
            description_md=f"Reload: first record time of the span, such as `2026-01-31T13:00:00Z`. {_zone(zone)}",
        ),
        "to": Param(
            DEFAULTS["to"],
            title=LABELS["to"],
            type=["null", "string"],
            description_md="Reload: the span ends before the first record at or after this time; empty: at the end of "
            f"the log. Live: the run ends there. {_zone(zone)}",
        ),
        "offsets": Param(
            DEFAULTS["offsets"],
            title=LABELS["offsets"],
            type=["null", "string"],
            format="multiline",
            description_md="Reload, instead of times: one line a partition, `topic partition start end`; `end` is the "
            "first offset after the span, without it the span goes to the end of the log. Other partitions are left "
            "alone.",
        ),
        "limit": Param(
            DEFAULTS["limit"],
            title=LABELS["limit"],
            type=["null", "integer"],
            minimum=1,
            maximum=GREATEST_NUMBER,
            description_md="Live: read at most so many offsets, instead of the pipeline's limit. No run follows by "
            "itself.",
        ),
        "reload_what_is_left": Param(
            DEFAULTS["reload_what_is_left"],
            title=LABELS["reload_what_is_left"],
            type=["null", "boolean"],
            description_md="Go on where Kafka no longer holds all of what is read again, in a reload or after a reset "
            "backwards. **Rows of records that compaction took are deleted**; without it such a run stops with the "
            "table untouched.",
        ),
        "replace_resolved": Param(
            DEFAULTS["replace_resolved"],
            title=LABELS["replace_resolved"],
            type=["null", "boolean"],
            description_md="Where offsets are read again: replace dead letters that are marked as resolved, and their "
            "rows, too.",
        ),
        "reason": Param(
            DEFAULTS["reason"],
            title=LABELS["reason"],
            type=["null", "string"],
            description_md="Why. Required for a reload; stored with the batch.",
        ),
    }


def _zone(zone: str) -> str:
    return f"Without an offset from UTC it is a time in {zone}."
