"""Run folders made up: numbers that follow a known rule, no training."""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from hebbseg.config import make_settings

REGIMES = ("1%", "2%", "5%", "10%", "20%")
PAPER_STAGE_1: dict[str, Any] = {
    "init": "hebbian", "part": "all", "levels": "all", "layerwise": False, "unit_norm": False, "center": False,
    "standardize": False, "whiten": None,
}  # fmt: skip
# Arm → (settings, how many percentage points it adds, the arm it is tied to).
ARMS: dict[str, tuple[dict[str, Any], float, str | None]] = {
    "Supervised": ({"init": "random"}, 0.0, None),
    "Hebbian SWTA": ({"init": "hebbian"}, 4.0, None),
    "EM": ({"init": "random", "method": "em"}, 1.0, None),
    "EM + Hebbian": ({"init": "hebbian", "method": "em"}, 5.5, "EM"),
    "CPS": ({"init": "random", "method": "cps"}, 2.0, None),
    "CPS + Hebbian": ({"init": "hebbian", "method": "cps"}, 2.1, "CPS"),
    "VAE": ({"init": "vae"}, 1.5, None),
    "Ours": (PAPER_STAGE_1, 3.0, "Supervised"),
}


def noise(*key: object) -> float:
    """A number around 0 that depends on nothing but the key."""
    return float(np.random.default_rng(zlib.crc32(repr(key).encode())).normal())


def write(folder: Path, run: dict[str, Any], summary: dict[str, Any] | None) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(run))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def described(data: str, settings: dict[str, Any], grid: dict[str, Any] | None = None) -> dict[str, Any]:
    resolved = make_settings(data, {"method": "supervised"} | settings).flat()
    run = {
        "status": "done",
        "settings": resolved,
        "seed": resolved["seed"],
        "split_hash": f"{zlib.crc32(repr(resolved['seed']).encode()):08x}" * 8,
        "versions": {"hebbseg": "0.1.0", "python": "3.11.2", "torch": "2.13.0"},
        "command": f"hebbseg train {data}",
        "seconds": 61.5,
    }
    return run if grid is None else run | {"grid": grid}


def summary(dice: float, n: int = 80) -> dict[str, Any]:
    jaccard = dice / (2 - dice)
    means = {"dice": dice, "jaccard": jaccard, "hd95": 40 * (1 - dice), "asd": 12 * (1 - dice)}
    return {
        "n": n,
        "unit": "px",
        **{name: {"mean": value, "ci90": 0.01} for name, value in means.items()},
        "dice_pooled": dice + 0.01,
    }


def split(folder: Path, *, test: int, total: int, grouped: bool, folds: int | None, fold: int = 0, notes: str = "") -> None:
    """split.json with ids that are numbers: a tenth of what is not tested validates, one case is labelled."""
    ids = [str(number) for number in range(total - test)]
    validation = ids[: len(ids) // 10]
    content = {
        "training": {"labelled": ids[-1:], "unlabelled": ids[len(validation) : -1], "validation": validation},
        "test": [f"t{number}" for number in range(test)],
        "provenance": {
            "protocol": "paper" if folds else "few-label", "test": f"fold {fold} of {folds}" if folds else "official",
            "folds": folds, "fold": fold if folds else None, "grouped": grouped, "notes": [notes] if notes else [],
        },
    }  # fmt: skip
    (folder / "split.json").write_text(json.dumps(content))


def history(folder: Path, level: float, rows: int = 60) -> None:
    lines = ["stage,step,loss,supervised", "pretrain,1,,"]
    lines += [f"fit,{s},{level * math.exp(-s / 20):.5f},{level * math.exp(-s / 20):.5f}" for s in range(1, rows + 1)]
    (folder / "history.csv").write_text("\n".join(lines) + "\n")


def make_sota(
    root: Path,
    *,
    dataset: str = "glas",
    arms: tuple[str, ...] = tuple(ARMS),
    regimes: tuple[str, ...] = REGIMES,
    seeds: int = 4,
    folds: int = 1,
    recipe: str = "glas-small",
    title: str = "State of the art",
    size: int = 128,
    images: int | None = None,
    grouped: bool = True,
) -> Path:
    """Dice = 55 + 10 · log2(percent) / … + arm + seed, in points, with a little noise."""
    for arm in arms:
        settings, bonus, gain_over = ARMS[arm]
        for regime in regimes:
            for fold in range(folds):
                for seed in range(seeds):
                    percent = float(regime.rstrip("%"))
                    dice = 0.55 + 0.18 * math.log10(percent) + bonus / 100
                    dice += 0.02 * noise(dataset, fold, seed) + 0.006 * noise(dataset, arm, regime, fold, seed)
                    grid = {
                        "recipe": recipe, "title": title, "kind": "train", "table": "sota", "dataset": dataset,
                        "arm": arm, "order": arms.index(arm), "baseline": "Supervised",
                        "axes": {"labelled": regime, "seed": seed, "fold": fold},
                    }  # fmt: skip
                    if gain_over:
                        grid["gain_over"] = gain_over
                    given = settings | {"labelled": regime, "seed": seed, "size": (size, size)}
                    given |= {"folds": folds, "fold": fold} if folds > 1 else {}
                    run = described(f"{dataset}:nowhere", given, grid)
                    name = f"{arm}-{regime}-{fold}-{seed}".replace(" ", "_")
                    folder = write(root / "runs" / name, run, summary(min(dice, 0.99)))
                    if images is not None:
                        tested = images // folds if folds > 1 else images // 5
                        split(folder, test=tested, total=images, grouped=grouped, folds=folds if folds > 1 else None, fold=fold)
                    if fold == 0:
                        history(folder, 1 + bonus / 10)
    return root


def make_ablation(root: Path, table: str, *, seeds: int = 3) -> Path:
    """``temperature``: an axis beside a baseline without it; ``variants``: four arms at two regimes; ``probe``: levels."""

    def one(arm: str, settings: dict[str, Any], axes: dict[str, Any], result: dict[str, Any]) -> None:
        grid = {
            "recipe": f"{table}-small", "title": f"Ablation: {table}", "kind": "probe" if table == "probe" else "train",
            "table": table, "dataset": "glas", "arm": arm,
            "baseline": "Random" if table == "probe" else "Supervised", "axes": axes,
        }  # fmt: skip
        name = "-".join(map(str, (arm, *axes.values()))).replace(" ", "_").replace("%", "")
        write(root / "runs" / name, described("glas:nowhere", settings | axes, grid), result)

    for seed in range(seeds):
        if table == "temperature":
            one("Supervised", {"init": "random"}, {"labelled": "20%", "seed": seed}, summary(0.8 + 0.01 * seed))
            for k in (1, 5, 10, 20, 50, 75, 100):
                axes = {"labelled": "20%", "temperature": round(1 / k, 4), "seed": seed}
                one("Hebbian", PAPER_STAGE_1, axes, summary(0.8 + 0.01 * seed + 0.004 * math.log(k)))
        elif table == "variants":
            one("Supervised", {"init": "random"}, {"labelled": "5%", "seed": seed}, summary(0.7 + 0.01 * seed))
            for number, (rule, form) in enumerate([("swta", "s"), ("swta", "tsa"), ("hpca", "s"), ("hpca", "tsa")]):
                for regime in ("5%", "20%"):
                    settings = PAPER_STAGE_1 | {"rule": rule, "transpose": form}
                    value = 0.7 + 0.01 * (seed + number) + (0.1 if regime == "20%" else 0)
                    one(f"{rule}-{form}".upper(), settings, {"labelled": regime, "seed": seed}, summary(value))
        else:
            arms = {"Random": {"init": "random"}, "VAE": {"init": "vae"}, "Hebbian SWTA-TSA": PAPER_STAGE_1}
            for number, (arm, settings) in enumerate(arms.items()):
                levels = {f"encoder.level{i}": {"dice": 0.5 + 0.02 * i + 0.01 * (number + seed)} for i in range(3)}
                levels["decoder.level0"] = {"dice": 0.6 + 0.02 * number + 0.01 * seed}
                for level in levels.values():
                    level["dice_pooled"] = level["dice"] + 0.01
                result = {"kind": "probe", "n": 80, "fitted": 9, "levels": levels}
                one(arm, settings, {"labelled": "100%", "seed": seed}, result)
    return root
