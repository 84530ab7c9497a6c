"""What keys say about each other, in one pipeline file and between several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from kafka_ingest.column_types import CONVERSIONS, FINE_TIMES, check_value, parse_column_type, types_of
from kafka_ingest.pipeline_files.document import Fault, Location, describe, key_text
from kafka_ingest.pipeline_files.kinds import json_text
from kafka_ingest.pipeline_files.sections import HoldSection, MetadataSection, way_in_event
from kafka_ingest.pipeline_files.upsert_rules import event_faults, upsert_faults
from kafka_ingest.settings import (
    REGISTRY_FORMATS,
    Conversion,
    PipelineSettings,
    TopicSelection,
    json_path_text,
    parse_json_path,
)
from kafka_ingest.topic_patterns import quick_match

# ----------
# What the keys of a pipeline file say about each other.
#
# The rules read the plain data and pass over whatever has the wrong shape, which the model reports. So a fault in one
# column never hides a fault elsewhere: all are found at once.

_Data = Mapping[Any, Any]


def rule_faults(data: _Data) -> Iterator[Fault]:
    """Yield every fault between keys."""
    for rule in _RULES:
        yield from rule(data)


def _section(data: _Data, key: str) -> _Data:
    section = data.get(key)
    return section if isinstance(section, dict) else {}


def _columns(data: _Data) -> list[tuple[Location, _Data]]:
    columns = _section(data, "value").get("columns")
    entries = enumerate(columns) if isinstance(columns, list) else ()
    return [(("value", "columns", index), column) for index, column in entries if isinstance(column, dict)]


def _topics_or_pattern(data: _Data) -> Iterator[Fault]:
    kafka = _section(data, "kafka")
    given = [key for key in ("topics", "pattern") if kafka.get(key) is not None]
    if isinstance(data.get("kafka"), dict) and len(given) != 1:
        yield Fault(("kafka",), "either topics or pattern", "both" if given else "neither")


def _topics_once(data: _Data) -> Iterator[Fault]:
    topics = _section(data, "kafka").get("topics")
    seen: set[str] = set()
    for index, topic in enumerate(topics if isinstance(topics, list) else ()):
        if isinstance(topic, str) and topic in seen:
            yield Fault(("kafka", "topics", index), "each topic once", f"{topic} a second time")
        elif isinstance(topic, str):
            seen.add(topic)


def _one_place_to_begin(data: _Data) -> Iterator[Fault]:
    place = data.get("first_run")
    given = [key for key in ("timestamp", "offsets") if isinstance(place, dict) and place.get(key) is not None]
    if isinstance(place, dict) and len(given) != 1:
        yield Fault(("first_run",), "either timestamp or offsets", "both" if given else "neither")


def _offsets_of_selected_topics(data: _Data) -> Iterator[Fault]:
    offsets = _section(_section(data, "first_run"), "offsets")
    kafka = _section(data, "kafka")
    topics, pattern = kafka.get("topics"), kafka.get("pattern")
    listed = {name for name in topics if isinstance(name, str)} if isinstance(topics, list) else None
    for topic in offsets:
        if not isinstance(topic, str):
            continue
        if listed is not None and topic not in listed:
            yield Fault(("first_run", "offsets", topic), "a topic of kafka.topics", topic)
        if isinstance(pattern, str) and quick_match(pattern, topic) is False:
            yield Fault(("first_run", "offsets", topic), "a topic that kafka.pattern matches", topic)


def _lag_policy_is_whole(data: _Data) -> Iterator[Fault]:
    policy = data.get("lag_policy")
    if not isinstance(policy, dict):
        return
    if policy.get("max_lag_offsets") is None and policy.get("max_lag_seconds") is None:
        yield Fault(("lag_policy",), "max_lag_offsets or max_lag_seconds, or both", "neither")
    keeps, skips = policy.get("keep_offsets"), policy.get("action") == "skip_to"
    if skips and keeps is None:
        yield Fault(("lag_policy", "keep_offsets"), "how many of the newest offsets skip_to reads", "nothing")
    if keeps is not None and not skips:
        yield Fault(("lag_policy", "keep_offsets"), "only with action: skip_to", str(keeps))
    most = policy.get("max_lag_offsets")
    if skips and isinstance(keeps, int) and isinstance(most, int) and keeps > most:
        yield Fault(("lag_policy", "keep_offsets"), f"at most max_lag_offsets, {most}", str(keeps))


def _shape_of_value(data: _Data) -> Iterator[Fault]:
    value = _section(data, "value")
    has_columns, has_column = value.get("columns") is not None, value.get("column") is not None
    if value.get("format") == "json" and has_columns == has_column:
        found = "both" if has_columns else "neither"
        yield Fault(("value",), "either columns (typed, by JSON path) or column (the whole value as jsonb)", found)
    if value.get("format") in ("raw", "text"):
        if has_columns:
            yield Fault(("value", "columns"), f"column alone with the format {value['format']}", "columns")
        if not has_column:
            yield Fault(("value", "column"), "the name of the column", "nothing")
    if not has_columns and value.get("new_fields") is not None:
        yield Fault(("value", "new_fields"), "only with columns, which read fields", str(value["new_fields"]))
    if has_columns and "required" in value:
        yield Fault(("value", "required"), "required in the entries of columns", "required for all of them")


def _columns_of_registry_format(data: _Data) -> Iterator[Fault]:
    value = _section(data, "value")
    if value.get("format") not in REGISTRY_FORMATS:
        return
    if value.get("column") is not None:
        yield Fault(("value", "column"), "columns alone; one with path: $ takes the whole value", "column")
    if value.get("columns") is None:
        yield Fault(("value", "columns"), f"the columns of the format {value['format']}", "nothing")


def _shape_of_key(data: _Data) -> Iterator[Fault]:
    key = _section(data, "key")
    if key.get("format") in ("raw", "text", "json") and key.get("column") is None:
        yield Fault(("key", "column"), "the name of the column", "nothing")
    if key.get("format") not in REGISTRY_FORMATS:
        return
    for given in ("column", "required"):
        if key.get(given):
            yield Fault(("key", given), "columns of the value section with from: key, which read such a key", given)
    if not any(column.get("from") == "key" for _, column in _columns(data)):
        expected = "a column of the value section with from: key, without which the key is not read"
        yield Fault(("key", "format"), expected, "none")


def _registry_of_formats(data: _Data) -> Iterator[Fault]:
    framed = [part for part in ("value", "key") if _section(data, part).get("format") in REGISTRY_FORMATS]
    registry = _section(data, "kafka").get("registry")
    if framed and registry is None:
        named = _section(data, framed[0])["format"]
        yield Fault(("kafka", "registry"), f"the connection of the schema registry for the format {named}", "nothing")
    if registry is not None and not framed:
        yield Fault(("kafka", "registry"), "only with a format that has a registry's schemas", str(registry))
    for part in ("value", "key"):
        if part not in framed and _section(data, part).get("subject") is not None:
            yield Fault((part, "subject"), "only with a format that has a registry's schemas", "subject")


def _distinct_column_names(data: _Data) -> Iterator[Fault]:
    first_use: dict[str, Location] = {}
    for location, name in _named_columns(data):
        if name in first_use:
            yield Fault(location, "a column name of its own", f"{name}, which {key_text(first_use[name])} has already")
        else:
            first_use[name] = location


def _named_columns(data: _Data) -> Iterator[tuple[Location, str]]:
    # Metadata first: most files do not mention them, so a clash is shown at the other column, which has a line.
    given, named = _section(data, "metadata_columns"), list[tuple[Location, object]]()
    for key, field in MetadataSection.model_fields.items():
        named.append((("metadata_columns", key), given.get(key, field.default)))
    named += [((*location, "name"), column.get("name")) for location, column in _columns(data)]
    named += [((section, "column"), _section(data, section).get("column")) for section in ("value", "key", "headers")]
    return ((location, name) for location, name in named if isinstance(name, str))


def _paths_that_fit_together(data: _Data) -> Iterator[Fault]:
    """List places that hold a scalar or an array for one column and an object with members for another."""
    inner = {(of, keys[:length]) for _, of, keys, _ in _typed_paths(data) for length in range(len(keys))}
    for location, of, keys, type_name in _typed_paths(data):
        if (of, keys) in inner and type_name != "jsonb":
            found = f"the type {type_name}, while other columns take members of {json_path_text(keys)}"
            yield Fault((*location, "type"), "jsonb for an object", found)


def _typed_paths(data: _Data) -> Iterator[tuple[Location, object, tuple[str, ...], str]]:
    """Yield each path of each column, with the document that it is a path of and the column's type."""
    is_event = _section(data, "value").get("envelope") is not None
    for location, column in _columns(data):
        name, path, source = column.get("name"), column.get("path"), column.get("from", "value")
        way = way_in_event(source, None) if is_event else ()
        try:
            type_name = parse_column_type(column["type"]).sql
            for listed in path if isinstance(path, list) else [path]:
                keys = (str(name),) if listed is None else parse_json_path(listed)
                if source != "header":
                    yield location, "key" if source == "key" else "value", (*way, *keys), type_name
        except (ValueError, TypeError, AttributeError, KeyError):  # the model reports the column
            continue


def _a_column_of_the_value(data: _Data) -> Iterator[Fault]:
    sources = [column.get("from") for _, column in _columns(data)]
    if _section(data, "value").get("envelope") is not None:  # every event is looked at, for what it does
        return
    if sources and all(source in ("key", "header") for source in sources):
        found = " and ".join(f"{source}s" for source in ("key", "header") if source in sources)
        yield Fault(
            ("value", "columns"), "a column from the value, without which nobody would look at it", f"{found} only"
        )


def _headers_that_are_named(data: _Data) -> Iterator[Fault]:
    for location, column in _columns(data):
        is_header = column.get("from") == "header"
        for key, meaning in (("header", "the name of the header"), ("occurrence", "which of several headers counts")):
            if is_header and column.get(key) is None:
                yield Fault((*location, key), f"{meaning}, with from: header", "nothing")
            elif not is_header and column.get(key) is not None:
                yield Fault((*location, key), f"from: header beside {key}", f"from: {column.get('from', 'value')}")
        if is_header and column.get("path") is not None:
            yield Fault((*location, "path"), "no path with from: header, which is read as a whole", "a path")


def _defaults_that_fit(data: _Data) -> Iterator[Fault]:
    for location, column in _columns(data):
        default = column.get("default")
        if default is None:
            continue
        if column.get("required") is True:
            yield Fault((*location, "default"), "a default or required, not both", "both")
        try:
            column_type, text = parse_column_type(column["type"]), json_text(default)
        except (ValueError, TypeError, AttributeError, KeyError):  # the model reports type or default
            continue
        try:
            check_value(column_type, text)
        except ValueError as error:
            yield Fault((*location, "default"), str(error), describe(default))


def _conversions_that_fit(data: _Data) -> Iterator[Fault]:
    for location, column in _columns(data):
        try:
            conversion, column_type = Conversion(column["as"]), parse_column_type(column["type"])
        except (ValueError, TypeError, AttributeError, KeyError):  # not given, or the model reports the column
            continue
        if column_type.is_array or column_type.name not in CONVERSIONS[conversion][0]:
            expected = f"a conversion for the type {column_type.sql} ({conversion}: {types_of(conversion)})"
            yield Fault((*location, "as"), expected, conversion.value)


def _rounded_times(data: _Data) -> Iterator[Fault]:
    for location, column in _columns(data):
        try:
            column_type = parse_column_type(column["type"])
        except (ValueError, TypeError, AttributeError, KeyError):  # the model reports the column
            continue
        if column.get("round") is not None and (column_type.is_array or column_type.name not in FINE_TIMES):
            yield Fault((*location, "round"), "only for time, timestamp or timestamptz", column_type.sql)


def _tombstones_that_fit(data: _Data) -> Iterator[Fault]:
    if _section(data, "target").get("mode") == "upsert":  # target.deletes says what becomes of tombstones
        return
    required = [
        (*location, "required")
        for location, column in _columns(data)
        if column.get("required") is True and column.get("from") not in ("key", "header")
    ]
    value = _section(data, "value")
    if value.get("required") is True and value.get("columns") is None:
        required.append(("value", "required"))
    if not required or data.get("tombstones") not in (None, "row"):
        return
    reason = "since a column of the value is required, and a tombstone has no value to fill it"
    found = "row" if data.get("tombstones") else "nothing"
    yield Fault(("tombstones",), f"dead_letter or count, {reason}", found)


def _heartbeats_in_time(data: _Data) -> Iterator[Fault]:
    given, fields = _section(data, "hold"), HoldSection.model_fields
    timeout, interval = (
        given.get(key, fields[key].default) for key in ("heartbeat_timeout_seconds", "heartbeat_interval_seconds")
    )
    if isinstance(timeout, int) and isinstance(interval, int) and timeout < 2 * interval:
        key = next(key for key in ("heartbeat_timeout_seconds", "heartbeat_interval_seconds") if key in given)
        expected = "a time-out of at least two heartbeat intervals, so that one late heartbeat means nothing"
        yield Fault(("hold", key), expected, f"a time-out of {timeout} s and an interval of {interval} s")


def _unique_key_of_a_created_table(data: _Data) -> Iterator[Fault]:
    target = _section(data, "target")
    if target.get("unique_key") is True and target.get("create_table") is not True:
        expected = "create_table: true beside it, for only a created table gets the key"
        yield Fault(("target", "unique_key"), expected, "create_table: false")


def _interval_of_a_schedule(data: _Data) -> Iterator[Fault]:
    if data.get("end") == "interval" and "schedule" in data and data["schedule"] is None:
        yield Fault(("end",), "head, or a schedule, whose intervals bound the runs", "interval and schedule: null")


def _catchup_of_intervals(data: _Data) -> Iterator[Fault]:
    if data.get("catchup") is not True:
        return
    if data.get("end") != "interval":
        expected = "end: interval beside it, for under end: head the first run would read everything"
        yield Fault(("catchup",), expected, "end: head")
    if data.get("start_date") is None:
        expected = "a start_date beside it, from which on intervals are caught up"
        yield Fault(("catchup",), expected, "the default start_date")


_RULES: tuple[Callable[[_Data], Iterator[Fault]], ...] = (
    _topics_or_pattern,
    _topics_once,
    _one_place_to_begin,
    _offsets_of_selected_topics,
    _lag_policy_is_whole,
    _shape_of_value,
    _columns_of_registry_format,
    _shape_of_key,
    _registry_of_formats,
    _distinct_column_names,
    _paths_that_fit_together,
    _a_column_of_the_value,
    _conversions_that_fit,
    _rounded_times,
    _headers_that_are_named,
    _defaults_that_fit,
    _tombstones_that_fit,
    _heartbeats_in_time,
    _unique_key_of_a_created_table,
    _interval_of_a_schedule,
    _catchup_of_intervals,
    upsert_faults,
    event_faults,
)


# ----------
# Pipelines that get in each other's way: one name twice, or one topic twice into one table.
#
# The ledger refuses the second pipeline of a topic and table whatever the files say (``served_topic``). Saying it when
# the files are read spares a failed run. Two connections may lead to the same cluster, and two different patterns may
# match the same topic, and some patterns take too long here (``topic_patterns.py``): only the ledger sees that.

_Loaded = tuple[Path, PipelineSettings]


@dataclass(frozen=True, slots=True)
class Clash:
    """A fault of the file ``path``, and the place in another file that it clashes with."""

    path: Path
    location: Location
    text: str
    other_path: Path
    other_location: Location


def clashes(pipelines: Sequence[_Loaded]) -> Iterator[Clash]:
    """Yield the clashes of all pairs of pipelines, each for both files."""
    by_name: defaultdict[str, list[_Loaded]] = defaultdict(list)
    by_target: defaultdict[tuple[str, str], list[_Loaded]] = defaultdict(list)
    for path, settings in pipelines:
        batch = settings.batch
        by_name[settings.pipeline].append((path, settings))
        by_target[batch.target_connection, str(batch.target)].append((path, settings))
    for group in by_name.values():
        for one, other in combinations(group, 2):
            text = f"expected a name of its own; found {one[1].pipeline}, as"
            yield from _both(one[0], other[0], ("pipeline",), ("pipeline",), text)
    for group in by_target.values():
        for one, other in combinations(group, 2):
            yield from _same_table(one, other)


def _same_table(one: _Loaded, other: _Loaded) -> Iterator[Clash]:
    if one[1].batch.upsert or other[1].batch.upsert:
        place, table = ("target", "table"), one[1].batch.target
        text = f"expected one pipeline for a table that holds the current state; found {table}, as"
        yield from _both(one[0], other[0], place, place, text)
    elif one[1].batch.kafka_connection == other[1].batch.kafka_connection:
        yield from _same_topic(one, other)


def _same_topic(one: _Loaded, other: _Loaded) -> Iterator[Clash]:
    topics, other_topics = one[1].plan.topics, other[1].plan.topics
    shared = _shared(topics, other_topics)
    if shared:
        target = one[1].batch.target
        text = f"expected one pipeline for a topic and a table; found {shared} into {target}, as"
        yield from _both(one[0], other[0], _location(topics), _location(other_topics), text)


def _shared(one: TopicSelection, other: TopicSelection) -> str | None:
    if one.pattern is not None and one.pattern == other.pattern:
        return f"the pattern {one.pattern}"
    return ", ".join(sorted(_selected(one, other) & _selected(other, one))) or None


def _selected(topics: TopicSelection, other: TopicSelection) -> set[str]:
    """Return the names, of those that either file lists, that are surely selected."""
    if topics.pattern is None:
        return set(topics.names)
    return {name for name in other.names if quick_match(topics.pattern, name)}


def _location(topics: TopicSelection) -> Location:
    return ("kafka", "topics" if topics.pattern is None else "pattern")


def _both(one: Path, other: Path, at: Location, other_at: Location, text: str) -> Iterator[Clash]:
    yield Clash(one, at, text, other, other_at)
    yield Clash(other, other_at, text, one, at)
