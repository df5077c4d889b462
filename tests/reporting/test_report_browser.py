"""The page in a real browser: nothing goes wrong, nothing is loaded, tables sort, images decode, nothing overflows."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hebbseg.reporting.html import write_report
from tests.reporting.runs import make_ablation, make_sota

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
INSTALLED = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
CHROMIUM = os.environ.get("HEBBSEG_CHROMIUM") or next(INSTALLED, None)
if CHROMIUM is None:
    pytest.skip("no Chromium found: install it, or set HEBBSEG_CHROMIUM to its path", allow_module_level=True)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_sota(root / "a", seeds=2)
    make_ablation(root / "t", "temperature")
    (root / "a" / "runs" / "EM-1%-0-0" / "summary.json").write_text("{")
    return write_report([root], root / "report.html").page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        # Without its sandbox, as containers and root have none; the only page opened is our own.
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def opened(browser: Any, report: Path) -> Iterator[tuple[Any, list[str], list[str]]]:
    """The page, what it complained of, and what it asked for."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_load_state("load")
    yield page, complaints, requests
    page.close()


def column(page: Any, table: int, number: int) -> list[str]:
    script = "([t, c]) => [...document.querySelectorAll('table')[t].tBodies[0].rows].map(r => r.cells[c].innerText)"
    return page.evaluate(script, [table, number])


def test_loads_without_complaint_and_without_the_network(opened: tuple[Any, list[str], list[str]], report: Path) -> None:
    _, complaints, requests = opened
    assert complaints == []
    assert {url for url in requests if not url.startswith("data:")} == {report.as_uri()}


def test_every_image_decodes(opened: tuple[Any, list[str], list[str]]) -> None:
    page, _, _ = opened
    sizes = page.evaluate("Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))")
    assert len(sizes) >= 4 and min(sizes) > 100


def test_tables_sort_by_number_at_a_click_and_by_keyboard(opened: tuple[Any, list[str], list[str]]) -> None:
    page, _, _ = opened
    names = page.evaluate("[...document.querySelectorAll('table')].map(t => t.getAttribute('aria-label'))")
    table = next(number for number, name in enumerate(names) if name.startswith("Label efficiency"))
    heading = page.locator("table").nth(table).locator("th").nth(1)
    unsorted = column(page, table, 1)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    # As numbers: 10 % after 2 %, not before it.
    assert column(page, table, 1) == sorted(unsorted, key=lambda text: float(text.split()[0]))
    heading.locator("button").focus()
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert column(page, table, 1) == sorted(unsorted, key=lambda text: -float(text.split()[0]))
    needed = page.locator("table").nth(table).locator("th").nth(3)
    needed.locator("button").click()
    assert heading.get_attribute("aria-sort") == "none"
    assert column(page, table, 3)[-1].startswith("> 20 %")  # more than all that is known


def test_what_is_missing_sorts_last_either_way(opened: tuple[Any, list[str], list[str]]) -> None:
    page, _, _ = opened
    script = "[...document.querySelectorAll('table')].map(t => t.getAttribute('aria-label'))"
    table = page.evaluate(script).index("Dice (%) on glas by softmax temperature t")
    cell = "document.querySelectorAll('table')[{}].tBodies[0].rows[2].cells[2]"
    page.evaluate(f"c => {{ const e = {cell.format(table)}; delete e.dataset.sort; e.textContent = '–'; }}")
    button = page.locator("table").nth(table).locator("th").nth(2).locator("button")
    for _ in range(2):
        button.click()
        assert column(page, table, 2)[-1] == "–"


@pytest.mark.parametrize("width", [400, 1280])
def test_page_is_no_wider_than_the_window(browser: Any, report: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(report.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
