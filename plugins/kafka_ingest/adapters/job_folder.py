"""Where a submission keeps its files: a folder of its own, below one that only this user can enter.

It holds the job's settings with their secrets (until the driver has read them), the job's outcome, and what Spark puts
on the driver's disk. Submitter and driver lock it (flock(2)) as long as they live. The kernel takes a lock away with
its process, however that ends: so the next submission knows what killed ones have left, and deletes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_JOB = "job_"


@contextmanager
def job_folder() -> Iterator[Path]:
    """Give a new folder of mode 0700, and delete it at the end. Delete those that killed submissions have left, too."""
    own = own_folder()
    _delete_abandoned(own)
    folder, lock = _locked_folder(own)
    try:
        yield folder
    finally:
        # A JVM that was told to end may still write: what it leaves is deleted by the next submission.
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def keep_job_folder(folder: Path) -> None:
    """Keep a job's folder from being deleted as abandoned while this process lives.

    Why: a driver may outlive its submitter, which was killed, and still load its batch.
    """
    # Never closed: the lock is to end with the process.
    fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH)


def own_folder() -> Path:
    """Give a folder below the temporary folder that nobody else can write to or enter.

    Where somebody else owns its name, another one is made, once, and found again.
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
    except FileNotFoundError:  # somebody else's, gone meanwhile
        return False
    # Code is run from it: it must be no link, and not writable for others.
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _locked_folder(own: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(dir=own, prefix=_JOB))
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        # Before it was locked, another submission may have taken it for abandoned.
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
        except BlockingIOError:  # its submitter or its driver lives
            continue
        finally:
            os.close(lock)
