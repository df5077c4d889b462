"""Which images to annotate: every criterion and descriptor against the expectation over random draws, on training folds.

python -m studies.selection_of_images studies/results/selection-of-images.csv --data PATH

A row is a segmenter trained from scratch on the labelled images that a criterion chose, evaluated on the held-out fold
(protocol ``selection``: the published test side is never read): with ``--segmenter pixels``, extremely randomized trees on
filter responses of each pixel, seconds of computing time for hundreds of draws; with ``--segmenter unet``, a small UNet. All
rows of a fold share the seed. Rows that are in the table already are not measured again. ``--summary`` prints the paired
differences and measures nothing.
"""

import argparse
import csv
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from skimage.feature import multiscale_basic_features
from sklearn.ensemble import ExtraTreesClassifier

from hebbseg.config import Settings, make_settings
from hebbseg.data.cases import Source
from hebbseg.data.progress import Quiet
from hebbseg.data.splits.split import Split, TrainingCases
from hebbseg.evaluation.evaluate import evaluate
from hebbseg.evaluation.metrics import mean_dice
from hebbseg.methods import make_method
from hebbseg.planning.criteria import Pool, rank_images
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import Dataset, draw_split, open_dataset
from hebbseg.runs.ranking import DESCRIPTORS, describe_images, descriptor_store
from hebbseg.seeding import derive_seed
from hebbseg.training.loop import fit
from studies.recipe import interval

SOURCES = {
    "glas": ("glas:{}/glas", {"size": "64x64"}, ("5%", "10%", "2%")),
    "nuclei": ("dsb2018:{}/dsb2018", {"size": "64x64"}, ("5%", "10%", "2%")),
    "pupils": ("hmeps:{}/pupil_hmeps_layout", {"size": "64x64"}, ("1%", "2%", "5%")),
    "la": ("la:{}/la_half", {"size": "32x28x16", "patch": "none"}, ("5%", "10%")),
}
PROXY = {
    "protocol": "selection", "init": "random", "method": "supervised", "features": "8,16,32,64", "updates": 150,
    "labelled_batch": 4, "augment": "flips-rotations", "precision": "32-true", "accelerator": "cpu",
}  # fmt: skip
CRITERIA = ("facility", "typical", "coverage")
DRAWS = 10
COLUMNS = ("segmenter", "dataset", "labelled_percent", "seed", "criterion", "descriptors", "draw", "n", "dice")
PIXELS = 800  # of each labelled image, for the trees
TESTED = 40  # images of the fold that the trees predict
Row = dict[str, str]


def arms(spread: bool) -> Iterator[tuple[str, str, int]]:
    """Yield criterion, descriptors and number of the draw; ``random-spread`` (with groups) is spread over patients."""
    for criterion in CRITERIA:
        yield from ((criterion, descriptors, 0) for descriptors in DESCRIPTORS)
    yield from (("random", "", draw) for draw in range(DRAWS))
    if spread:
        yield from (("random-spread", "", draw) for draw in range(DRAWS))


def chosen_images(
    source: Source, split: Split, criterion: str, descriptors: str, draw: int, count: int, seed: int
) -> tuple[str, ...]:
    images = split.training.images
    cases = {case.id: case for case in source.cases}
    pool = Pool(
        names=images,
        descriptors=described(source, images, descriptors, seed) if descriptors else np.empty((0, 1)),
        groups=[cases[name].group for name in images],
        barred=frozenset(i for i, name in enumerate(images) if not cases[name].has_mask),
        seed=derive_seed(seed, "draw", draw),
    )
    name, _, spread = criterion.partition("-")
    picks = rank_images(name, pool, count, spread=bool(spread or descriptors))
    return tuple(images[pick.index] for pick in picks)


@lru_cache(maxsize=4)
def described(source: Source, images: tuple[str, ...], descriptors: str, seed: int) -> np.ndarray:
    return describe_images(descriptor_store(source, images, descriptors), descriptors, seed=seed, reporter=Quiet())


def dice_of_unet(settings: Settings, dataset: Dataset, split: Split, chosen: tuple[str, ...]) -> float:
    """Return the mean Dice on the held-out fold of a UNet trained on the chosen images."""
    rest = tuple(name for name in split.training.images if name not in chosen)
    context = RunContext(
        settings, dataset, TrainingCases(labelled=chosen, unlabelled=rest), Fabric(accelerator="cpu", devices=1)
    )
    network, _ = context.initialize(len(dataset.source.classes), settings.seed)
    method = make_method("supervised", network=network, another=lambda: network, loss="dice+ce", augment=context.augment)
    kept, _ = fit(method, context.batches(seed=settings.seed), settings.finetune, seed=settings.seed, fabric=context.fabric)
    store = dataset.store.restricted_to(dataset.source, images=split.test, masks=split.test)
    _, summary = evaluate(context.predictor(kept.eval()), dataset.source, split.test, store=store)
    return float(summary["dice"]["mean"])


class PixelFeatures:
    """Filter responses of every pixel of an image: smoothed values, gradients and Hessian eigenvalues at several scales."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._rows: dict[str, np.ndarray] = {}

    def of(self, name: str) -> np.ndarray:
        """Return (pixels, features)."""
        if name not in self._rows:
            image = self.dataset.store.images([name])[0].numpy()
            maps = multiscale_basic_features(image, sigma_min=1, sigma_max=8, channel_axis=0)
            self._rows[name] = maps.reshape(-1, maps.shape[-1]).astype(np.float32)
        return self._rows[name]


def dice_of_pixels(
    settings: Settings, dataset: Dataset, features: PixelFeatures, split: Split, chosen: tuple[str, ...]
) -> float:
    """Return the mean Dice on the held-out fold of trees trained on pixels of the chosen images."""
    inputs, targets = [], []
    for name in chosen:
        mask = dataset.store.mask(name).numpy().ravel()
        pixels = np.random.default_rng(derive_seed(settings.seed, "pixels", name)).permutation(len(mask))[:PIXELS]
        inputs.append(features.of(name)[pixels])
        targets.append(mask[pixels])
    trees = ExtraTreesClassifier(n_estimators=30, min_samples_leaf=4, class_weight="balanced", random_state=settings.seed)
    trees.fit(np.concatenate(inputs), np.concatenate(targets))
    tested = split.test[:: -(-len(split.test) // TESTED)]
    predicted = trees.predict(np.concatenate([features.of(name) for name in tested]))
    targets = [dataset.store.mask(name).numpy() for name in tested]
    parts = np.split(predicted, np.cumsum([mask.size for mask in targets])[:-1])
    classes = len(dataset.source.classes)
    return float(
        np.mean([mean_dice(part.reshape(mask.shape), mask, classes) for part, mask in zip(parts, targets, strict=True)])
    )


def differences(rows: list[Row]) -> Iterator[str]:
    """Return a line for each data set, regime and arm: the difference from the mean over random draws, paired by seed."""
    cells: dict[tuple[str, str, str, str], dict[str, list[float]]] = {}
    for row in rows:
        key = f"{row['segmenter']} {row['dataset']}", row["labelled_percent"], row["criterion"], row["descriptors"]
        cells.setdefault(key, {}).setdefault(row["seed"], []).append(100 * float(row["dice"]))
    draws = {key: {s: v for s, v in by_seed.items() if len(v) >= DRAWS} for key, by_seed in cells.items() if key[2] == "random"}
    pooled: dict[tuple[str, str, str], dict[tuple[str, str], list[float]]] = {}
    for (dataset, percent, criterion, descriptors), by_seed in sorted(cells.items()):
        base = draws.get((dataset, percent, "random", ""), {})
        pairs = {seed: np.mean(values) - np.mean(base[seed]) for seed, values in by_seed.items() if seed in base}
        if criterion == "random" and base:
            within = np.mean([np.std(values, ddof=1) for values in base.values()])
            mean = np.mean([np.mean(values) for values in base.values()])
            yield f"{dataset} {percent} % random: {mean:.2f}, standard deviation over draws {within:.2f} (n = {len(base)})"
        elif pairs:
            yield f"{dataset} {percent} % {criterion} {descriptors}: − random {interval(list(pairs.values()))}"
            for name, (seed, pair) in product((dataset, f"{dataset.split()[0]} all"), pairs.items()):
                pooled.setdefault((name, criterion, descriptors), {}).setdefault((dataset, seed), []).append(pair)
    for (dataset, criterion, descriptors), by_fold in sorted(pooled.items()):
        # Label regimes of a fold share their test images: one number per fold.
        values = [float(np.mean(pairs)) for pairs in by_fold.values()]
        yield f"{dataset}, mean over regimes: {criterion} {descriptors}: − random {interval(values)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--segmenter", choices=("pixels", "unet"), default="pixels")
    parser.add_argument("--percent", nargs="*", help="label regimes; default: all")
    parser.add_argument("--only", nargs="*", default=["glas", "nuclei", "pupils", "la"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--summary", action="store_true")
    args = parser.parse_args()
    rows = list(csv.DictReader(args.table.open())) if args.table.exists() else []
    if not args.summary:
        torch.set_num_threads(1)
        _measure_all(args, rows)
    print("\n".join(differences(rows)))


def _measure_all(args: argparse.Namespace, rows: list[Row]) -> None:
    known = {tuple(row[name] for name in COLUMNS[:7]) for row in rows}
    datasets: dict[str, tuple[Dataset, PixelFeatures]] = {}
    for seed, name in product(range(args.seeds), args.only):
        spec, options, regimes = SOURCES[name]
        settings = make_settings(spec.format(args.data), PROXY | options | {"seed": seed})
        if name not in datasets:
            found = open_dataset(settings.data, Quiet())
            datasets[name] = found, PixelFeatures(found)
        dataset, features = datasets[name]
        groups = any(case.group for case in dataset.source.cases)
        for percent, (criterion, descriptors, draw) in product(
            args.percent or regimes, arms(groups and args.segmenter == "pixels")
        ):
            key = (args.segmenter, name, percent.rstrip("%"), str(seed), criterion, descriptors, str(draw))
            if key in known:
                continue
            split = draw_split(settings.changed(labelled=percent), dataset.source)
            count = len(split.training.labelled)
            chosen = chosen_images(dataset.source, split, criterion, descriptors, draw, count, seed)
            if args.segmenter == "unet":
                dice = dice_of_unet(settings, dataset, split, chosen)
            else:
                dice = dice_of_pixels(settings, dataset, features, split, chosen)
            rows.append(dict(zip(COLUMNS, (*key, str(count), f"{dice:.5f}"), strict=True)))
            _append(args.table, rows[-1])


def _append(table: Path, row: Row) -> None:
    new = not table.exists()
    with table.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
