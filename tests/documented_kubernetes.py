"""The configuration of Kubernetes that docs/spark-clusters.md shows, as values."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from sandbox.paths import CHECKOUT

#: An object of Kubernetes' API, as JSON or YAML has it.
Thing = dict[str, Any]


def section() -> str:
    """Return the page's section about Kubernetes."""
    page = (CHECKOUT / "docs" / "spark-clusters.md").read_text(encoding="utf-8")
    return re.split(r"(?m)^## ", page.partition("## Kubernetes\n")[2])[0]


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of the section that are written in a language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", section())


def connection() -> Thing:
    """Return the Spark connection, the first of the section's JSON blocks."""
    found: Thing = json.loads(blocks("json")[0])
    return found


def secret_by_file() -> Thing:
    """Return the properties that take Spark's own secret from a file, the second of them."""
    found: Thing = json.loads(blocks("json")[1])
    return found


def executor_template(*, secret_by_file: bool = False) -> Thing:
    """Return the pod template of executors; with the variable that such files ask for, where they are used."""
    [template] = things("Pod")
    if secret_by_file:
        [variables] = [part["env"] for part in _parts() if "env" in part]
        template["spec"]["containers"][0]["env"] = variables
    return template


def things(kind: str) -> list[Thing]:
    """Return all things of a kind, such as ``Role``, in the order of the page."""
    return [thing for block in blocks("yaml") for thing in yaml.safe_load_all(block) if thing.get("kind") == kind]


def helm_values() -> list[Thing]:
    """Return the values of Airflow's Helm chart, a document for each block that has some."""
    return [part for part in _parts() if "extraEnv" in part]


def _parts() -> list[Thing]:
    """Return the blocks that are parts of something."""
    documents = [thing for block in blocks("yaml") for thing in yaml.safe_load_all(block)]
    return [thing for thing in documents if "kind" not in thing]
