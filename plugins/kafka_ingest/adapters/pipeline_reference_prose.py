"""The written parts of the generated page ``docs/configuration.md``."""

from __future__ import annotations

from kafka_ingest.adapters.yaml_document import MAX_BYTES, MAX_DEPTH, MAX_VALUES

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
separated like `PATH`; folders inside them are not searched). Adding a topic means copying one file.

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

_TIME = "an ISO 8601 string with at most microseconds"
_NAN = "not NaN or infinity, which JSON does not have"

# Type as it may be written, and which JSON values fit it.
_TYPE_ROWS = (
    ("`boolean`, `bool`", "`true` or `false`; not 0, 1 or a string"),
    ("`smallint`, `int2`", "a whole number from -32768 to 32767; `1.0` and `1e2` are whole"),
    ("`integer`, `int`, `int4`", "a whole number from -2147483648 to 2147483647; `1.0` and `1e2` are whole"),
    ("`bigint`, `int8`", "a whole number of 64 bits, exactly, also beyond 2^53; `1.0` and `1e2` are whole"),
    (
        "`real`, `float4`",
        f"a number that the nearest float of 4 bytes names exactly (its shortest decimal, or 9 digits); {_NAN}",
    ),
    (
        "`double precision`, `float8`, `float`",
        f"a number that the nearest float of 8 bytes names exactly (its shortest decimal, or 17 digits); {_NAN}",
    ),
    ("`numeric`, `decimal`", "a number, or a string with a decimal number; every digit is kept"),
    (
        "`numeric(p,s)`, `decimal(p,s)`",
        "the same, with at most p - s digits before the point and s after it, not counting zeros at the end",
    ),
    ("`text`", "a string, without the character U+0000, which PostgreSQL cannot store"),
    ("`varchar(n)`, `character varying(n)`, `varchar`", "the same, with at most n characters; nothing is cut off"),
    ("`date`", "an ISO 8601 string, `2026-01-31`"),
    ("`time`", f"{_TIME} and no offset, `13:45:00.123456`"),
    ("`timestamp`, `timestamp without time zone`", f"{_TIME} and no offset, `2026-01-31T13:45:00`"),
    ("`timestamptz`, `timestamp with time zone`", f"{_TIME} and an offset, `2026-01-31T13:45:00+01:00` or `...Z`"),
    ("`uuid`", "a string of 32 hexadecimal digits, as 8-4-4-4-12 or without hyphens"),
    ("`jsonb`", "any JSON value but null, which is NULL; without U+0000 in its texts"),
    ("`bytea`", "a string in base64"),
    (
        "an array of any of these but `jsonb`, such as `bigint[]` or `varchar(20)[]`",
        "an array whose elements fit the type or are null; one dimension",
    ),
)

COLUMN_TYPES = (
    """\
## Column types

The type of an entry of `value.columns`, in any spelling that PostgreSQL knows. A value that is present is never
rounded, cut off or turned into NULL: what does not fit is a dead letter that says column, path, expected and found.
A missing key and a JSON null are NULL, or a dead letter where the column is `required`.

| type | JSON values that fit |
|---|---|
"""
    + "".join(f"| {type_} | {values} |\n" for type_, values in _TYPE_ROWS)
    + """
`jsonb[]` is not supported, since a jsonb column holds a JSON array as it is. Neither are types that would change a
value or need a rule of their own: `char(n)`, `timestamp(p)`, `time with time zone`, `interval` and `money`. Take them
into text or jsonb and convert them in SQL.

A column of an existing table may be of a wider type, or of a type of its own: a domain where the file names a type
that the domain's type holds; an enum or `citext` where it names `text`, but not for the metadata columns that rows are
found by. A value that the domain or enum refuses makes its record a dead letter.
"""
)
