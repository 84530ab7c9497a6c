"""The command ``size`` from options alone: what it asks for, what it takes, what it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_ingest.__main__ import main

TRAFFIC = ("--records-per-day", "24000000", "--bytes-per-record", "280")


def sized(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Run the command; return its document, with inputs and figures by name and verdicts by part."""
    assert main(["size", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {kind: {one["name"]: one for one in found[kind]} for kind in ("inputs", "figures")}
    return {**by_name, "verdicts": {one["part"]: one for one in found["verdicts"]}}


def test_without_traffic_nothing_is_calculated_and_all_that_is_missing_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["size", "--partitions", "7"]) == 78
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "ConfigError: the sizes cannot be calculated\n"
        "  expected: --records-per-day and --bytes-per-record, or a PIPELINE whose topics have records\n"
        "  found: records per day: neither measured nor given; bytes per record: neither measured nor given\n"
        "  next: python -m kafka_ingest size --records-per-day 50000000 --bytes-per-record 300\n"
    )
    # Bytes of a day say nothing of its records.
    assert main(["size", "--bytes-per-day", "1TB"]) == 78
    assert "bytes per record: neither measured nor given" in capsys.readouterr().err


def test_more_pipelines_than_topics_and_more_topics_than_partitions_are_refused_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["size", *TRAFFIC, "--pipelines", "9", "--topics", "8", "--partitions", "7"]) == 78
    found = capsys.readouterr().err
    assert "  expected: as many topics as pipelines and as many partitions as topics\n" in found
    assert "  found: 8 topics for 9 pipelines; 7 partitions for 8 topics\n" in found
    # What is not given is assumed so that it fits.
    inputs = sized(capsys, *TRAFFIC, "--pipelines", "9")["inputs"]
    assert [inputs[name]["value"] for name in ("topics", "partitions")] == [9, 9]


@pytest.mark.parametrize(
    ("text", "records"), [("280", 1), ("28kB", 100), ("2.8M", 10_000), ("0.28GB", 1_000_000), ("2.8TB", 10_000_000_000)]
)
def test_bytes_of_a_day_are_records_of_that_size(text: str, records: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = sized(capsys, "--bytes-per-day", text, "--bytes-per-record", "280")["inputs"]["records per day"]
    assert found["value"] == pytest.approx(records)
    assert found["source"].startswith("--bytes-per-day, ")


def test_json_has_plain_numbers_each_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    found = sized(capsys, *TRAFFIC, "--tasks", "2")
    assert found["inputs"]["tasks"] == {"name": "tasks", "value": 2, "unit": "", "source": "--tasks"}
    assert found["inputs"]["peak factor"]["source"] == "assumed"
    # An average hour has 1 M records, the busiest two; rows of 300 bytes and 30 of WAL, 2 M of them in a full run.
    assert found["figures"]["records of an interval"]["value"] == pytest.approx(2_000_000)
    assert found["figures"]["WAL of a full run"]["value"] == pytest.approx(660_000_000)
    assert found["figures"]["connections"]["value"] == 7
    assert found["verdicts"]["catching up"]["result"] == "fits"


def test_every_option_changes_something(capsys: pytest.CaptureFixture[str]) -> None:
    """An option that nothing reads would be a promise that nothing keeps."""
    crowd = ("--pipelines", "30", "--partitions", "60", "--tasks", "3")
    usual = sized(capsys, *TRAFFIC, *crowd)
    for option, value in (
        ("--peak-factor", "5"),
        ("--largest-record", "50MB"),
        ("--partitions", "6000"),
        ("--retention-hours", "1"),
        ("--pipelines", "2"),
        ("--interval-minutes", "5"),
        ("--limit", "1000"),
        ("--tasks", "1"),
        ("--cores", "7"),
        ("--columns", "99"),
        ("--format", "avro"),
        ("--mode", "upsert"),
        ("--mode", "unique_key"),
        ("--outage-hours", "99"),
        ("--pace", "4"),
    ):
        changed = sized(capsys, *TRAFFIC, *crowd, option, value)
        assert (changed["figures"], changed["verdicts"]) != (usual["figures"], usual["verdicts"]), option
    alone = ("--limit", "1000", "--follow-up")
    assert sized(capsys, *TRAFFIC, *alone, "yes")["figures"] != sized(capsys, *TRAFFIC, *alone, "no")["figures"]


def test_text_is_three_tables_in_the_greatest_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", *TRAFFIC, "--limit", "20000000", "--retention-hours", "24"]) == 0
    inputs, figures, verdicts = capsys.readouterr().out.split("\n\n")
    assert inputs.splitlines()[0].split() == ["input", "value", "source"]
    assert "tasks             as needed" in inputs
    assert "retention hours   24 h" in inputs
    # 20 M rows of 326 bytes.
    assert "staging                                   6.52 GB" in figures
    assert verdicts.splitlines()[0].split() == ["part", "result", "found", "knob"]
