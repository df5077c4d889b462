"""Tables that accompany the images: patients and published splits."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from hebbseg.data.cases import Case, DataError
from hebbseg.data.io.formats import stem_of
from hebbseg.data.sources.listing import normal
from hebbseg.errors import HebbsegError, did_you_mean
from hebbseg.text_files import read_rows, read_text

_NAME_COLUMNS = ("id", "case", "case_id", "image", "image_id", "filename", "file", "name")


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table with a header; separated by comma, semicolon or tab."""
    return read_rows(path, "Save it again as CSV.", error=DataError)


def require_columns(path: Path, rows: Sequence[dict[str, str]], *columns: str) -> None:
    """Raise unless the table has these columns."""
    for column in columns:
        if rows and column not in rows[0]:
            raise DataError(path, f"no column {column!r}", did_you_mean(column, rows[0]))


def read_lines(path: Path) -> list[str]:
    text = read_text(path, "Download or copy the list again.", error=DataError, any_encoding=True)
    return [line.strip() for line in text.splitlines() if line.strip()]


def with_groups(cases: Sequence[Case], group: str, root: Path) -> list[Case]:
    r"""Return the cases with their groups (patients, subjects).

    Args:
        cases: the cases.
        group: a table and its column, ``"patients.csv:patient"`` (rows are matched by id, file name or stem), or a
            regular expression on the id whose first parenthesis is the group, ``"^(p\d+)_"``.
        root: folder of the data set; the path of the table can be relative to it.
    """
    table, _, column = group.rpartition(":")
    if table.lower().endswith((".csv", ".tsv", ".txt")):
        return _from_table(cases, table, column, root)
    if group.lower().endswith((".csv", ".tsv")):
        raise HebbsegError(f"--group {group!r} names no column. Write --group {quote(f'{group}:patient')}.")
    try:
        pattern = re.compile(group)
    except re.error as error:
        raise HebbsegError(f"--group {group!r} is not a valid regular expression: {error}.") from error
    grouped = []
    for case in cases:
        match = pattern.search(case.id)
        if match is None:
            raise HebbsegError(
                f"--group {group!r} does not match case {case.id!r}. It must match every id, so that no patient is in "
                "both the training and the test set."
            )
        grouped.append(replace(case, group=match.group(1) if pattern.groups else match.group(0)))
    return grouped


def _from_table(cases: Sequence[Case], table: str, column: str, root: Path) -> list[Case]:
    path = next((p for p in (Path(table), root / table, root.parent / table) if p.is_file()), None)
    if path is None:
        raise HebbsegError(f"--group: table {table!r} not found, neither in the current folder nor in {root}.")
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
                f"{path}: no {column!r} for case {case.id!r} (searched in column {names!r}). Add the row, or remove the image."
            )
        grouped.append(replace(case, group=value))
    return grouped
