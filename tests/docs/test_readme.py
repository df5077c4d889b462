"""README stays short enough to be read."""

import re

from tests.docs.pages import blocks, text_of


def test_at_most_500_words() -> None:
    assert 250 < len(text_of("README.md").split()) <= 500  # code included


def test_two_figures_and_a_table_of_at_most_five_rows() -> None:
    text = text_of("README.md")
    assert len(re.findall(r"^!\[[^\]]+\]\(", text, re.M)) == 2
    rows = re.findall(r"^\| \d+ % .*±.*$", text, re.M)
    assert 1 <= len(rows) <= 5 and re.search(r"n = \d+ seeds", text)


def test_its_numbers_are_those_of_the_results_page() -> None:
    results = text_of("docs/results/index.md")
    for row in re.findall(r"^\| \d+ % .*±.*$", text_of("README.md"), re.M):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        found = [line for line in results.splitlines() if line.startswith(f"| {cells[0]} |")]
        assert any(all(f"| {cell} |" in line for cell in cells) for line in found), row


def test_the_snippets_are_short() -> None:
    sizes = [len(block.text.split("\n\n")[-1].splitlines()) for block in blocks("README.md") if block.language == "python"]
    assert sizes[0] <= 3 and sizes[1] <= 8
