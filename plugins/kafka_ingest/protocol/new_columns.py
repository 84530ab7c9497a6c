"""Columns for fields that no column reads (``new_fields: add_column``): which a table gets, and who reads them then.

A batch's mapping is the pipeline file and the columns that were added before, together. Columns are only ever added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_ingest.column_types import MAX_IDENTIFIER_BYTES, RESERVED_COLUMNS, can_hold
from kafka_ingest.errors import SchemaChangeRefused
from kafka_ingest.protocol.staging import NewField, StageResult
from kafka_ingest.protocol.target import AddedColumn, written_columns
from kafka_ingest.settings import (
    REGISTRY_FORMATS,
    BatchSettings,
    ColumnSettings,
    NewFields,
    ValueFormat,
    json_path_text,
)

#: More fields than this at once are not an evolving schema, but keys that are data, such as ids: a table has 1,600
#: columns at most, and gives none back.
MOST_OF_A_BATCH = 10
MOST_OF_A_PIPELINE = 100


def with_added_columns(settings: BatchSettings, added: Iterable[AddedColumn]) -> BatchSettings:
    """Return the settings with columns that were added to the table; those of the file win by name and by path.

    A format that is taken whole has its one column, whatever was added before.
    """
    value = settings.value
    if value.format not in (ValueFormat.JSON_COLUMNS, *REGISTRY_FORMATS):
        return settings
    names = {column.name for column in written_columns(settings)}
    read = {path for column in value.columns if not column.from_key for path in (column.path, *column.other_paths)}
    more = [column for column in added if column.name not in names and column.path not in read]
    columns = (*value.columns, *(ColumnSettings(column.name, column.type, column.path) for column in more))
    return replace(settings, value=replace(value, columns=columns)) if more else settings


def new_fields_of(results: Iterable[StageResult]) -> tuple[NewField, ...]:
    """Return what all tasks have found, one field a path, in the order of the paths.

    Raises:
        SchemaChangeRefused: Schemas give a field types of which none holds the values of all others.
    """
    types: dict[tuple[str, ...], set[str]] = {}
    for result in results:
        for field in result.new_fields:
            types.setdefault(field.path, set()).add(field.type)
    widest = {path: _widest(sorted(found)) for path, found in sorted(types.items())}
    faults = [f"{_field(path)}: {', '.join(sorted(types[path]))}" for path, type_ in widest.items() if type_ is None]
    if faults:
        raise _refused("fields of the value have types that no one column can hold", "one type a field", faults)
    return tuple(NewField(path, type_) for path, type_ in widest.items() if type_ is not None)


def _widest(types: Sequence[str]) -> str | None:
    return next((type_ for type_ in types if all(can_hold(type_, other) for other in types)), None)


def most_passes(settings: BatchSettings) -> int:
    """Return how often an attempt stages a batch at most, each time under a claim of its own: all but the last add."""
    return 1 + MOST_OF_A_BATCH if settings.value.new_fields is NewFields.ADD_COLUMN else 1


@dataclass(frozen=True, slots=True)
class ColumnsBefore:
    """What there is before fields become columns.

    Attributes:
        table: Names of all columns of the table.
        recorded: How many columns were added for the pipeline.
        of_batch: How many of them by the same batch.
    """

    table: Collection[str]
    recorded: int = 0
    of_batch: int = 0


def columns_for(fields: Sequence[NewField], settings: BatchSettings, before: ColumnsBefore) -> tuple[AddedColumn, ...]:
    """Return a column for each field, named by its keys joined with ``_``; some may be in the table already.

    Args:
        fields: Fields that no column reads, one a path.
        settings: The batch's settings, with the columns that were added before.
        before: What there is.

    Raises:
        SchemaChangeRefused: Lists every name that cannot be, and every limit that would be passed.
    """
    columns = tuple(AddedColumn(_cut(_name_of(field.path)), field.type, field.path) for field in fields)
    faults = [*_limit_faults(columns, settings, before), *_name_faults(columns, settings, before)]
    if faults:
        what = f"fields of the value cannot become columns of {settings.target} by themselves"
        raise _refused(what, "names that no other column has, and few columns", faults)
    return columns


def _limit_faults(columns: Sequence[AddedColumn], settings: BatchSettings, before: ColumnsBefore) -> Iterator[str]:
    named = ", ".join(_field(column.path) for column in columns[: MOST_OF_A_BATCH + 1])
    for most, so_far, of_what in (
        (MOST_OF_A_BATCH, before.of_batch, "one batch"),
        (MOST_OF_A_PIPELINE, before.recorded, f"the pipeline in {settings.target}"),
    ):
        if so_far + len(columns) > most:
            yield f"{len(columns)} new columns beside {so_far}, at most {most} are added for {of_what}: {named}"


def _name_faults(columns: Sequence[AddedColumn], settings: BatchSettings, before: ColumnsBefore) -> Iterator[str]:
    written = {column.name for column in written_columns(settings)}
    asked = Counter(column.name for column in columns)
    alike = _by_folded([*before.table, *written, *asked])
    for column in columns:
        name, others = column.name, alike[_folded(column.name)] - {column.name}
        is_cut = name != _name_of(column.path)
        reasons = {
            "a column name has printable characters but %, and no blank at an end": not _is_sound(column),
            "the name is PostgreSQL's or staging's own": name in RESERVED_COLUMNS,
            "the pipeline fills a column of this name from elsewhere": name in written,
            "another new field asks for the same name": asked[name] > 1,
            "cut to 63 bytes, the name is that of another column": is_cut and name in before.table,
            f"but for the case of its letters the name is that of {', '.join(sorted(others))}": bool(others),
        }
        if reason := next((reason for reason, applies in reasons.items() if applies), ""):
            yield f"{_field(column.path)} as column {name!a}: {reason}"


def _is_sound(column: AddedColumn) -> bool:
    # The rules of the pipeline file: psycopg2 would take a % for a parameter.
    whole, name = _name_of(column.path), column.name
    return whole.isprintable() and "%" not in name and name == name.strip() != ""


def _by_folded(names: Iterable[str]) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name in names:
        found.setdefault(_folded(name), set()).add(name)
    return found


def _name_of(path: tuple[str, ...]) -> str:
    return "_".join(path)


def _cut(name: str) -> str:
    """Cut a name as PostgreSQL does, between two characters."""
    encoded = name.encode(errors="surrogatepass")
    return name if len(encoded) <= MAX_IDENTIFIER_BYTES else encoded[:MAX_IDENTIFIER_BYTES].decode(errors="ignore")


def _folded(name: str) -> str:
    return name.casefold()


def _field(path: tuple[str, ...]) -> str:
    return f"field {json_path_text(path).encode(errors='backslashreplace').decode()}"


def _refused(what: str, expected: str, faults: Sequence[str]) -> SchemaChangeRefused:
    return SchemaChangeRefused(
        f"{what}; nothing was altered or published",
        expected=expected,
        found="".join(f"\n    {fault}" for fault in faults),
        next_command="name these fields under value.columns of the pipeline file, or choose another value.new_fields, "
        "then run the task again",
    )
