"""Arms against each other on real data: paired by seed, resumable, one row per run as it is done.

    python -m studies.compare glas:PATH studies/results/glas-10.csv --labelled 10% --set updates=300 --seeds 5 \\
        --arm scratch --arm random-rescaled --arm hebbian --arm "mild: init=hebbian whiten=4"

Every arm of a seed has the same split, batches and augmentation, and the masks alone (method=supervised) unless told
otherwise. With ``--selection`` the official test side is not touched: the training side is divided into five folds, of
which seed k tests on fold k mod 5; choices are made that way.
"""

import argparse
import csv
import json
import tempfile
from pathlib import Path

import torch

from hebbseg.config import make_settings
from hebbseg.data.cases import Source
from hebbseg.data.progress import Quiet
from hebbseg.data.sources.files import FileSource
from hebbseg.reporting.statistics import mean_interval
from hebbseg.runs.dataset import open_cases
from hebbseg.runs.train import run

ARMS = {"scratch": "init=random", "random-rescaled": "init=random-rescaled", "hebbian": "init=hebbian"}
COLUMNS = ("dataset", "labelled_percent", "seed", "arm", "dice", "dice_pooled", "hd95", "asd", "updates", "settings")
FOLDS = 5


def done(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open())) if path.exists() else []


def assignments(text: str) -> dict[str, object]:
    """``"a=1 method_options.b=2"`` as keywords of `Settings`."""
    answer: dict[str, object] = {}
    for part in text.split():
        name, value = part.split("=", 1)
        if "." in name:
            outer, inner = name.split(".", 1)
            inside = answer.setdefault(outer, {})
            assert isinstance(inside, dict)
            inside[inner] = value
        else:
            answer[name] = value
    return answer


def one(args: argparse.Namespace, source: Source, text: str, labelled: str, seed: int) -> dict[str, object]:
    options = assignments(" ".join(["method=supervised", *args.set, text])) | {"labelled": labelled, "seed": seed}
    if args.selection:
        options |= {"folds": FOLDS, "fold": seed % FOLDS}
    settings = make_settings(args.data, options)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run(settings, out, source=source)
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return {
        "dataset": source.name + ("-training" if args.selection else ""),
        "labelled_percent": labelled.rstrip("%"),
        "seed": seed,
        "dice": round(100 * summary["dice"]["mean"], 2),
        "dice_pooled": round(100 * summary["dice_pooled"], 2),
        "hd95": round(summary["hd95"]["mean"], 2),
        "asd": round(summary["asd"]["mean"], 2),
        "updates": settings.updates,
        "settings": " ".join([*args.set, text]),
    }


def opened(args: argparse.Namespace) -> Source:
    source = open_cases(make_settings(args.data, {}), Quiet())
    if args.selection and isinstance(source, FileSource):
        return source.with_cases([case for case in source.cases if case.subset != "test"])
    return source


def report(rows: list[dict[str, str]]) -> None:
    by_arm: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        by_arm.setdefault((row["labelled_percent"], row["arm"]), {})[row["seed"]] = float(row["dice"])
    for (regime, arm), values in by_arm.items():
        base = by_arm.get((regime, "scratch"), {})
        pairs = [values[s] - base[s] for s in values if s in base]
        against = f"; − scratch, paired: {interval(pairs)}" if arm != "scratch" and pairs else ""
        print(f"{regime} % {arm}: Dice {interval(list(values.values()))}{against}")


def interval(values: list[float]) -> str:
    if not values:
        return "none"
    found = mean_interval(values)
    half = "" if found.half is None else f" ± {found.half:.2f}"
    return f"{found.mean:+.2f}{half} (90 % interval, n = {found.n})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("table", type=Path)
    parser.add_argument("--labelled", default="10%", help="one regime or several: 1%%,5%%,10%%")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--arm", action="append", default=[], metavar="NAME[: SETTING=VALUE …]")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE", help="of all arms")
    parser.add_argument("--selection", action="store_true", help="folds of the training side; no test case is read")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    arms = dict([part.strip() for part in arm.split(":", 1)] if ":" in arm else (arm, ARMS[arm]) for arm in args.arm)
    source = opened(args)
    have = {(row["labelled_percent"], row["seed"], row["arm"]) for row in done(args.table)}
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for labelled in args.labelled.split(","):
            for arm, text in arms.items():
                if (labelled.rstrip("%"), str(seed), arm) in have:
                    continue
                row = one(args, source, text, labelled, seed) | {"arm": arm}
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
