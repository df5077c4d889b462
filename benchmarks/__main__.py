"""make bench: every ratio in one run, as a table on the screen and as benchmarks/bench.csv.

python -m benchmarks [NAME …]     only some of them
"""

import csv
import sys
from importlib import import_module
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from hebbseg.cli.memory import keep_freed_memory

SUITES = ("hebbian", "training", "methods", "loading", "inference", "evaluation", "report")


def main(names: list[str]) -> None:
    console = Console()
    unknown = set(names) - set(SUITES)
    if unknown:
        console.print(f"No benchmark {sorted(unknown)}; there are {', '.join(SUITES)}.")
        raise SystemExit(2)
    keep_freed_memory()  # as in every run
    rows = []
    for name in names or SUITES:
        console.print(f"[bold]{name}[/] …")
        rows += [{"suite": name, **row} for row in import_module(f"benchmarks.{name}").run()]
    table = Table(title=f"torch {torch.__version__.split('+')[0]}, {torch.get_num_threads()} threads")
    for heading in ("suite", "name", "ours", "reference", "ratio", "required", "held"):
        table.add_column(heading)
    for row in rows:
        numbers = [f"{row[key]:.4g}" for key in ("ours", "reference", "ratio")]
        table.add_row(row["suite"], row["name"], *numbers, row["required"], "yes" if row["held"] else "NO")
    console.print(table)
    path = Path(__file__).parent / "bench.csv"
    if path.exists() and names:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["suite"] not in names] + rows
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


if __name__ == "__main__":
    main(sys.argv[1:])
