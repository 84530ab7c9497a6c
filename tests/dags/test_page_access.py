"""Who may read the page: the login and the auth manager of Airflow, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.auth.managers.simple import simple_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import Depends, FastAPI, Request
from fastapi.testclient import TestClient

from kafka_ingest.page import access

#: Since 3.2 a token is looked for in the list of those that were logged out.
pytestmark = pytest.mark.usefixtures("airflow_tables")

ORDERS, PAYMENTS = "kafka_to_postgres__orders", "kafka_to_postgres__payments"


@pytest.fixture(scope="module")
def manager() -> Iterator[simple_auth_manager.SimpleAuthManager]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
        manager = create_auth_manager()
        assert isinstance(manager, simple_auth_manager.SimpleAuthManager)
        yield manager


@pytest.fixture
def client(manager: simple_auth_manager.SimpleAuthManager) -> TestClient:
    """An application with one route that tells who asks."""
    app = FastAPI()

    @app.get("/")
    def who(reader: Annotated[access.Reader, Depends(access.reader_of)]) -> dict[str, Any]:
        return {"name": reader.name, "orders": sorted(reader.readable([ORDERS]))}

    @app.get("/login")
    def login(request: Request) -> str:
        return access.login_path(request)

    airflow = FastAPI(root_path="/airflow")
    airflow.mount("/kafka-ingest", app)
    return TestClient(airflow)


def token(manager: simple_auth_manager.SimpleAuthManager, role: str | None) -> str:
    return manager.generate_jwt(SimpleAuthManagerUser(username="ada", role=role))


def reader(manager: simple_auth_manager.SimpleAuthManager, role: str | None) -> access.AirflowReader:
    return access.AirflowReader(SimpleAuthManagerUser(username="ada", role=role), manager)


def test_nobody_reads_without_a_login(client: TestClient) -> None:
    assert client.get("/airflow/kafka-ingest/").status_code == 401


@pytest.mark.parametrize("text", ["", "no-token", "a.b.c"])
def test_a_cookie_that_is_no_token_is_no_login(client: TestClient, text: str) -> None:
    assert client.get("/airflow/kafka-ingest/", headers={"Cookie": f"_token={text}"}).status_code == 401


@pytest.mark.parametrize("header", ["Cookie", "Authorization"])
def test_airflows_cookie_and_its_bearer_token_are_logins(
    client: TestClient, manager: simple_auth_manager.SimpleAuthManager, header: str
) -> None:
    prefix = {"Cookie": "_token=", "Authorization": "Bearer "}[header]
    answer = client.get("/airflow/kafka-ingest/", headers={header: prefix + token(manager, "viewer")})
    assert answer.json() == {"name": "ada", "orders": [ORDERS]}


def test_the_login_leads_back_to_what_was_asked_for(client: TestClient) -> None:
    answer = client.get("/airflow/kafka-ingest/login?reason=malformed").json()
    assert answer == "/airflow/api/v2/auth/login?next=%2Fairflow%2Fkafka-ingest%2Flogin%3Freason%3Dmalformed"


def test_a_person_without_a_role_reads_no_dag(manager: simple_auth_manager.SimpleAuthManager) -> None:
    assert reader(manager, None).readable([ORDERS, PAYMENTS]) == frozenset()


@pytest.mark.parametrize(("role", "allowed"), [(None, False), ("viewer", False), ("user", True), ("admin", True)])
def test_payloads_are_for_those_who_may_edit_the_dag(
    manager: simple_auth_manager.SimpleAuthManager, role: str | None, allowed: bool
) -> None:
    assert reader(manager, role).may_see_payloads(ORDERS) is allowed


def test_payloads_need_the_custom_view_too(
    manager: simple_auth_manager.SimpleAuthManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(manager, "is_authorized_custom_view", lambda **question: asked.append(question))

    assert not reader(manager, "admin").may_see_payloads(ORDERS)
    assert [(question["method"], question["resource_name"]) for question in asked] == [("GET", "Kafka Ingest Payloads")]


def test_a_dag_of_a_team_is_asked_for_with_its_team(
    manager: simple_auth_manager.SimpleAuthManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_shops(*, details: DagDetails, **_: Any) -> bool:
        return details.team_name in (None, "shop")

    monkeypatch.setattr(manager, "is_authorized_dag", is_shops)
    monkeypatch.setattr(access, "team_names", lambda _: {ORDERS: "shop", PAYMENTS: "finance"})
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")

    assert reader(manager, "viewer").readable([ORDERS, PAYMENTS, "nightly"]) == {ORDERS, "nightly"}
