"""Every fenced block of the documents is of its language, and every link inside the project leads somewhere."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])
#: Of the Dockerfile reference; a line begins with one of them, unless the line before it goes on.
INSTRUCTIONS = re.compile(r"(FROM|RUN|COPY|USER|ENV|WORKDIR|ENTRYPOINT|ARG) \S")


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Yield the blocks of a language, each with its document."""
    for document in DOCUMENTS:
        for text in re.findall(rf"(?ms)^```{language}\n(.*?)^```$", document.read_text(encoding="utf-8")):
            yield document.name, text


def read_dockerfile(text: str) -> None:
    lines = re.sub(r"(?m)^#.*\n", "", text).replace("\\\n", " ").splitlines()
    assert lines[0].startswith("FROM "), lines[0]
    assert [line for line in lines if line and not INSTRUCTIONS.match(line)] == []


def read_shell(text: str) -> None:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, capture_output=True)


READERS: dict[str, Callable[[str], object]] = {
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "python": ast.parse,
    "json": json.loads,
    "dockerfile": read_dockerfile,
    "sh": read_shell,
}


@pytest.mark.parametrize("language", READERS)
def test_every_block_is_of_the_language_that_it_names(language: str) -> None:
    found = list(blocks(language))
    assert found
    for document, text in found:
        try:
            READERS[language](text)
        except (ValueError, SyntaxError, yaml.YAMLError, subprocess.CalledProcessError) as error:
            pytest.fail(f"{document}: {error}\n{text}")


def test_no_block_is_of_a_language_that_nobody_reads() -> None:
    named = {
        language for document in DOCUMENTS for language in re.findall(r"(?m)^```(\w+)", document.read_text("utf-8"))
    }
    assert named - set(READERS) == {"text"}  # what a command prints: tests/unit/test_sizing_page.py


def anchors(document: Path) -> set[str]:
    """Return the names that GitHub gives to the headings: lower case, without punctuation, ``-`` for a blank."""
    headings = re.findall(r"(?m)^#+ (.+)$", document.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_inside_the_project_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
            path, _, anchor = unquote(target).partition("#")
            if "://" in target:
                continue
            file = document.parent / path if path else document
            if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
                broken.append(f"{document.name}: {target}")
    assert broken == []


def helm_values() -> dict[str, object]:
    [values] = [text for document, text in blocks("yaml") if document == "managed-airflow.md"]
    loaded: dict[str, object] = yaml.safe_load(values)
    return loaded


def test_the_helm_values_use_the_keys_that_the_charts_documents_show() -> None:
    """``chart/docs`` of apache/airflow: customizing-workers, manage-dag-files, adding-connections-and-variables."""
    known = {"executor", "airflowVersion", "images", "env", "secret", "workers", "dags"}
    values = helm_values()
    assert set(values) == known
    assert isinstance(values["secret"], list)
    assert all(set(entry) == {"envName", "secretName", "secretKey"} for entry in values["secret"])


def test_the_image_for_executors_of_airflow_has_the_version_that_is_tested() -> None:
    [image] = [text for document, text in blocks("dockerfile") if document == "managed-airflow.md"]
    version = helm_values()["airflowVersion"]
    assert f"FROM apache/airflow:{version}-python3.11\n" in image
    assert f'"apache-airflow=={version}"' in image
    assert f"apache-airflow=={version}\n" in (CHECKOUT / "requirements.in").read_text(encoding="utf-8")
