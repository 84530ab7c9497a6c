"""One sourceable file with every address of the running sandbox: ``. .sandbox/env``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from sandbox.paths import write_secret

_HEAD = "# Addresses and passwords of the running sandbox. Use it with: . {path}\n"


def write_env_file(path: Path, variables: Mapping[str, str], *, first_on_path: Path) -> None:
    """Write the file, readable by its owner only.

    Args:
        path: The file; replaced in one step.
        variables: Name and value, any text without NUL; quoted for a POSIX shell.
        first_on_path: Folder put before everything else on ``PATH``.
    """
    lines = [f"export {name}={shlex.quote(text)}" for name, text in sorted(variables.items())]
    lines.append(f'export PATH={shlex.quote(str(first_on_path))}:"$PATH"')
    write_secret(path, _HEAD.format(path=path) + "\n".join(lines) + "\n")


def read_env_file(path: Path) -> dict[str, str]:
    """Read back the output of :func:`write_env_file`, without ``PATH``; for scripts that do not go through a shell."""
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("export "):
            name, _, text = line.removeprefix("export ").partition("=")
            found[name] = "".join(shlex.split(text))
    found.pop("PATH", None)
    return found
