"""Where the sandbox keeps its files. Everything is relative to the checkout."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class SandboxPaths:
    """Folders of one sandbox.

    Attributes:
        state: Files of the running parts: data, logs, passwords, chosen ports. Safe to delete when all is stopped.
        cache: Downloads; shared by all sandboxes of a checkout.
    """

    state: Path
    cache: Path = CHECKOUT / ".cache"

    @property
    def env_file(self) -> Path:
        """The sourceable file with every address of the running sandbox."""
        return self.state / "env"

    @property
    def pipelines(self) -> Path:
        """Pipeline files of this sandbox alone, besides those in ``dags/pipelines``."""
        return self.state / "pipelines"


def default_paths() -> SandboxPaths:
    """Return the folders that ``make up`` uses; ``KAFKA_INGEST_SANDBOX`` moves the state elsewhere."""
    state = os.environ.get("KAFKA_INGEST_SANDBOX")
    return SandboxPaths(Path(state).resolve() if state else CHECKOUT / ".sandbox")


def private_folder(folder: Path) -> Path:
    """Make a folder (and its parents) if needed; the state folders hold passwords, so others may only pass through."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)
    return folder


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, in one step: a reader sees the old text or the new one."""
    private_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def tool(name: str) -> str:
    """Return the path of a script of the environment that runs this code, for example ``airflow``."""
    return str(Path(sys.executable).parent / name)


def log_tail(path: Path, lines: int = 15) -> str:
    """Return the last lines of a log, or say that there is none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return f"no log at {path}"
    return f"the end of {path}:\n" + "\n".join("    " + line for line in text.splitlines()[-lines:])
