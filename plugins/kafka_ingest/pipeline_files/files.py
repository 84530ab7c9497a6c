"""The folders of pipeline files: find, read, and look each one up."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from urllib.parse import quote, unquote

from pydantic import ValidationError

from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.document import (
    MAX_BYTES,
    Fault,
    Location,
    YamlDocument,
    key_text,
    model_faults,
    parse_yaml,
)
from kafka_ingest.pipeline_files.kinds import PIPELINE_NAME
from kafka_ingest.pipeline_files.model import PipelineFile, to_settings
from kafka_ingest.pipeline_files.rules import Clash, clashes, rule_faults
from kafka_ingest.settings import PipelineSettings

# ----------
# Pipeline files: where they are, and their settings or every fault of them at once.

#: Environment variable with more folders of pipeline files, separated like PATH.
FOLDERS_VARIABLE = "KAFKA_INGEST_PIPELINES"
#: ``dags/pipelines`` beside ``plugins``: in a checkout, and where dags and plugins are deployed side by side.
DEFAULT_FOLDER = Path(__file__).resolve().parents[3] / "dags" / "pipelines"

#: More than a reader takes in at once; without a limit, a file full of unknown keys makes a message of its own size.
_MAX_FAULTS = 100
_MAX_FAULT_CHARACTERS = 1_000

_CHECK_COMMAND = "python -m kafka_ingest check-config"
_ROOT: Location = ()


@dataclass(frozen=True, slots=True)
class LoadedPipelines:
    """What a set of pipeline files gave: every file is in exactly one of the two.

    Attributes:
        settings: The sound pipelines, in the order of the files.
        errors: One error for each broken file, with all of its faults.
    """

    settings: Mapping[Path, PipelineSettings]
    errors: Mapping[Path, ConfigError]


@dataclass(frozen=True, slots=True)
class _File:
    """One parsed file: ``settings`` is ``None`` exactly where there are faults."""

    path: Path
    document: YamlDocument
    settings: PipelineSettings | None
    faults: tuple[str, ...]

    @property
    def name(self) -> str | None:
        """The pipeline's name as it stands in the file, sound or not."""
        name = self.document.data.get("pipeline") if isinstance(self.document.data, dict) else None
        return name if isinstance(name, str) else None

    def line(self, location: Location, text: str) -> str:
        """Return ``file:line: key: text``."""
        return _line(self.path, self.document.line_of(location), location, text)


def load_pipeline(path: Path) -> PipelineSettings:
    """Return the settings of one file.

    Raises:
        ConfigError: ``found`` has one line for every fault: ``file:line: key: expected ...; found ...``.
    """
    return _sound(_read(path))


def check_content(content: bytes, path: Path) -> PipelineSettings:
    """Return the settings of a file that is not written yet.

    Args:
        content: What will be in it.
        path: What messages call it.

    Raises:
        ConfigError: As of :func:`load_pipeline`.
    """
    return _sound(_examined(path, parse_yaml(content)))


def _sound(file: _File) -> PipelineSettings:
    if file.settings is None:
        raise _error(file, file.faults)
    return file.settings


def read_pipelines(paths: Iterable[Path]) -> LoadedPipelines:
    """Read many files, each once; a broken file does not hide the sound ones.

    Two files with the same name, or that load the same topic into the same table, are both broken: nothing tells which
    of them is meant.
    """
    files = [_read(path) for path in paths]
    faults = {file.path: list(file.faults) for file in files}
    by_path = {file.path: file for file in files}
    for clash in clashes([(file.path, file.settings) for file in files if file.settings]):
        faults[clash.path].append(_clash_line(clash, by_path))
    return LoadedPipelines(
        settings={file.path: file.settings for file in files if file.settings and not faults[file.path]},
        errors={file.path: _error(file, faults[file.path]) for file in files if faults[file.path]},
    )


def load_pipelines(paths: Iterable[Path]) -> tuple[PipelineSettings, ...]:
    """Return the settings of all files, in their order.

    Raises:
        ConfigError: With every fault of every file, one a line.
    """
    loaded = read_pipelines(paths)
    if loaded.errors:
        raise ConfigError(
            f"{len(loaded.errors)} of {len(loaded.errors) + len(loaded.settings)} pipeline files have faults",
            expected="files as docs/configuration.md describes them",
            found="\n".join(error.found for error in loaded.errors.values()),
            next_command=f"correct the files, then: {_CHECK_COMMAND}",
        )
    return tuple(loaded.settings.values())


def pipeline_paths(folder: Path | None = None, *, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Return every ``*.yaml`` and ``*.yml`` of the folders, in a stable order, each file once.

    Args:
        folder: The first folder, which may be missing; by default :data:`DEFAULT_FOLDER`.
        environment: Where :data:`FOLDERS_VARIABLE` names more folders. Folders inside folders are not searched.

    Raises:
        ConfigError: A folder that the variable names is missing or is not an absolute path: its pipelines would
            silently be gone.
    """
    named = [Path(text).expanduser() for text in environment.get(FOLDERS_VARIABLE, "").split(os.pathsep) if text]
    wrong = [str(path) for path in named if not path.is_absolute() or not path.is_dir()]
    if wrong:
        raise ConfigError(
            f"{FOLDERS_VARIABLE} names folders that are not there",
            expected="absolute paths of folders, separated by " + os.pathsep,
            found="\n".join(wrong),
            next_command=f"correct {FOLDERS_VARIABLE}, then: {_CHECK_COMMAND}",
        )
    found: dict[Path, Path] = {}
    for path in chain.from_iterable(_files(place) for place in (folder or DEFAULT_FOLDER, *named)):
        found.setdefault(path.resolve(), path)
    return list(found.values())


def find_pipeline(name: str, folder: Path | None = None) -> PipelineSettings:
    """Return the settings of the pipeline with this name; faults of other pipelines' files do not matter.

    Raises:
        ConfigError: No file, or more than one, has the name, or its file has faults.
    """
    paths = pipeline_paths(folder)
    # Only files that hold the name somewhere are parsed: a task needs one of hundreds.
    files = [file for file in (_read(path) for path in paths if _mentions(path, name)) if file.name == name]
    if not files:
        raise ConfigError(
            f"there is no pipeline {name}",
            expected=f"a pipeline file with the line: pipeline: {name}",
            found=f"{len(paths)} pipeline files without it",
            next_command=f"{_CHECK_COMMAND}, which lists all pipelines",
        )
    if len(files) > 1:
        raise next(iter(read_pipelines(file.path for file in files).errors.values()))
    if files[0].settings is None:
        raise _error(files[0], files[0].faults)
    return files[0].settings


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.suffix.lower() in (".yaml", ".yml") and not path.name.startswith("."):
                yield path


def _mentions(path: Path, name: str) -> bool:
    try:
        return name.encode() in _content(path)
    except OSError:
        return True


def _content(path: Path) -> bytes:
    """Read a file up to where it is too large for ``parse_yaml``; it never waits for a pipe or a device."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "something that is not a regular file")
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _read(path: Path) -> _File:
    try:
        document = parse_yaml(_content(path))
    except OSError as error:
        document = YamlDocument(None, {_ROOT: 1}, unreadable=frozenset({_ROOT}))
        fault = _line(path, 1, _ROOT, f"expected a readable file; found: {error.strerror}")
        return _File(path, document, None, (fault,))
    return _examined(path, document)


def _examined(path: Path, document: YamlDocument) -> _File:
    settings, faults = _validate(document)
    located = [(fault.line, fault.location, fault.text) for fault in document.faults[:_MAX_FAULTS]]
    located += [(document.line_of(fault.location), fault.location, fault.text) for fault in faults]
    lines = [_line(path, *place) for place in sorted(located, key=lambda place: place[0])]
    if len(lines) > _MAX_FAULTS:
        lines[_MAX_FAULTS:] = [f"{path}: and more faults; correct these first"]
    return _File(path, document, None if lines else settings, tuple(lines))


def _validate(document: YamlDocument) -> tuple[PipelineSettings | None, list[Fault]]:
    if _ROOT in document.unreadable:
        return None, []
    if not isinstance(document.data, dict):
        found = "an empty file" if document.data is None else "something else"
        return None, [Fault(_ROOT, "a mapping of keys to values that begins with pipeline: NAME", found)]
    faults, model = rule_faults(document.data), None
    try:
        model = PipelineFile.model_validate(document.data)
    except ValidationError as error:
        faults = chain(faults, model_faults(error, PipelineFile))
    told = (fault for fault in faults if not _is_unreadable(fault.location, document))
    first = list(islice(told, _MAX_FAULTS + 1))
    return to_settings(model) if model and not first and not document.faults else None, first


def _is_unreadable(location: Location, document: YamlDocument) -> bool:
    return any(location[: len(place)] == place for place in document.unreadable)


def _line(path: Path, line: int, location: Location, text: str) -> str:
    fault = f"{key_text(location)}{': ' if location else ''}{text}"
    # What a file quotes may hold line breaks and control characters: a fault stays one line of plain characters.
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in fault[:_MAX_FAULT_CHARACTERS])
    return f"{path}:{line}: {shown}" + ("..." if len(fault) > _MAX_FAULT_CHARACTERS else "")


def _clash_line(clash: Clash, by_path: Mapping[Path, _File]) -> str:
    line = by_path[clash.other_path].document.line_of(clash.other_location)
    return by_path[clash.path].line(clash.location, f"{clash.text} in {clash.other_path}:{line}")


def _error(file: _File, faults: Iterable[str]) -> ConfigError:
    lines = list(faults)
    return ConfigError(
        f"pipeline file {file.path} has {len(lines)} {'fault' if len(lines) == 1 else 'faults'}",
        expected="a file as docs/configuration.md describes it",
        found="\n".join(lines),
        next_command=f"correct the file, then: {_CHECK_COMMAND}",
        # A name that is none may be anything, a secret too: the faults show of it what may be shown.
        pipeline=file.name if file.name and re.fullmatch(PIPELINE_NAME, file.name) else None,
    )


# ----------
# Every pipeline of a deployment: those that make DAGs, and the faults of those that do not.


@dataclass(frozen=True, slots=True)
class PipelineCatalog:
    """Sound pipelines, and one error for each broken file and for folders that are not there."""

    pipelines: tuple[PipelineSettings, ...]
    errors: tuple[ConfigError, ...]


def read_catalog(folder: Path) -> PipelineCatalog:
    """Read all pipeline files. What is broken or missing never hides what is sound.

    Args:
        folder: ``pipelines`` beside the DAG file; those of ``KAFKA_INGEST_PIPELINES`` are read as well.
    """
    try:
        paths, errors = pipeline_paths(folder), []
    except ConfigError as error:
        paths, errors = pipeline_paths(folder, environment={FOLDERS_VARIABLE: _folders_that_are_there()}), [error]
    loaded = read_pipelines(paths)
    return PipelineCatalog(tuple(loaded.settings.values()), (*errors, *loaded.errors.values()))


def one_pipeline(name: str, folder: Path) -> PipelineSettings:
    """Read one pipeline, as a worker does that is about to run a task of it.

    Args:
        name: The pipeline.
        folder: As for :func:`read_catalog`.

    Raises:
        ConfigError: Its file is broken or gone.
    """
    try:
        return find_pipeline(name, folder)
    except ConfigError:
        # A missing folder of other pipelines must not fail this one.
        for pipeline in read_catalog(folder).pipelines:
            if pipeline.pipeline == name:
                return pipeline
        raise


def require_no_errors(catalog: PipelineCatalog) -> None:
    """Stop when a file is broken or a folder is missing.

    Raises:
        ConfigError: With every fault of every file, one a line.
    """
    if catalog.errors:
        raise ConfigError(
            "pipelines without a DAG: files have faults, or folders are missing",
            expected="files as docs/configuration.md describes them",
            found="\n".join(f"{error.what}\n{error.found}" for error in catalog.errors),
            next_command="correct the files, then: python -m kafka_ingest check-config",
        )


def _folders_that_are_there() -> str:
    named = os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)
    return os.pathsep.join(text for text in named if text and Path(text).is_absolute() and Path(text).is_dir())


# ----------
# Names in Airflow: the DAG of a pipeline file, the asset of its table, the page. Operators and the page share them.

#: DAG ids are ``kafka_to_postgres__<pipeline>``: they sort together and meet no DAG of anybody else.
DAG_ID_PREFIX = "kafka_to_postgres__"
ADMINISTRATION_DAG_ID = "kafka_ingest_administration"
#: Where Airflow's API server mounts the page (``plugins/kafka_ingest_plugin.py``).
PAGE_MOUNT = "/kafka-ingest"
#: ``postgres://`` needs host and database (Airflow's AIP-60 rules), which only the connection knows; schemes that begin
#: with ``x-`` are free.
ASSET_SCHEME = "x-kafka-ingest://"


def dag_id_of(pipeline: str) -> str:
    """Return the DAG id of a pipeline."""
    return DAG_ID_PREFIX + pipeline


def pipeline_of(dag_id: str) -> str:
    """Return the pipeline of a DAG id."""
    return dag_id.removeprefix(DAG_ID_PREFIX)


def asset_uri(conn_id: str, schema: str, table: str) -> str:
    """Return the URI of the asset that stands for a table."""
    return ASSET_SCHEME + "/".join(quote(part, safe="") for part in (conn_id, schema, table))


def connection_of_asset(uri: str) -> str:
    """Return the connection id in :func:`asset_uri`."""
    return unquote(uri.removeprefix(ASSET_SCHEME).partition("/")[0])
