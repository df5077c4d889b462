"""The site builds without warnings, loads nothing from elsewhere, and can be searched offline."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the extra docs is not installed")

ROOT = Path(__file__).parents[2]
# What a browser loads by itself, in contrast to links that a reader follows.
LOADED = re.compile(r"""<(?:script|img|link|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|href|data)=["']([^"']+)""")
NAVIGATION = re.compile(r'<link\b[^>]*rel="(?:canonical|index|search|next|prev|author)"[^>]*>')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-d", out / "doctrees", "docs", out / "html"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    loaded = 0
    for page in pages:
        for address in LOADED.findall(NAVIGATION.sub("", page.read_text(encoding="utf-8"))):
            loaded += 1
            assert not re.match(r"https?:|//", address), f"{page.name} loads {address}"
            assert address.startswith("data:") or (page.parent / address.partition("?")[0].partition("#")[0]).exists(), address
    assert loaded > len(pages)
    for style in site.rglob("*.css"):
        for address in re.findall(r"""(?:@import|url\()\s*["']?([^"')\s]+)""", style.read_text(encoding="utf-8")):
            assert not re.match(r"https?:|//", address), f"{style.name} loads {address}"


def test_search_works_offline(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(")  # a script, which also loads from a file: address
    assert "scribbl" in index and '"how-to/own-data"' in index


def test_search_in_a_browser(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    installed = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    chromium = os.environ.get("HEBBSEG_CHROMIUM") or next(installed, None)
    if chromium is None:
        pytest.skip("no Chromium found: install it, or set HEBBSEG_CHROMIUM to its path")
    requests: list[str] = []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.fill("input[name=q]", "scribbles")
        page.press("input[name=q]", "Enter")
        page.wait_for_selector("ul.search li")
        assert "Sparse labels" in page.inner_text("ul.search")
        browser.close()
    assert all(address.startswith(("file:", "data:", "blob:")) for address in requests)


def test_equations_are_drawn_without_scripts(site: Path) -> None:
    page = (site / "explanation" / "mathematics.html").read_text(encoding="utf-8")
    assert page.count("<math") >= 10
    assert not re.search(r"<script[^>]*(mathjax|katex)", page, re.I)


def test_links_inside_the_site_lead_somewhere(site: Path) -> None:
    ids = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8"))) for page in site.rglob("*.html")}
    checked = 0
    for page in ids:
        article = page.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
        for address in re.findall(r'<a\b[^>]*\bhref="([^"]+)"', article):
            if re.match(r"https?:|mailto:", address):
                continue
            path, _, anchor = address.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.name}: {address}"
            if anchor and target in ids:
                assert anchor in ids[target], f"{page.name}: {address}"
            checked += 1
    assert checked > 300


def test_links_to_folders_are_text(site: Path) -> None:
    for page in ("comparison", "study", "tables"):
        assert not re.search(
            r"\[[\w/-]+\]", (site / "results" / f"{page}.html").read_text(encoding="utf-8").partition("<article")[2]
        )
    assert "report's tables: results/hebbian-init-small." in (site / "results" / "comparison.html").read_text(encoding="utf-8")


def test_text_of_other_folders_is_part_of_the_site(site: Path) -> None:
    assert "Pre-registration" in (site / "results" / "study.html").read_text(encoding="utf-8")
    assert "Hebbian learning" in (site / "changelog.html").read_text(encoding="utf-8")
