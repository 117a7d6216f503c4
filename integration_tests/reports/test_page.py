"""The page in a real browser: drawn at three widths and in both schemes, quiet, readable, and without a script.

It is Debian's chromium-headless-shell, or $CHROME. `make test-report` installs it; without it these tests are skipped.
"""

import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, sync_playwright

from destination_datalake.reports.health import Run, health
from destination_datalake.reports.page import page
from unit_tests.reports.history import HOSTILE, STREAMS, erasures, history
from unit_tests.reports.lines import BEGAN

CHROME = os.environ.get("CHROME") or shutil.which("chromium-headless-shell") or shutil.which("chromium")

pytestmark = [pytest.mark.skipif(CHROME is None, reason="no browser: make test-report"), pytest.mark.share(3)]

NOW = BEGAN + timedelta(days=4)
WIDTHS = (380, 800, 1400)
LAKES = {
    "usual": history(90),
    "hostile": history(20, streams=(*STREAMS, HOSTILE * 5, "x" * 300)),
    "empty": [],
    "one sync": history(1),
    "years": history(1500),
}
ERASURES = erasures("shop.orders", "shop.customers", HOSTILE, "x" * 300)
SMALL = """() => [...document.querySelectorAll('body *')].filter(each =>
    [...each.childNodes].some(child => child.nodeType === 3 && child.textContent.trim())
    && parseFloat(getComputedStyle(each).fontSize) < 11).map(each => each.outerHTML.slice(0, 200))"""
DRAWN = """() => [...document.querySelectorAll('.plot svg')].every(each => {
    const box = each.getBoundingClientRect(); return box.width > 150 && box.height > 100 })"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROME, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def written(runs: list[Run], folder: Path) -> str:
    path = folder / "page.html"
    path.write_text(
        page(runs, health(runs, NOW), "s3://my-lake/airbyte/", 30, NOW, ERASURES if runs else ()), encoding="utf-8"
    )
    return path.as_uri()


def opened(browser: Browser, url: str, scheme: str, width: int) -> tuple[Page, list[str]]:
    """The page, and what the browser said and asked for."""
    shown = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
    events: list[str] = []
    shown.on("console", lambda message: events.append(message.text))
    shown.on("pageerror", lambda error: events.append(str(error)))
    shown.on("request", lambda request: events.append(request.url) if request.url != url else None)
    shown.goto(url)
    return shown, events


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("lake", LAKES)
def test_the_page_is_readable_at_every_width(
    browser: Browser, tmp_path: Path, lake: str, scheme: str, width: int
) -> None:
    shown, events = opened(browser, written(LAKES[lake], tmp_path), scheme, width)

    assert events == []
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), "no scrolling sideways"
    assert shown.evaluate(SMALL) == []
    assert shown.evaluate(DRAWN)
    results = Axe().run(shown, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]})
    assert results.response["violations"] == [], results.generate_report()
    shown.close()


def test_both_schemes_are_drawn_and_differ(browser: Browser, tmp_path: Path) -> None:
    url = written(LAKES["usual"], tmp_path)
    pictures = {}
    for scheme in ("light", "dark"):
        shown, _ = opened(browser, url, scheme, 800)
        pictures[scheme] = shown.screenshot()
        assert len(pictures[scheme]) > 20_000, "more than an empty page"
        shown.close()

    assert pictures["light"] != pictures["dark"]


def test_the_keyboard_reaches_what_scrolls_and_opens_the_tables(browser: Browser, tmp_path: Path) -> None:
    shown, _ = opened(browser, written(LAKES["usual"], tmp_path), "light", 380)
    reached = []
    for _ in range(16):
        shown.keyboard.press("Tab")
        reached.append(shown.evaluate("document.activeElement.tagName"))
        if reached[-1] == "SUMMARY" and reached.count("SUMMARY") == 1:
            shown.keyboard.press("Enter")

    assert reached[0] == "A", "the link that skips to the syncs"
    assert {"SUMMARY", "DIV"} <= {*reached}
    assert shown.evaluate("document.querySelectorAll('details[open]').length") == 1
    shown.close()


def test_the_page_prints_without_what_a_reader_would_have_to_click(browser: Browser, tmp_path: Path) -> None:
    shown, _ = opened(browser, written(LAKES["usual"], tmp_path), "dark", 800)

    shown.emulate_media(media="print")

    assert shown.evaluate("getComputedStyle(document.querySelector('details')).display") == "none"
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown.close()
