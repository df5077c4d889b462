"""hebbseg demo: what Hebbian pre-training does on built-in images, against the same training without it."""

import csv
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from hebbseg.config import Settings, make_settings
from hebbseg.data.progress import Quiet, Reporter
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.metrics import mean_and_ci90
from hebbseg.runs.train import run

DATA = "phantom:glands?n=96&size=64"
ARMS = {
    "random": "random weights",
    "random-rescaled": "random weights, rescaled like Hebbian ones",
    "hebbian": "Hebbian learning on all training images",
}
BASELINE, OURS = "random", "hebbian"
MOST_SEEDS = 8
SETTINGS: dict[str, Any] = {
    "labelled": "4",
    "method": "supervised",
    "size": "64x64",
    "features": "8,16,32,64",
    "updates": 150,
    "labelled_batch": 4,
    "ema": 0.95,
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Of an arm to the baseline, seed by seed: the mean and the half-width of its 90 % t-interval (None if n = 1)."""

    mean: float
    ci90: float | None
    n: int


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """``dice[arm]`` has the mean test Dice of every seed, in order; a run's folder is ``folder / f"seed{n}-{arm}"``."""

    folder: Path
    dice: dict[str, list[float]]
    test_cases: int
    seconds: float

    @property
    def seeds(self) -> int:
        return len(self.dice[BASELINE])

    def run_folder(self, seed: int, arm: str) -> Path:
        return run_folder(self.folder, seed, arm)

    def difference(self, arm: str) -> Difference:
        pairs = zip(self.dice[arm], self.dice[BASELINE], strict=True)
        mean, ci90 = mean_and_ci90([value - baseline for value, baseline in pairs])
        return Difference(mean=mean, ci90=ci90, n=self.seeds)


def demo_settings(seed: int, arm: str, **changes: Any) -> Settings:
    """The same for every arm but for where its first weights come from."""
    options = SETTINGS | changes
    return make_settings(options.pop("data", DATA), options | {"seed": seed, "init": arm})


def run_folder(folder: Path, seed: int, arm: str) -> Path:
    return folder / f"seed{seed}-{arm}"


def free_folder(name: str | Path) -> Path:
    """``demo``, or ``demo-2``, ``demo-3`` … if there is one already."""
    path = Path(name)
    numbered = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(candidate for candidate in chain([path], numbered) if not candidate.exists())


def run_demo(
    folder: Path,
    *,
    seeds: int | None = None,
    time_budget_s: float = 120.0,
    reporter: Reporter | None = None,
    **changes: Any,
) -> DemoResult:
    """Trains all arms from one seed after the other.

    Arguments:
        folder: must not exist.
        seeds: how many; None takes as many as the time allows, at least one and at most `MOST_SEEDS`.
        time_budget_s: no further seed is begun that would, by the time the last ones took, end later than this.
        changes: other settings than those of the demo, for all arms.
    """
    if seeds is not None and seeds < 1:
        raise HebbsegError(f"--seeds {seeds}: at least 1 is needed.")
    if folder.exists():
        raise HebbsegError(f"{folder} exists already. Choose another folder; nothing was overwritten.")
    reporter = reporter or Quiet()
    start = time.monotonic()
    dice: dict[str, list[float]] = {arm: [] for arm in ARMS}
    test_cases = 0
    for seed in range(MOST_SEEDS if seeds is None else seeds):
        elapsed = time.monotonic() - start
        if seeds is None and seed > 0 and elapsed * (seed + 1) / seed > time_budget_s:
            break
        for number, arm in enumerate(ARMS):
            reporter.step(f"seed {seed}", number, len(ARMS), {})
            out = run_folder(folder, seed, arm)
            run(demo_settings(seed, arm, **changes), out)
            summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
            dice[arm].append(summary["dice"]["mean"])
            test_cases = summary["n"]
        reporter.step(f"seed {seed}", len(ARMS), len(ARMS), {})
        reporter.say(
            f"seed {seed}: " + ", ".join(f"{arm} {100 * values[-1]:.1f}" for arm, values in dice.items()) + " % Dice"
        )
    return DemoResult(folder=folder, dice=dice, test_cases=test_cases, seconds=time.monotonic() - start)


def table_rows(result: DemoResult) -> list[tuple[str, str, str, str]]:
    """Arm, mean Dice, paired difference to the baseline with its interval, and the Dice of every seed; for people."""
    rows = []
    for arm, label in ARMS.items():
        values = result.dice[arm]
        difference = result.difference(arm)
        interval = "" if difference.ci90 is None else f" ± {100 * difference.ci90:.1f}"
        shown = "–" if arm == BASELINE else f"{100 * difference.mean:+.1f}{interval} (n = {difference.n})"
        mean = 100 * sum(values) / len(values)
        rows.append((label, f"{mean:.1f}", shown, "  ".join(f"{100 * value:.1f}" for value in values)))
    return rows


def conclusion(result: DemoResult) -> str:
    """What the numbers allow to say, and what not."""
    difference = result.difference(OURS)
    if difference.ci90 is None:
        said = "One seed gives no interval, so this says nothing about which is better."
    elif difference.mean - difference.ci90 > 0:
        said = "The 90 % interval of the difference lies above 0."
    elif difference.mean + difference.ci90 < 0:
        said = "The 90 % interval of the difference lies below 0: here, Hebbian learning did harm."
    else:
        said = "The 90 % interval of the difference includes 0: these runs do not tell the two apart."
    return (
        f"{said} n = {difference.n} is small, the network is small and the images are drawn by a program: "
        "a look at how it works, not a measurement of what it is worth."
    )


def read_rows(path: Path) -> list[dict[str, float | str]]:
    """A history.csv, numbers as numbers."""

    def plain(text: str) -> float | str:
        try:
            return float(text)
        except ValueError:
            return text

    with path.open(encoding="utf-8", newline="") as file:
        return [{name: plain(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def loss_curve(folder: Path) -> tuple[Sequence[float], Sequence[float]]:
    """Updates and loss of stage 2."""
    rows = [row for row in read_rows(folder / "history.csv") if row["stage"] == "fit"]
    return [float(row["step"]) for row in rows], [float(row["loss"]) for row in rows]
