"""Who gets what from the page's routes, in a running Airflow: nobody, a viewer, a viewer of other DAGs, an admin."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import pytest

import tests.airflow_home  # noqa: F401 (before anything imports Airflow)
from kafka_ingest.page.app import airflow_page
from sandbox.showcase import HOSTILE, Showcase
from tests.e2e.airflow_world import AirflowWorld

#: What a payload of a dead letter has in it, and nothing else; a download has all of it in Base64.
PAYLOAD = "taken over"
DOWNLOADED = base64.b64encode(json.dumps(HOSTILE).encode()).decode()
#: The page of a single record is no route of its own.
RECORD = "/pipelines/{pipeline}/dead-letters?record="
OF_PAYLOADS = {"/pipelines/{pipeline}/dead-letters.jsonl", RECORD}


@dataclass(frozen=True)
class Answer:
    status: int
    text: str

    @property
    def has_payload(self) -> bool:
        return PAYLOAD in self.text or DOWNLOADED in self.text


@dataclass(frozen=True)
class Person:
    """Somebody who asks for pages, with or without a login."""

    world: AirflowWorld
    token: str = field(default="", repr=False)

    def get(self, path: str) -> Answer:
        headers = {"Cookie": f"_token={self.token}"} if self.token else {}
        return self.send(urllib.request.Request(f"{self.world.server.url}/kafka-ingest{path}", headers=headers))

    def logged_in(self, user: str) -> Person:
        login = json.dumps({"username": user, "password": self.world.password_of(user)}).encode()
        headers = {"Content-Type": "application/json"}
        answer = self.send(urllib.request.Request(f"{self.world.server.url}/auth/token", login, headers))
        return Person(self.world, json.loads(answer.text)["access_token"])

    def send(self, request: urllib.request.Request) -> Answer:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return Answer(answer.status, answer.read().decode())
        except urllib.error.HTTPError as refused:
            return Answer(refused.code, refused.read().decode())


@pytest.fixture(scope="module")
def nobody(world: AirflowWorld) -> Person:
    return Person(world)


@pytest.fixture(scope="module")
def paths(showcase: Showcase, world: AirflowWorld) -> Mapping[str, str]:
    """The address of every route of the app, by the route, of a pipeline with a dead letter that has a payload."""
    pipeline = showcase.name("returns")
    [(batch, *place)] = world.ask(
        'SELECT batch_id::text, topic, generation, partition, "offset" FROM kafka_ingest.dead_letter'
        " WHERE pipeline = %s AND encode(value, 'escape') LIKE %s",
        pipeline,
        f"%{PAYLOAD}%",
    )
    filled = {"pipeline": pipeline, "batch_id": batch}
    # Whoever adds a route with another part in braces, has to say here what stands for it.
    found = {route: route.format(**filled) for route in routes_of_the_app()}
    return {**found, RECORD: RECORD.format(**filled) + quote(json.dumps(place))}


def routes_of_the_app() -> list[str]:
    paths = [str(getattr(route, "path", "")) for route in airflow_page().routes]
    assert "/batches/{batch_id}" in paths
    # Style and script of the page, which hold no data: the page that asks for a login needs them.
    return [path for path in paths if path != "/static/{path:path}"]


def test_nobody_gets_more_than_the_way_to_the_login(nobody: Person, paths: Mapping[str, str]) -> None:
    for path in paths.values():
        answer = nobody.get(path)
        assert (answer.status, "Log in to Airflow" in answer.text) == (401, True), path
        assert "<table" not in answer.text
        assert not answer.has_payload


def test_a_token_that_airflow_did_not_give_is_no_login(world: AirflowWorld, paths: Mapping[str, str]) -> None:
    for path in paths.values():
        assert Person(world, "a.b.c").get(path).status == 401, path


def test_a_viewer_sees_everything_but_payloads(nobody: Person, paths: Mapping[str, str]) -> None:
    viewer = nobody.logged_in("viewer")
    for route, path in paths.items():
        answer = viewer.get(path)
        assert answer.status == (404 if route in OF_PAYLOADS else 200), path
        assert not answer.has_payload


def test_who_may_not_read_the_dag_cannot_tell_whether_the_pipeline_is_there(
    nobody: Person, paths: Mapping[str, str], showcase: Showcase
) -> None:
    outsider = nobody.logged_in("outsider")
    absent = outsider.get("/pipelines/absent")
    for route, path in paths.items():
        if route != "/":
            assert outsider.get(path) == absent, path
    assert absent.status == 404

    overview = outsider.get("/")
    assert overview.status == 200
    assert showcase.name("orders") in overview.text
    assert showcase.name("returns") not in overview.text
    assert outsider.get(f"/pipelines/{showcase.name('orders')}").status == 200


def test_who_may_edit_the_dag_sees_payloads(nobody: Person, paths: Mapping[str, str]) -> None:
    admin = nobody.logged_in("admin")
    for route, path in paths.items():
        answer = admin.get(path)
        assert answer.status == 200, path
        assert answer.has_payload == (route in OF_PAYLOADS), path
