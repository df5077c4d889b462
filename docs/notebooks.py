"""Notebooks of the examples: each script with cells (`# %%`) becomes a notebook with the same code."""

import json
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"


def scripts() -> list[Path]:
    """Return the example scripts that have cells."""
    return [path for path in sorted(EXAMPLES.glob("*.py")) if path.read_text(encoding="utf-8").startswith("# %%")]


def notebook(script: str) -> str:
    """Return the notebook of a script, in version 4 of the format, without outputs."""
    cells = [_cell(number, text) for number, text in enumerate(script.split("# %%")[1:])]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, text: str) -> dict[str, Any]:
    head, _, body = text.partition("\n")
    lines = body.strip("\n").splitlines(keepends=True)
    cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
    if head.strip() == "[markdown]":
        return cell | {"cell_type": "markdown", "source": [line.removeprefix("#").removeprefix(" ") for line in lines]}
    return cell | {"cell_type": "code", "execution_count": None, "outputs": [], "source": lines}


def write_notebooks() -> list[str]:
    """Write examples/notebooks/NAME.ipynb for every script, and return the names."""
    folder = EXAMPLES / "notebooks"
    folder.mkdir(exist_ok=True)
    for script in scripts():
        text = notebook(script.read_text(encoding="utf-8"))
        (folder / f"{script.stem}.ipynb").write_text(text, encoding="utf-8")
    return [script.stem for script in scripts()]
