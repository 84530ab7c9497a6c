"""The page in a browser, in a running Airflow: what stands on it equals the ledger, and everybody can use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, FrameLocator, Locator, Page, Request, expect, sync_playwright

from sandbox.errors import SandboxError
from sandbox.screenshots import PATIENCE_MS, chromium, logged_in
from sandbox.showcase import HOSTILE, MALFORMED, NAMES, ORDERS, Showcase
from tests.deadlines import until
from tests.e2e.airflow_world import SHOWCASE_PREFIX as PREFIX
from tests.e2e.airflow_world import AirflowWorld

AXE = Path(__file__).parents[1] / "data" / "vendor" / "axe-core-4.11.0" / "axe.min.js"
#: The pages, by name, below the page's address.
PATHS = {
    "overview": "",
    "pipeline": f"pipelines/{PREFIX}orders",
    "late": f"pipelines/{PREFIX}payments",
    "failing": f"pipelines/{PREFIX}customers",
    "dead letters": f"pipelines/{PREFIX}returns/dead-letters",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        path = chromium()
    except SandboxError as missing:
        pytest.skip(str(missing))
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=path, args=["--no-sandbox"]) as found,
    ):
        expect.set_options(timeout=PATIENCE_MS)
        yield found


@dataclass
class Visitor:
    """A person at a browser, who has logged in.

    Attributes:
        world: The running Airflow.
        page: The window.
        faults: What the browser complained about on the page, and requests to other servers.
    """

    world: AirflowWorld
    page: Page
    faults: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.world.server.url}/kafka-ingest/"

    def watch(self) -> None:
        """Notes every fault from now on."""
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(f"{self.page.url}: {error}"))
        self.page.on("request", self._request)

    def open(self, path: str = "") -> None:
        until(lambda: self._is_answered(path), f"the page {path} is answered")
        expect(self.page.locator("main h1")).to_be_visible()

    def _is_answered(self, path: str) -> bool:
        """Asks once; a busy machine may answer that it is too busy, which the browser takes for a fault."""
        answer = self.page.goto(self.url + path)
        if answer is None or answer.status != 503:
            return True
        self.faults = [fault for fault in self.faults if "503" not in fault]
        return False

    def row(self, pipeline: str) -> Locator:
        """Return the pipeline's row of the overview."""
        return self.page.locator("#pipelines tbody tr").filter(
            has=self.page.get_by_role("link", name=pipeline, exact=True)
        )

    def names(self) -> list[str]:
        """Return the pipelines of the overview from above."""
        return self.page.locator("#pipelines tbody th a").all_inner_texts()

    def cell(self, pipeline: str, column: str) -> str:
        """Return the text below a column's name."""
        names = self.page.locator("#pipelines thead th").all_inner_texts()
        return self.row(pipeline).locator("th, td").nth(names.index(column)).inner_text()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and "/kafka-ingest" in message.location["url"]:
            self.faults.append(f"{message.location['url']}: {message.text}")

    def _request(self, request: Request) -> None:
        if "/kafka-ingest" in self.page.url and not request.url.startswith((self.world.server.url, "data:", "blob:")):
            self.faults.append(f"{self.page.url} asks {request.url}")


@pytest.fixture(scope="module")
def visitor_of(world: AirflowWorld, browser: Browser, showcase: Showcase) -> Iterator[Callable[[str], Visitor]]:
    """Log people in, each once."""
    assert showcase
    known: dict[str, Visitor] = {}
    with ExitStack() as windows:

        def of(user: str) -> Visitor:
            if user not in known:
                window = logged_in(browser, world.server.url, user, world.password_of(user))
                known[user] = Visitor(world, windows.enter_context(window))
                known[user].watch()
            return known[user]

        yield of


@pytest.fixture
def admin(visitor_of: Callable[[str], Visitor]) -> Iterator[Visitor]:
    """A person who may do everything; nothing that the page does may make the browser complain."""
    found = visitor_of("admin")
    found.page.set_viewport_size({"width": 1280, "height": 900})
    yield found
    faults, found.faults = found.faults, []
    assert faults == []


def test_the_navigation_opens_the_page_in_airflow(admin: Visitor) -> None:
    frame = opened_in_airflow(admin)
    for name in NAMES:
        expect(frame.get_by_role("link", name=PREFIX + name, exact=True)).to_be_visible()


def test_a_link_of_the_page_leaves_its_frame(admin: Visitor) -> None:
    frame = opened_in_airflow(admin)
    frame.get_by_role("link", name=f"{PREFIX}orders", exact=True).click()
    frame.get_by_role("link", name=f"kafka_to_postgres__{PREFIX}orders", exact=True).first.click()
    admin.page.wait_for_url(f"**/dags/kafka_to_postgres__{PREFIX}orders")


def test_the_download_works_in_the_frame(admin: Visitor, world: AirflowWorld) -> None:
    frame = opened_in_airflow(admin)
    frame.get_by_role("link", name=f"{PREFIX}returns", exact=True).click()
    frame.get_by_role("link", name="did not fit").click()
    with admin.page.expect_download() as download:
        frame.get_by_role("link", name="Download as JSON lines").click()
    lines = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    stored = world.ask(
        'SELECT partition, "offset" FROM kafka_ingest.dead_letter WHERE pipeline = %s', f"{PREFIX}returns"
    )
    assert sorted((line["partition"], line["offset"]) for line in lines) == sorted(stored)


def opened_in_airflow(visitor: Visitor) -> FrameLocator:
    visitor.page.goto(f"{visitor.world.server.url}/")
    visitor.page.get_by_role("link", name="Kafka", exact=True).click()
    frame = visitor.page.frame_locator("iframe[title='Kafka']")
    expect(frame.get_by_role("heading", name="Pipelines")).to_be_visible()
    return frame


def test_the_overview_equals_the_ledger(admin: Visitor, world: AirflowWorld) -> None:
    admin.open()
    for name in NAMES:
        [(rows, through, letters)] = world.ask(
            """SELECT b.rows, to_char(b.valid_through AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
                      (SELECT count(*) FROM kafka_ingest.dead_letter d
                        WHERE d.pipeline = b.pipeline AND d.resolved_at IS NULL)
                 FROM kafka_ingest.batch b WHERE pipeline = %s AND state = 'committed' ORDER BY ordinal DESC LIMIT 1""",
            PREFIX + name,
        )
        assert f"{rows:,} rows" in admin.cell(PREFIX + name, "Last batch")
        assert admin.cell(PREFIX + name, "Complete through").startswith(through)
        assert admin.cell(PREFIX + name, "Dead letters") == f"{letters:,}"


def test_every_pipeline_is_in_the_state_that_it_was_brought_to(admin: Visitor) -> None:
    admin.open()
    states = {name: admin.cell(PREFIX + name, "State").splitlines()[0] for name in NAMES}
    assert states == {"orders": "up to date", "payments": "late", "customers": "failing", "returns": "up to date"}


def test_batches_of_a_pipeline_equal_the_ledger(admin: Visitor, world: AirflowWorld) -> None:
    admin.open(PATHS["pipeline"])
    shown = admin.page.get_by_role("region", name="Batches").locator("tbody tr td:nth-of-type(4)").all_inner_texts()
    stored = world.ask(
        "SELECT rows FROM kafka_ingest.batch WHERE pipeline = %s ORDER BY ordinal DESC", f"{PREFIX}orders"
    )
    assert shown == [f"{rows:,}" for (rows,) in stored] == [f"{count:,}" for count in reversed(ORDERS)]
    # The others need attempts, and these loads were none of Airflow's.
    expect(admin.page.locator("[data-plot=offsets] canvas")).to_be_visible()


def test_the_page_answers_whether_orders_is_complete(admin: Visitor, world: AirflowWorld) -> None:
    [(through,)] = world.ask(
        "SELECT to_char(min(valid_through) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS \"UTC\"')"
        " FROM kafka_ingest.committed_offset WHERE pipeline = %s",
        f"{PREFIX}orders",
    )
    admin.open(PATHS["pipeline"])
    expect(admin.page.locator("p.lead")).to_contain_text(f"Complete through {through}")


def test_the_page_answers_why_payments_is_late_and_what_to_press(admin: Visitor, showcase: Showcase) -> None:
    admin.open(PATHS["late"])
    [run] = showcase.airflow.runs(showcase.dag_id("payments"))
    expect(admin.page.locator("p.lead")).to_contain_text("A run was due at")
    expect(admin.page.locator("p.lead")).to_contain_text(f"run {run['dag_run_id']} waits to start")
    expect(admin.page.locator("p.lead")).to_contain_text("the DAG is paused")
    expect(
        admin.page.get_by_role("listitem").filter(has_text="Unpause the DAG").get_by_role("link", name="Open the DAG")
    ).to_have_attribute("href", f"/dags/{showcase.dag_id('payments')}")


def test_the_page_answers_why_customers_fails_and_what_to_press(admin: Visitor, showcase: Showcase) -> None:
    admin.open(PATHS["failing"])
    newest = showcase.airflow.runs(showcase.dag_id("customers"))[0]["dag_run_id"]
    expect(admin.page.locator("p.lead")).to_contain_text("The last 2 runs failed")
    expect(admin.page.get_by_role("region", name="Why the last run failed")).to_contain_text("TopicRecreated")
    expect(
        admin.page.get_by_role("listitem").filter(has_text="Clear the run").get_by_role("link", name="Open the run")
    ).to_have_attribute(
        "href", f"/dags/{showcase.dag_id('customers')}/runs/{newest.replace(':', '%3A').replace('+', '%2B')}"
    )


def test_the_page_answers_which_records_did_not_fit_and_why(admin: Visitor, world: AirflowWorld) -> None:
    admin.open(PATHS["dead letters"])
    shown = admin.page.get_by_role("region", name="Records").locator("tbody tr")
    stored = world.ask(
        'SELECT topic, partition, "offset", reason, detail FROM kafka_ingest.dead_letter WHERE pipeline = %s',
        f"{PREFIX}returns",
    )
    assert len(stored) == MALFORMED + 1
    expect(shown).to_have_count(len(stored))
    for topic, partition, offset, reason, detail in stored:
        row = shown.filter(has_text=f"{topic}[{partition}] offset {offset}\n").or_(
            shown.filter(has=admin.page.get_by_role("link", name=f"{topic}[{partition}] offset {offset}", exact=True))
        )
        expect(row).to_contain_text(reason)
        expect(row).to_contain_text(detail)
    expect(admin.page.get_by_role("heading", name="Replay")).to_be_visible()


def test_a_hostile_value_is_shown_and_not_run(admin: Visitor) -> None:
    admin.open(PATHS["dead letters"])
    record = admin.page.get_by_role("region", name="Records").locator("tbody tr", has_text="order_id")
    for place in range(record.count()):
        admin.open(PATHS["dead letters"])
        record.nth(place).get_by_role("link").first.click()
        admin.page.locator("section.payload").first.wait_for()
        if HOSTILE["note"] in admin.page.locator("main").inner_text().replace('\\"', '"'):
            break
    else:
        pytest.fail("no page of a record shows the hostile value")
    assert "offset" in admin.page.title()
    assert admin.page.locator("main img").count() == 0


def test_a_column_sorts_and_the_filter_leaves_what_fits(admin: Visitor) -> None:
    admin.open()
    admin.page.get_by_role("button", name="Dead letters").click()
    numbers = [int(admin.cell(name, "Dead letters").replace(",", "")) for name in admin.names()]
    assert numbers in (sorted(numbers), sorted(numbers, reverse=True))
    admin.page.get_by_label("Filter").fill(f"{PREFIX}pay")
    expect(admin.page.locator("#pipelines tbody tr:visible")).to_have_count(1)
    expect(admin.row(f"{PREFIX}payments")).to_be_visible()


@pytest.mark.parametrize("name", PATHS)
def test_a_narrow_window_scrolls_no_page_sideways(admin: Visitor, name: str) -> None:
    admin.page.set_viewport_size({"width": 360, "height": 800})
    admin.open(PATHS[name])
    wide = admin.page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
    assert wide <= 0, f"{wide} pixels too wide"


@pytest.mark.parametrize("name", PATHS)
def test_the_keyboard_reaches_every_control_and_shows_where_it_is(admin: Visitor, name: str) -> None:
    admin.open(PATHS[name])
    admin.page.keyboard.press("Tab")
    assert focused(admin)["text"] == "Skip to the content"
    seen: list[dict[str, Any]] = []
    for _ in range(25):
        seen.append(focused(admin))
        admin.page.keyboard.press("Tab")
    assert [one for one in seen if one["tag"] != "BODY" and not one["is_shown"]] == []
    assert len({one["place"] for one in seen}) >= 10


def focused(visitor: Visitor) -> dict[str, Any]:
    """Return what has the focus, and whether a person can see that."""
    found: dict[str, Any] = visitor.page.evaluate(
        """() => {
            const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
            return {tag: one.tagName, text: one.textContent.trim(), place: `${box.x} ${box.y + scrollY}`,
                    is_shown: style.outlineStyle !== "none" && box.width > 1 && box.height > 1 && box.bottom > 0};
        }"""
    )
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_is_the_one_that_was_chosen_in_airflow(admin: Visitor, theme: str) -> None:
    admin.page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
    admin.open()
    red, green, blue = map(
        int, admin.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3)")
    )
    assert (red + green + blue > 3 * 127) == (theme == "light")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PATHS)
def test_axe_finds_no_fault_of_accessibility(admin: Visitor, name: str, theme: str) -> None:
    admin.page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
    admin.open(PATHS[name])
    admin.page.evaluate(AXE.read_text())
    found = admin.page.evaluate(
        "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})"
        ".then(found => found.violations.map(v => [v.id, v.help, v.nodes.map(n => n.html).slice(0, 3)]))"
    )
    assert found == []
