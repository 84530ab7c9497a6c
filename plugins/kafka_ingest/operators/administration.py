"""The administration DAG, its form and its task: preflight, position changes and roll-backs from Airflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.sdk import DAG, BaseOperator, Param

from kafka_ingest import report
from kafka_ingest.errors import ConfigError, PartitionFault, fault_error
from kafka_ingest.forms.change import FIELDS
from kafka_ingest.forms.order import ListRequest, Order, PreflightRequest, read_order
from kafka_ingest.operators.context import airflow_outcome, form_params
from kafka_ingest.pipeline_files.files import ADMINISTRATION_DAG_ID, PipelineCatalog, one_pipeline
from kafka_ingest.preflight.checks import CheckResult, Verdict, is_ready
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.changes import apply_change, preview_change
from kafka_ingest.protocol.dead_letters import DeadLetterRequest
from kafka_ingest.protocol.decisions import ChangeRequest
from kafka_ingest.protocol.roll_back import RollBackRequest, preview_roll_back, roll_back
from kafka_ingest.settings import PipelineSettings

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import DagRunProtocol

    from kafka_ingest.full_world import FullWorld


# ----------
# The form: the fields of ``forms.change``.


def administration_params(pipelines: Sequence[str]) -> dict[str, Param]:
    """Return the form of a change, with the names of the pipelines to choose from."""
    params = form_params(FIELDS)
    # An enum without values is no valid schema, and a deployment may have no pipeline yet. Null is none of the values:
    # Airflow refuses a form without a pipeline when it is sent.
    if pipelines:
        params["pipeline"].schema["enum"] = sorted(pipelines)
    return params


# ----------
# The task: preflight, position changes and roll-backs, with the steps of the command line.

_CHECK_COLUMNS = ("check", "result", "found", "fix")
_COUNT_COLUMNS = ("reason", "standing", "records", "first_at", "last_at")
_LETTER_COLUMNS = ("topic", "partition", "offset", "record_time", "reason", "detail", "resolution")
#: A log is read from top to bottom; the command line exports any number.
_MOST_LISTED = 50
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
        from kafka_ingest.full_world import FullWorld
        from kafka_ingest.operators.lookup import airflow_connection

        world, request = FullWorld(settings, airflow_connection), order.request
        if isinstance(request, PreflightRequest):
            return self._preflight(world, request)
        if isinstance(request, ListRequest):
            return self._list_dead_letters(world, request)
        if isinstance(request, DeadLetterRequest):
            return self._resolve_dead_letters(world, request, apply=order.apply)
        if isinstance(request, ChangeRequest):
            return self._change(world, request) if order.apply else self._show_change(world, request)
        return self._roll_back(world, request) if order.apply else self._show_roll_back(world, request)

    def _preflight(self, world: FullWorld, request: PreflightRequest) -> dict[str, Any]:
        results = world.preflight(submit_job=request.submit_job)
        rows = [{"check": r.check, "result": r.result.value, "found": r.found, "fix": r.fix} for r in results]
        self._log_table(rows, _CHECK_COLUMNS)
        _require_ready(world.pipeline.pipeline, results)
        return {"applied": False, "checks": rows}

    def _show_change(self, world: FullWorld, request: ChangeRequest) -> dict[str, Any]:
        preview = preview_change(world.pipeline, request, world.change_ports())
        if preview.recorded:
            self.log.info("This request was applied at %s by %s", preview.recorded.at, preview.recorded.who)
        positions, bindings = report.change_rows(preview.plan.positions), report.setting_rows(preview.plan.settings)
        self._log_change(positions, bindings)
        self._warn_of(preview.outstanding, supersede=request.supersede)
        _require_no_faults(world.pipeline.pipeline, preview.plan.faults)
        self.log.info(_SHOWN)
        return {"applied": False, "positions": positions, "settings": bindings}

    def _change(self, world: FullWorld, request: ChangeRequest) -> dict[str, Any]:
        done = apply_change(world.pipeline, request, world.change_ports())
        positions, bindings = report.change_rows(done.positions), report.setting_rows(done.settings)
        self._log_change(positions, bindings)
        self.log.info("Recorded as %s of %s at %s: %s", done.kind, done.who, done.at, done.why)
        self._log_superseded(done.superseded)
        return {"applied": True, "positions": positions, "settings": bindings}

    def _show_roll_back(self, world: FullWorld, request: RollBackRequest) -> dict[str, Any]:
        plan = preview_roll_back(request, world.roll_back_ports())
        rows, batch_ids = report.lowered_rows(plan.positions), [batch.batch_id for batch in plan.batches]
        self.log.info("Batches, the newest first: %s", ", ".join(batch_ids) or "none")
        self._log_table(rows, report.ROLL_BACK_COLUMNS)
        _require_no_faults(world.pipeline.pipeline, plan.faults)
        self.log.info(_SHOWN)
        return {"applied": False, "positions": rows, "batch_ids": batch_ids}

    def _roll_back(self, world: FullWorld, request: RollBackRequest) -> dict[str, Any]:
        record = roll_back(request, world.roll_back_ports())
        rows = report.undone_rows(record.spans)
        self.log.info("Rolled back, the newest first: %s", ", ".join(record.batch_ids))
        self._log_table(rows, report.UNDONE_COLUMNS)
        self._log_superseded(record.superseded)
        return {"applied": True, "positions": rows, "batch_ids": list(record.batch_ids)}

    def _list_dead_letters(self, world: FullWorld, request: ListRequest) -> dict[str, Any]:
        reports, choice = world.reports(), request.choice
        counts = reports.dead_letter_counts(request.pipeline, choice, is_resolved=None)
        self.log.info("%s", f"\n{report.table(counts, _COUNT_COLUMNS)}" if counts else "No dead letters are chosen")
        first = replace(choice, limit=min(choice.limit or _MOST_LISTED, _MOST_LISTED))
        # Nothing of the payload: it may be personal data.
        rows = reports.dead_letters(request.pipeline, first, is_resolved=None, excerpt=0)
        if rows:
            self.log.info("The first of them:\n%s", report.table(rows, _LETTER_COLUMNS))
        listed = [{key: row[key] for key in ("reason", "standing", "records")} for row in counts]
        return {"applied": False, "dead_letters": listed}

    def _resolve_dead_letters(self, world: FullWorld, request: DeadLetterRequest, *, apply: bool) -> dict[str, Any]:
        told = world.resolve_dead_letters(request, apply=apply, tell=lambda line: self.log.info("%s", line))
        rows = report.outcome_rows(told.outcome)
        table = f"\n{report.table(rows, report.OUTCOME_COLUMNS)}" if rows else "No dead letters are chosen"
        self.log.info("%s", table)
        for line in report.outcome_remarks(told):
            self.log.info("%s", line)
        if told.recorded is None:
            self.log.info(_SHOWN)
        return {"applied": apply, "dead_letters": rows}

    def _log_change(self, positions: Sequence[report.Row], bindings: Sequence[report.Row]) -> None:
        if bindings:
            self._log_table(bindings, report.SETTING_COLUMNS)
        if positions or not bindings:
            self._log_table(positions, report.CHANGE_COLUMNS)

    def _log_table(self, rows: Sequence[report.Row], columns: Sequence[str]) -> None:
        self.log.info("%s", "\n" + report.table(rows, columns) if rows else "No position changes")

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
# The administration DAG: one task with a form, triggered by hand.

_DOC = """\
Everything that moves a pipeline's positions without a batch, dead letters that come back, and a look at what a pipeline
rests on. **Trigger** it and fill in the form; nothing is changed until **Apply** is ticked.

1. Trigger it without **Apply**: the log of `administer` shows what would happen, and every reason why it would be
   refused.
2. Trigger it again with the same values and **Apply**. It is done in one transaction and recorded in
   `kafka_ingest.position_change`, or `dead_letter_request`, with your name and the reason. The run's id is the
   request's id: a retry or a cleared task does it once.

Any number of runs may go on at once; the ledger takes one change after the other. The same without Airflow:
`python -m kafka_ingest change`, `roll-back`, `dead-letters` and `preflight`. Which one, when, and what it does to
table and position: `docs/operating.md`.
"""


_TASK_DOC = """\
Shows what the form asks for; with **Apply** ticked, does it.

- **Red**: nothing was changed. The log says what stands in the way, and the next command.
- **Press**: *Clear*, once the cause is gone: the same request is done once, however often. For other values, or to
  apply what was shown, *Trigger* a new run.
"""


def administration_dag(catalog: PipelineCatalog, folder: Path) -> DAG:
    """Build the DAG. No connection is looked up and nothing is asked over the network.

    Args:
        catalog: All pipelines, for the form.
        folder: ``pipelines`` beside the DAG file, where the task reads the chosen one.
    """
    with DAG(
        dag_id=ADMINISTRATION_DAG_ID,
        description="Preflight, reset, accept loss or new logs, rename, retire, roll back, replay: shown, then applied",
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
        AdministrationOperator(task_id="administer", folder=folder, doc_md=_TASK_DOC)
    return dag
