"""Tables of the report, written as HTML (by the template), LaTeX and CSV."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hebbseg.reporting.statistics import Estimate
from hebbseg.text_files import csv_text

Mark = Literal["", "best", "second"]
Number = float | int | str | None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell: the text shown and the numbers behind it.

    Args:
        detail: interval and n, in a smaller font.
        sort: sort key; the text if None.
        numbers: {name: number} for the CSV, with "" for the column itself; the text if empty.
    """

    text: str
    detail: str = ""
    sort: float | None = None
    numbers: Mapping[str, Number] = field(default_factory=dict)
    mark: Mark = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """``published``: results from the paper, which belong to the row above. ``proposed``: the proposed method."""

    cells: tuple[Cell, ...]
    published: bool = False
    proposed: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a report.

    Args:
        name: of its files; letters, digits and hyphens.
        note: legend below the table.
        columns: headings.
    """

    name: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        wrong = [len(row.cells) for row in self.rows if len(row.cells) != len(self.columns)]
        if wrong:
            raise ValueError(f"table {self.name}: {len(self.columns)} columns, but a row with {wrong[0]} cells.")

    @property
    def word_columns(self) -> frozenset[int]:
        """Columns without numbers, which are left-aligned."""
        return frozenset(i for i in range(len(self.columns)) if all(row.cells[i].sort is None for row in self.rows))

    @property
    def measured(self) -> bool:
        """Whether any row is not published."""
        return any(not row.published for row in self.rows)


EMPTY = Cell(text="–", numbers={"": None})


def text_cell(text: str) -> Cell:
    return Cell(text=text)


def number_cell(value: float | None, decimals: int = 1, suffix: str = "", *, sign: bool = False) -> Cell:
    if value is None:
        return EMPTY
    return Cell(text=f"{shown_number(value, decimals, sign=sign)}{suffix}", sort=value, numbers={"": value})


def estimate_cell(
    estimate: Estimate | None,
    *,
    scale: float = 1.0,
    decimals: int = 1,
    sign: bool = False,
    before: str = "",
    show_n: bool = True,
) -> Cell:
    """Return a mean with its interval and n, multiplied by ``scale`` (100 for percentages)."""
    if estimate is None:
        return EMPTY
    mean = scale * estimate.mean
    half = None if estimate.half is None else scale * estimate.half
    parts = [] if half is None else [f"± {half:.{decimals}f}"]
    return Cell(
        text=before + shown_number(mean, decimals, sign=sign),
        detail=", ".join([*parts, f"n = {estimate.n}"] if show_n else parts),
        sort=mean,
        numbers={"": mean, "ci90": half, "n": estimate.n},
    )


def shown_number(value: float, decimals: int, *, sign: bool = False) -> str:
    """Return a number with a typographic minus sign; zero has no sign."""
    shown = f"{value:{'+' if sign else ''}.{decimals}f}"
    if float(shown) == 0:
        shown = f"{0:.{decimals}f}"
    return shown.replace("-", "−")


def marked(rows: Sequence[Row], columns: Sequence[int], *, higher_is_better: bool) -> tuple[Row, ...]:
    """Mark the best and second-best value of each column, published rows excluded; ties share a mark."""
    result = list(rows)
    for column in columns:
        shown = {
            number: round(cell.sort, 6)
            for number, row in enumerate(rows)
            if not row.published and (cell := row.cells[column]).sort is not None and math.isfinite(cell.sort)
        }
        places = sorted(set(shown.values()), reverse=higher_is_better)
        if len(places) < 2:
            continue
        for number, value in shown.items():
            if value in places[:2]:
                cells = list(result[number].cells)
                cells[column] = replace(cells[column], mark="best" if value == places[0] else "second")
                result[number] = replace(result[number], cells=tuple(cells))
    return tuple(result)


def as_csv(table: Table) -> str:
    """Return unrounded numbers, with intervals and n in separate columns."""
    parts = [list(dict.fromkeys(key for row in table.rows for key in row.cells[i].numbers)) for i in range(len(table.columns))]
    headings = [
        heading if not part else f"{heading} {part}"
        for heading, keys in zip(table.columns, parts, strict=True)
        for part in keys or [""]
    ]
    rows: list[list[Number]] = [[*headings, "published"]]
    for row in table.rows:
        values: list[Number] = []
        for cell, keys in zip(row.cells, parts, strict=True):
            values += [_plain(cell.numbers.get(key)) for key in keys] if keys else [cell.text]
        rows.append([*values, "yes" if row.published else "no"])
    return csv_text(rows)


def _plain(value: Number) -> Number:
    return f"{value:.6g}" if isinstance(value, float) else value


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$",
    "±": r"$\pm$", "×": r"$\times$", "−": r"$-$", "–": "--", "…": r"\dots{}", "≤": r"$\leq$", "²": r"$^2$",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "→": r"$\rightarrow$", "·": r"$\cdot$", "½": r"$\frac12$", "’": "'",
}  # fmt: skip


def latex_text(text: str) -> str:
    """Escape special characters for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in text)


def as_latex(table: Table) -> str:
    """Return a LaTeX table. Best in red and bold, second in blue and underlined, published in gray italics."""
    lines = [
        "% needs \\usepackage{booktabs,xcolor}",
        r"\begin{table}[htbp]",
        r"  \centering\footnotesize",
        rf"  \caption{{{latex_text(table.title)}. {latex_text(table.note)}}}",
        rf"  \label{{tab:{table.name}}}",
        rf"  \begin{{tabular}}{{@{{}}l{'r' * (len(table.columns) - 1)}@{{}}}}",
        r"    \toprule",
        "    " + " & ".join(latex_text(column) for column in table.columns) + r" \\",
        r"    \midrule",
    ]
    lines += [_latex_row(row) for row in table.rows]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _latex_row(row: Row) -> str:
    styles = {"best": r"\textcolor{{red}}{{\textbf{{{}}}}}", "second": r"\textcolor{{blue}}{{\underline{{{}}}}}"}
    cells = []
    for number, cell in enumerate(row.cells):
        text = styles[cell.mark].format(latex_text(cell.text)) if cell.mark else latex_text(cell.text)
        text = rf"\textbf{{{text}}}" if row.proposed and number == 0 else text
        text += rf" {{\scriptsize {latex_text(cell.detail)}}}" if cell.detail else ""
        cells.append(rf"\textcolor{{gray}}{{\textit{{{text}}}}}" if row.published else text)
    return "    " + " & ".join(cells) + r" \\"


def file_name(*parts: str) -> str:
    """Join texts to a file name of letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(part for part in parts if part).lower()).strip("-")
