"""The page on a real ledger: what stands on it is what the ledger says, and who may not see it gets nothing."""

from __future__ import annotations

import base64
import html
import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from threading import Thread

import psycopg2
import pytest
from fastapi.testclient import TestClient

from kafka_ingest.page.answers import Answers
from kafka_ingest.page.app import CONNECTIONS, LATE_MINUTES, PAYLOADS
from kafka_ingest.pipeline_files.files import dag_id_of
from kafka_ingest.postgres.overview import PostgresOverview
from kafka_ingest.protocol.batch import COMMAND_LINE
from kafka_ingest.settings import WatchSettings
from sandbox.postgres import PostgresServer
from tests.deadlines import until
from tests.integration.pipeline_under_test import FedPipeline
from tests.page_world import (
    LOADED_AT,
    Answer,
    FakeAirflow,
    FakeReader,
    WrittenLedger,
    minutes,
    own_dag,
    page_client,
    run,
)

DAGS = {name: dag_id_of(name) for name in ("orders", "payments", "clicks")}
ADMIN = FakeReader(DAGS.values(), DAGS.values())
VIEWER = FakeReader(DAGS.values())
#: Whoever may see payloads of one pipeline, and nothing of the others.
OF_ORDERS = FakeReader([DAGS["orders"]], [DAGS["orders"]])
HOSTILE = b'<script>alert(1)</script>"onload=\x00\x1b\xe2\x80\xae'


@pytest.fixture(scope="module")
def ledger(postgres_server: PostgresServer) -> Iterator[WrittenLedger]:
    """Pipelines that were loaded at 13:00:02: orders is complete, payments fails, clicks has dead letters."""
    from tests.services import fresh_database

    with fresh_database(postgres_server) as params:
        written = WrittenLedger(params)
        _write_orders(written)
        _write_payments(written)
        _write_clicks(written)
        yield written


def _write_orders(written: WrittenLedger) -> None:
    written.pipeline("orders")
    batch = written.batch("orders", rows=1_234, valid_through=LOADED_AT, record_time_min=minutes(-60))
    written.range(batch, "orders", 0, 0, 1_234, rows=1_234)
    written.partition("orders", 0, 1_234, end=1_234, valid_through=LOADED_AT, batch_id=batch)
    written.partition("orders", 1, 50, end=55, start=20, valid_through=minutes(5), batch_id=batch)
    phases = {"session_seconds": 4.0, "stage_seconds": 10.0, "publish_seconds": 2.0}
    spark = {"spark_application_id": "app-1", "spark_ui_url": "http://spark.example:4040/"}
    written.attempt("orders", "load", "succeeded", at=-1, run_id="r1", batch_id=batch, **phases, **spark)


def _write_payments(written: WrittenLedger) -> None:
    written.pipeline("payments")
    batch = written.batch("payments", at=-120, rows=10, valid_through=minutes(-120))
    written.partition("payments", 0, 10, end=90_010, valid_through=minutes(-120), batch_id=batch)
    message = "BrokerUnavailable: Kafka does not answer\n  next: python -m kafka_ingest preflight payments"
    written.attempt("payments", "plan", "failed", at=0, run_id="r2", fault="BrokerUnavailable", message=message)


def _write_clicks(written: WrittenLedger) -> None:
    written.pipeline("clicks")
    batch = written.batch("clicks", rows=97, dead_letters=3, valid_through=LOADED_AT)
    written.range(batch, "clicks", 0, 0, 100, rows=97, dead_letters=3)
    written.partition("clicks", 0, 100, end=100, valid_through=LOADED_AT, batch_id=batch)
    written.dead_letter(batch, "clicks", 7, "wrong_type", value=b'{"id": "x"}', detail="column id: text")
    headers = {"header_names": ["<b>"], "header_values": [psycopg2.Binary(b"\xff")]}
    written.dead_letter(batch, "clicks", 8, "malformed", key=HOSTILE, value=HOSTILE, detail="<i>\u202e", **headers)
    done = {"resolved_at": LOADED_AT, "resolution": "by hand"}
    written.dead_letter(batch, "clicks", 9, "wrong_type", value=b"z" * 100_000, **done)


def airflow(ledger: WrittenLedger) -> FakeAirflow:
    failed = run("r2", "failed", 0, ended_at=minutes(1), failed_tasks=("plan_batch",))
    dags = [
        own_dag("orders", due_at=LOADED_AT, runs=(run("r1", "success", 0),)),
        own_dag("payments", due_at=LOADED_AT, runs=(failed,)),
        own_dag("clicks", is_paused=True),
    ]
    return FakeAirflow(dags, {"warehouse": ledger.params})


@pytest.fixture
def admin(ledger: WrittenLedger) -> TestClient:
    return page_client(airflow(ledger), ADMIN)


def text_of(response: Answer) -> str:
    """Return what a person sees: no tags, no scripts, white space as one space."""
    assert response.status_code == 200, response.text
    body = re.sub(r"<script.*?</script>", " ", response.text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def row_of(response: Answer, name: str) -> str:
    """Return the text of a table's row, by the text of its heading."""
    rows = re.findall(r"<tr.*?</tr>", response.text, flags=re.DOTALL)
    [found] = [row for row in rows if re.search(rf'<th scope="row"[^>]*>(<a[^>]*>)?{re.escape(name)}<', row)]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", found)).split())


def test_the_overview_says_of_each_pipeline_what_the_ledger_says(admin: TestClient) -> None:
    shown = admin.get("/")
    assert re.findall(r'<th scope="row"><a[^>]*>(\w+)<', shown.text) == ["payments", "clicks", "orders"]
    orders, payments, clicks = (row_of(shown, name) for name in ("orders", "payments", "clicks"))
    assert "up to date 2026-11-30 13:00:02" in orders
    assert "1,234 rows" in orders
    assert " 0 5 " in orders, "no dead letters, and the lag of both partitions"
    assert "none expires 30 offsets" in orders, "the least headroom, in a log whose start has not moved"
    assert "1 with dead letters" in text_of(shown)
    assert "failing" in payments
    assert "90,000" in payments
    assert "paused" in clicks
    assert "97 rows, 3 dead letters" in clicks
    assert 'dead-letters?connection=warehouse">2<' in shown.text, "unresolved"


def test_is_orders_complete_through_13_00(admin: TestClient) -> None:
    assert "Complete through 2026-11-30 13:00:02 UTC ," in text_of(admin.get("/pipelines/orders"))


def test_why_is_payments_late_and_what_do_i_press(admin: TestClient) -> None:
    shown = admin.get("/pipelines/payments")
    text = text_of(shown)
    assert "The last run failed, the newest at 2026-11-30 13:01:02 UTC, in plan_batch: BrokerUnavailable" in text
    assert "next: python -m kafka_ingest preflight payments" in text
    assert f'href="/dags/{DAGS["payments"]}/runs/r2" target="_top"' in shown.text


def test_which_records_did_not_fit_and_why(admin: TestClient) -> None:
    shown = admin.get("/pipelines/clicks/dead-letters")
    text = text_of(shown)
    assert "Here are 2 that nobody has resolved." in text
    assert row_of(shown, "shop.clicks[0] offset 7").startswith("shop.clicks[0] offset 7 - wrong_type column id: text")
    assert "offset 9" not in text
    assert "dead-letters replay clicks" in text


def test_a_pipelines_page_has_its_partitions_batches_attempts_and_phases(admin: TestClient) -> None:
    shown = admin.get("/pipelines/orders")
    partitions = re.findall(r'<tr><th scope="row">shop.orders</th>(.*?)</tr>', shown.text, flags=re.DOTALL)
    cells = [[re.sub(r"<[^>]*>", "", c).strip() for c in re.findall(r"<td.*?</td>", p)] for p in partitions]
    assert [row[:5] for row in cells] == [["1", "50", "55", "5", "30"], ["0", "1,234", "1,234", "0", "1,234"]]
    text = text_of(shown)
    assert "16 s 77.1" in text, "4 + 10 + 2 seconds, 1234 offsets"
    assert 'href="http://spark.example:4040/"' in shown.text
    assert f'/dags/{DAGS["orders"]}/runs/r1/tasks/load_batch?try_number=1"' in shown.text
    plot = json.loads(html.unescape(re.findall(r'id="plot-data">(.*?)</script>', shown.text)[0]))
    assert (plot["session"], plot["stage"], plot["publish"]) == ([4.0], [10.0], [2.0])


def test_a_batchs_page_has_its_counts_ranges_and_the_form_that_reloads_them(
    admin: TestClient, ledger: WrittenLedger
) -> None:
    batch = batch_of(ledger, "clicks")
    shown = admin.get(f"/batches/{batch}")
    text = text_of(shown)
    assert "97 rows in shop.clicks, and 3 records that did not fit" in text
    assert "100 offsets the sum of all" in text
    assert '"offsets": "shop.clicks 0 0 100"' in text
    assert "wrong_type a value of another type than its column's 2" in text


def batch_of(ledger: WrittenLedger, pipeline: str) -> str:
    with ledger.cursor() as cursor:
        cursor.execute("SELECT batch_id::text FROM kafka_ingest.batch WHERE pipeline = %s", (pipeline,))
        [found] = cursor.fetchall()
    return str(found[0])


def test_the_overviews_numbers_are_those_of_the_protocol(ledger: WrittenLedger) -> None:
    """Lag and headroom are computed twice: in SQL for all pipelines at once, and by protocol/log.py."""
    written = WrittenLedger(ledger.params)
    written.pipeline("many")
    place = {"pipeline": "many", "topic": "shop.many"}
    # Log start 10 to 40 in 2 hours: 60 offsets are gone in 4 hours. Lost. Nothing seen long enough. Stalled. All read.
    logs = [(40, 130, 130, 2), (120, 130, 130, 2), (99, 130, 130, 0), (50, 90, 130, 24), (50, 100, 100, 2)]
    for partition, (start, end, high, hours) in enumerate(logs):
        written.partition("many", partition, 100, valid_through=minutes(partition))
        seen_place = {**place, "partition": partition}
        written.observe(seen_place, start=start, end=end, high=high, rate_from=10, hours=hours)
    overview = PostgresOverview(ledger.params)
    [row] = [row for row in overview.pipelines([]) if row["pipeline"] == "many"]
    found = [partition.seen for partition in overview.pipeline("many", None).partitions]
    seen = [headroom for headroom in found if headroom]
    assert len(seen) == 5
    assert row["lag_offsets"] == sum(headroom.lag_offsets for headroom in seen) == 90
    assert row["headroom_offsets"] == min(headroom.offsets for headroom in seen) == -20
    assert row["headroom_seconds"] == pytest.approx(min(h.seconds for h in seen if h.seconds is not None))
    assert row["partitions_losing"] == sum(headroom.offsets < 0 for headroom in seen) == 1
    assert row["partitions_short"] == sum(headroom.is_short(WatchSettings()) for headroom in seen) == 1
    assert row["partitions_stalled"] == sum(headroom.is_stalled for headroom in seen) == 1


@pytest.mark.parametrize(
    ("start", "hours", "shown"),
    [(120, 2, "lost 20 offsets"), (40, 2, "4 h 60 offsets"), (40, 24, "2 d 60 offsets"), (10, 24, "none expires 90")],
)
def test_headroom_is_told_in_time_where_retention_moves(
    ledger: WrittenLedger, start: int, hours: int, shown: str
) -> None:
    written = WrittenLedger(ledger.params)
    name = f"near_{start}_{hours}"
    written.pipeline(name)
    written.partition(name, 0, 100, valid_through=LOADED_AT)
    place = {"pipeline": name, "topic": f"shop.{name}", "partition": 0}
    written.observe(place, start=start, end=130, high=130, rate_from=10, hours=hours)
    world = FakeAirflow([own_dag(name)], {"warehouse": ledger.params})
    reader = FakeReader([dag_id_of(name)])
    assert shown in row_of(page_client(world, reader).get("/"), name)


def test_runs_of_the_command_line_lead_to_no_dag_of_airflows(ledger: WrittenLedger) -> None:
    written = WrittenLedger(ledger.params)
    written.pipeline("by_hand")
    batch = written.batch("by_hand", dag_id=COMMAND_LINE, run_id="cli__1", rows=1)
    written.attempt("by_hand", "load", "succeeded", dag_id=COMMAND_LINE, run_id="cli__1", at=0, batch_id=batch)
    world = FakeAirflow([own_dag("by_hand")], {"warehouse": ledger.params})
    client = page_client(world, FakeReader([dag_id_of("by_hand")]))
    for page in ("/pipelines/by_hand", f"/batches/{batch}"):
        shown = client.get(page)
        assert "cli__1 of the command line" in text_of(shown)
        assert "/dags/cli/" not in shown.text


# ----------
# Who sees what.

ROUTES = [
    "/",
    "/pipelines/orders",
    "/pipelines/orders/dead-letters",
    "/pipelines/orders/dead-letters.jsonl",
    "/batches/00000000-0000-0000-0000-000000000000",
    "/no-such-page",
]


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_login_no_route_answers_or_asks_anything(ledger: WrittenLedger, route: str) -> None:
    asked = airflow(ledger)
    answer = page_client(asked, None).get(route)
    assert answer.status_code == (404 if route == "/no-such-page" else 401)
    assert asked.asked == 0, "nothing was read, so nothing can be shown"


def test_the_list_of_routes_is_complete(ledger: WrittenLedger) -> None:
    from kafka_ingest.page.app import create_app

    app = create_app(airflow(ledger), lambda: ADMIN, environment={})
    known = {str(getattr(route, "path", "")) for route in app.routes}
    assert known == {
        "/",
        "/static/{path:path}",
        "/pipelines/{pipeline}",
        "/batches/{batch_id}",
        "/pipelines/{pipeline}/dead-letters",
        "/pipelines/{pipeline}/dead-letters.jsonl",
    }


def routes_of_clicks(ledger: WrittenLedger) -> list[str]:
    place = json.dumps(["shop.clicks", 0, 0, 7])
    return [
        "/pipelines/clicks",
        "/pipelines/clicks/dead-letters",
        f"/pipelines/clicks/dead-letters?record={place}",
        "/pipelines/clicks/dead-letters.jsonl",
        f"/batches/{batch_of(ledger, 'clicks')}",
    ]


def test_a_pipeline_of_a_dag_that_is_not_readable_is_as_one_that_does_not_exist(ledger: WrittenLedger) -> None:
    client = page_client(airflow(ledger), OF_ORDERS)
    for route in routes_of_clicks(ledger):
        answer, nothing = client.get(route), client.get("/pipelines/nothing")
        assert (answer.status_code, answer.text) == (404, nothing.text), route
    assert "clicks" not in client.get("/").text


def test_who_may_read_the_dag_but_no_payloads_sees_where_and_why_and_no_byte(ledger: WrittenLedger) -> None:
    client = page_client(airflow(ledger), VIEWER)
    listed = client.get("/pipelines/clicks/dead-letters?standing=all")
    assert "column id: text" in listed.text
    assert "Kafka Ingest Payloads" in listed.text
    assert "download" not in listed.text.replace("the download has all", "")
    place = json.dumps(["shop.clicks", 0, 0, 7])
    assert client.get("/pipelines/clicks/dead-letters", params={"record": place}).status_code == 404
    assert client.get("/pipelines/clicks/dead-letters.jsonl").status_code == 404


def test_payloads_that_are_switched_off_are_shown_to_nobody(ledger: WrittenLedger) -> None:
    client = page_client(airflow(ledger), ADMIN, environment={PAYLOADS: "off"})
    place = json.dumps(["shop.clicks", 0, 0, 7])
    assert client.get("/pipelines/clicks/dead-letters", params={"record": place}).status_code == 404
    assert client.get("/pipelines/clicks/dead-letters.jsonl").status_code == 404
    assert "switched off" in client.get("/pipelines/clicks/dead-letters").text


def test_answers_that_are_kept_are_filtered_for_each_reader(ledger: WrittenLedger) -> None:
    asked, answers = airflow(ledger), Answers()
    assert "payments" in page_client(asked, ADMIN, answers=answers).get("/").text
    assert "payments" not in page_client(asked, OF_ORDERS, answers=answers).get("/").text
    assert asked.asked == 1


# ----------
# Payloads.


def test_a_hostile_record_is_shown_as_text_and_nothing_of_it_is_markup(admin: TestClient) -> None:
    place = json.dumps(["shop.clicks", 0, 0, 8])
    shown = admin.get("/pipelines/clicks/dead-letters", params={"record": place})
    assert shown.headers["cache-control"] == "no-store"
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&#34;onload=\\u0000\\u001b\\u202e" in shown.text
    for markup in ("<script>alert", "<b>", "<i>", "\x00", "\x1b", "\u202e"):
        assert markup not in shown.text
        assert markup not in admin.get("/pipelines/clicks/dead-letters").text


def test_a_large_payload_is_cut_and_says_its_size(admin: TestClient) -> None:
    shown = admin.get("/pipelines/clicks/dead-letters", params={"record": json.dumps(["shop.clicks", 0, 0, 9])})
    assert "Only the first 65.5 kB are shown" in text_of(shown)
    assert "100.0 kB" in text_of(shown)
    assert shown.text.count("z") == 2 * 65_536, "as text and in the dump"


def test_the_download_has_every_byte_as_the_export_has(admin: TestClient) -> None:
    answer = admin.get("/pipelines/clicks/dead-letters.jsonl", params={"standing": "all"})
    assert answer.headers["content-disposition"] == 'attachment; filename="clicks-dead-letters.jsonl"'
    letters = [json.loads(line) for line in answer.text.splitlines()]
    assert [letter["offset"] for letter in letters] == [7, 8, 9]
    assert base64.b64decode(letters[1]["value"]) == HOSTILE
    assert letters[1]["headers"] == [{"key": "<b>", "value": "/w=="}]
    only = admin.get("/pipelines/clicks/dead-letters.jsonl", params={"reason": "wrong_type"})
    assert [json.loads(line)["offset"] for line in only.text.splitlines()] == [7]


def test_pages_of_dead_letters_follow_each_other_without_gap_or_repetition(ledger: WrittenLedger) -> None:
    written = WrittenLedger(ledger.params)
    written.pipeline("long")
    batch = written.batch("long", rows=0, dead_letters=120)
    with written.cursor() as cursor:  # half of them came at the same moment
        cursor.execute(
            'INSERT INTO kafka_ingest.dead_letter (pipeline, topic, generation, partition, "offset", reason, detail,'
            " batch_id, created_at) SELECT 'long', 'shop.long', 0, 0, n, 'malformed', 'because', %s,"
            " %s + greatest(0, n - 60) * interval '1 minute' FROM generate_series(0, 119) AS n",
            (batch, LOADED_AT),
        )
    client = page_client(FakeAirflow([own_dag("long")], {"warehouse": ledger.params}), FakeReader([dag_id_of("long")]))
    route, found = "/pipelines/long/dead-letters", list[int]()
    while route:
        shown = client.get(route)
        found += [int(number) for number in re.findall(r"\[0\] offset (\d+)", shown.text)]
        older = re.search(r'href="/kafka-ingest([^"]*)">Older', shown.text)
        route = html.unescape(older[1]) if older else ""
    assert found == [*range(119, 60, -1), *range(61)]


# ----------
# Headers, addresses, files.


@pytest.mark.parametrize("route", ["/", "/nothing", "/static/page.js", "/pipelines/orders", "/pipelines/nothing"])
def test_every_answer_forbids_scripts_and_styles_that_are_not_files_of_the_page(admin: TestClient, route: str) -> None:
    headers = admin.get(route).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("route", ["/", "/pipelines/orders", "/pipelines/payments", "/pipelines/clicks/dead-letters"])
def test_no_page_has_an_inline_script_style_or_handler_or_asks_another_host(admin: TestClient, route: str) -> None:
    text = admin.get(route).text
    scripts = re.findall(r"<script([^>]*)>", text)
    assert all("src=" in script or 'type="application/json"' in script for script in scripts)
    assert not re.search(r"<style|\sstyle=|\son\w+=", text)
    loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]*)"', text)
    assert loaded
    assert all(address.startswith(("/kafka-ingest/static/", "data:")) for address in loaded)


@pytest.mark.parametrize("root", ["", "/team/airflow"])
def test_every_link_of_the_page_leads_somewhere_below_any_prefix(ledger: WrittenLedger, root: str) -> None:
    client = page_client(airflow(ledger), ADMIN, root=root)
    seen, left = set[str](), ["/"]
    while left:
        route = left.pop()
        if route in seen:
            continue
        seen.add(route)
        answer = client.get(route)
        assert answer.status_code == 200, route
        if answer.headers["content-type"].startswith("text/html"):
            found = [html.unescape(a) for a in re.findall(r'(?:href|src)="([^"]+)"', answer.text)]
            for address in found:
                assert address.startswith((f"{root}/", "data:", "#", "http://spark.example")), address
            own = f"{root}/kafka-ingest"
            left += [a.removeprefix(own).partition("#")[0] for a in found if a.startswith(f"{own}/")]
    assert len(seen) > 15


def test_a_query_that_is_no_query_of_the_page_finds_nothing(admin: TestClient) -> None:
    for route in (
        "/pipelines/clicks/dead-letters?standing=x",
        "/pipelines/clicks/dead-letters?record=x",
        "/batches/x",
        "/pipelines/orders?connection=x",
        "/static/../app.py",
        "/static/vendor/SHA256",
    ):
        assert admin.get(route).status_code == 404, route
    assert admin.get("/pipelines/clicks/dead-letters?before=x").status_code == 200


def test_the_page_takes_no_other_method(admin: TestClient) -> None:
    assert admin.post("/pipelines/orders").status_code == 405


# ----------
# When something does not answer.


def test_a_database_that_is_down_hides_no_pipeline_of_another(ledger: WrittenLedger) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        port = unused.getsockname()[1]
    asked = airflow(ledger)
    asked.facts = [*asked.facts, own_dag("remote", "elsewhere")]
    asked.params = {**asked.params, "elsewhere": {**ledger.params, "port": port}}
    client = page_client(asked, FakeReader([*DAGS.values(), dag_id_of("remote")]))
    shown = client.get("/")
    assert "unknown The ledger cannot be read: could not connect to the target database" in row_of(shown, "remote")
    assert "up to date" in row_of(shown, "orders")
    assert text_of(client.get("/pipelines/remote")).count("could not connect") == 1
    assert client.get("/pipelines/remote/dead-letters").status_code == 503
    assert client.get("/batches/00000000-0000-0000-0000-000000000000?connection=elsewhere").status_code == 503
    password = str(ledger.params.get("password") or "no password")
    assert password not in shown.text


def test_a_connection_that_is_missing_is_told_with_what_adds_it(ledger: WrittenLedger) -> None:
    asked = replace(airflow(ledger), params={})
    assert "airflow connections add warehouse" in text_of(page_client(asked, ADMIN).get("/"))


def test_another_connection_can_be_used_in_place_of_the_pipelines_own(ledger: WrittenLedger) -> None:
    asked = replace(airflow(ledger), params={"reader": ledger.params})
    client = page_client(asked, ADMIN, environment={CONNECTIONS: '{"warehouse": "reader"}'})
    assert "up to date" in row_of(client.get("/"), "orders")


def test_a_database_without_a_ledger_is_told_with_the_command_that_makes_one(
    ledger: WrittenLedger, postgres_server: PostgresServer
) -> None:
    asked = replace(airflow(ledger), params={"warehouse": postgres_server.params("postgres")})
    assert "python -m kafka_ingest migrate" in text_of(page_client(asked, ADMIN).get("/"))


def test_faults_of_the_settings_are_told_at_once_on_every_page(ledger: WrittenLedger) -> None:
    client = page_client(airflow(ledger), ADMIN, environment={PAYLOADS: "no", LATE_MINUTES: "-1", CONNECTIONS: "[1]"})
    for route in ("/", "/pipelines/orders"):
        answer = client.get(route)
        assert answer.status_code == 503
        assert all(name in answer.text for name in (PAYLOADS, LATE_MINUTES, CONNECTIONS))
    assert client.get("/static/page.css").status_code == 200


@contextmanager
def locked(ledger: WrittenLedger, table: str) -> Iterator[None]:
    """Keep every reader of a table waiting."""
    with closing(psycopg2.connect(**ledger.params)) as connection, connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE kafka_ingest.{table} IN ACCESS EXCLUSIVE MODE")
        yield


def test_a_question_that_takes_too_long_ends_by_its_time_out(
    ledger: WrittenLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresOverview.__init__, "__defaults__", (0.2,))
    client = page_client(airflow(ledger), ADMIN)
    with locked(ledger, "position_change"):
        assert "up to date" in row_of(client.get("/"), "orders"), "the overview does not read that table"
        answer = client.get("/pipelines/orders")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
    assert "the statement took longer than it may (statement_timeout)" in answer.text


def test_other_pages_answer_while_one_waits_and_those_who_wait_ask_once(ledger: WrittenLedger) -> None:
    client, statuses = page_client(airflow(ledger), ADMIN), list[int]()
    with locked(ledger, "position_change"):
        waiting = [Thread(target=lambda: statuses.append(client.get("/pipelines/orders").status_code)) for _ in "123"]
        for thread in waiting:
            thread.start()
        until(lambda: waiting_for(ledger) == 1, "one question waits for the lock", 30)
        assert client.get("/").status_code == 200
        assert client.get("/pipelines/clicks/dead-letters").status_code == 200
        assert (waiting_for(ledger), statuses) == (1, [])
    for thread in waiting:
        thread.join(30)
    assert statuses == [200, 200, 200]


def waiting_for(ledger: WrittenLedger) -> int:
    """Count the page's sessions that wait for a lock."""
    with ledger.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'kafka_ingest page' AND wait_event_type = 'Lock'"
        )
        [found] = cursor.fetchall()
    return int(found[0])


# ----------
# A pipeline that was really loaded.

COLUMNS = [{"name": "id", "type": "bigint", "path": "$.id", "required": True}]


def test_a_pipeline_that_was_loaded_from_kafka_is_shown_as_its_ledger_is(pipeline: FedPipeline) -> None:
    topic = pipeline.open(2, value={"format": "json", "columns": COLUMNS}, key=None, headers=None, tombstones="count")
    pipeline.send(b'{"id": 1}', b'{"id": "one"}', b"{}", b"{")
    pipeline.send(b'{"id": 2}', partition=1)
    loaded = pipeline.load_here()
    dag = own_dag(pipeline.name)
    client = page_client(FakeAirflow([dag], {"warehouse": pipeline.database}), FakeReader([dag.dag_id], [dag.dag_id]))
    shown = client.get(f"/pipelines/{pipeline.name}")
    [(through,)] = pipeline.query("SELECT valid_through FROM kafka_ingest.batch")
    assert f"Complete through {through:%Y-%m-%d %H:%M:%S} UTC" in text_of(shown)
    assert "2 rows, 3 dead letters" in text_of(shown)
    letters = text_of(client.get(f"/pipelines/{pipeline.name}/dead-letters"))
    for reason in ("wrong_type", "missing_required", "malformed"):
        assert reason in letters
    batch = text_of(client.get(f"/batches/{loaded['batch_id']}"))
    assert f"{topic} 0 0 4 4 1 3" in batch
    assert f"{topic} 1 0 1 1 1 0" in batch
