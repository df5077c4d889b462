"""Label efficiency at equal time: Dice by label regime on published test images.

    python -m studies.label_efficiency run --seeds 20,21,22,23,24    adds rows to studies/label_efficiency.csv
    python -m studies.label_efficiency                               tells what the table says
    python -m studies.label_efficiency table                         writes it as rows of docs/results/index.md
    python -m studies.label_efficiency draw                          draws studies/images/label-efficiency.png

Each run is `hebbseg train --time-budget`, as in `studies.anytime`: plan, reading, stage 1, stage 2 and test share the
budget, counted as CPU time of one thread. Runs that are in the table are skipped. Arms, regimes and seeds were registered in
studies/study.md before the first run.
"""

import argparse
import csv
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch

from hebbseg.reporting.label_efficiency import label_efficiency
from hebbseg.reporting.plots.figures import plt, save_figure
from hebbseg.reporting.statistics import mean_interval
from studies.anytime import ARMS, append_row, count_cpu_time, measure

TABLE = Path("studies/label_efficiency.csv")
FIGURE = Path("studies/images/label-efficiency.png")
ARMS |= {
    "control": {"init": "random-rescaled", "method": "supervised"},
    "default+next": {"select": "typical"},
}
REGIMES: dict[str, dict[str, tuple[str, ...]]] = {
    "main": {"scratch": ("2%", "5%", "10%", "20%", "40%", "100%"), "default": ("2%", "5%", "10%", "20%")},
    "parts": {"control": ("10%",), "hebbian": ("10%",)},
    "next": {"default+next": ("2%", "5%", "10%")},
}
"""Group of runs → arm → label regimes."""
TRAINING_IMAGES = {"glas": 85}
TITLES = {"glas": "GlaS, official test images"}
Cells = dict[tuple[str, str], dict[float, dict[str, float]]]
"""(data set, arm) → percent → seed → Dice."""


def planned(groups: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (arm, regime), small regimes first, so that runs to be compared follow each other."""
    runs = [(arm, regime) for group in groups for arm, regimes in REGIMES[group].items() for regime in regimes]
    yield from sorted(runs, key=lambda run: float(run[1].rstrip("%")))


def add_rows(table: Path, data: str, groups: list[str], seeds: list[int], seconds: float) -> None:
    torch.set_num_threads(1)
    count_cpu_time()
    for seed, (arm, regime) in product(seeds, planned(groups)):
        found = read_rows(table)
        if not any(
            (r["dataset"], r["labelled_percent"], r["seed"], r["arm"]) == (data, regime[:-1], str(seed), arm) for r in found
        ):
            row = measure(data, arm, seed, seconds, regime, protocol="few-label")
            append_row(table, row)


def read_rows(table: Path) -> list[dict[str, str]]:
    if not table.exists():
        return []
    with table.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cells(rows: list[dict[str, str]]) -> Cells:
    found: Cells = {}
    for row in rows:
        by_percent = found.setdefault((row["dataset"], row["arm"]), {})
        by_percent.setdefault(float(row["labelled_percent"]), {})[row["seed"]] = float(row["dice"])
    return found


def lines(found: Cells) -> Iterator[str]:
    """Yield one line per data set, arm and regime: mean, paired difference to scratch, and label efficiency."""
    for (data, arm), by_percent in sorted(found.items()):
        scratch = found.get((data, "scratch"), {})
        for percent, values in sorted(by_percent.items()):
            line = f"{data:8} {arm:13} {percent:>5g} %  {_interval(list(values.values()), sign='')}"
            base = scratch.get(percent, {})
            pairs = [values[seed] - base[seed] for seed in values if seed in base]
            if arm != "scratch" and pairs:
                line += f"   − scratch {_interval(pairs, sign='+')}"
            worth = label_efficiency(values, percent, scratch) if arm.startswith("default") else None
            if worth is not None:
                line += f"   scratch needs {worth.percent_text(worth.needed)}, {worth.factor_text(worth.needed)} "
                line += worth.interval_text(worth.factor_text)
            yield line.rstrip()


def _interval(values: list[float], *, sign: str) -> str:
    found = mean_interval(values)
    half = "" if found.half is None else f" ± {found.half:.1f}"
    return f"{found.mean:{sign}.1f}{half} (n = {found.n})"


def markdown(found: Cells, data: str) -> Iterator[str]:
    """Yield a row per label regime of the default: n, scratch, paired difference, and masks that scratch needs for it."""
    scratch, default = found[data, "scratch"], found[data, "default"]
    for percent, values in sorted(default.items()):
        pairs = [(values[seed], scratch[percent][seed]) for seed in sorted(values) if seed in scratch.get(percent, {})]
        base, differences = [low for _, low in pairs], [high - low for high, low in pairs]
        worth = label_efficiency(values, percent, scratch)
        factor = "" if worth is None else worth.factor_text(worth.needed)
        masks = math.ceil(percent * TRAINING_IMAGES[data] / 100)
        yield f"| {percent:g} % ({masks}) | {len(pairs)} | {_short(base, '')} | {_short(differences, '+')} | {factor} |"


def _short(values: list[float], sign: str) -> str:
    """Return mean ± half-width; differences of fewer than three seeds one by one."""
    found = mean_interval(values)
    if found.half is None and sign:
        return ", ".join(f"{value:{sign}.1f}" for value in values).replace("-", "−")
    return (f"{found.mean:{sign}.1f}" + ("" if found.half is None else f" ± {found.half:.1f}")).replace("-", "−")


def draw(found: Cells, path: Path) -> None:
    """Draw the mean Dice by label regime for scratch and the default, with 90 % intervals from three seeds on."""
    datasets = sorted({data for data, _ in found})
    figure, axes = plt.subplots(1, len(datasets), figsize=(6.4 * len(datasets), 3.8), squeeze=False, layout="constrained")
    styles = {
        "scratch": ("training from scratch", "o", "0.45", 0.98),
        "default": ("hebbseg, default pipeline", "D", "#b3261e", 1.02),
    }
    for axis, data in zip(axes[0], datasets, strict=True):
        for arm, (label, marker, color, shift) in styles.items():
            points = sorted(found.get((data, arm), {}).items())
            estimates = [mean_interval(list(values.values())) for _, values in points]
            counts = sorted({estimate.n for estimate in estimates})
            seeds = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else "".join(map(str, counts))
            axis.errorbar(
                [percent * shift for percent, _ in points],  # so that bars do not cover each other
                [e.mean for e in estimates],
                [math.nan if e.half is None else e.half for e in estimates],
                marker=marker, color=color, label=f"{label} (n = {seeds} seeds)", capsize=3,
            )  # fmt: skip
        ticks = sorted({percent for name, arm in found if name == data and arm in styles for percent in found[name, arm]})
        axis.set_xscale("log")
        axis.set_xticks(ticks, [f"{percent:g}" for percent in ticks])
        axis.minorticks_off()
        axis.set(xlabel="labelled training images (%)", ylabel="Dice (%)", title=TITLES.get(data, data))
        axis.grid(axis="y", color="0.9")
        axis.legend(frameon=False, loc="lower right")
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=("run", "tell", "table", "draw"), default="tell")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--data", default="glas")
    parser.add_argument("--groups", default="main", help=f"of {', '.join(REGIMES)}")
    parser.add_argument("--seeds", default="20,21,22,23,24")
    parser.add_argument("--seconds", type=float, default=150.0)
    given = parser.parse_args()
    if given.action == "run":
        seeds = [int(seed) for seed in given.seeds.split(",")]
        add_rows(given.table, given.data, given.groups.split(","), seeds, given.seconds)
    elif given.action == "table":
        print(*markdown(cells(read_rows(given.table)), given.data), sep="\n")
    elif given.action == "draw":
        draw(cells(read_rows(given.table)), FIGURE)
    else:
        print(*lines(cells(read_rows(given.table))), sep="\n")


if __name__ == "__main__":
    main()
