"""Where the page leads to: its own pages, Airflow's, and Airflow's forms with their values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from kafka_ingest.forms.values import GREATEST_NUMBER
from kafka_ingest.page.states import Standing, State
from kafka_ingest.pipeline_files.files import ADMINISTRATION_DAG_ID, PAGE_MOUNT, dag_id_of
from kafka_ingest.postgres.overview import RecordPlace


def _path(*parts: object) -> str:
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def _query(**values: object) -> str:
    given = {name: value for name, value in values.items() if value not in (None, "")}
    return f"?{urlencode(given)}" if given else ""


@dataclass(frozen=True, slots=True)
class FormLink:
    """One of Airflow's forms, and what to fill it in with.

    Attributes:
        dag_id: The DAG whose trigger form it is.
        href: Its address.
        conf: The values as JSON, for the form's field "Configuration JSON".
    """

    dag_id: str
    href: str
    conf: str


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses below one mount; Airflow may be served below a prefix.

    Attributes:
        root: Path of the page, without a slash at its end.
    """

    root: str

    @property
    def airflow(self) -> str:
        """Path of Airflow's UI, without a slash at its end."""
        return self.root.removesuffix(PAGE_MOUNT)

    def overview(self) -> str:
        """All pipelines."""
        return f"{self.root}/"

    def static(self, path: str) -> str:
        """Return the address of a file of the page."""
        return f"{self.root}/static/{path}"

    def pipeline(self, one: Standing) -> str:
        """One pipeline."""
        return f"{self.root}{_path('pipelines', one.pipeline)}{_query(connection=one.connection)}"

    def batch(self, batch_id: str, connection: str) -> str:
        """One batch."""
        return f"{self.root}{_path('batches', batch_id)}{_query(connection=connection)}"

    def dead_letters(self, one: Standing, **chosen: object) -> str:
        """Dead letters of a pipeline, all or those of a choice."""
        chosen = {"connection": one.connection, **chosen}
        return f"{self.root}{_path('pipelines', one.pipeline, 'dead-letters')}{_query(**chosen)}"

    def download(self, one: Standing, **chosen: object) -> str:
        """Dead letters of a pipeline as JSON lines."""
        chosen = {"connection": one.connection, **chosen}
        return f"{self.root}{_path('pipelines', one.pipeline, 'dead-letters.jsonl')}{_query(**chosen)}"

    def dag(self, dag_id: str) -> str:
        """Airflow's page of a DAG."""
        return f"{self.airflow}{_path('dags', dag_id)}"

    def run(self, dag_id: str, run_id: str) -> str:
        """Airflow's page of a run."""
        return f"{self.airflow}{_path('dags', dag_id, 'runs', run_id)}"

    def task_log(self, attempt: Mapping[str, Any]) -> str:
        """Airflow's page of a task's try, which shows its log."""
        parts: list[object] = ["dags", attempt["dag_id"], "runs", attempt["run_id"], "tasks", attempt["task_id"]]
        if attempt["map_index"] >= 0:
            parts += ["mapped", attempt["map_index"]]
        return f"{self.airflow}{_path(*parts)}{_query(try_number=attempt['try_number'])}"

    def form(self, dag_id: str, values: Mapping[str, Any]) -> FormLink:
        """Return a DAG's trigger form, with the values to fill in."""
        conf = json.dumps(values, ensure_ascii=False, indent=2)
        return FormLink(dag_id, self.dag(dag_id), conf)


# ----------
# What to press.


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a person can do about a pipeline; the page itself changes nothing.

    Attributes:
        title: What it is called.
        text: What it does, and when to do it.
        form: The form that does it, where it is one.
        href: Where it is done, where that is no form.
        button: What stands on the link there.
        command: The command that does the same; empty where there is none.
    """

    title: str
    text: str
    form: FormLink | None = None
    href: str = ""
    button: str = ""
    command: str = ""


def _administration(links: Links, pipeline: str, **values: object) -> FormLink:
    return links.form(ADMINISTRATION_DAG_ID, {"pipeline": pipeline, **values})


def next_steps(one: Standing, links: Links) -> Iterator[Action]:
    """Yield what resolves the state of a pipeline, the most likely first; nothing where all is well."""
    if one.state is State.LOSING and one.summary["partitions_losing"]:
        yield accept_loss(one, links)
    elif (fault := one.newest_fault) in _DECISIONS:
        yield _DECISIONS[fault](one, links)
    if run := one.clearable_run:
        yield Action(
            "Clear the run",
            "When the cause that its message names is gone, clear the run in Airflow: its tasks are tried again, and "
            "what it loads is there exactly once.",
            href=links.run(*run),
            button="Open the run",
        )
    if one.dag and one.dag.is_paused:
        yield Action(
            "Unpause the DAG",
            "Runs that wait begin, its schedule goes on, and it catches up in batches.",
            href=links.dag(one.dag_id),
            button="Open the DAG",
        )
    is_stuck = one.state is State.STUCK and not one.clearable_run
    if is_stuck or one.state in (State.LATE, State.NOT_STARTED, State.LOSING):
        yield from run_now(one, links)


def run_now(one: Standing, links: Links) -> Iterator[Action]:
    """Yield the way to start a run, or to the one that goes on."""
    if run := one.active_run:
        yield Action(
            "Look at the active run",
            "It holds the pipeline until it ends." if run.state == "running" else "It has not started yet.",
            href=links.run(one.dag_id, run.run_id),
            button="Open the run",
        )
    elif has_form(one):
        yield Action(
            "Start a run",
            "It goes on from the committed offsets, as a scheduled run does.",
            form=links.form(one.dag_id, {"mode": "live"}),
            command=f"python -m kafka_ingest run {one.pipeline}",
        )


def has_form(one: Standing) -> bool:
    """Whether the pipeline's DAG is its own, and so has the form of a run."""
    return one.dag is not None and one.dag_id == dag_id_of(one.pipeline)


def accept_loss(one: Standing, links: Links) -> Action:
    """Return how to go on where retention took records."""
    return Action(
        "Accept the loss",
        "Go on at the log start. The records in between are gone from Kafka, and the ledger keeps which they were.",
        form=_administration(links, one.pipeline, kind="accept-loss", reason=""),
        command=f'python -m kafka_ingest change {one.pipeline} accept-loss --reason "..."',
    )


def accept_recreation(one: Standing, links: Links) -> Action:
    """Return how to go on with a topic that was deleted and made again."""
    return Action(
        "Accept the new topic",
        "Read it from its beginning, as a new generation; rows of the old one stay. First find out who deleted it.",
        form=_administration(links, one.pipeline, kind="accept-recreation", reason=""),
        command=f'python -m kafka_ingest change {one.pipeline} accept-recreation --reason "..."',
    )


#: Faults that a person has to decide about before a run can go on, and how the likely decision is made.
_DECISIONS: Mapping[str, Callable[[Standing, Links], Action]] = {
    "OffsetsExpired": accept_loss,
    "TopicRecreated": accept_recreation,
}


def of_pipeline(one: Standing, links: Links) -> Iterator[Action]:
    """Yield all that can be done about a pipeline."""
    yield from run_now(one, links)
    if has_form(one):
        yield Action(
            "Reload a span",
            "Read a span of time again and replace its rows in one transaction. Fill in from, to and the reason.",
            form=links.form(one.dag_id, {"mode": "reload", "from": "", "to": "", "reason": ""}),
            command=f'python -m kafka_ingest run {one.pipeline} --mode reload --from-time TIME --reason "..."',
        )
    yield Action(
        "Reset the position",
        "Put positions elsewhere in their log; what was loaded above them is replaced. Fill in time and reason; "
        "without Apply it only shows what would happen.",
        form=_administration(links, one.pipeline, kind="reset", reset_to="time", time="", reason=""),
        command=f'python -m kafka_ingest change {one.pipeline} reset --to-time TIME --reason "..."',
    )
    yield accept_loss(one, links)
    if one.summary.get("unresolved_dead_letters"):
        yield replay(one, links)


def of_batch(one: Standing, batch: Mapping[str, Any], ranges: Sequence[Mapping[str, Any]], links: Links) -> Action:
    """Return how to reload the span of a batch."""
    spans = "\n".join(f"{r['topic']} {r['partition']} {r['range_start']} {r['range_end']}" for r in ranges)
    values = {"mode": "reload", "offsets": spans, "reason": ""}
    return Action(
        "Reload this span",
        "Read exactly these offsets again and replace their rows in one transaction. Fill in the reason.",
        form=links.form(one.dag_id, values) if has_form(one) else None,
        href="" if has_form(one) else links.run(batch["dag_id"], batch["run_id"]),
        button="Open the run",
    )


def replay(one: Standing, links: Links, reason: str | None = None) -> Action:
    """Return how to decode dead letters again, all or those of one reason."""
    return Action(
        "Replay dead letters",
        "Decode them again with today's pipeline file; what fits becomes rows, once. Correct the file or the table "
        "first. Without Apply it only shows what would happen.",
        form=_administration(
            links, one.pipeline, kind="replay-dead-letters", dead_letter_reasons=reason or "", reason=""
        ),
        command=_of_dead_letters("replay", one.pipeline, reason),
    )


def discard(one: Standing, links: Links, reason: str | None = None) -> Action:
    """Return how to resolve dead letters without rows."""
    return Action(
        "Discard dead letters",
        "Resolve them without rows, for records that nobody needs; their bytes stay in the ledger.",
        form=_administration(
            links, one.pipeline, kind="discard-dead-letters", dead_letter_reasons=reason or "", reason=""
        ),
        command=_of_dead_letters("discard", one.pipeline, reason),
    )


def _of_dead_letters(action: str, pipeline: str, reason: str | None) -> str:
    chosen = f" --of-reason {reason}" if reason else ""
    return f'python -m kafka_ingest dead-letters {action} {pipeline}{chosen} --reason "..."'


# ----------
# Places of dead letters in addresses.


def place_text(letter: Mapping[str, Any]) -> str:
    """Return where a dead letter's record was, for :func:`read_place`."""
    return json.dumps([letter[name] for name in ("topic", "generation", "partition", "offset")])


def read_place(text: str) -> RecordPlace | None:
    """Read a place; ``None`` where the text holds none."""
    try:
        topic, *numbers = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(topic, str) or "\0" in topic or [type(n) for n in numbers] != [int, int, int]:
        return None
    generation, partition, offset = numbers
    fits = 0 <= generation < 2**31 and 0 <= partition < 2**31 and 0 <= offset < GREATEST_NUMBER
    return RecordPlace(topic, generation, partition, offset) if fits else None


def cursor_text(letter: Mapping[str, Any]) -> str:
    """Return where the page after this dead letter goes on, for :func:`read_cursor`."""
    return f"{letter['created_at'].isoformat()} {place_text(letter)}"


def read_cursor(text: str) -> tuple[datetime, RecordPlace] | None:
    """Read a cursor; ``None``, which is the first page, where the text holds none."""
    at, _, place = text.partition(" ")
    found = read_place(place)
    try:
        time = datetime.fromisoformat(at)
    except ValueError:
        return None
    return (time, found) if found and time.tzinfo else None
