"""Reading and writing of text files: JSON, tables and lists, with limits and user errors."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from hebbseg.errors import FileError, HebbsegError, explaining, refuse_special

MAX_BYTES = 2**26
FORMULA = ("=", "+", "-", "@", "\t", "\r")
MakeError = Callable[[str | Path, str, str], HebbsegError]


def read_text(path: Path, remedy: str, *, error: MakeError = FileError, any_encoding: bool = False) -> str:
    """Return the content of a UTF-8 file.

    Args:
        path: the file.
        remedy: what to do about a damaged file.
        error: the type to raise.
        any_encoding: read a file that is not UTF-8 as Latin-1.
    """
    with explaining(path, "not a readable text file", remedy, error=error):
        refuse_special(path, error=error)
        if path.stat().st_size > MAX_BYTES:
            raise error(path, f"{path.stat().st_size} bytes; at most {MAX_BYTES} are allowed", remedy)
        content = path.read_bytes()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            if not any_encoding:
                raise
            text = content.decode("latin-1")
    if "\0" in text:
        raise error(path, "binary data, not a text", remedy)
    return text


def read_json(path: Path, remedy: str, *, finding: str = "not valid JSON", error: MakeError = FileError) -> dict[str, Any]:
    """Return the object in a JSON file; ``finding`` describes a file that cannot be parsed."""
    text = read_text(path, remedy, error=error)
    with explaining(path, finding, remedy, error=error):
        content = json.loads(text)
    if not isinstance(content, dict):
        raise error(path, f"contains a {type(content).__name__}, not an object", remedy)
    return content


def read_rows(path: Path, remedy: str, *, error: MakeError = FileError) -> list[dict[str, str]]:
    """Return the rows of a table with a header; separated by comma, semicolon or tab. Missing cells are empty."""
    lines = [line for line in read_text(path, remedy, error=error, any_encoding=True).splitlines() if line.strip()]
    if not lines:
        raise error(path, "the table is empty", "The first line must contain the column names.")
    delimiter = max(",;\t", key=lines[0].count)
    with explaining(path, "not a valid table", remedy, error=error):
        first, *rows = csv.reader(lines, delimiter=delimiter)
    columns = [cell.strip() for cell in first]
    return [dict(zip(columns, [cell.strip() for cell in row] + [""] * len(columns), strict=False)) for row in rows]


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV. Texts that a spreadsheet would execute as a formula get the prefix ``'``.

    >>> csv_text([["=1+2", "-0.5", "a b"]])
    "'=1+2,-0.5,a b\\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
