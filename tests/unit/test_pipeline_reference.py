"""The reference page and the editors' schema are what the model says, and nothing of the model is missing there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.pipeline_files.document import keys_of, models_in
from kafka_ingest.pipeline_files.files import pipeline_paths
from kafka_ingest.pipeline_files.model import PipelineFile
from tools.reference import SHORTEST_FILE, editor_schema, main, reference_page


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    for key, field in keys_of(model).items():
        yield prefix + key, field.description
        for section in models_in(field.annotation):
            yield from _keys(section, f"{prefix}{key}.")


def test_the_generated_files_are_fresh() -> None:
    assert main(["--check"]) == 0


def test_a_stale_file_is_named_with_the_command_that_renews_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--docs", str(tmp_path)]) == 0
    (tmp_path / "configuration.md").write_text("old", encoding="utf-8")
    assert main(["--check", "--docs", str(tmp_path)]) == 1
    assert "configuration.md" in (told := capsys.readouterr().err)
    assert "pipeline.schema.json" not in told
    assert "python -m tools.reference" in told
    assert (tmp_path / "configuration.md").read_text(encoding="utf-8") == "old"
    assert main(["--docs", str(tmp_path)]) == 0
    assert main(["--check", "--docs", str(tmp_path)]) == 0


@pytest.mark.parametrize(("key", "description"), list(_keys(PipelineFile)))
def test_every_key_is_described_on_the_page(key: str, description: str | None) -> None:
    assert description
    section, _, name = key.rpartition(".")
    page = reference_page()
    part = page.split(f"\n## {section or 'The file'}\n")[1].split("\n## ")[0]
    assert f"`{name}`" in part
    assert description.replace("\n", " ") in part


def test_every_type_on_the_page_is_one_that_files_may_use() -> None:
    part = reference_page().split("\n## Column types\n")[1].split("\n## Conversions\n")[0]
    rows = [line for line in part.splitlines() if line.startswith(("| `", "| an array"))]
    names = [name for row in rows for name in row.split("|")[1].split("`")[1::2]]
    assert len(names) > 20
    for name in names:
        parse_column_type(name.replace("p,s", "10,2").replace("(n)", "(5)"))


def test_the_schema_for_editors_takes_the_examples_and_refuses_unknown_keys() -> None:
    schema = json.loads(editor_schema())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    texts = [path.read_text(encoding="utf-8") for path in pipeline_paths(environment={})]
    for text in [*texts, SHORTEST_FILE]:
        validator.validate(yaml.safe_load(text))
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        validator.validate(yaml.safe_load(SHORTEST_FILE) | {"colour": "red"})
