"""``python -m sandbox.screenshots``: pictures of the page in ``docs/images``, light and dark, of a sandbox of its own.

Needs Chromium on the machine (Debian: ``apt-get install chromium``).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from playwright.sync_api import Browser, Page, sync_playwright

from sandbox.airflow import USER
from sandbox.errors import SandboxError
from sandbox.paths import CHECKOUT, SandboxPaths, default_paths
from sandbox.showcase import Showcase
from sandbox.system import AIRFLOW_DATABASE, WAREHOUSE, Sandbox

IMAGES = CHECKOUT / "docs" / "images"
#: What the browsers of the last years have, scaled so that text stays sharp and files stay small.
WIDTH, HEIGHT = 1280, 800
#: A machine whose cores are taken by Spark jobs draws late.
PATIENCE_MS = 120_000
#: A picture that is greater is a picture of too much.
MOST_BYTES = 250_000

Theme: TypeAlias = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture: the name of its file, and where it is taken below the page's address.

    Attributes:
        name: File name without theme.
        path: Path.
        follow: Selector of a link of that page, behind which it is taken; empty: none.
        is_framed: Whether it shows Airflow around the page.
    """

    name: str
    path: str
    follow: str = ""
    is_framed: bool = False


SHOTS = (
    Shot("overview", "", is_framed=True),
    Shot("pipeline", "pipelines/orders"),
    Shot("late", "pipelines/payments"),
    Shot("failing", "pipelines/customers"),
    Shot("batch", "pipelines/orders", follow="tbody a[href*='/batches/']"),
    Shot("dead-letters", "pipelines/returns/dead-letters"),
    Shot("record", "pipelines/returns/dead-letters", follow="a[href*='record=']"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Start a sandbox, take the pictures, and delete it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.screenshots", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the sandbox running, and use it again if it runs")
    options = parser.parse_args(arguments)
    paths = SandboxPaths(default_paths().state / "screenshots", default_paths().cache)
    sandbox = Sandbox(paths)
    try:
        was_running = "stopped" not in sandbox.states().values()
        if not was_running:
            sandbox.start(_say)
            _showcase(sandbox).open()
        _take(sandbox)
        return 0
    except SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if not options.keep:
            sandbox.destroy(_say)


def _showcase(sandbox: Sandbox) -> Showcase:
    airflow = sandbox.airflow().client()

    def load(pipeline: str) -> None:
        if pipeline != "orders":
            sandbox.ingest(["run", pipeline, "--runner", "in-process"])
            return
        # By Airflow and Spark: its history is looked at.
        run_id = airflow.trigger(f"kafka_to_postgres__{pipeline}")
        if (state := airflow.wait_for_run(f"kafka_to_postgres__{pipeline}", run_id)) != "success":
            raise SandboxError(f"run {run_id} of {pipeline} should succeed", found=state)

    return Showcase(
        prefix="",
        bootstrap=sandbox.kafka.bootstrap,
        pipelines=sandbox.paths.pipelines,
        airflow=airflow,
        metadata=sandbox.postgres.params(AIRFLOW_DATABASE),
        warehouse=sandbox.postgres.params(WAREHOUSE),
        load=load,
        given=frozenset({"orders"}),
    )


def _take(sandbox: Sandbox) -> None:
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for theme in ("light", "dark"):
            with logged_in(browser, sandbox.airflow().url, USER, sandbox.airflow().password, theme) as page:
                for shot in SHOTS:
                    _shoot(page, sandbox.airflow().url, shot, IMAGES / f"{shot.name}-{theme}.png")


def _shoot(page: Page, url: str, shot: Shot, file: Path) -> None:
    page.goto(f"{url}/plugin/kafka-ingest" if shot.is_framed else f"{url}/kafka-ingest/{shot.path}")
    frame = page.frame_locator("iframe") if shot.is_framed else page
    frame.locator("main h1").wait_for()
    if shot.follow:
        frame.locator(shot.follow).first.click()
    page.wait_for_load_state("networkidle")
    page.screenshot(path=file)
    if file.stat().st_size > MOST_BYTES:
        raise SandboxError(f"{file.name} has more than {MOST_BYTES:,} bytes", found=f"{file.stat().st_size:,}")
    _say(f"{file.name}: {file.stat().st_size:,} bytes")


def chromium() -> str:
    """Return the path of Chromium.

    Raises:
        SandboxError: There is none on PATH.
    """
    if found := shutil.which("chromium") or shutil.which("chromium-browser"):
        return found
    raise SandboxError("Chromium is not on PATH", next_step="apt-get install chromium")


@contextmanager
def logged_in(browser: Browser, url: str, user: str, password: str, theme: Theme = "light") -> Iterator[Page]:
    """Yield a window of a person who has logged in by Airflow's form, with this theme chosen in Airflow."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(f"{url}/")
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", password)
    page.click("button[type=submit]")
    page.wait_for_url(lambda address: "/auth/" not in address)
    page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
    yield page
    context.close()


def _say(text: str) -> None:
    print(f"- {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
