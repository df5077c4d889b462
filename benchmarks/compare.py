"""Initialisations against each other on real data: paired by seed, resumable, one row per run as it is done.

    python -m benchmarks.compare glas:PATH docs/results/glas-10.csv --labelled 10% --updates 300 --seeds 5

Every arm of a seed has the same split, batches and augmentation. The table has the columns of docs/results/recipe.csv.
"""

import argparse
import csv
import json
import tempfile
from pathlib import Path

from scipy import stats

from hebbseg import Segmenter

COLUMNS = ("dataset", "labelled_percent", "seed", "arm", "dice", "dice_pooled", "hd95", "asd", "updates")


def done(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open())) if path.exists() else []


def one(args: argparse.Namespace, arm: str, seed: int) -> dict[str, object]:
    options = dict(part.split("=", 1) for part in args.set)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        Segmenter.train(
            args.data, out, labelled=args.labelled, updates=args.updates, seed=seed, init=arm, quiet=True, **options
        )
        summary = json.loads((out / "summary.json").read_text())
    return {
        "dataset": args.data.split(":")[0],
        "labelled_percent": args.labelled.rstrip("%"),
        "seed": seed,
        "arm": {"random": "scratch"}.get(arm, arm),
        "dice": round(100 * summary["dice"]["mean"], 2),
        "dice_pooled": round(100 * summary["dice_pooled"], 2),
        "hd95": round(summary["hd95"]["mean"], 2),
        "asd": round(summary["asd"]["mean"], 2),
        "updates": args.updates,
    }


def report(rows: list[dict[str, str]]) -> None:
    by_arm: dict[str, dict[str, float]] = {}
    for row in rows:
        by_arm.setdefault(row["arm"], {})[row["seed"]] = float(row["dice"])
    for arm, values in by_arm.items():
        print(f"{arm}: Dice {interval(list(values.values()))}")
    for arm in by_arm.keys() - {"scratch"}:
        pairs = [by_arm[arm][s] - by_arm["scratch"][s] for s in by_arm[arm] if s in by_arm.get("scratch", {})]
        print(f"{arm} − scratch, paired: {interval(pairs)}")


def interval(values: list[float]) -> str:
    n = len(values)
    mean = sum(values) / n if n else float("nan")
    half = stats.t.ppf(0.95, n - 1) * stats.sem(values) if n > 1 else float("nan")
    return f"{mean:+.2f} ± {half:.2f} (90 % interval, n = {n})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("table", type=Path)
    parser.add_argument("--labelled", default="10%")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--arms", default="random,random-rescaled,hebbian")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args()
    have = {(row["seed"], row["arm"]) for row in done(args.table)}
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for arm in args.arms.split(","):
            if (str(seed), {"random": "scratch"}.get(arm, arm)) in have:
                continue
            row = one(args, arm, seed)
            new = not args.table.exists()
            with args.table.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(row)
            print(row, flush=True)
    report(done(args.table))


if __name__ == "__main__":
    main()
