"""What a request for a batch may do, given what the ledger holds: resume, plan anew, supersede, or come back later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kafka_ingest.core.batch import Batch, BatchState, Request
from kafka_ingest.core.change_commands import change_command
from kafka_ingest.core.errors import Busy, ConfigError, RequestChanged
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.settings import PROTOCOL_VERSION, PipelineSettings
from kafka_ingest.core.target_shape import rename_column


def numbered_request(view: PlanView, request: Request) -> Request:
    """Gives the request of a plan its number: that of the run's newest batch, or the next one.

    The next one only where Airflow reprocesses a run by a backfill: the run was cleared since its newest batch was
    planned, and that batch is committed, or answers something else, as the live batch of a scheduled run that failed
    and is now to be reloaded. Every other clear, and every retry, asks for the batch that the run already has.
    """
    own = view.own
    if own is None:
        return request
    was_cleared = request.clear_number > own.request.clear_number
    is_answered = own.state is BatchState.COMMITTED or own.request.parameters != request.parameters
    return replace(request, number=own.request.number + (was_cleared and is_answered))


def standing_batch(view: PlanView, request: Request, settings_hash: str) -> Batch | None:
    """Gives the batch that already answers the request, or ``None`` when it must be planned (anew).

    A committed batch answers for ever. A planned one answers while settings and protocol are those of this process. A
    superseded or rolled-back one does not answer.

    Raises:
        RequestChanged: The same request came before with other parameters.
    """
    own = view.own
    if own is None or own.request.number != request.number:
        return None
    if own.state in (BatchState.SUPERSEDED, BatchState.ROLLED_BACK):
        return None
    if own.request.parameters != request.parameters:
        raise RequestChanged(
            f"{request} asked before with other parameters",
            expected=own.request.parameters,
            found=request.parameters,
            next_command="start a new run with the new parameters; this run keeps its batch",
            pipeline=own.pipeline,
            batch_id=own.batch_id,
        )
    is_current = own.settings_hash == settings_hash and own.protocol_version == PROTOCOL_VERSION
    return own if own.state is BatchState.COMMITTED or is_current else None


def superseded_batch(view: PlanView, request: Request, is_finished: Callable[[Request], bool]) -> str | None:
    """Gives the outstanding batch that a new plan replaces, or ``None`` when there is none.

    Superseding is safe at any moment, because publishing is fenced; waiting for a live holder only saves its work.

    Args:
        view: The ledger.
        request: Who asks.
        is_finished: Whether the run of a request has ended.

    Raises:
        Busy: Another request holds the pipeline and is alive.
    """
    outstanding = view.outstanding
    if outstanding is None:
        return None
    # Of the same run: the number grows when a backfill reprocesses it.
    is_own = replace(outstanding.request, number=request.number).identity == request.identity
    is_held = view.hold is not None and view.hold.hold_until > view.now
    if is_own or not is_held or is_finished(outstanding.request):
        return outstanding.batch_id
    assert view.hold is not None  # noqa: S101 - follows from is_held
    raise Busy(
        "another request holds the pipeline",
        expected="a free pipeline, or a holder that has ended or given no sign of life",
        found=(
            f"{outstanding.request}, step {view.hold.step}, {view.hold.staged_offsets} of {view.hold.total_offsets} "
            f"offsets staged, hold until {view.hold.hold_until.isoformat(timespec='seconds')}"
        ),
        next_command=(
            f"ask again after {view.hold.hold_until:%H:%M:%S} UTC: a holder that lives holds on, any other is replaced"
        ),
        pipeline=outstanding.pipeline,
        batch_id=outstanding.batch_id,
    )


def require_bound_settings(view: PlanView, settings: PipelineSettings) -> None:
    """Refuses a pipeline file that changes what the first plan has bound: table, identity columns, isolation level.

    It must come before anything looks at the table: a column that the table lacks could just be added, and what was
    loaded before would never be found again.

    Raises:
        ConfigError: Lists what differs.
    """
    record, batch = view.pipeline, settings.batch
    if record is None:
        return
    bound = {
        "target.table": (f"{record.target_schema}.{record.target_table}", str(batch.target), "change-target"),
        "kafka.isolation_level": (record.isolation_level.value, batch.isolation_level.value, "change-isolation-level"),
    }
    differing = {key: values for key, values in bound.items() if values[0] != values[1]}
    commands = [change_command(settings.pipeline, kind) for _, _, kind in differing.values()]
    if renamed := record.identity.differing(batch.metadata.identity):
        differing |= {f"metadata_columns.{key}": (*names, "") for key, names in renamed.items()}
        if "target.table" not in differing:  # change-target binds the names, too
            renames = [rename_column(batch.target, *names) for names in renamed.values()]
            command = change_command(settings.pipeline, "change-identity-columns")
            commands.append(
                f"first {' '.join(renames)} (never ADD COLUMN: loaded rows are found by it), then {command}"
            )
    if differing:
        raise ConfigError(
            "the pipeline file changes settings that its first plan has bound",
            expected="; ".join(f"{key}: {stored}" for key, (stored, _, _) in differing.items()),
            found="; ".join(f"{key}: {given}" for key, (_, given, _) in differing.items()),
            next_command=f"restore these keys, or let the ledger follow the file: {'; '.join(commands)}",
            pipeline=settings.pipeline,
        )
