"""A sample of the protocol model's schedules against a real PostgreSQL: the ports that production uses, the same
rules, the same promise, and the invariants of ``sql/invariants``. A crash is a connection that ends without COMMIT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.protocol_model.driven_steps import drive_steps
from tests.protocol_model.model import ProtocolModel
from tests.protocol_model.postgres_store import PostgresStore
from tests.protocol_model.schedule import tally_of
from tests.protocol_model.two_faults import EVOLVING, LIVE, RELOAD, faults_of_a_run, require_one_copy


@pytest.fixture
def store(database: Mapping[str, Any]) -> Iterator[PostgresStore]:
    found = PostgresStore(database)
    yield found
    found.close()


def test_after_two_faults_in_one_run_a_third_attempt_loads_everything_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample of the ordered pairs, always the same; the model in memory tries all of them."""
    drive_steps(monkeypatch)
    for request in (LIVE, RELOAD, EVOLVING):
        pairs = list(product(faults_of_a_run(request), repeat=2))
        for first, second in Random(4).sample(pairs, 12):
            require_one_copy(store.emptied(), first, second, request)


def test_no_schedule_loses_or_doubles_a_record_in_postgresql(
    store: PostgresStore,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Always the same schedules. A failing one is not reduced here: the model in memory does that in seconds."""
    drive_steps(monkeypatch)

    class Replay(ProtocolModel):
        new_store = store.emptied

    run_state_machine_as_test(
        Replay,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            derandomize=True,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    with capsys.disabled():
        pytestconfig.get_terminal_writer().line(tally_of(Replay))
