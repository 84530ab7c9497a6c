"""The form that Airflow shows when somebody triggers the administration DAG: the keys of ``core.administration_form``.

The schema keeps the kinds of values apart, so that Airflow shows the right field for each. What the keys say about each
other is checked by ``core.administration_form``, with every fault in one message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Param

from kafka_ingest.core.administration_form import DEFAULTS, AdministrationKind, ResetTo
from kafka_ingest.core.change_requests import LogPlace

_KINDS: dict[AdministrationKind, str] = {
    AdministrationKind.PREFLIGHT: "look at connections, privileges, table, topics and packages",
    AdministrationKind.RESET: "move positions; what was loaded above them is replaced",
    AdministrationKind.SKIP_LAG: "give up backlog, keep the last offsets of each partition",
    AdministrationKind.ACCEPT_LOSS: "go on at the log start after retention took unread offsets",
    AdministrationKind.ACCEPT_RECREATION: "the topic was deleted and created again",
    AdministrationKind.ACCEPT_CLUSTER: "the topics are on another cluster, as new topics",
    AdministrationKind.ACCEPT_SAME_LOG: "the same topics under another cluster id",
    AdministrationKind.RENAME: "the pipeline file has another name than before",
    AdministrationKind.RETIRE_TOPIC: "read a topic no more",
    AdministrationKind.READ_TOPIC_AGAIN: "read a retired topic again",
    AdministrationKind.CHANGE_TARGET: "load into the table that the file names now",
    AdministrationKind.CHANGE_IDENTITY_COLUMNS: "find rows by the columns that the file names now; rename them first",
    AdministrationKind.CHANGE_ISOLATION_LEVEL: "read under the level that the file names now",
    AdministrationKind.ROLL_BACK: "undo the last batches: rows, dead letters and positions together",
}
_RESETS: dict[ResetTo, str] = {
    ResetTo.EARLIEST: "earliest: the log start",
    ResetTo.LATEST: "latest: the end of the log",
    ResetTo.TIME: "time: the first offset at or after it",
    ResetTo.OFFSETS: "offsets: the listed ones",
    ResetTo.BY: "by: so many offsets forwards, or below 0 backwards",
}


def administration_params(pipelines: Sequence[str]) -> dict[str, Param]:
    """Gives the form. Its defaults change nothing; the pipeline has no default: it is chosen each time.

    Args:
        pipelines: Names of the pipelines.
    """
    return {**_what_to_do(pipelines), **_positions(), **_other_arguments()}


def _what_to_do(pipelines: Sequence[str]) -> dict[str, Param]:
    # An enum without values is no valid schema, and a deployment may have no pipeline yet.
    names: dict[str, Any] = {"enum": sorted(pipelines)} if pipelines else {}
    return {
        "pipeline": Param(
            title="Pipeline", type="string", description_md="The pipeline, by the name in its file.", **names
        ),
        "kind": _choice(
            "kind",
            "What to do",
            {kind: f"{kind}: {text}" for kind, text in _KINDS.items()},
            "What is to be done. Fields below that say nothing of it must stay empty.",
        ),
        "apply": _flag(
            "apply", "Apply", "**Do it.** Without it the task only shows what would happen, and changes nothing."
        ),
        "reason": _text(
            "reason", "Reason", "Why. Required for every change; stored in the ledger with your name and the run id."
        ),
        "supersede": _flag(
            "supersede",
            "Supersede the outstanding batch",
            "Take a batch out of the way that is planned or being loaded; without it the change is refused while there "
            "is one. Safe at any moment: what its attempt has staged is wasted, nothing else.",
        ),
    }


def _positions() -> dict[str, Param]:
    return {
        "reset_to": _choice("reset_to", "Reset to", _RESETS, "reset: where the positions go.", is_optional=True),
        "time": _text("time", "Time", "reset to time: such as `2026-01-31T13:00:00Z`; else in the pipeline's zone."),
        "offsets": _text(
            "offsets",
            "Offsets",
            "reset to offsets: one line a partition, `topic partition offset`; others stay.",
            format="multiline",
        ),
        "by_offsets": _number("by_offsets", "By (offsets)", "reset by: forwards, or below 0 backwards."),
        "only": _text(
            "only",
            "Only",
            "One line each: `topic`, or `topic partition`. reset, skip-lag, accept-loss: empty means all. "
            "accept-recreation: topics; empty means all that were created again. retire-topic, read-topic-again: "
            "the topic.",
            format="multiline",
        ),
        "keep_offsets": _number("keep_offsets", "Keep (offsets)", "skip-lag: offsets left to read.", minimum=0),
        "margin_offsets": _number(
            "margin_offsets",
            "Margin (offsets)",
            "accept-loss: begin so far above the log start, which retention goes on moving.",
            minimum=0,
        ),
        "begin": _choice(
            "begin",
            "Begin at",
            {LogPlace.EARLIEST: "earliest: the log start", LogPlace.LATEST: "latest: the end of the log"},
            "accept-recreation, accept-cluster: where the new topics are read from.",
        ),
    }


def _other_arguments() -> dict[str, Param]:
    return {
        "former_name": _text("former_name", "Former name", "rename: the name that the ledger knows."),
        "batches": _number("batches", "Batches", "roll-back: how many, the newest that moved the position.", minimum=1),
        "allow_compacted": _flag(
            "allow_compacted",
            "Allow compacted topics",
            "roll-back: go on where compaction may have taken records. **Such records are lost.**",
        ),
        "submit_job": _flag("submit_job", "Submit a job", "preflight: run a small Spark job to look at its packages."),
    }


def _choice(key: str, title: str, texts: dict[Any, str], description: str, *, is_optional: bool = False) -> Param:
    values = [choice.value for choice in texts]
    return Param(
        DEFAULTS[key],
        title=title,
        type=["null", "string"] if is_optional else "string",
        enum=[None, *values] if is_optional else values,
        values_display={choice.value: text for choice, text in texts.items()},
        description_md=description,
    )


def _flag(key: str, title: str, description: str) -> Param:
    return Param(DEFAULTS[key], title=title, type="boolean", description_md=description)


def _text(key: str, title: str, description: str, **schema: Any) -> Param:
    return Param(DEFAULTS[key], title=title, type=["null", "string"], description_md=description, **schema)


def _number(key: str, title: str, description: str, **schema: Any) -> Param:
    kind = "integer" if DEFAULTS[key] is not None else ["null", "integer"]
    return Param(DEFAULTS[key], title=title, type=kind, description_md=description, **schema)
