"""The job's code as one zip, and the folder of a submission."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import py_compile
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import kafka_ingest

# ----------
# Where a submission keeps its files: a folder of its own, below one that only this user can enter.
#
# It holds the job's settings with their secrets (until the driver has read them), the job's outcome, and Spark's files
# on the driver's disk. Submitter and driver lock it (flock(2)) as long as they live. The kernel releases
# a lock when its process ends, for whatever reason: so the next submission finds and deletes what killed ones left.

_JOB = "job_"


@contextmanager
def job_folder() -> Iterator[Path]:
    """Yield a new folder of mode 0700, and delete it at the end. Delete folders of killed submissions, too."""
    own = own_folder()
    _delete_abandoned(own)
    folder, lock = _locked_folder(own)
    try:
        yield folder
    finally:
        # A JVM that was told to end may still write: the next submission deletes what it leaves.
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def keep_job_folder(folder: Path) -> None:
    """Keep a job's folder from being deleted as abandoned while this process lives.

    A driver may outlive its submitter, which was killed, and still load its batch.
    """
    # Never closed: the lock must end with the process.
    fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH)


def own_folder() -> Path:
    """Return a folder below the temporary folder that nobody else can write to or enter.

    Where somebody else owns its name, another one is made once and found again later.
    """
    parent, name = Path(tempfile.gettempdir()), f"kafka-ingest-{os.getuid()}"
    folder = parent / name
    folder.mkdir(mode=0o700, exist_ok=True)
    for known in (folder, *sorted(parent.glob(f"{name}-*"))):
        if _is_own(known):
            return known
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))


def _is_own(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except FileNotFoundError:  # it was somebody else's and is gone
        return False
    # Code is run from it: it must be no link, and others must not be able to write to it.
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _locked_folder(own: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(dir=own, prefix=_JOB))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        # Before the lock, another submission may have deleted it as abandoned.
        if folder.exists():
            return folder, lock
        os.close(lock)


def _delete_abandoned(own: Path) -> None:
    for folder in own.glob(f"{_JOB}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another submission was quicker
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:  # its submitter or its driver is alive
            continue
        finally:
            os.close(lock)


# ----------
# The job's code as one zip for ``spark-submit --py-files``: the only form in which it reaches executors.
#
# Not a wheel: Spark gives executors ``.py``, ``.zip`` and ``.egg`` files and silently leaves out a ``.whl``
# (``PYTHON_EXTENSIONS`` in Spark's ``python/pyspark/core/context.py``, 4.2).
#
# Each module's compiled form is beside it: Python does not keep what it compiles from a zip, so the driver and each
# worker would compile everything again. A Python of another version than the submitter's ignores it and takes the
# source (``zipimport``: its magic number differs).

#: Parts of the package that run on executors or in the driver; Airflow's side is left out.
_PARTS = ("protocol", "postgres", "kafka", "spark")
#: The earliest time that a zip can hold. No entry tells when it was written.
_TIME = (1980, 1, 1, 0, 0, 0)


def job_archive(folder: Path | None = None) -> Path:
    """Return the path of the zip with ``spark_jobs`` and those parts of ``kafka_ingest`` that a job needs.

    The name comes from the content, so another version of the code is another file, and a running job keeps the one
    that it was started with. The file is written whole or not at all; a whole one that exists is reused.

    Args:
        folder: Where to keep it; by default a folder of the user's own below the temporary folder.
    """
    sources = {name: path.read_bytes() for name, path in sorted(_entries())}
    place = folder or own_folder()
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"kafka_ingest_job_{_digest(sources)}.zip"
    if not _is_whole(path, sources):
        _write_whole(path, _zip_bytes(sources))
    return path


def entry_script(name: str) -> Path:
    """Return the path of a script that spark-submit runs: ``load_batch`` or ``report_packages``."""
    return job_code() / f"{name}.py"


def job_code() -> Path:
    """Return ``kafka_ingest/spark_jobs`` in an installed wheel, ``spark_jobs`` beside ``plugins`` in a checkout.

    Its modules are imported as ``spark_jobs`` in both, from the zip, or from here by a load in process.
    """
    installed = _package() / "spark_jobs"
    return installed if installed.is_dir() else _package().parents[1] / "spark_jobs"


def _write_whole(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    # mkstemp gives 0600; a Spark worker under another user may have to read it.
    Path(name).chmod(0o644)
    Path(name).replace(path)


def _digest(sources: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(MAGIC_NUMBER)
    for name, content in sources.items():
        digest.update(b"%s\0%d\0%s" % (name.encode(), len(content), content))
    return digest.hexdigest()[:16]


def _is_whole(path: Path, sources: Mapping[str, bytes]) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None and all(archive.read(name) == text for name, text in sources.items())
    except (OSError, KeyError, zipfile.BadZipFile):
        return False


def _zip_bytes(sources: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, tempfile.TemporaryDirectory() as folder:
        for name, content in sources.items():
            _add(archive, name, content)
            if name.endswith(".py"):
                _add(archive, f"{name}c", _compiled(name, content, Path(folder)))
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)


def _compiled(name: str, content: bytes, folder: Path) -> bytes:
    source, compiled = folder / "module.py", folder / "module.pyc"
    source.write_bytes(content)
    # Unchecked: both are written together, so the source beside it is always the same one.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(compiled), dfile=name, doraise=True, invalidation_mode=mode)
    return compiled.read_bytes()


def _entries() -> Iterator[tuple[str, Path]]:
    package = _package()
    for path in package.glob("*.py"):
        yield f"kafka_ingest/{path.name}", path
    for part in _PARTS:
        yield from _sources(package / part, f"kafka_ingest/{part}", ".py")
    yield from _sources(_sql(), "kafka_ingest/sql", ".sql")
    yield from _sources(job_code(), "spark_jobs", ".py")


def _sources(folder: Path, name: str, suffix: str) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob(f"*{suffix}"):
        yield f"{name}/{path.relative_to(folder).as_posix()}", path


def _package() -> Path:
    return Path(kafka_ingest.__file__).resolve().parent


def _sql() -> Path:
    """Return ``kafka_ingest/sql`` in an installed wheel, ``sql`` beside ``plugins`` in a checkout."""
    installed = _package() / "sql"
    return installed if installed.is_dir() else _package().parents[1] / "sql"
