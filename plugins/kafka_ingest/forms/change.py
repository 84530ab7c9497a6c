"""The form of a change: kinds and fields, in Airflow's administration DAG and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.forms.values import Choice, Field, Flag, Number, Option, Text, is_number, lines_of
from kafka_ingest.protocol import decisions
from kafka_ingest.protocol.dead_letters import DeadLetterPlace
from kafka_ingest.protocol.decisions import Change, LogPlace, Selection
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import PartitionOffset
from kafka_ingest.times import parse_record_time

# ----------
# Partitions as people list them, one a line: ``topic partition offset``, or ``topic`` for a whole topic. A ValueError
# says what was expected of the first line that does not fit.

_GREATEST_PARTITION = 2**31 - 1


def parse_partition_offsets(text: str) -> tuple[PartitionOffset, ...]:
    """Read ``topic partition offset``, ordered by partition; empty lines count for nothing."""
    found = sorted((_offset(number, words) for number, words in lines_of(text)), key=lambda o: (o.topic, o.partition))
    for one, other in pairwise(found):
        if (one.topic, one.partition) == (other.topic, other.partition):
            raise ValueError(f"each partition once, not {one.topic} {one.partition} twice")
    return tuple(found)


def parse_selection(text: str) -> Selection:
    """Read ``topic`` or ``topic partition``; empty lines count for nothing."""
    topics: set[str] = set()
    partitions: set[TopicPartition] = set()
    for number, words in lines_of(text):
        if len(words) == 1:
            topics.add(words[0])
        elif len(words) == 2 and is_number(words[1], _GREATEST_PARTITION):
            partitions.add(TopicPartition(words[0], int(words[1])))
        else:
            raise ValueError(f"topic, or topic and partition (line {number})")
    return Selection(tuple(sorted(topics)), tuple(sorted(partitions)))


def parse_places(text: str) -> tuple[DeadLetterPlace, ...]:
    """Read ``topic``, ``topic partition`` or ``topic partition start end``; empty lines count for nothing."""
    return tuple(sorted((_place(number, words) for number, words in lines_of(text)), key=_place_order))


def _place(number: int, words: list[str]) -> DeadLetterPlace:
    numbers = words[1:]
    is_read = len(words) in (1, 2, 4) and all(map(is_number, numbers[1:]))
    if not is_read or (numbers and not is_number(numbers[0], _GREATEST_PARTITION)):
        raise ValueError(f"topic, or topic and partition, or topic, partition, start and end (line {number})")
    return DeadLetterPlace(words[0], *map(int, numbers))


def _place_order(place: DeadLetterPlace) -> tuple[str, int, int]:
    return (place.topic, -1 if place.partition is None else place.partition, place.start or 0)


def parse_reasons(text: str) -> tuple[str, ...]:
    """Read reasons of dead letters, in any number of lines."""
    found = sorted({word for _, words in lines_of(text) for word in words})
    if unknown := [reason for reason in found if reason not in list(DeadLetterReason)]:
        raise ValueError(f"reasons of {', '.join(DeadLetterReason)}, not {', '.join(unknown)}")
    return tuple(found)


def _offset(number: int, words: list[str]) -> PartitionOffset:
    if len(words) == 3 and is_number(words[1], _GREATEST_PARTITION) and is_number(words[2]):
        return PartitionOffset(words[0], int(words[1]), int(words[2]))
    raise ValueError(f"topic, partition and offset, the next one to read (line {number})")


# ----------
# Kinds, one row each: what Airflow and the command line say of it, the keys that it needs and takes, and the change
# that it makes of their values.

Values: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """What can be done.

    Attributes:
        text: What Airflow's list says of it.
        needs: Keys that must be given.
        takes: Keys that may be given.
        ways: What the field Reset to chooses from: ways to do it that have keys of their own.
    """

    text: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    ways: Mapping[str, KindOfChange] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a kind may be told in the field Only: its argument on the command line, and which selections fit."""

    option: Option
    fits: Callable[[Selection], bool] = lambda _only: True
    expected: str = ""
    found: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfChange(Kind):
    """A kind of position change.

    Attributes:
        make: Returns the change, given the values of all keys.
        summary: What the command's help says of it.
        scope: What it takes in the field Only.
    """

    make: Callable[[Values], Change]
    summary: str = ""
    scope: Scope = Scope(
        Option(
            "--only",
            "a topic, or one partition of it; can be given again (default: all partitions)",
            ("TOPIC", "PARTITION"),
            {"nargs": "+", "action": "append"},
        )
    )


_TOPICS = Scope(
    Option("only", "topics (default: all that were)", "TOPIC", {"nargs": "*"}),
    lambda only: not only.partitions,
    "topics: all partitions of a topic were created again",
    "partitions",
)
_ONE_TOPIC = Scope(
    Option("only", "the topic", "TOPIC", {"nargs": 1}),
    lambda only: len(only.topics) == 1 and not only.partitions,
    "one topic",
    "more, or partitions",
)


def _only(given: Values) -> Selection:
    return given["only"] or Selection()


def _to_place(given: Values) -> Change:
    return decisions.ResetToPlace(LogPlace(given["reset_to"]), _only(given))


_PLACES = {LogPlace.EARLIEST.value: "the log start", LogPlace.LATEST.value: "the end of the log"}
RESETS: Mapping[str, KindOfChange] = {
    **{place: KindOfChange(text, takes=("only",), make=_to_place) for place, text in _PLACES.items()},
    "time": KindOfChange(
        "the first offset at or after it",
        ("time",),
        ("only",),
        make=lambda given: decisions.ResetToTime(given["time"], _only(given)),
    ),
    "offsets": KindOfChange(
        "the listed ones", ("offsets",), make=lambda given: decisions.ResetToOffsets(given["offsets"])
    ),
    "by": KindOfChange(
        "so many offsets forwards, or below 0 backwards",
        ("by_offsets",),
        ("only",),
        make=lambda given: decisions.ResetBy(given["by_offsets"], _only(given)),
    ),
}

#: In the order of both forms. The names are those of the commands.
CHANGES: Mapping[str, KindOfChange] = {
    "reset": KindOfChange(
        "move positions; what was loaded above them is replaced",
        ("reset_to",),
        summary="put positions elsewhere in their log",
        make=lambda given: RESETS[given["reset_to"]].make(given),
        ways=RESETS,
    ),
    "skip-lag": KindOfChange(
        "give up backlog, keep the last offsets of each partition",
        ("keep_offsets",),
        ("only",),
        summary="give up what waits, except the last offsets of each partition",
        make=lambda given: decisions.SkipLag(given["keep_offsets"], _only(given)),
    ),
    "accept-loss": KindOfChange(
        "go on at the log start after retention took unread offsets",
        takes=("margin_offsets", "only"),
        summary="go on at the log start where retention deleted unread offsets",
        make=lambda given: decisions.AcceptLoss(given["margin_offsets"], _only(given)),
    ),
    "accept-recreation": KindOfChange(
        "the topic was deleted and created again",
        takes=("begin", "only"),
        summary="load topics that were deleted and created again, as new ones",
        make=lambda given: decisions.AcceptRecreation(_only(given).topics, LogPlace(given["begin"])),
        scope=_TOPICS,
    ),
    "accept-cluster": KindOfChange(
        "the topics are on another cluster, as new topics",
        takes=("begin",),
        summary="load every topic from the cluster that the connection leads to, as a new one",
        make=lambda given: decisions.AcceptCluster(LogPlace(given["begin"])),
    ),
    "accept-same-log": KindOfChange(
        "the same topics under another cluster id",
        summary="the cluster has another id but the same topics, by their ids: positions stay",
        make=lambda _given: decisions.AcceptSameLog(),
    ),
    "rename": KindOfChange(
        "the pipeline file has another name than before",
        ("former_name",),
        summary="the pipeline file has a new name: let the ledger follow",
        make=lambda given: decisions.RenamePipeline(given["former_name"]),
    ),
    "retire-topic": KindOfChange(
        "read a topic no more",
        ("only",),
        summary="read a topic no more; rows and positions stay",
        make=lambda given: decisions.RetireTopic(*_only(given).topics),
        scope=_ONE_TOPIC,
    ),
    "read-topic-again": KindOfChange(
        "read a retired topic again",
        ("only",),
        summary="read a retired topic again: from its positions, or as a new one where it was created again",
        make=lambda given: decisions.ReadTopicAgain(*_only(given).topics),
        scope=_ONE_TOPIC,
    ),
    "change-target": KindOfChange(
        "load into the table that the file names now",
        summary="load into the table that the pipeline file names now",
        make=lambda _given: decisions.ChangeTarget(),
    ),
    "change-identity-columns": KindOfChange(
        "find rows by the columns that the file names now; rename them first",
        summary="find rows by the identity columns that the pipeline file names now; rename them in the table first",
        make=lambda _given: decisions.ChangeIdentityColumns(),
    ),
    "change-isolation-level": KindOfChange(
        "read under the level that the file names now",
        summary="read under the isolation level that the pipeline file names now",
        make=lambda _given: decisions.ChangeIsolationLevel(),
    ),
}

PREFLIGHT, ROLL_BACK = "preflight", "roll-back"
LIST_DEAD_LETTERS, REPLAY, DISCARD = "list-dead-letters", "replay-dead-letters", "discard-dead-letters"
#: What only looks: nothing is applied, and no reason is asked for.
LOOKS = (PREFLIGHT, LIST_DEAD_LETTERS)
_CHOICE_OF_DEAD_LETTERS = ("dead_letter_reasons", "dead_letter_places", "generation", "most_dead_letters")
KINDS: Mapping[str, Kind] = {
    PREFLIGHT: Kind("look at connections, privileges, table, topics and packages", takes=("submit_job",)),
    **CHANGES,
    ROLL_BACK: Kind(
        "undo the last batches: rows, dead letters and positions together", ("batches",), ("allow_compacted",)
    ),
    LIST_DEAD_LETTERS: Kind("count records that did not fit, and list the first", takes=_CHOICE_OF_DEAD_LETTERS),
    REPLAY: Kind("decode dead letters again with today's pipeline file", takes=_CHOICE_OF_DEAD_LETTERS),
    DISCARD: Kind("resolve dead letters without rows; their bytes stay", takes=_CHOICE_OF_DEAD_LETTERS),
}


def kinds_of(key: str) -> tuple[str, ...]:
    """Return the kinds that a key says something to; none for the keys of preflight or of changes at large."""
    return tuple(
        name for name, kind in KINDS.items() if any(key in one.needs + one.takes for one in (kind, *kind.ways.values()))
    )


# ----------
# Fields. As the form stands it changes nothing, and nothing is filled in that a kind would refuse. Airflow's form
# (3.3.2, ``ui/src/components/FlexibleForm``) knows no field that depends on another: a section names the kinds.


def _named(texts: Mapping[str, str], *, default: str | None = None, nothing: str = "") -> Choice:
    return Choice({name: f"{name}: {text}" for name, text in texts.items()}, default, nothing)


_FIELDS = {
    "pipeline": Field("Pipeline", Text(), "The pipeline, by the name in its file."),
    "kind": Field(
        "What to do",
        _named({name: kind.text for name, kind in KINDS.items()}, default=PREFLIGHT),
        "What is to be done. What it needs to know is asked in the sections below that name it; fields of other "
        "sections stay empty.",
    ),
    "apply": Field(
        "Apply",
        Flag(),
        "**Do it.** Without it the task only shows what would happen, and changes nothing.",
        Option("--apply", "make the change; without it, it is only shown"),
    ),
    "reason": Field(
        "Reason",
        Text(),
        "Why. Required for every change; stored in the ledger with your name and the run id.",
        Option("--reason", "why; needed with --apply, kept in the ledger", "TEXT", {"default": ""}),
    ),
    "supersede": Field(
        "Supersede the outstanding batch",
        Flag(),
        "Take a batch out of the way that is planned or being loaded; without it the change is refused while there is "
        "one. Safe at any moment: what its attempt has staged is wasted, nothing else.",
        Option("--supersede", "take an outstanding batch out of the way"),
    ),
    "reset_to": Field(
        "Reset to",
        _named({name: way.text for name, way in RESETS.items()}, nothing="(choose)"),
        "Where the positions go.",
        # Ways that need a key are chosen by the option of that key.
        Option("--to", "the log start, or the end offset", settings={"choices": tuple(_PLACES)}),
    ),
    "time": Field(
        "Time",
        Text(parse_record_time),
        "Reset to time: such as `2026-01-31T13:00:00Z`; else in the pipeline's zone.",
        Option("--to-time", "first offset at or after a time; in the pipeline's zone when it names none", "TIME"),
    ),
    "offsets": Field(
        "Offsets",
        Text(lambda text, _zone: parse_partition_offsets(text), is_multiline=True),
        "Reset to offsets: one line a partition, `topic partition offset`; others stay.",
        Option(
            "--to-offset",
            "the next offset to read of a partition; can be given again",
            ("TOPIC", "PARTITION", "OFFSET"),
            {"nargs": 3, "action": "append"},
        ),
    ),
    "by_offsets": Field(
        "By (offsets)",
        Number(),
        "Reset by: forwards, or below 0 backwards.",
        Option("--by", "so many offsets forwards, or below 0 backwards"),
    ),
    "only": Field(
        "Only",
        Text(lambda text, _zone: parse_selection(text), is_multiline=True),
        "One line each: `topic`, or `topic partition`. reset, skip-lag, accept-loss: empty means all. "
        "accept-recreation: topics; empty means all that were created again. retire-topic, read-topic-again: the "
        "topic.",
    ),
    "keep_offsets": Field(
        "Keep (offsets)",
        Number(at_least=0),
        "Offsets left to read.",
        Option("--keep", "offsets to keep of each partition"),
    ),
    "margin_offsets": Field(
        "Margin (offsets)",
        Number(at_least=0, default=0),
        "Begin so far above the log start, which retention goes on moving; empty means 0.",
        Option(
            "--margin", "begin so many offsets above the log start, which moves on while they are read (default: 0)"
        ),
    ),
    "begin": Field(
        "Begin at",
        _named(_PLACES, default="earliest", nothing="(earliest)"),
        "Where the new topics are read from.",
        Option("--begin", "where the new log is begun (default: earliest)"),
    ),
    "former_name": Field(
        "Former name", Text(), "The name that the ledger knows.", Option("--from", "the name until now", "NAME")
    ),
    "batches": Field(
        "Batches",
        Number(at_least=1),
        "How many, the newest that moved the position.",
        Option("--batches", "how many, the newest first"),
    ),
    "allow_compacted": Field(
        "Allow compacted topics",
        Flag(),
        "Go on where compaction may have taken records. **Such records are lost.**",
        Option("--allow-compacted", "go on where compaction may have taken records that the table still holds"),
    ),
    "submit_job": Field("Submit a job", Flag(), "Run a small Spark job to look at its packages."),
    "dead_letter_reasons": Field(
        "Reasons of dead letters",
        Text(lambda text, _zone: parse_reasons(text), is_multiline=True),
        "Only those with these reasons, one a line, such as `wrong_type`; empty means all.",
        Option(
            "--of-reason",
            "only those with this reason; can be given again (default: all)",
            "REASON",
            {"action": "append"},
        ),
    ),
    "dead_letter_places": Field(
        "Places of dead letters",
        Text(lambda text, _zone: parse_places(text), is_multiline=True),
        "One line each: `topic`, `topic partition`, or `topic partition start end` with the end not included; empty "
        "means all.",
        Option(
            "--only",
            "a topic, a partition of it, or offsets of that, END not included; can be given again (default: all)",
            ("TOPIC", "PARTITION START END"),
            {"nargs": "+", "action": "append"},
        ),
    ),
    "generation": Field(
        "Generation",
        Number(at_least=0),
        "Only those of this generation of their topics; empty means all.",
        Option("--generation", "only those of this generation of their topics (default: all)"),
    ),
    "most_dead_letters": Field(
        "At most (dead letters)",
        Number(at_least=1),
        "The first so many, by topic, partition and offset; empty means all.",
        Option("--limit", "at most so many, the first by topic, partition and offset (default: all)"),
    ),
}
FIELDS: Mapping[str, Field] = {
    key: replace(one, section=f"Only for {', '.join(kinds)}" if (kinds := kinds_of(key)) else "")
    for key, one in _FIELDS.items()
}
