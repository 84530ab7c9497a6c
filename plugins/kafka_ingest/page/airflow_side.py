"""What the page reads of Airflow: its DAGs and their runs, and its connections.

The page runs in Airflow's API server, which may read Airflow's database (tasks may not, since Airflow 3.0). All of it
is read with four queries, whatever the number of DAGs. The functions block: call them in a thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from airflow.models import Connection
from airflow.models.asset import AssetModel, TaskOutletAssetReference
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.team import Team
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.utils.session import create_session
from sqlalchemy import func, or_, select

from kafka_ingest.connections import connection_values, environment_variable, postgres_params_of
from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.files import ASSET_SCHEME, DAG_ID_PREFIX, connection_of_asset, pipeline_of

if TYPE_CHECKING:
    from sqlalchemy.orm import Session
    from sqlalchemy.sql import Subquery

#: How many of a DAG's newest runs the page shows.
NEWEST_RUNS = 10


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One DAG run. Times are UTC.

    Attributes:
        run_id: The run.
        run_type: ``scheduled``, ``manual``, ``backfill`` or ``asset_triggered``.
        state: ``queued``, ``running``, ``success`` or ``failed``.
        run_after: When it was due.
        started_at: When its first task could begin; ``None`` while it is queued.
        ended_at: When it ended; ``None`` before.
        failed_tasks: Ids of its failed tasks, where the run failed; sorted.
    """

    run_id: str
    run_type: str
    state: str
    run_after: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    failed_tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DagFacts:
    """One DAG that loads pipelines. Times are UTC.

    Attributes:
        dag_id: The DAG.
        pipeline: Name of the pipeline whose file made the DAG; empty for somebody's own DAG.
        connections: Ids of the connections of the databases that its tasks load; sorted.
        is_paused: Whether it is paused.
        schedule: The schedule for people; empty without one.
        due_at: Newest moment at which a scheduled run was due; ``None`` when none ever was.
        next_run_at: When its next scheduled run is due; ``None`` without one.
        runs: The newest runs, newest first, :data:`NEWEST_RUNS` at most.
    """

    dag_id: str
    pipeline: str = ""
    connections: tuple[str, ...] = ()
    is_paused: bool = False
    schedule: str = ""
    due_at: datetime | None = None
    next_run_at: datetime | None = None
    runs: tuple[RunFacts, ...] = ()


class AirflowSide(Protocol):
    """What the page asks of Airflow."""

    def dags(self) -> Sequence[DagFacts]:
        """Return the DAGs that load pipelines, by id."""

    def postgres_params(self, conn_id: str) -> Mapping[str, str]:
        """Return libpq's parameters of a connection of type ``postgres``."""


class AirflowDatabase:
    """The port's implementation: Airflow's database, and its lookup of connections."""

    def dags(self) -> Sequence[DagFacts]:
        """Return the DAGs of pipeline files, and all others whose tasks load into a target, by id."""
        now = datetime.now(UTC)
        with create_session(scoped=False) as session:
            connections = _connections(session)
            dags = list(session.execute(_dags_query(connections)))
            runs = _runs(session, [row.dag_id for row in dags])
        return [_dag_facts(row, connections.get(row.dag_id, ()), runs[row.dag_id], now) for row in dags]

    def postgres_params(self, conn_id: str) -> Mapping[str, str]:
        """Return libpq's parameters of a connection of type ``postgres``.

        Raises:
            ConfigError: There is no such connection, or it cannot be used.
        """
        try:
            stored = Connection.get_connection_from_secrets(conn_id)
        except AirflowNotFoundException:
            raise ConfigError(
                f"There is no Airflow connection {conn_id}",
                expected="a connection of type postgres that Airflow's API server can look up",
                next_command=f"airflow connections add {conn_id} --conn-type postgres --conn-host HOST "
                f"--conn-login USER --conn-password ... --conn-schema DATABASE, or set {environment_variable(conn_id)}",
            ) from None
        return postgres_params_of(connection_values(stored))


def team_names(dag_ids: Collection[str]) -> Mapping[str, str]:
    """Return the teams that own DAGs, where Airflow runs for several teams; DAGs without one are left out."""
    query = (
        select(DagModel.dag_id, Team.name)
        .join(DagBundleModel, DagModel.bundle_name == DagBundleModel.name)
        .join(DagBundleModel.teams)
        .where(DagModel.dag_id.in_(dag_ids))
    )
    with create_session(scoped=False) as session:
        return dict(session.execute(query).tuples())


def _connections(session: Session) -> dict[str, tuple[str, ...]]:
    """Return the connections into whose databases the tasks of each DAG load."""
    query = (
        select(TaskOutletAssetReference.dag_id, AssetModel.uri)
        .join(AssetModel, AssetModel.id == TaskOutletAssetReference.asset_id)
        .where(AssetModel.uri.startswith(ASSET_SCHEME))
    )
    found: dict[str, set[str]] = defaultdict(set)
    for dag_id, uri in session.execute(query):
        found[dag_id].add(connection_of_asset(uri))
    return {dag_id: tuple(sorted(ids)) for dag_id, ids in found.items()}


def _dags_query(loading: Collection[str]) -> Any:
    """Select the DAGs that are there and load something; a DAG whose file is gone is stale."""
    return (
        select(
            DagModel.dag_id,
            DagModel.is_paused,
            DagModel.timetable_summary,
            DagModel.timetable_description,
            DagModel.next_dagrun_create_after,
        )
        .where(DagModel.is_stale.is_(False))
        .where(or_(DagModel.dag_id.startswith(DAG_ID_PREFIX, autoescape=True), DagModel.dag_id.in_(list(loading))))
        .order_by(DagModel.dag_id)
    )


def _newest(dag_ids: Collection[str]) -> Subquery:
    """Select the newest runs of each DAG, with their place, newest first."""
    place = func.row_number().over(partition_by=DagRun.dag_id, order_by=[DagRun.run_after.desc(), DagRun.id.desc()])
    numbered = (
        select(DagRun.id, DagRun.dag_id, DagRun.run_id, DagRun.run_after, place.label("place"))
        .where(DagRun.dag_id.in_(dag_ids))
        .subquery()
    )
    return select(numbered).where(numbered.c.place <= NEWEST_RUNS).subquery()


def _runs(session: Session, dag_ids: Collection[str]) -> Mapping[str, Sequence[RunFacts]]:
    """Return the newest runs of each DAG, newest first, with the failed tasks of failed ones."""
    newest = _newest(dag_ids)
    failed = _failed_tasks(session, newest)
    query = (
        select(
            DagRun.dag_id,
            DagRun.run_id,
            DagRun.run_type,
            DagRun.state,
            DagRun.run_after,
            DagRun.start_date,
            DagRun.end_date,
        )
        .join(newest, newest.c.id == DagRun.id)
        .order_by(newest.c.dag_id, newest.c.place)
    )
    found: dict[str, list[RunFacts]] = defaultdict(list)
    for row in session.execute(query):
        tasks = tuple(sorted(failed[row.dag_id, row.run_id])) if row.state == "failed" else ()
        found[row.dag_id].append(
            RunFacts(
                run_id=row.run_id,
                run_type=str(row.run_type),
                state=str(row.state),
                run_after=row.run_after,
                started_at=row.start_date,
                ended_at=row.end_date,
                failed_tasks=tasks,
            )
        )
    return found


def _failed_tasks(session: Session, newest: Subquery) -> Mapping[tuple[str, str], set[str]]:
    query = (
        select(TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id)
        .join(newest, (newest.c.dag_id == TaskInstance.dag_id) & (newest.c.run_id == TaskInstance.run_id))
        .where(TaskInstance.state == "failed")
    )
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for dag_id, run_id, task_id in session.execute(query):
        found[dag_id, run_id].add(task_id)
    return found


def _dag_facts(row: Any, connections: tuple[str, ...], runs: Sequence[RunFacts], now: datetime) -> DagFacts:
    next_run_at: datetime | None = row.next_dagrun_create_after
    due = [run.run_after for run in runs if run.run_type == "scheduled"]
    # Nothing is due of a DAG that is paused: Airflow keeps the moment, and makes the run when somebody lets it.
    if next_run_at and next_run_at <= now and not row.is_paused:
        due.append(next_run_at)
    prefixed = row.dag_id.startswith(DAG_ID_PREFIX)
    return DagFacts(
        dag_id=row.dag_id,
        pipeline=pipeline_of(row.dag_id) if prefixed else "",
        connections=connections,
        is_paused=row.is_paused,
        schedule=_schedule(row.timetable_summary, row.timetable_description),
        due_at=max(due, default=None),
        next_run_at=next_run_at,
        runs=tuple(runs),
    )


def _schedule(summary: str | None, description: str | None) -> str:
    """Return the expression, after Airflow's words where it has some: ``Every 15 minutes (*/15 * * * *)``."""
    if not summary or summary == "None":
        return ""
    return f"{description} ({summary})" if description else summary
