"""Changes of what binds a pipeline: name, topics, table, identity columns, isolation level. Positions stay.

Table, columns and isolation level are what the pipeline file says: the file is changed first, and its runs stop until
the ledger follows. So the file and the ledger never say different things. Columns are renamed in the table before that:
rows that stand under a former name would never be found again, and a reload would write them a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kafka_ingest.core.change_commands import change_command
from kafka_ingest.core.change_requests import (
    ChangeIdentityColumns,
    ChangeIsolationLevel,
    ChangeTarget,
    PipelineChange,
    RetireTopic,
)
from kafka_ingest.core.change_scope import unknown_topic
from kafka_ingest.core.change_view import ChangeView
from kafka_ingest.core.errors import ConfigError, TargetMismatch
from kafka_ingest.core.ledger_view import PipelineRecord, PlanView
from kafka_ingest.core.log_changes import served_elsewhere
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.position_changes import ChangePlan, SettingChange
from kafka_ingest.core.retired_topics import retired_topics
from kafka_ingest.core.settings import BatchSettings, IdentityColumns, PipelineSettings
from kafka_ingest.core.target_shape import quoted, quoted_table, rename_column, written_columns


def choose_binding(
    change: PipelineChange, settings: PipelineSettings, view: ChangeView, record: PipelineRecord
) -> ChangePlan:
    """Chooses what binds the pipeline from now on; nothing when it is bound so already.

    Args:
        change: What is asked for.
        settings: The pipeline as its file says.
        view: The ledger.
        record: What binds the pipeline now.
    """
    if isinstance(change, RetireTopic):
        return _retirement(change, view.ledger, record)
    if isinstance(change, ChangeTarget):
        return _target(settings, view, record)
    if isinstance(change, ChangeIdentityColumns):
        return _identity_columns(settings, view, record)
    if isinstance(change, ChangeIsolationLevel):
        return _bound(record, replace(record, isolation_level=settings.batch.isolation_level))
    return _renaming(settings, view, record)


def _bound(record: PipelineRecord, after: PipelineRecord) -> ChangePlan:
    if after == record:
        return ChangePlan()
    described = {
        "pipeline": (record.pipeline, after.pipeline),
        "target": (f"{record.target_schema}.{record.target_table}", f"{after.target_schema}.{after.target_table}"),
        "isolation level": (record.isolation_level.value, after.isolation_level.value),
    }
    differing = {name: values for name, values in described.items() if values[0] != values[1]}
    differing |= {f"column of {key}": names for key, names in record.identity.differing(after.identity).items()}
    return ChangePlan(binding=after, settings=tuple(SettingChange(name, *v) for name, v in differing.items()))


def _retirement(change: RetireTopic, view: PlanView, record: PipelineRecord) -> ChangePlan:
    if change.topic in retired_topics(view):
        return ChangePlan()
    is_served = any(
        (s.pipeline, s.cluster_id, s.topic) == (record.pipeline, record.cluster_id, change.topic) for s in view.served
    )
    if is_served:
        return ChangePlan(
            retired_topic=change.topic, settings=(SettingChange(f"topic {change.topic}", "read", "retired"),)
        )
    return ChangePlan(faults=(unknown_topic(change.topic, record.pipeline),))


def _target(settings: PipelineSettings, view: ChangeView, record: PipelineRecord) -> ChangePlan:
    target = settings.batch.target
    after = replace(record, target_schema=target.schema, target_table=target.table)
    if after == record:
        return ChangePlan()
    after = replace(after, identity=settings.batch.metadata.identity)
    columns = _column_faults(record.identity, settings.batch, view.target_columns)
    return replace(_bound(record, after), faults=(*_other_pipelines(view.ledger, after), *columns))


def _identity_columns(settings: PipelineSettings, view: ChangeView, record: PipelineRecord) -> ChangePlan:
    target = settings.batch.target
    plan = _bound(record, replace(record, identity=settings.batch.metadata.identity))
    if plan.binding is None:
        return plan
    if (target.schema, target.table) == (record.target_schema, record.target_table):
        return replace(plan, faults=tuple(_column_faults(record.identity, settings.batch, view.target_columns)))
    fault = PartitionFault(
        ConfigError,
        "target.table",
        expected=f"{record.target_schema}.{record.target_table}, in which the columns were renamed",
        found=str(target),
        next_command=f"restore it, or bind both: {change_command(settings.pipeline, 'change-target')}",
    )
    return replace(plan, faults=(fault,))


def _column_faults(
    before: IdentityColumns, settings: BatchSettings, columns: Mapping[str, str] | None
) -> Iterator[PartitionFault]:
    """Yields one fault where identity columns still have their former names; a table that is not there has no rows."""
    target, renamed = settings.target, before.differing(settings.metadata.identity)
    types = {column.name: column.type for column in written_columns(settings)}
    wrong: dict[str, str] = {}
    for old, new in renamed.values() if columns is not None else ():
        found = (columns or {}).get(new)
        if old in (columns or {}):
            drop = f"drop the empty {new}: ALTER TABLE {quoted_table(target)} DROP COLUMN {quoted(new)}; then "
            wrong[f"{old} is still there"] = (drop if found else "") + rename_column(target, old, new)
        elif found is None:
            wrong[f"neither {old} nor {new}"] = f"restore {old}, then {rename_column(target, old, new)}"
        elif not _keeps(found, types[new]):
            wrong[f"{new} is {found}, not {types[new]}"] = f"name the column that was {old} in the pipeline file"
    if wrong:
        yield PartitionFault(
            TargetMismatch,
            f"table {target}",
            expected=f"columns that were renamed: {', '.join(f'{old} to {new}' for old, new in renamed.values())}",
            found="; ".join(wrong),
            next_command=" ".join(wrong.values()),
        )


def _keeps(found: str, written: str) -> bool:
    """Whether a renamed column can be the one that the pipeline writes; the plan compares all types exactly."""
    integers = ("integer", "bigint")
    if written in integers:
        return found in integers[integers.index(written) :]
    return found not in ("smallint", *integers)


def _other_pipelines(view: PlanView, after: PipelineRecord) -> Iterator[PartitionFault]:
    topics = {position.topic for position in view.positions}
    for served in view.served:
        is_same_log = served.cluster_id == after.cluster_id and served.topic in topics
        if is_same_log and served.pipeline != after.pipeline:
            yield served_elsewhere(served.topic, after, served.pipeline)


def _renaming(settings: PipelineSettings, view: ChangeView, record: PipelineRecord) -> ChangePlan:
    plan = _bound(record, replace(record, pipeline=settings.pipeline))
    if plan.binding is None or not view.name_is_taken:
        return plan
    fault = PartitionFault(
        ConfigError,
        f"the new name {settings.pipeline}",
        expected="a name that the ledger does not know",
        found="a pipeline of that name, with positions of its own",
        next_command="choose another name in the pipeline file",
    )
    return replace(plan, faults=(fault,))
