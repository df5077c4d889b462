"""The docs say what the code does."""

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent
docs = import_module("docs.__main__")


def test_every_example_runs() -> None:
    failed, tried = docs.run_examples()
    assert tried >= 10 and failed == 0


def test_options_page_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "reference" / "options.md").read_text(encoding="utf-8") == docs.options_page(), "run `make docs`"


def test_links_between_pages_lead_somewhere() -> None:
    for page in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "studies").rglob("*.md"),
    ):
        prose = re.sub(r"```.*?```|`[^`]*`|^ {4}.*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
