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


def test_links_between_pages_lead_somewhere() -> None:
    for page in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        ROOT / "SECURITY.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "studies").rglob("*.md"),
    ):
        prose = re.sub(r"```.*?```|`[^`]*`|^ {4}.*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
