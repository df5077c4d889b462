"""The docs say what the code does."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
docs = import_module("docs.__main__")


def test_every_example_runs() -> None:
    failed, tried = docs.run_examples()
    assert tried >= 10 and failed == 0


@pytest.mark.parametrize("name", docs.GENERATED)
def test_generated_pages_are_those_of_the_code(name: str) -> None:
    page = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert page == docs.GENERATED[name](), "run `make docs`"


def test_the_command_line_page_has_every_command_and_option() -> None:
    page = docs.command_line_page()
    for words in ("## hebbseg train", "## hebbseg next", "`--labelled`, `--labeled` `10%\\|8`", "`--resume`"):
        assert words in page


PAGES = (
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "studies").rglob("*.md"),
)


def test_external_links_are_complete_addresses() -> None:
    """Their form only: no test needs a network."""
    form = re.compile(r"https://([a-z0-9-]+\.)+[a-z]{2,}(/[\w.%/+-]*[\w/])?(#[\w-]+)?")
    links = [link for page in PAGES for link in re.findall(r"\]\(([a-z]+://[^)]*)\)", page.read_text(encoding="utf-8"))]
    assert len(links) > 15
    assert [link for link in links if not form.fullmatch(link)] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        prose = re.sub(r"```.*?```|`[^`]*`|^ {4}.*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
