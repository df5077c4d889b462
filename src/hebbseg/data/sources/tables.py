"""Small tables beside the images: who the patient is, which side of a published split a case is on."""

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hebbseg.data.cases import Case
from hebbseg.data.io.formats import stem_of
from hebbseg.data.sources.listing import normal
from hebbseg.errors import HebbsegError, did_you_mean

_NAME_COLUMNS = ("id", "case", "case_id", "image", "image_id", "filename", "file", "name")


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV with a header line: any line end, comma, semicolon or tab, blanks around cells dropped."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        content = path.read_text(encoding="latin-1")
    except OSError as error:
        raise HebbsegError(f"{path}: the table cannot be read ({error}). Check the path.") from error
    lines = [line for line in content.splitlines() if line.strip()]
    if not lines:
        raise HebbsegError(f"{path}: the table is empty. Its first line must name the columns.")
    delimiter = max(",;\t", key=lines[0].count)
    rows = list(csv.reader(lines, delimiter=delimiter))
    columns = [cell.strip() for cell in rows[0]]
    return [dict(zip(columns, (cell.strip() for cell in row), strict=False)) for row in rows[1:]]


def read_lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]


def with_groups(cases: Sequence[Case], group: str, root: Path) -> list[Case]:
    r"""The cases with the group (patient, subject) each belongs to.

    Args:
        group: ``"patients.csv:patient"``, a table and its column (rows found by id, file name or stem; the path may be
            relative to the data), or a pattern searched in the id whose first bracket is the group: ``"^(p\d+)_"``.
    """
    table, _, column = group.rpartition(":")
    if table.lower().endswith((".csv", ".tsv", ".txt")):
        return _from_table(cases, table, column, root)
    if group.lower().endswith((".csv", ".tsv")):
        raise HebbsegError(f"--group {group!r}: which column? Write {group + ':patient'!r}.")
    try:
        pattern = re.compile(group)
    except re.error as error:
        raise HebbsegError(f"--group {group!r} is not a regular expression: {error}.") from error
    grouped = []
    for case in cases:
        match = pattern.search(case.id)
        if match is None:
            raise HebbsegError(
                f"--group {group!r} does not match case {case.id!r}. The pattern must match every id, or two pictures "
                "of one patient could end up on both sides of a split."
            )
        grouped.append(replace(case, group=match.group(1) if pattern.groups else match.group(0)))
    return grouped


def _from_table(cases: Sequence[Case], table: str, column: str, root: Path) -> list[Case]:
    path = next((p for p in (Path(table), root / table, root.parent / table) if p.is_file()), None)
    if path is None:
        raise HebbsegError(f"--group: no table {table!r}, neither here nor in {root}.")
    rows = read_table(path)
    columns = {name.lower(): name for name in (rows[0] if rows else {})}
    if column.lower() not in columns:
        raise HebbsegError(f"{path}: no column {column!r}. {did_you_mean(column, columns.values())}")
    names = next((columns[name] for name in _NAME_COLUMNS if name in columns), next(iter(columns.values())))
    groups: dict[str, str] = {}
    for row in rows:
        name = normal(row.get(names, ""))
        groups[name] = groups[stem_of(name)] = row.get(columns[column.lower()], "")
    grouped = []
    for case in cases:
        keys = (case.id, case.id.rpartition("/")[2], *(path.name for path in case.image))
        value = next((groups[key] for key in keys if groups.get(key)), None)
        if value is None:
            raise HebbsegError(
                f"{path}: no {column!r} for case {case.id!r} (looked in {names!r}). Add the row, or remove the image."
            )
        grouped.append(replace(case, group=value))
    return grouped
