"""The study's final comparison as one table, from the runs of studies/study-*.toml, and its paired differences.

python -m studies.recipe studies/results/recipe.csv runs/study-glas runs/study-pupils runs/study-la

Rows that are not among the runs (data set, percent, seed and arm) stay as they are in the table. Without any runs it tells
what the table says. With ``--again`` runs of scratch on data that have such rows already become rows of their own,
scratch-again: the same runs on a later day.
"""

import argparse
import csv
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from hebbseg.reporting.label_efficiency import label_efficiency
from hebbseg.reporting.results import Results, RunResult, read_results
from hebbseg.reporting.statistics import mean_interval

ARMS = {
    "Supervised": "scratch",
    "Random, rescaled": "random-rescaled",
    "Hebbian SWTA": "hebbian",
    "Default": "default",
}
AGAIN = "scratch-again"
COLUMNS = ("dataset", "labelled_percent", "seed", "arm", "dice", "dice_pooled")
FEW = ("1", "2", "5", "10")
Row = dict[str, str]
Cells = dict[tuple[str, str, str], dict[str, float]]
"""(data set, percent, arm) → seed → Dice."""


def read_table(path: Path) -> list[Row]:
    return list(csv.DictReader(path.open())) if path.exists() else []


def interval(values: list[float]) -> str:
    found = mean_interval(values)
    if found.half is None:
        return f"{found.mean:+.2f} (n = {found.n})"
    return f"{found.mean:+.2f} ± {found.half:.2f} (90 % interval, n = {found.n})"


def as_row(run: RunResult) -> Row:
    numbers = {name: f"{100 * run.metrics[name]:.3f}" for name in ("dice", "dice_pooled")}
    return {
        "dataset": run.dataset,
        "labelled_percent": run.labelled.rstrip("%"),
        "seed": str(run.seed),
        "arm": ARMS[run.arm],
    } | numbers


def differences(rows: list[Row]) -> list[str]:
    """One line for each data set, regime and arm: the mean, and what it is above scratch and above the control.

    Then the same for the mean over `FEW` percent, one number a seed that has them all.
    """
    cells: Cells = {}
    for row in rows:
        key = row["dataset"], row["labelled_percent"], row["arm"]
        cells.setdefault(key, {})[row["seed"]] = float(row["dice"])
    for dataset, arm in {(dataset, arm) for dataset, _, arm in cells}:
        each = [cells.get((dataset, percent, arm), {}) for percent in FEW]
        whole = set.intersection(*(set(values) for values in each))
        if whole:
            cells[dataset, f"{FEW[0]}-{FEW[-1]}", arm] = {s: sum(v[s] for v in each) / len(FEW) for s in whole}
    return [_line(cells, *key) for key in sorted(cells, key=lambda key: (key[0], "-" in key[1], _number(key[1]), key[2]))]


def efficiencies(rows: list[Row]) -> list[str]:
    """One line for each data set, arm and regime: how many of the baseline's masks its masks are worth."""
    cells: dict[str, dict[str, dict[float, dict[str, float]]]] = {}
    for row in rows:
        by_percent = cells.setdefault(row["dataset"], {}).setdefault(row["arm"], {})
        by_percent.setdefault(float(row["labelled_percent"]), {})[row["seed"]] = float(row["dice"])
    lines = []
    for dataset, arms in sorted(cells.items()):
        for arm in sorted(arms.keys() - {"scratch", AGAIN, "random-rescaled"}):
            baselines = ("scratch", AGAIN) if arm == "default" else ("scratch",)
            for percent, base in product(sorted(arms[arm]), baselines):
                found = label_efficiency(arms[arm][percent], percent, arms.get(base, {}))
                if found is not None:
                    needed, factor = found.percent_text(found.needed), found.factor_text(found.needed)
                    known = "" if found.low is None else "90 % bootstrap interval, "
                    interval_text = f"{found.interval_text(found.factor_text)} ({known}n = {found.n})"
                    lines.append(f"{dataset} {percent:g} % {arm}: {base} needs {needed}, {factor} {interval_text}")
    return lines


def _cell(row: Row) -> tuple[str, ...]:
    return row["dataset"], row["labelled_percent"], row["seed"], row["arm"]


def _number(percent: str) -> float:
    return float(percent.split("-")[0])


def _line(cells: Cells, dataset: str, percent: str, arm: str) -> str:
    values = cells[dataset, percent, arm]
    line = f"{dataset} {percent} % {arm}: {interval(list(values.values()))}"
    for other in ("scratch", "random-rescaled", AGAIN):
        base = cells.get((dataset, percent, other), {})
        pairs = [values[seed] - base[seed] for seed in values if seed in base]
        if arm not in ("scratch", other) and pairs and (other != AGAIN or arm == "default"):
            line += f"; − {other} {interval(pairs)}"
    return line


def write_table(path: Path, columns: Sequence[str], rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--again", action="store_true", help=f"call runs of scratch {AGAIN}")
    args = parser.parse_args()
    results = read_results(args.runs) if args.runs else Results(runs=(), unread=())
    for each in results.unread:
        print(f"left out: {each.folder}: {each.reason}")
    rows = [as_row(run) for run in results.runs if run.arm in ARMS]
    before = read_table(args.table)
    if args.again:
        known = {row["dataset"] for row in before if row["arm"] == "scratch"}
        rows = [row | {"arm": AGAIN} if row["arm"] == "scratch" and row["dataset"] in known else row for row in rows]
    measured = {_cell(row) for row in rows}
    rows += [row for row in before if _cell(row) not in measured]
    rows.sort(key=lambda row: (row["dataset"], float(row["labelled_percent"]), int(row["seed"]), row["arm"]))
    write_table(args.table, COLUMNS, rows)
    print("\n".join(differences(rows) + efficiencies(rows)))


if __name__ == "__main__":
    main()
