"""Dice at equal CPU time, stage 1 included: small batches, a supervised start and pseudo-labels, on folds of training images.

    python -m studies.anytime studies/results/anytime.csv --data glas --arm scratch-2 --seconds 150 --seeds 0,1

Each row of the table is a run; runs that are in it are skipped. The clock counts CPU time of this process with one thread, so
that other work on the machine does not change what a budget buys.
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
from hebbseg.runs.dataset import open_dataset
from hebbseg.runs.train import pretrain_only, run
from hebbseg.training import loop

FIELDS = ("dataset", "labelled", "budget_s", "seed", "arm", "updates", "stage1_s", "seconds", "dice", "dice_pooled")
DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "glas": ("glas:glas", {"labelled": "10%"}),
    "nuclei": ("dsb2018:dsb2018", {"labelled": "5%"}),
    "pupils": ("hmeps:pupil_hmeps_layout", {"labelled": "1%"}),
    "la": ("la:la_half", {"labelled": "4", "patch": "48x48x40"}),
}
TEACHER = {"pseudo_loss": "dice", "dice_gated": True, "decay": 0.99, "cutmix": 1.0}
METHODS: dict[str, dict[str, Any]] = {
    "sup": {"method": "supervised"},
    "uni": {"method": "unimatch", "method_options": {"pseudo_loss": "dice", "dice_gated": True}},
    "uni50": {"method": "unimatch", "method_options": {"pseudo_loss": "dice", "dice_gated": True, "start": 0.5}},
    "fix": {"method": "fixmatch", "method_options": TEACHER},
    "fix50": {"method": "fixmatch", "method_options": TEACHER | {"start": 0.5}},
    "fixl50": {"method": "fixmatch", "method_options": TEACHER | {"start": 0.5, "cutmix_with": "labelled"}},
    "mt50": {"method": "mean-teacher", "method_options": {}},
}
INITS: dict[str, dict[str, Any]] = {
    "scratch": {"init": "random"},
    "hebb1": {"init": "hebbian", "whiten": 1.0},
    "hebb4": {"init": "hebbian", "whiten": 4.0},
}
"""An arm is INIT-METHOD-BATCH, such as hebb1-fix50-2: two labelled and, for methods that use them, two unlabelled images."""


def settings_of(data: str, arm: str, seed: int, seconds: float, **more: Any) -> Any:
    init, method, batch, *options = arm.split("-")
    source, own = DATA[data]
    name, path = source.split(":")
    given = {
        "protocol": "selection", "seed": seed, "updates": 10**6, "time_budget_s": seconds, "precision": "32-true",
        "labelled_batch": int(batch), "unlabelled_batch": int(batch),
    }  # fmt: skip
    given |= dict(option.split("=") for option in options)
    root = Path(os.environ.get("HEBBSEG_DATA", "../shared/data"))
    return make_settings(f"{name}:{root / path}", own | given | METHODS[method] | INITS[init] | more)


def measure(data: str, arm: str, seed: int, seconds: float, dataset: Any, cache: Path) -> dict[str, Any]:
    """Train and test one arm; stage 1 is computed once for each data set, seed and initialization, with its CPU time."""
    stage1_s, more = 0.0, {}
    settings = settings_of(data, arm, seed, seconds)
    if settings.pretrain.init == "hebbian":
        place = cache / f"{data}-{arm.split('-')[0]}-{seed}"
        if not (place / "cpu.json").exists():
            begun = time.process_time()
            pretrain_only(settings, place, resume=place.exists())
            place.joinpath("cpu.json").write_text(json.dumps(time.process_time() - begun), encoding="utf-8")
        stage1_s = json.loads((place / "cpu.json").read_text(encoding="utf-8"))
        more = {"init": str(place / "pretrained.safetensors")}
    settings = settings_of(data, arm, seed, max(1.0, seconds - stage1_s), **more)
    with tempfile.TemporaryDirectory() as folder:
        run(settings, Path(folder) / "run", dataset=dataset)
        summary = json.loads((Path(folder) / "run" / "summary.json").read_text(encoding="utf-8"))
        with (Path(folder) / "run" / "history.csv").open(encoding="utf-8") as file:
            updates = max((int(row["step"]) for row in csv.DictReader(file) if row["stage"] == "fit"), default=0)
    return {
        "dataset": data, "labelled": settings.data.labelled, "budget_s": seconds, "seed": seed, "arm": arm,
        "updates": updates, "stage1_s": round(stage1_s, 1), "seconds": seconds,
        "dice": round(100 * summary["dice"]["mean"], 2), "dice_pooled": round(100 * summary["dice_pooled"], 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--data", default="glas,nuclei,pupils,la")
    parser.add_argument("--arm", default="scratch-sup-2")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "hebbseg-anytime")
    given = parser.parse_args()
    torch.set_num_threads(1)
    loop.time.monotonic = time.process_time  # type: ignore[attr-defined]
    loop.fit.__kwdefaults__["rows"] = 10**6  # a row for each update, to count them
    for data in given.data.split(","):
        dataset = None
        for seed in map(int, given.seeds.split(",")):
            for arm in given.arm.split(","):
                if _done(given.table, data, given.seconds, seed, arm):
                    continue
                if dataset is None:
                    from hebbseg.data.progress import Quiet

                    dataset = open_dataset(settings_of(data, arm, seed, given.seconds).data, Quiet())
                row = measure(data, arm, seed, given.seconds, dataset, given.cache)
                new = not given.table.exists()
                with given.table.open("a", encoding="utf-8", newline="") as file:
                    writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                    if new:
                        writer.writeheader()
                    writer.writerow(row)
                print(row, flush=True)


def _done(table: Path, data: str, seconds: float, seed: int, arm: str) -> bool:
    if not table.exists():
        return False
    with table.open(encoding="utf-8") as file:
        keys = {(row["dataset"], float(row["budget_s"]), int(row["seed"]), row["arm"]) for row in csv.DictReader(file)}
    return (data, seconds, seed, arm) in keys


if __name__ == "__main__":
    main()
