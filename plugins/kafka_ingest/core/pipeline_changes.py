"""Changes of what binds a pipeline: its name, its topics, its table, its isolation level. Positions stay.

Target and isolation level are what the pipeline file says: the file is changed first, and its runs stop until the
ledger follows. So the file and the ledger never say different things.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kafka_ingest.core.change_requests import ChangeIsolationLevel, ChangeTarget, PipelineChange, RetireTopic
from kafka_ingest.core.change_scope import unknown_topic
from kafka_ingest.core.change_view import ChangeView
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.ledger_view import PipelineRecord, PlanView
from kafka_ingest.core.log_changes import served_elsewhere
from kafka_ingest.core.partition_faults import PartitionFault
from kafka_ingest.core.position_changes import ChangePlan, SettingChange
from kafka_ingest.core.retired_topics import retired_topics
from kafka_ingest.core.settings import PipelineSettings


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
        return _target(settings, view.ledger, record)
    if isinstance(change, ChangeIsolationLevel):
        level = settings.batch.isolation_level
        return _bound(record, replace(record, isolation_level=level), "isolation level")
    return _renaming(settings, view, record)


def _bound(record: PipelineRecord, after: PipelineRecord, name: str) -> ChangePlan:
    if after == record:
        return ChangePlan()
    described = {
        "pipeline": (record.pipeline, after.pipeline),
        "target": tuple(f"{r.target_schema}.{r.target_table}" for r in (record, after)),
        "isolation level": (record.isolation_level.value, after.isolation_level.value),
    }
    return ChangePlan(binding=after, settings=(SettingChange(name, *described[name]),))


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


def _target(settings: PipelineSettings, view: PlanView, record: PipelineRecord) -> ChangePlan:
    target = settings.batch.target
    after = replace(record, target_schema=target.schema, target_table=target.table)
    plan = _bound(record, after, "target")
    return plan if plan.binding is None else replace(plan, faults=tuple(_other_pipelines(view, after)))


def _other_pipelines(view: PlanView, after: PipelineRecord) -> Iterator[PartitionFault]:
    topics = {position.topic for position in view.positions}
    for served in view.served:
        is_same_log = served.cluster_id == after.cluster_id and served.topic in topics
        if is_same_log and served.pipeline != after.pipeline:
            yield served_elsewhere(served.topic, after, served.pipeline)


def _renaming(settings: PipelineSettings, view: ChangeView, record: PipelineRecord) -> ChangePlan:
    plan = _bound(record, replace(record, pipeline=settings.pipeline), "pipeline")
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
