"""A run and its learning curve: the same training with a quarter and half of its masks (``--curve``)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hebbseg.atomic_files import write_text
from hebbseg.config import AUTO_INIT, Settings
from hebbseg.data.progress import Quiet, Reporter, counted, duration
from hebbseg.errors import HebbsegError
from hebbseg.evaluation.learning_curve import extrapolate
from hebbseg.evaluation.metrics import mean_and_ci90
from hebbseg.inference.predictor import Predictor
from hebbseg.networks.model_file import load_model
from hebbseg.pretraining.initializers import is_initializer
from hebbseg.runs.dataset import list_cases
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.metrics_file import dice_by_case, read_metrics
from hebbseg.runs.preflight import check_listed, check_settings
from hebbseg.runs.train import run
from hebbseg.text_files import csv_text, read_json

SHARES = (0.25, 0.5, 1.0)  # of the labelled images
BEYOND = 2  # the curve is extrapolated to this multiple of them
FOLDER = "curve"
TABLE = "curve.csv"
NOTE = "curve"  # in run.json
REMEDY = "Delete the folder, and continue with `hebbseg train --resume --curve`."


def train(
    settings: Settings,
    out: Path,
    *,
    curve: bool = False,
    resume: bool = False,
    reporter: Reporter | None = None,
    started: float | None = None,
) -> Predictor:
    """Train the run in ``out``; with ``curve``, or if it was started with it, also the runs of the curve.

    Those are in ``out/curve``. They have the settings, the plan, the test cases and the time limit of the run; their
    labelled images are the first ones of the run. A time budget is divided equally by the number of runs.
    """
    reporter, folder = reporter or Quiet(), RunFolder(out)
    noted = folder.description().get(NOTE) if resume and folder.has_run else None
    notes: dict[str, Any] = {}
    if curve or noted:
        counts = _checked(settings)
        total_s, new = settings.finetune.time_budget_s, not (resume and folder.has_run)
        if total_s is not None and (new or (noted or {}).get("time_budget_s") == total_s):
            settings = settings.changed(time_budget_s=total_s / len(counts))
        if noted is None:  # a run that is there already keeps its time limit
            notes = {NOTE: {"masks": counts, "time_budget_s": total_s if new else None}}
        if new:
            each = "" if total_s is None else f"; each gets {duration(total_s / len(counts))} of the time budget"
            reporter.say(f"curve: {counted(len(counts), 'run')} with {_listed(counts)} masks{each}")
    trained = run(settings, out, resume=resume, reporter=reporter, notes=notes, started=started, examples=True)
    if curve or noted:
        _train_points(out, counts, reporter)
    return trained


def mask_counts(labelled: int) -> list[int]:
    """Return the numbers of masks of the curve, in ascending order; the last one is ``labelled``.

    >>> mask_counts(10), mask_counts(3)
    ([3, 5, 10], [1, 2, 3])
    """
    return sorted({math.ceil(share * labelled) for share in SHARES})


def _checked(settings: Settings) -> list[int]:
    """Return the numbers of masks; raise an error if the run can have no curve."""
    check_settings(settings)
    if settings.pretrain.from_run is not None:
        raise HebbsegError(
            f"--curve and --from {settings.pretrain.from_run}: the weights of that run have been trained with its masks, so "
            "the curve cannot show what fewer masks achieve. Omit one of them."
        )
    init = settings.pretrain.init
    if not is_initializer(init) and "classes" in load_model(Path(init))[1]:
        raise HebbsegError(
            f"--curve and --init {init}: this model has been trained with masks, so the curve cannot show what fewer masks "
            "achieve. Omit --curve, or use weights of `hebbseg pretrain`."
        )
    if settings.hardware.devices * settings.hardware.num_nodes > 1:
        raise HebbsegError("--curve trains on a single device. Omit --devices and --num-nodes, or omit --curve.")
    split = check_listed(settings, list_cases(settings.data))
    if not split.test:
        raise HebbsegError("--curve needs test cases, but this split has none. Set test to a share, such as --set test=0.2.")
    if len(split.training.labelled) < 2:
        raise HebbsegError(
            f"--curve needs at least 2 labelled training images, but there is {len(split.training.labelled)}. Add masks, or "
            "raise --labelled."
        )
    return mask_counts(len(split.training.labelled))


def _train_points(out: Path, counts: Sequence[int], reporter: Reporter) -> None:
    """Train the runs with fewer masks that are not done yet, and write the table."""
    whole = RunFolder(out)
    settings, plan = whole.begun_with(), whole.plan()
    assert settings is not None
    settings = settings if plan is None else plan.applied_to(settings)
    if settings.pretrain.init == AUTO_INIT:  # all runs have stage 1, or none has
        changed = (whole.description().get("time_budget") or {}).get("stage1") or {}
        settings = settings.changed(init=changed.get("init", "hebbian"))
    batch = settings.finetune.labelled_batch
    if settings.finetune.epochs is not None and batch != "auto":  # all runs have the same number of updates
        finetune = settings.finetune.in_updates(labelled=counts[-1], batch=batch)
        settings = settings.model_copy(update={"finetune": finetune})
    folders = {masks: _folder(out, masks) for masks in counts[:-1]}
    for number, (masks, place) in enumerate(folders.items(), start=2):
        begun = RunFolder(place).has_run
        if begun and RunFolder(place).description()["status"] == "done":
            continue
        reporter.say(f"curve: run {number} of {len(counts)}, with {masks} of {counts[-1]} masks")
        run(settings.changed(labelled=str(masks)), place, resume=begun, reporter=reporter)
    write_text(out / TABLE, csv_text(_rows(out, {**folders, counts[-1]: out})))


def _folder(out: Path, masks: int) -> Path:
    return out / FOLDER / f"masks-{masks}"


def _rows(out: Path, folders: dict[int, Path]) -> list[list[Any]]:
    """Return the table: the measured points, with the gain over the point before, and the extrapolated point."""
    heading = ["masks", "kind", "dice", "dice_low", "dice_high", "gain", "gain_low", "gain_high", "n", "updates_done",
               "updates_planned", "seconds", "exponent", "exponent_low", "exponent_high", "folder"]  # fmt: skip
    found = {masks: dice_by_case(read_metrics(folder)) for masks, folder in folders.items()}
    cases = sorted(set.intersection(*(set(each) for each in found.values())))
    dice = np.array([[each[case] for case in cases] for each in found.values()])  # (points, cases)
    rows: list[list[Any]] = []
    for number, (masks, folder) in enumerate(folders.items()):
        described = read_json(folder / "run.json", REMEDY)
        gain = ["", "", ""] if number == 0 else _with_bounds(dice[number] - dice[number - 1])
        lengths = [described.get(name, "") for name in ("updates_done", "updates_planned", "seconds")]
        place = "." if folder == out else folder.relative_to(out).as_posix()
        rows.append([masks, "measured", *_with_bounds(dice[number]), *gain, len(cases), *lengths, "", "", "", place])
    if len(folders) == len(SHARES):  # a line through fewer points has no error
        far = extrapolate(list(folders), dice, BEYOND * max(folders))
        exponent = [far.exponent, far.exponent_low, far.exponent_high]
        bounds = [far.dice, far.dice_low, far.dice_high]
        rows.append([far.masks, "extrapolated", *bounds, "", "", "", len(cases), "", "", "", *exponent, ""])
    return [heading, *(["" if value is None else value for value in row] for row in rows)]


def _with_bounds(values: np.ndarray) -> list[float | None]:
    mean, half = mean_and_ci90(values)
    return [mean, None if half is None else mean - half, None if half is None else mean + half]


def _listed(counts: Sequence[int]) -> str:
    return f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}"
