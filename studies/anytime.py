"""Dice at equal CPU time of the whole command: the default against training from scratch, on folds of training images.

    python -m studies.anytime studies/results/anytime.csv --seconds 150 --seeds 0,1,2
    python -m studies.anytime TABLE --arms scratch --arm "early: method=fixmatch method_options.start=0.25" --labelled 5%

Every run is `hebbseg train --time-budget` with all defaults, or with random weights and the masks alone: plan, reading, stage
1, stage 2 and test share the budget. The clock counts CPU time of this process with one thread, so that other work on the
machine does not change what a budget buys. Each row of the table is a run; runs that are in it are skipped.
"""

import argparse
import csv
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from hebbseg.config import make_settings
from hebbseg.runs.train import run

FIELDS = (
    "dataset", "labelled_percent", "budget_s", "seed", "arm", "updates", "seconds", "size", "dice", "dice_pooled"
)  # fmt: skip
DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "glas": ("glas:glas", {"labelled": "10%"}),
    "nuclei": ("dsb2018:dsb2018", {"labelled": "5%"}),
    "pupils": ("hmeps:pupil_hmeps_layout", {"labelled": "1%"}),
    "la": ("la:la_half", {"labelled": "5%"}),
}
ARMS: dict[str, dict[str, Any]] = {
    "scratch": {"init": "random", "method": "supervised"},
    "hebbian": {"method": "supervised"},
    "unlabelled": {"init": "random"},
    "default": {},
}


def measure(
    data: str, arm: str, seed: int, seconds: float, labelled: str | None = None, *, protocol: str = "selection"
) -> dict[str, Any]:
    """Train and test one arm; return its row.

    Args:
        labelled: instead of the share of `DATA`.
        protocol: selection (folds of the training images) or few-label (the published test images).
    """
    source, own = DATA[data]
    own = own | ({"labelled": labelled} if labelled else {})
    name, place = source.split(":")
    root = Path(os.environ.get("HEBBSEG_DATA", "../shared/data"))
    given = {"protocol": protocol, "seed": seed, "time_budget_s": seconds, "tta": "none"}
    settings = make_settings(f"{name}:{root / place}", own | given | ARMS[arm])
    with tempfile.TemporaryDirectory() as temporary:
        start, folder = time.process_time(), Path(temporary) / "run"
        run(settings, folder, started=start)
        spent = time.process_time() - start
        described, summary = (json.loads((folder / name).read_text(encoding="utf-8")) for name in ("run.json", "summary.json"))
    choices = described["plan"]["choices"]
    size = choices["patch"]["value"] if choices["patch"]["value"] not in (None, "none") else choices["size"]["value"]
    return {
        "dataset": data, "labelled_percent": settings.data.labelled.rstrip("%"), "budget_s": seconds, "seed": seed, "arm": arm,
        "updates": described["updates_done"], "seconds": round(spent, 1), "size": "x".join(map(str, size)),
        "dice": round(100 * summary["dice"]["mean"], 2), "dice_pooled": round(100 * summary["dice_pooled"], 2),
    }  # fmt: skip


def count_cpu_time() -> None:
    """Let time budgets count CPU time of this process, so that other work on the machine does not change what they buy."""
    time.monotonic = time.process_time


def parsed_arm(text: str) -> tuple[str, dict[str, Any]]:
    """Return name and settings of ``"NAME: SETTING=VALUE method_options.OPTION=VALUE"``."""
    name, _, described = text.partition(":")
    settings: dict[str, Any] = {}
    for word in described.split():
        key, _, value = word.partition("=")
        section, _, option = key.partition(".")
        if option:
            settings.setdefault(section, {})[option] = value
        else:
            settings[key] = value
    return name.strip(), settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--data", default="glas,nuclei,pupils")
    parser.add_argument("--arms", default="scratch,default", help="of the built-in arms")
    parser.add_argument("--arm", action="append", default=[], help="a further arm, NAME: SETTING=VALUE …; may be repeated")
    parser.add_argument("--labelled", help="instead of the share of the data set")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--seeds", default="0,1,2")
    given = parser.parse_args()
    torch.set_num_threads(1)
    count_cpu_time()
    ARMS.update(parsed_arm(text) for text in given.arm)
    arms = [arm for arm in given.arms.split(",") if arm] + [parsed_arm(text)[0] for text in given.arm]
    for seed in map(int, given.seeds.split(",")):
        for data in given.data.split(","):
            share = (given.labelled or DATA[data][1]["labelled"]).rstrip("%")
            for arm in arms:
                if not _done(given.table, data, share, given.seconds, seed, arm):
                    append_row(given.table, measure(data, arm, seed, given.seconds, given.labelled))


def append_row(table: Path, row: dict[str, Any]) -> None:
    new = not table.exists()
    with table.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
    print(row, flush=True)


def _done(table: Path, data: str, share: str, seconds: float, seed: int, arm: str) -> bool:
    if not table.exists():
        return False
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = {(r["dataset"], r["labelled_percent"], float(r["budget_s"]), int(r["seed"]), r["arm"]) for r in rows}
    return (data, share, seconds, seed, arm) in keys


if __name__ == "__main__":
    main()
