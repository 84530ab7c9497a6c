"""Write what is generated: configuration reference, JSON schema, pages of metrics and licences, examples of values."""

from __future__ import annotations

import argparse
import json
import sys
import types
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kafka_ingest.column_types import CONVERSIONS, SUPPORTED, parse_column_type, types_of
from kafka_ingest.metrics import METRICS, Metric
from kafka_ingest.pipeline_files.document import MAX_BYTES, MAX_DEPTH, MAX_VALUES, keys_of, models_in
from kafka_ingest.pipeline_files.kinds import Words
from kafka_ingest.pipeline_files.model import PipelineFile
from tests.values import TYPES, VALUES, Value
from tools.licences import licences_page

# The written parts of the generated page ``docs/configuration.md``.

#: The shortest useful file; a test loads it.
SHORTEST_FILE = """\
pipeline: payments
schedule: "@hourly"
kafka: {topics: [payments]}
first_run: earliest
value: {format: json, column: payload}
target: {table: shop.payments, create_table: true}
"""

INTRODUCTION = f"""\
# Configuration

One YAML file is one pipeline: Kafka topics into one PostgreSQL table. The files are `dags/pipelines/*.yaml` (and
`*.yml`) and those in the folders that the environment variable `KAFKA_INGEST_PIPELINES` names (absolute paths,
separated like `PATH`; folders inside them are not searched). Adding a topic means adding one file.

    python -m kafka_ingest draft TOPIC         # a file made of what the topic holds: docs/tutorial.md
    python -m kafka_ingest check-config        # every fault of every file, with file, line and key

The shortest useful file:

```yaml
{SHORTEST_FILE}```

[orders.yaml](../dags/pipelines/orders.yaml) and [raw_events.yaml](../dags/pipelines/raw_events.yaml) are commented
examples. Editors complete and check keys with [pipeline.schema.json](pipeline.schema.json); the YAML language server
reads it from a first line like `# yaml-language-server: $schema=../../docs/pipeline.schema.json`.

How values are read: only `true` and `false` are booleans (`yes`, `no`, `on` and `off` are text), only decimal
numbers without leading zeros are numbers (`1_000_000` is one, `010` is text), times and dates are text. A number
where a text is expected is a fault: put it in quotes, and a text that begins with `@`, `*`, `&`, `%`, a backtick or
`{{{{`, too. An unknown key, a key given twice, an anchor (`&`), an alias (`*`) and a merge key (`<<`) are faults.
A file has at most {MAX_BYTES:,} bytes, {MAX_VALUES:,} keys and values, and {MAX_DEPTH} levels, so that no file can
keep the other pipelines from being read. Secrets do not belong into the file, but into Airflow connections.

What a batch reads, decodes and writes (`kafka.connection`, `kafka.isolation_level`, `kafka.topic_identity`,
`value`, `key`, `headers`, `tombstones`, `target`, `metadata_columns`, `dead_letters`) is frozen into the ledger
with each plan. A batch that was planned under other settings and is not yet loaded is planned anew.
"""


def _type_rows() -> Iterator[str]:
    """Yield the rows of the table of types: what may be written, and which JSON values fit it."""
    for row in SUPPORTED:
        for written, values in row.docs.items():
            yield f"| `{written.replace(', ', '`, `')}` | {values} |\n"
    written = "an array of any of these but `jsonb`, such as `bigint[]` or `varchar(20)[]`"
    yield f"| {written} | an array whose elements fit the type or are null; one dimension |\n"


COLUMN_TYPES = (
    """\
## Column types

The type of an entry of `value.columns`, in any spelling that PostgreSQL knows. A value that is present is never
rounded, cut off or turned into NULL: what does not fit is a dead letter that says column, path, expected and found.
A missing key and a JSON null are NULL, or a dead letter where the column is `required`.

| type | JSON values that fit |
|---|---|
"""
    + "".join(_type_rows())
    + """
`jsonb[]` is not supported, since a jsonb column holds a JSON array as it is. Neither are types that would change a
value or need a rule of their own: `char(n)`, `timestamp(p)`, `time with time zone`, `interval` and `money`. Take them
into text or jsonb and convert them in SQL.

A column of an existing table may be of a wider type, or of a type of its own: a domain where the file names a type
that the domain's type holds; an enum or `citext` where it names `text`, but not for the metadata columns that rows are
found by. A value that the domain or enum refuses makes its record a dead letter.
"""
)


def _conversion_rows() -> Iterator[str]:
    for conversion, (_, values) in CONVERSIONS.items():
        yield f"| `{conversion}` | `{types_of(conversion).replace(', ', '`, `')}` | {values} |\n"


CONVERSION_TABLE = (
    """\
## Conversions

`as` of an entry of `value.columns`: what the value is written as, where that is not the usual spelling of the column's
type. It stays strict: what is written in another way is a dead letter (`wrong_type`), and what the type cannot hold
exactly is one, too (`out_of_range`).

```yaml
value:
  format: json
  columns:
    - {name: created_at, type: timestamptz, as: epoch_millis}
    - {name: amount, type: bigint, path: $.amount.cents, as: number_text}
```

| `as` | column types | JSON values that fit |
|---|---|---|
"""
    + "".join(_conversion_rows())
    + """
Times count from 1970-01-01T00:00:00Z, and back from it with a minus sign. PostgreSQL stores microseconds: a number that
names a part of one is out of range, and so are the years before 1 and after 9999. A `date` takes whole days only; a
`timestamp` is the time in UTC. A `numeric` column takes numbers in strings without `as`.
"""
)


# ----------
# The page ``docs/metrics.md``, made from the definitions of the metrics.

_INTRODUCTION = """\
# Metrics

Sent by the tasks through Airflow's own stats, to whatever `[metrics]` in Airflow's configuration names: StatsD, Datadog
or OpenTelemetry. Airflow puts its prefix before the names (`airflow.kafka_ingest.rows`). The command line sends none.

All have the tag `pipeline`; others are in the table. Plain StatsD knows no tags and would mix the pipelines: use
`statsd_influxdb_enabled` (which the StatsD exporter of Prometheus understands), `statsd_datadog_enabled` or `otel_on`.

Counters count each batch once, when it is announced; `step_failures` counts at once. Gauges tell what the newest plan
saw of Kafka and where the positions stand; nobody sends them for a pipeline that does not run. So alerts subtract those
that are times from the time now: [alerting](alerting.md) has the rules, the dashboard and the exporter's mapping.
`python -m kafka_ingest lag` asks Kafka itself. Bytes are not counted: offsets and the reader do not tell them.
"""


def metrics_page(command: str) -> str:
    """Return the page.

    Args:
        command: Command that writes the page, for its first line.
    """
    head = f"<!-- Generated by `{command}`; edit plugins/kafka_ingest/metrics.py instead. -->\n"
    table = [
        "| name | kind | unit | tags | meaning |",
        "|---|---|---|---|---|",
        *(_metric_row(metric) for metric in METRICS),
    ]
    return "\n".join([head, _INTRODUCTION, *table, ""])


def _metric_row(metric: Metric) -> str:
    tags = ", ".join(f"`{tag}`" for tag in ("pipeline", *metric.tags))
    return f"| `{metric.name}` | {metric.kind.value} | {metric.unit} | {tags} | {metric.meaning} |"


# The last part of the page ``docs/values.md``: examples from the table of values that tests read.

_EXAMPLES = """\
## Examples

<!-- Generated by `{}` from tests/data/values; edit those files instead. -->

A value becomes what PostgreSQL shows for it, in the time zone UTC, or its record becomes a dead letter. Tests decode
these values and hundreds more, write those that fit into PostgreSQL, and read them back.
"""


def values_page(page: str, command: str) -> str:
    """Return the page with new examples.

    Args:
        page: The page as it is.
        command: Command that writes the examples.
    """
    shown = sorted((value for value in VALUES if value.is_example), key=_place)
    tables = [_example_table(title, list(values)) for title, values in groupby(shown, key=lambda value: value.title)]
    written = page.partition("## Examples\n")[0]
    return "\n".join([written + _EXAMPLES.format(command), *tables])


def _place(value: Value) -> tuple[bool, bool, int, int, bool]:
    """Order the examples like the types, arrays and then conversions last, and refused values behind those that fit."""
    kind = parse_column_type(value.column)
    row = next(number for number, row in enumerate(SUPPORTED) if row.name == kind.name)
    return value.column != value.type, kind.is_array, row, TYPES.index(value.type), value.reason is not None


def _example_table(title: str, values: Sequence[Value]) -> str:
    rows = [f"### {title}", "", "| column type | JSON | becomes | why |", "|---|---|---|---|"]
    for before, value in zip([None, *values], values, strict=False):
        name = "" if before and before.type == value.type else value.type
        stored = f"`{value.text}`" if value.text else "no characters"
        becomes = f"dead letter: `{value.reason}`" if value.reason else stored
        rows.append(f"| {name} | `{value.json}` | {becomes} | {value.why} |")
    return "\n".join([*rows, ""])


# All that is generated: ``python -m tools.reference`` writes it into ``docs/``; with ``--check`` it fails when one of
# the files is stale.

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_COMMAND = "python -m tools.reference"


def reference_page() -> str:
    """Return ``docs/configuration.md``: every key with its kind, default and meaning."""
    parts = [f"<!-- Generated by `{_COMMAND}`; edit plugins/kafka_ingest/pipeline_files instead. -->\n"]
    parts.append(INTRODUCTION)
    parts.append("## The file\n\n" + _table(PipelineFile))
    parts += [f"## {name}\n\n{_paragraphs(model)}\n\n{_table(model, name)}" for name, model in _sections(PipelineFile)]
    parts += [COLUMN_TYPES, CONVERSION_TABLE]
    return "\n".join(parts)


def editor_schema() -> str:
    """Return ``docs/pipeline.schema.json``: a JSON schema with which editors complete and check keys.

    It cannot express rules between keys; ``check-config`` checks them.
    """
    schema = _without_titles(PipelineFile.model_json_schema())
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "kafka_ingest pipeline file"}
    return json.dumps(head | schema, indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with ``--check`` compare them; return the exit status."""
    parser = argparse.ArgumentParser(prog=_COMMAND, description="Generate the reference pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
    parser.add_argument("--docs", type=Path, default=_DOCS, help="folder of the documentation (default: %(default)s)")
    options = parser.parse_args(arguments)
    contents = {
        "configuration.md": reference_page(),
        "pipeline.schema.json": editor_schema(),
        "licences.md": licences_page(_COMMAND),
        "metrics.md": metrics_page(_COMMAND),
        "values.md": values_page(_read(_DOCS / "values.md") or "", _COMMAND),
    }
    stale = [name for name, text in contents.items() if _read(options.docs / name) != text]
    if not options.check:
        for name in stale:
            (options.docs / name).write_text(contents[name], encoding="utf-8")
    elif stale:
        sys.stderr.write(f"stale in {options.docs}: {', '.join(stale)}\n  next: {_COMMAND}\n")
        return 1
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _sections(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    for key, field in keys_of(model).items():
        for section in models_in(field.annotation):
            yield prefix + key, section
            yield from _sections(section, f"{prefix}{key}.")


def _paragraphs(model: type[BaseModel]) -> str:
    return "\n".join(line.strip() for line in (model.__doc__ or "").strip().splitlines())


def _table(model: type[BaseModel], section: str = "") -> str:
    rows = [_row(key, field, section) for key, field in keys_of(model).items()]
    return "\n".join(("| key | value | default | meaning |", "|---|---|---|---|", *rows, ""))


def _row(key: str, field: FieldInfo, section: str) -> str:
    linked = any(True for _ in models_in(field.annotation))
    name = (
        f"[`{key}`](#{section.replace('.', '')}{key})" if linked else f"`{key}`"
    )  # GitHub leaves dots of headings out
    kind = _words(field.metadata) or _kind(field.annotation)
    return f"| {name} | {kind} | {_default(field)} | {field.description or ''}{_examples(field)} |".replace("\n", " ")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True, validated_data={})
    return "see there" if isinstance(value, BaseModel) else f"`{_flow(value)}`"


def _examples(field: FieldInfo) -> str:
    return f" For example {' or '.join(f'`{_flow(value)}`' for value in field.examples)}." if field.examples else ""


def _flow(value: object) -> str:
    """Write a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=1_000, sort_keys=False).strip()
    return text.removesuffix("...").strip()


def _kind(annotation: Any) -> str:
    """Say in words which values an annotation allows."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(parts[1:]) or _kind(parts[0])
    if origin in (Union, types.UnionType):
        return " or ".join("`null`" if part is type(None) else _kind(part) for part in parts)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in parts)
    if origin is list:
        return f"list, each: {_kind(parts[0])}"
    if origin is dict:
        return f"mapping, each: {_kind(parts[0])} to {_kind(parts[1])}"
    return _PLAIN_KINDS.get(annotation, "mapping")


def _words(notes: Sequence[object]) -> str | None:
    return next((note.text for note in notes if isinstance(note, Words)), None)


_PLAIN_KINDS = {str: "text", bool: "`true`, `false`", float: "number from 0 to 1"}


def _without_titles(schema: Any) -> Any:
    """Leave out the titles that pydantic makes up from names: they say nothing more."""
    if isinstance(schema, list):
        return [_without_titles(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_titles(entry) for key, entry in schema.items() if key != "title" or isinstance(entry, dict)}


if __name__ == "__main__":
    sys.exit(main())
