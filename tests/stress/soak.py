"""Random commands on random small data sets; after each, invariants are checked.

    python -m tests.stress.soak --minutes 60 --seed 0
    python -m tests.stress.soak --replay 17                  # one chain of commands again, with its output

A chain is: check, train (sometimes killed and resumed), predict, evaluate, report. Invariants: no traceback and no other exit
code than documented; the data set is unchanged; a finished run has all its files and finite metrics in range; every image has
one mask of its size, with values that occur in the training masks; evaluation of the test cases repeats the metrics of the run.
"""

import argparse
import csv
import hashlib
import json
import math
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import nibabel
import numpy as np
import tifffile
from PIL import Image

from tests.stress.faults import Result, command

METHODS = ("auto", "supervised", "em", "mean-teacher", "uamt", "cct", "cps", "urpc", "dtc", "fixmatch", "unimatch", "bcp")
INITS = ("hebbian", "random", "random-rescaled")
NAMES = ("case", "bild ä", "x y", "a.b", "=1+2", "-o", "Pa#t")
IMAGE_SUFFIXES = {2: (".png", ".tif", ".bmp"), 3: (".nii.gz", ".tif")}


@dataclass
class Chain:
    """One chain of commands, its log, and what was wrong."""

    number: int
    folder: Path
    log: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def run(self, *arguments: str | Path, allowed: tuple[int, ...] = (0, 2), kill: tuple[int, float] | None = None) -> Result:
        words = [str(argument) for argument in arguments]
        ended = command(words, lambda: os.chdir(self.folder), kill=kill)
        self.log.append(f"$ hebbseg {shlex.join(words)}\n{ended.output}exit code {ended.code}")
        codes = allowed if kill is None else (*allowed, -kill[0], 130, 143)
        self.require("Traceback" not in ended.output, "traceback")
        self.require(ended.code in codes, f"exit code {ended.code}")
        return ended

    def require(self, holds: bool, finding: str) -> None:
        if not holds:
            self.wrong.append(finding)


def save(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".nii.gz"):
        nibabel.save(nibabel.Nifti1Image(array, np.diag([1.5, 1.0, 2.0, 1.0])), path)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, array, photometric="rgb" if array.ndim == 3 and array.shape[-1] == 3 else "minisblack")
    else:
        Image.fromarray(array).save(path)


def draw_data(rng: random.Random, root: Path) -> tuple[int, int]:
    """Write a random data set; return its number of spatial axes and of masks."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    dims = 3 if rng.random() < 0.2 else 2
    suffix = rng.choice(IMAGE_SUFFIXES[dims])
    channels = 3 if dims == 2 and rng.random() < 0.5 else 1
    values = rng.choice(([0, 1], [0, 255], [0, 1, 2], [0, 128, 255]))
    count, one_size = rng.randrange(4, 12), rng.random() < 0.5
    masked = rng.randrange(0, count + 1) if rng.random() < 0.7 else count
    low, high = (8, 20) if dims == 3 else (16, 70)
    fixed = [rng.randrange(low, high) for _ in range(dims)]
    stem = rng.choice(NAMES)
    for number in range(count):
        shape = fixed if one_size else [rng.randrange(low, high) for _ in range(dims)]
        image, mask = numbers.random(shape) * 0.4, np.zeros(shape, np.uint8)
        for value in values[1:]:
            corner = [rng.randrange(0, max(1, n - 4)) for n in shape]
            box = tuple(slice(c, c + max(3, n // 3)) for c, n in zip(corner, shape, strict=True))
            mask[box] = value
            image[box] += 0.5 * value / max(values)
        stored = (255 * image.clip(0, 1)).astype(np.uint8)
        if channels == 3:
            stored = np.stack([stored, stored // 2, 255 - stored], axis=-1)
        save(root / "images" / f"{stem}{number:02}{suffix}", stored)
        if number < masked:
            save(root / "masks" / f"{stem}{number:02}{suffix if suffix != '.bmp' else '.png'}", mask)
    return dims, masked


def settings(rng: random.Random, dims: int) -> list[str]:
    """Return random options of a short training."""
    options = [
        "--features", rng.choice(("4,8", "4,8,16")), "--updates", str(rng.randrange(1, 12)), "--seed", str(rng.randrange(100)),
        "--method", rng.choice(METHODS), "--init", rng.choice(INITS), "--set", f"labelled_batch={rng.randrange(1, 4)}",
        "--set", f"unlabelled_batch={rng.randrange(1, 4)}", "--set", "pretrain_epochs=1", "--set", "checkpoint_every_s=0",
        "--set", f"norm={rng.choice(('group', 'batch', 'instance', 'none'))}",
        "--set", f"normalize={rng.choice(('unit', 'zscore'))}", "--set", f"ema={rng.choice(('0', '0.9'))}",
    ]  # fmt: skip
    if dims == 2:
        options += ["--size", rng.choice(("24", "32x40", "48"))]
    if rng.random() < 0.3:
        options += ["--labelled", rng.choice(("1", "2", "50%"))]
    if rng.random() < 0.2:
        options += ["--set", f"test={rng.choice(('0', '0.5'))}"]
    return options


def run_chain(number: int, folder: Path) -> Chain:
    """Run one chain of random commands."""
    rng, chain = random.Random(number), Chain(number, folder)
    os.environ["HEBBSEG_CACHE"] = str(folder / "cache")
    data, out = folder / rng.choice(("data", "my data", "dätä")), folder / "run"
    dims, masked = draw_data(rng, data)
    before = digest(data)
    chain.run("check", data, allowed=(0, 1, 2))
    arguments = ["train", str(data), "-o", str(out), *settings(rng, dims)]
    kill = (rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)), rng.uniform(0.1, 3)) if rng.random() < 0.4 else None
    ended = chain.run(*arguments, kill=kill)
    if kill is not None and ended.code not in (0, 2):
        resumed = (out / "run.json").exists()
        ended = chain.run(*(["train", "--resume", "-o", str(out)] if resumed else arguments))
    chain.require(masked > 2 or ended.code in (0, 2), "training without masks")
    if ended.code == 0:
        _check_run(chain, out)
        _use_model(chain, rng, data, out)
    chain.require(digest(data) == before, "the data set was changed")
    return chain


def _check_run(chain: Chain, out: Path) -> None:
    for name in ("model.safetensors", "run.json", "split.json", "history.csv", "progress.png"):
        chain.require((out / name).is_file(), f"{name} is missing")
    chain.require(not (out / "checkpoint.pt").exists(), "a finished run has a checkpoint")
    chain.require(not any(path.name.startswith(".writing-") for path in out.rglob("*")), "temporary files are left")
    if (out / "summary.json").exists():
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        for name in ("dice", "jaccard"):
            chain.require(0 <= summary[name]["mean"] <= 1, f"{name} is {summary[name]['mean']}")
        for name in ("hd95", "asd"):
            chain.require(0 <= summary[name]["mean"] < math.inf, f"{name} is {summary[name]['mean']}")


def _use_model(chain: Chain, rng: random.Random, data: Path, out: Path) -> None:
    masks = chain.folder / "predicted"
    if chain.run("predict", out, data / "images", "-o", masks, allowed=(0,)).code == 0:
        images = sorted((data / "images").iterdir())
        written = [path for path in masks.iterdir() if path.is_file()]
        for image in images:
            stem = image.name.split(".nii")[0] if ".nii" in image.name else image.stem
            found = [path for path in written if path.name.startswith(f"{stem}.")]
            chain.require(len(found) == 1, f"{len(found)} masks of {image.name}: {[path.name for path in found]}")
            if len(found) == 1:
                mask, source = read(found[0]), read(image)
                shape = source.shape[: mask.ndim]
                chain.require(mask.shape == shape, f"mask of {image.name}: {mask.shape}, image {shape}")
    if (out / "summary.json").exists():
        scores = chain.folder / "scores"
        chain.run("evaluate", out, data, "-o", scores, "--split", out, allowed=(0,))
        if (scores / "metrics.csv").exists():
            ours, theirs = (dice_of(place / "metrics.csv") for place in (out, scores))
            same = ours.keys() == theirs.keys() and all(abs(ours[key] - theirs[key]) < 1e-5 for key in ours)
            chain.require(same, "evaluation does not repeat the metrics of the run")
    if rng.random() < 0.3:
        chain.run("report", chain.folder / "run", "-o", chain.folder / "report.html")


def read(path: Path) -> np.ndarray:
    if path.name.endswith(".nii.gz"):
        return np.asanyarray(nibabel.load(path).dataobj)
    return tifffile.imread(path) if path.suffix == ".tif" else np.asarray(Image.open(path))


def dice_of(path: Path) -> dict[tuple[str, str], float]:
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["case"], row["class"]): float(row["dice"]) for row in csv.DictReader(file)}


def digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(os.fsencode(path.relative_to(folder)) + path.read_bytes())
    return found.hexdigest()


def soak(seed: int, *, chains: int | None = None, minutes: float = math.inf) -> list[Chain]:
    """Run chains until their number or the time is reached; return those with a finding, and print these."""
    import hebbseg.cli.app
    import hebbseg.runs.train  # noqa: F401  (before the fork)

    started, failed, number, commands = time.monotonic(), [], seed * 10**6, 0
    while (chains is None or number < seed * 10**6 + chains) and time.monotonic() - started < 60 * minutes:
        with tempfile.TemporaryDirectory() as folder:
            chain = run_chain(number, Path(folder))
        commands += len(chain.log)
        if chain.wrong:
            failed.append(chain)
            print(f"--replay {number}: {'; '.join(chain.wrong)}", *chain.log, sep="\n", flush=True)
        number += 1
    print(f"{number - seed * 10**6} chains, {commands} commands, {len(failed)} chains with a finding", flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=int)
    given = parser.parse_args()
    if given.replay is not None:
        with tempfile.TemporaryDirectory() as folder:
            chain = run_chain(given.replay, Path(folder))
        print(*chain.log, *(f"wrong: {finding}" for finding in chain.wrong), sep="\n")
        return
    sys.exit(bool(soak(given.seed, minutes=given.minutes)))


if __name__ == "__main__":
    main()
