"""What fine-tuning does to the weights: every layer of the study's runs, before and after stage 2.

python -m studies.weights studies/results/weights.csv runs/study-glas --labelled 10%
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from hebbseg.hebbian.diagnostics import effective_rank, mean_abs_cosine
from hebbseg.networks.model_file import load_model
from hebbseg.reporting.results import RunResult, read_results
from hebbseg.reporting.statistics import mean_interval
from studies.recipe import ARMS, Row, write_table

MEASURES = ("rank_before", "rank_after", "alike_before", "alike_after", "moved", "kept")
COLUMNS = ("dataset", "labelled_percent", "seed", "arm", "layer", "units", *MEASURES)
SHOWN = ("scratch", "random-rescaled", "hebbian")


def rows_of(run: RunResult) -> Iterator[Row]:
    """A row for each convolution and transposed convolution but the head."""
    before, _ = load_model(run.folder / "pretrained.safetensors")
    after, _ = load_model(run.folder / "model.safetensors")
    for name, first in before.items():
        layer = name.removesuffix(".weight")
        if first.ndim < 4 or layer == "head":
            continue
        old, new = (as_filters(bank, transposed=layer.endswith(".up")) for bank in (first, after[name]))
        numbers = measure(old, new)
        yield {
            "dataset": run.dataset,
            "labelled_percent": run.labelled.rstrip("%"),
            "seed": str(run.seed),
            "arm": ARMS[run.arm],
            "layer": layer,
            "units": str(len(old)),
        } | {key: f"{value:.4f}" for key, value in numbers.items()}


def as_filters(bank: Tensor, *, transposed: bool) -> Tensor:
    """A row for each output channel."""
    return (bank.swapaxes(0, 1) if transposed else bank).flatten(1).double()


def measure(old: Tensor, new: Tensor) -> dict[str, float]:
    """``rank``: effective rank as a share of the largest it can be; ``alike``: mean |cosine| between two filters of the layer.

    ``moved``: ‖new − old‖ / ‖old‖; ``kept``: mean cosine between a filter and what it was.
    """
    most = min(old.shape)
    return {
        "rank_before": float(effective_rank(old)) / most,
        "rank_after": float(effective_rank(new)) / most,
        "alike_before": float(mean_abs_cosine(old)),
        "alike_after": float(mean_abs_cosine(new)),
        "moved": float((new - old).norm() / old.norm()),
        "kept": float(torch.cosine_similarity(old, new).mean()),
    }


def place(layer: str) -> str:
    """encoder.level1.conv2 → encoder 1; decoder.level1.up → up 1."""
    side, level, *rest = layer.split(".")
    return f"{'up' if rest[-1] == 'up' else side} {level.removeprefix('level')}"


def summary(rows: list[Row]) -> Iterator[str]:
    """Means over layers of a level and 90 % intervals over seeds, by arm."""
    for where in sorted({place(row["layer"]) for row in rows}):
        for arm in SHOWN:
            found = [row for row in rows if row["arm"] == arm and place(row["layer"]) == where]
            seeds = sorted({row["seed"] for row in found})
            if found:
                texts = [f"{name} {_text(_by_seed(found, seeds, name))}" for name in MEASURES]
                yield f"{where:10s} {arm:16s} " + "; ".join(texts)


def _by_seed(rows: list[Row], seeds: list[str], name: str) -> list[float]:
    each = [[float(row[name]) for row in rows if row["seed"] == seed] for seed in seeds]
    return [sum(values) / len(values) for values in each]


def _text(values: list[float]) -> str:
    found = mean_interval(values)
    return f"{found.mean:.2f}" if found.half is None else f"{found.mean:.2f} ± {found.half:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--labelled", default="10%")
    args = parser.parse_args()
    runs = [r for r in read_results(args.runs).runs if ARMS.get(r.arm) in SHOWN and r.labelled == args.labelled]
    rows = [row for run in sorted(runs, key=lambda run: (run.arm, run.seed)) for row in rows_of(run)]
    write_table(args.table, COLUMNS, rows)
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
