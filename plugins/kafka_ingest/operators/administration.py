"""The administration DAG, its form and its task: preflight, position changes and roll-backs from Airflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.sdk import DAG, BaseOperator, Param

from kafka_ingest.errors import ConfigError
from kafka_ingest.forms.change import (
    DEFAULTS,
    LABELS,
    AdministrationKind,
    ChangeOrder,
    Order,
    PreflightRequest,
    ResetTo,
    RollBackOrder,
    kinds_of,
    read_order,
)
from kafka_ingest.forms.values import GREATEST_NUMBER
from kafka_ingest.operators.context import airflow_outcome
from kafka_ingest.pipeline_files.files import PipelineCatalog, one_pipeline
from kafka_ingest.preflight.facts import CheckResult, Verdict, is_ready
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.change_requests import LogPlace
from kafka_ingest.protocol.changes import apply_change, preview_change
from kafka_ingest.protocol.position import PartitionFault, fault_error
from kafka_ingest.protocol.roll_back import preview_roll_back, roll_back
from kafka_ingest.report import (
    CHANGE_COLUMNS,
    ROLL_BACK_COLUMNS,
    SETTING_COLUMNS,
    UNDONE_COLUMNS,
    Row,
    change_rows,
    lowered_rows,
    setting_rows,
    table,
    undone_rows,
)
from kafka_ingest.settings import PipelineSettings

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import DagRunProtocol

    from kafka_ingest.world import World


# ----------
# The form that Airflow shows when somebody triggers the administration DAG: the keys of ``core.administration_form``.
#
# The schema keeps the kinds of values apart, so that Airflow shows the right field for each. What the keys say about
# each other is checked by ``core.administration_form``, with every fault in one message. The same module says which
# kinds a key belongs to, so a section of the form names them, and is closed until somebody opens it.
#
# Airflow's form (3.3.2, ``ui/src/components/FlexibleForm``) knows no field that depends on another. It marks a field as
# required, and shows it in red while it is empty, when its type does not allow null: so types do that have no value
# from the start. A choice of nothing reads ``null`` unless ``values_display`` has a text for ``None``.

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


# ----------
# Task *administer*: preflight, position changes and roll-backs from Airflow, with the steps of the command line.

_CHECK_COLUMNS = ("check", "result", "found", "fix")
_SHOWN = "This is what would happen; nothing was changed. To do it, trigger the DAG again with Apply ticked."


class AdministrationOperator(BaseOperator):
    """Does, or only shows, what the run's form asks for.

    The run's id is the request's id, so a retry or a cleared task finds what it has done before and does it once. Who
    asks is the Airflow user who triggered the run.

    Returns:
        The rows that the log shows, and whether anything was applied; JSON-safe.

    Args:
        folder: ``pipelines`` beside the DAG file.
    """

    ui_color = "#f3d9c9"

    def __init__(self, *, folder: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = folder

    def execute(self, context: Context) -> dict[str, Any]:
        """Do it.

        Raises:
            AirflowException: As ``operators/context.py`` says.
        """
        dag_run = context["dag_run"]
        assert dag_run is not None  # noqa: S101 - a running task has a run
        with airflow_outcome(self.log):
            form: Mapping[str, Any] = dag_run.conf or {}
            settings = self._pipeline(form)
            order = read_order(
                form,
                zone=settings.schedule.timezone if settings else "UTC",
                who=who_asks(dag_run),
                request_id=dag_run.run_id,
            )
            # A form without a pipeline is refused by read_order.
            assert settings is not None  # noqa: S101
            return self._done(settings, order)

    def _pipeline(self, form: Mapping[str, Any]) -> PipelineSettings | None:
        name = form.get("pipeline")
        return one_pipeline(name.strip(), self.folder) if isinstance(name, str) and name.strip() else None

    def _done(self, settings: PipelineSettings, order: Order) -> dict[str, Any]:
        # Imported now: a world brings the clients of Kafka and PostgreSQL along.
        from kafka_ingest.operators.lookup import world_of

        world = world_of(settings)
        if isinstance(order, PreflightRequest):
            return self._preflight(world, order)
        if isinstance(order, ChangeOrder):
            return self._change(world, order) if order.apply else self._show_change(world, order)
        return self._roll_back(world, order) if order.apply else self._show_roll_back(world, order)

    def _preflight(self, world: World, order: PreflightRequest) -> dict[str, Any]:
        from kafka_ingest.preflight.preflight import preflight

        results = preflight(world.pipeline, world.preflight_ports(), submit_job=order.submit_job)
        rows = [{"check": r.check, "result": r.result.value, "found": r.found, "fix": r.fix} for r in results]
        self._log_table(rows, _CHECK_COLUMNS)
        _require_ready(world.pipeline.pipeline, results)
        return {"applied": False, "checks": rows}

    def _show_change(self, world: World, order: ChangeOrder) -> dict[str, Any]:
        preview = preview_change(world.pipeline, order.request, world.change_ports())
        if preview.recorded:
            self.log.info("This request was applied at %s by %s", preview.recorded.at, preview.recorded.who)
        positions, bindings = change_rows(preview.plan.positions), setting_rows(preview.plan.settings)
        self._log_change(positions, bindings)
        self._warn_of(preview.outstanding, supersede=order.request.supersede)
        _require_no_faults(world.pipeline.pipeline, preview.plan.faults)
        self.log.info(_SHOWN)
        return {"applied": False, "positions": positions, "settings": bindings}

    def _change(self, world: World, order: ChangeOrder) -> dict[str, Any]:
        done = apply_change(world.pipeline, order.request, world.change_ports())
        positions, bindings = change_rows(done.positions), setting_rows(done.settings)
        self._log_change(positions, bindings)
        self.log.info("Recorded as %s of %s at %s: %s", done.kind, done.who, done.at, done.why)
        self._log_superseded(done.superseded)
        return {"applied": True, "positions": positions, "settings": bindings}

    def _show_roll_back(self, world: World, order: RollBackOrder) -> dict[str, Any]:
        plan = preview_roll_back(order.request, world.roll_back_ports())
        rows, batch_ids = lowered_rows(plan.positions), [batch.batch_id for batch in plan.batches]
        self.log.info("Batches, the newest first: %s", ", ".join(batch_ids) or "none")
        self._log_table(rows, ROLL_BACK_COLUMNS)
        _require_no_faults(world.pipeline.pipeline, plan.faults)
        self.log.info(_SHOWN)
        return {"applied": False, "positions": rows, "batch_ids": batch_ids}

    def _roll_back(self, world: World, order: RollBackOrder) -> dict[str, Any]:
        record = roll_back(order.request, world.roll_back_ports())
        rows = undone_rows(record.spans)
        self.log.info("Rolled back, the newest first: %s", ", ".join(record.batch_ids))
        self._log_table(rows, UNDONE_COLUMNS)
        self._log_superseded(record.superseded)
        return {"applied": True, "positions": rows, "batch_ids": list(record.batch_ids)}

    def _log_change(self, positions: Sequence[Row], bindings: Sequence[Row]) -> None:
        if bindings:
            self._log_table(bindings, SETTING_COLUMNS)
        if positions or not bindings:
            self._log_table(positions, CHANGE_COLUMNS)

    def _log_table(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        self.log.info("%s", "\n" + table(rows, columns) if rows else "No position changes")

    def _warn_of(self, outstanding: Batch | None, *, supersede: bool) -> None:
        if outstanding:
            becomes = "it would be superseded" if supersede else "the change would be refused: tick Supersede, or wait"
            self.log.warning("Batch %s of %s is outstanding: %s", outstanding.batch_id, outstanding.request, becomes)

    def _log_superseded(self, batch_id: str | None) -> None:
        if batch_id:
            self.log.info("Batch %s was outstanding and is superseded", batch_id)


def who_asks(dag_run: DagRunProtocol) -> str:
    """Return the Airflow user who triggered a run; ``airflow`` where Airflow does not know one."""
    return dag_run.triggering_user_name or "airflow"


def _require_no_faults(pipeline: str, faults: Sequence[PartitionFault]) -> None:
    if faults:
        raise fault_error(faults, pipeline)


def _require_ready(pipeline: str, results: Sequence[CheckResult]) -> None:
    if is_ready(results):
        return
    failed = [result for result in results if result.result is Verdict.FAIL]
    raise ConfigError(
        f"{len(failed)} checks of the pipeline fail",
        expected="every check to pass, or to warn",
        found="\n".join(f"{result.check}: {result.found}" for result in failed),
        next_command="; ".join(dict.fromkeys(result.fix for result in failed if result.fix)),
        pipeline=pipeline,
    )


# ----------
# The DAG ``kafka_ingest_administration``: one task with a form, triggered by hand.

_DOC = """\
Everything that moves a pipeline's positions without a batch, and a look at what a pipeline rests on. **Trigger** it and
fill in the form; nothing is changed until **Apply** is ticked.

1. Trigger it without **Apply**: the log of `administer` shows what would happen, and every reason why it would be
   refused.
2. Trigger it again with the same values and **Apply**. It is done in one transaction and recorded in
   `kafka_ingest.position_change` with your name, the reason, from and to. The run's id is the request's id: a retry or
   a cleared task does it once.

Any number of runs may go on at once; the ledger takes one change after the other. The same without Airflow:
`python -m kafka_ingest change`, `roll-back` and `preflight`. Which one, when, and what it does to table and position:
`docs/operating.md`.
"""


def administration_dag(catalog: PipelineCatalog, folder: Path) -> DAG:
    """Build the DAG. No connection is looked up and nothing is asked over the network.

    Args:
        catalog: All pipelines, for the form.
        folder: ``pipelines`` beside the DAG file, where the task reads the chosen one.
    """
    with DAG(
        dag_id="kafka_ingest_administration",
        description="Preflight, reset, accept loss or new logs, rename, retire, roll back: shown first, then applied",
        doc_md=_DOC,
        schedule=None,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        catchup=False,
        tags=["kafka-ingest"],
        params=administration_params([pipeline.pipeline for pipeline in catalog.pipelines]),
        default_args={
            "owner": "data-platform",
            "retries": 2,
            "retry_delay": timedelta(minutes=1),
            # A roll-back deletes rows one identity after the other: minutes for millions.
            "execution_timeout": timedelta(hours=2),
        },
    ) as dag:
        AdministrationOperator(task_id="administer", folder=folder)
    return dag
