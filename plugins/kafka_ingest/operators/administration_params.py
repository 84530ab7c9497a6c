"""The form that Airflow shows when somebody triggers the administration DAG: the keys of ``core.administration_form``.

The schema keeps the kinds of values apart, so that Airflow shows the right field for each. What the keys say about each
other is checked by ``core.administration_form``, with every fault in one message. The same module says which kinds a
key belongs to, so a section of the form names them, and is closed until somebody opens it.

Airflow's form (3.3.2, ``ui/src/components/FlexibleForm``) knows no field that depends on another. It marks a field as
required, and shows it in red while it is empty, when its type does not allow null: so types do that have no value from
the start. A choice of nothing reads ``null`` unless ``values_display`` has a text for ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Param

from kafka_ingest.core.administration_form import DEFAULTS, LABELS, AdministrationKind, ResetTo, kinds_of
from kafka_ingest.core.change_requests import LogPlace
from kafka_ingest.core.form_values import GREATEST_NUMBER

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
    """Give the form. As it stands it changes nothing, and nothing is filled in that a kind would refuse.

    Args:
        pipelines: Names of the pipelines.
    """
    return {**_what_to_do(pipelines), **_positions(), **_other_arguments()}


def _what_to_do(pipelines: Sequence[str]) -> dict[str, Param]:
    # An enum without values is no valid schema, and a deployment may have no pipeline yet. Null is none of the values:
    # Airflow refuses a form without a pipeline when it is sent.
    names: dict[str, Any] = {"enum": sorted(pipelines)} if pipelines else {}
    return {
        "pipeline": _param("pipeline", ["null", "string"], "The pipeline, by the name in its file.", **names),
        "kind": _choice(
            "kind",
            {kind: f"{kind}: {text}" for kind, text in _KINDS.items()},
            "What is to be done. What it needs to know is asked in the sections below that name it; fields of other "
            "sections stay empty.",
        ),
        "apply": _flag("apply", "**Do it.** Without it the task only shows what would happen, and changes nothing."),
        "reason": _text(
            "reason", "Why. Required for every change; stored in the ledger with your name and the run id."
        ),
        "supersede": _flag(
            "supersede",
            "Take a batch out of the way that is planned or being loaded; without it the change is refused while there "
            "is one. Safe at any moment: what its attempt has staged is wasted, nothing else.",
        ),
    }


def _positions() -> dict[str, Param]:
    return {
        "reset_to": _choice("reset_to", _RESETS, "Where the positions go.", nothing="(choose)"),
        "time": _text("time", "Reset to time: such as `2026-01-31T13:00:00Z`; else in the pipeline's zone."),
        "offsets": _text(
            "offsets",
            "Reset to offsets: one line a partition, `topic partition offset`; others stay.",
            format="multiline",
        ),
        "by_offsets": _number("by_offsets", "Reset by: forwards, or below 0 backwards."),
        "only": _text(
            "only",
            "One line each: `topic`, or `topic partition`. reset, skip-lag, accept-loss: empty means all. "
            "accept-recreation: topics; empty means all that were created again. retire-topic, read-topic-again: "
            "the topic.",
            format="multiline",
        ),
        "keep_offsets": _number("keep_offsets", "Offsets left to read.", minimum=0),
        "margin_offsets": _number(
            "margin_offsets",
            "Begin so far above the log start, which retention goes on moving; empty means 0.",
            minimum=0,
        ),
        "begin": _choice(
            "begin",
            {LogPlace.EARLIEST: "earliest: the log start", LogPlace.LATEST: "latest: the end of the log"},
            "Where the new topics are read from.",
            nothing=f"({DEFAULTS['begin']})",
        ),
    }


def _other_arguments() -> dict[str, Param]:
    return {
        "former_name": _text("former_name", "The name that the ledger knows."),
        "batches": _number("batches", "How many, the newest that moved the position.", minimum=1),
        "allow_compacted": _flag(
            "allow_compacted", "Go on where compaction may have taken records. **Such records are lost.**"
        ),
        "submit_job": _flag("submit_job", "Run a small Spark job to look at its packages."),
    }


def _choice(key: str, texts: Mapping[Any, str], description: str, *, nothing: str = "") -> Param:
    values = [choice.value for choice in texts]
    shown = {choice.value: text for choice, text in texts.items()}
    if not nothing:
        return _param(key, "string", description, default=DEFAULTS[key], enum=values, values_display=shown)
    enum = [None, *values]
    return _param(key, ["null", "string"], description, enum=enum, values_display={"None": nothing, **shown})


def _flag(key: str, description: str) -> Param:
    return _param(key, ["null", "boolean"], description, default=DEFAULTS[key])


def _text(key: str, description: str, **schema: Any) -> Param:
    return _param(key, ["null", "string"], description, **schema)


def _number(key: str, description: str, **schema: Any) -> Param:
    return _param(key, ["null", "integer"], description, maximum=GREATEST_NUMBER, **schema)


def _param(key: str, kind: str | list[str], description: str, *, default: object = None, **schema: Any) -> Param:
    """Give a field under its label, in the section of the kinds that it belongs to."""
    if kinds := kinds_of(key):
        schema["section"] = f"Only for {', '.join(kinds)}"
    return Param(default, title=LABELS[key], type=kind, description_md=description, **schema)
