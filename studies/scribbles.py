"""Scribbles in place of full masks: copies of data sets with sparse masks, and what they cost in Dice.

python -m studies.scribbles write glas:GlaS/ glas-scribbles --share 0.02 --width 3
python -m studies.scribbles write la:LA/ la-slices --slices 5
python -m studies.scribbles measure studies/results/scribbles.csv runs/scribbles glas:GlaS/ dsb2018:DSB/ --seeds 5

``write`` copies a data set to a folder with train/ and test/. The masks of the training side are sparse: pixels that are not
annotated have the value 255 (hebbseg train --ignore 255). The test side, the published one or 20 % of the cases, keeps its full
masks. ``measure`` trains the arms below on the selection folds, appends a row per run to the table and skips rows that are
there. Without data it prints what the table says.

    full         full masks of n images
    full-n/8     full masks of n/8 images
    scribbles    scribbles on the n images of full
    scribbles-u  the same with the default method, which uses the rest of the images as unlabelled

Cost model: the scribbles on an image take 1/8 of the time of its full mask, so scribbles and full-n/8 cost the same.
"""

import argparse
import csv
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import nibabel
import numpy as np
from PIL import Image

from hebbseg.config import make_settings
from hebbseg.data.cases import Case, Source
from hebbseg.data.labels.scribbles import annotated_slices, scribbles
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources import open_source
from hebbseg.data.splits.split import make_split
from hebbseg.data.store import CaseStore
from hebbseg.reporting.statistics import mean_interval
from hebbseg.runs.dataset import Dataset, draw_split
from hebbseg.runs.train import run

ARMS = ("full", "full-n/8", "scribbles", "scribbles-u")
COLUMNS = ("dataset", "images", "seed", "arm", "masks", "annotated_percent", "dice", "dice_pooled")
SCRIBBLES_PER_MASK = 8
SMALL = {
    "size": "96x96", "features": "8,16,32,64", "updates": 300, "init": "random", "protocol": "selection",
    "precision": "32-true", "metrics_grid": "training",
}  # fmt: skip
Row = dict[str, str]


def sparse(mask: np.ndarray, name: str, *, seed: int, share: float, width: int, slices: int | None) -> np.ndarray:
    """Return the scribbles or annotated slices of a mask; they depend on the seed and the name of the case."""
    if slices is not None:
        return annotated_slices(mask, slices, axis=int(np.argmin(mask.shape)))
    return scribbles(mask, np.random.default_rng([seed, zlib.crc32(name.encode())]), share=share, width=width)


def write(source: Source, out: Path, *, seed: int, share: float, width: int, slices: int | None) -> None:
    """Write a copy of a data set whose training masks are sparse."""
    if any(out.iterdir() if out.exists() else ()):
        raise SystemExit(f"{out} is not empty. Choose another folder.")
    test = set(make_split(source, seed=seed).test)
    annotated = []
    for case in source.cases:
        side = out / ("test" if case.id in test else "train")
        _save(source.image(case), side / "images", case, channels_first=True)
        if case.has_mask:
            mask = source.mask(case)
            if case.id not in test:
                mask = sparse(mask, case.id, seed=seed, share=share, width=width, slices=slices)
                annotated.append(float((mask != 255).mean()))
            _save(mask, side / "masks", case)
    print(f"{out}: {len(annotated)} sparse masks, {100 * np.mean(annotated):.2f} % of their pixels annotated")


def _save(array: np.ndarray, folder: Path, case: Case, *, channels_first: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / case.id.replace("/", "-")
    spatial = array[0] if channels_first and len(array) == 1 else array
    if channels_first and len(array) > 1:
        spatial = np.moveaxis(array, 0, -1)  # (C, *S) → (*S, C)
    if array.ndim - channels_first == 2:
        Image.fromarray(spatial).save(path.with_name(f"{path.name}.png"))
    else:
        steps = case.spacing_mm or (1.0, 1.0, 1.0)
        nibabel.save(nibabel.Nifti1Image(spatial, np.diag([*steps, 1.0])), path.with_name(f"{path.name}.nii.gz"))


class Scribbled:
    """A data source in which some cases have scribbles as masks."""

    def __init__(self, source: Source, ids: Sequence[str], *, seed: int) -> None:
        self.name, self.cases, self.problems = f"{source.name} scribbles {seed}", source.cases, source.problems
        self.spatial_dims, self.channels, self.classes = source.spatial_dims, source.channels, source.classes
        self._source, self._ids, self._seed = source, frozenset(ids), seed

    def image(self, case: Case) -> np.ndarray:
        return self._source.image(case)

    def mask(self, case: Case) -> np.ndarray:
        mask = self._source.mask(case)
        if case.id not in self._ids:
            return mask
        return sparse(mask, case.id, seed=self._seed, share=0.02, width=3, slices=None)


def measure_run(spec: str, images: int, seed: int, arm: str, folder: Path) -> Row:
    """Train and test one arm."""
    masks = max(1, images // SCRIBBLES_PER_MASK) if arm == "full-n/8" else images
    method = "auto" if arm == "scribbles-u" else "supervised"
    settings = make_settings(spec, {**SMALL, "labelled": masks, "seed": seed, "method": method})
    source = open_source(spec)
    ids = draw_split(settings, source).training.labelled if arm.startswith("scribbles") else ()
    sparse_source = Scribbled(source, ids, seed=seed)
    every = [case.id for case in source.cases]
    preprocessing = Preprocessing.for_source(source, size=(96, 96))
    dataset = Dataset(
        source=sparse_source,
        store=CaseStore(
            source=sparse_source, preprocessing=preprocessing, images=every, masks=[c.id for c in source.cases if c.has_mask]
        ),
    )
    run(settings, folder, dataset=dataset)
    cases = {case.id: case for case in source.cases}
    annotated = [float((sparse_source.mask(cases[name]) != 255).mean()) for name in ids] or [1.0]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return {
        "dataset": spec.partition(":")[0], "images": str(images), "seed": str(seed), "arm": arm, "masks": str(masks),
        "annotated_percent": f"{100 * np.mean(annotated):.2f}", "dice": f"{100 * summary['dice']['mean']:.3f}",
        "dice_pooled": f"{100 * summary['dice_pooled']:.3f}",
    }  # fmt: skip


def read_table(path: Path) -> list[Row]:
    return list(csv.DictReader(path.open())) if path.exists() else []


def append_row(path: Path, row: Row) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def lines(rows: list[Row]) -> list[str]:
    """Return one line per data set and arm: Dice, and the paired difference to full masks that cost the same."""
    found = []
    cells: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in rows:
        cells.setdefault((row["dataset"], row["images"], row["arm"]), {})[row["seed"]] = float(row["dice"])
    for (dataset, images, arm), values in sorted(cells.items(), key=lambda cell: (*cell[0][:2], ARMS.index(cell[0][2]))):
        text = f"{dataset}, n = {images}, {arm}: {_interval(list(values.values()))}"
        for other in ("full", "full-n/8"):
            base = cells.get((dataset, images, other), {})
            pairs = [values[seed] - base[seed] for seed in values if seed in base]
            text += f"; − {other} {_interval(pairs)}" if pairs and arm != other else ""
        found.append(text)
    return found


def _interval(values: list[float]) -> str:
    of = mean_interval(values)
    return f"{of.mean:.2f} (n = {of.n})" if of.half is None else f"{of.mean:.2f} ± {of.half:.2f} (90 % interval, n = {of.n})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    writing = commands.add_parser("write", help="write a copy of a data set with sparse masks")
    writing.add_argument("data")
    writing.add_argument("out", type=Path)
    writing.add_argument("--share", type=float, default=0.02, help="annotated fraction of each class (0.02)")
    writing.add_argument("--width", type=int, default=3, help="width of a stroke in pixels (3)")
    writing.add_argument("--slices", type=int, help="annotate this many slices of each volume instead of scribbles")
    writing.add_argument("--seed", type=int, default=0)
    measuring = commands.add_parser("measure", help="train the arms and append their results to a table")
    measuring.add_argument("table", type=Path)
    measuring.add_argument("runs", type=Path, nargs="?", default=Path("runs/scribbles"))
    measuring.add_argument("data", nargs="*")
    measuring.add_argument("--images", type=int, default=32, help="n, images with scribbles or full masks (32)")
    measuring.add_argument("--seeds", type=int, default=5)
    measuring.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    args = parser.parse_args()
    if args.command == "write":
        source = open_source(args.data)
        write(source, args.out, seed=args.seed, share=args.share, width=args.width, slices=args.slices)
        return
    done = {(row["dataset"], row["images"], row["seed"], row["arm"]) for row in read_table(args.table)}
    for seed in range(args.seeds):
        for spec in args.data:
            for arm in args.arms:
                name = spec.partition(":")[0]
                if (name, str(args.images), str(seed), arm) not in done:
                    folder = args.runs / f"{name}-{args.images}-{arm.replace('/', '-')}-{seed}"
                    append_row(args.table, measure_run(spec, args.images, seed, arm, folder))
    print("\n".join(lines(read_table(args.table))))


if __name__ == "__main__":
    main()
