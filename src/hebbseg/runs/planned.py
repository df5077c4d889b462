"""The plan of a run: made from its data, or read from the run folder that is resumed."""

from collections.abc import Callable
from functools import partial

from hebbseg.config import Settings
from hebbseg.data.cases import Source
from hebbseg.data.preprocessing import SIZE_2D
from hebbseg.data.progress import Reporter
from hebbseg.data.splits.split import Split
from hebbseg.planning.fingerprint import take_fingerprint
from hebbseg.planning.plan import Plan, make_plan
from hebbseg.runs.dataset import Dataset
from hebbseg.runs.folder import RunFolder
from hebbseg.training.distributed import resolved_precision, uses_gpu

Fill = Callable[[Settings], Settings]
"""Replaces settings that follow from the data (``auto``) by their values."""


def plan_run(settings: Settings, source: Source, split: Split, *, masks: bool = True) -> Plan:
    """Return the plan for a run with this split. Reads headers, and masks of labelled training cases only.

    Args:
        masks: False opens no mask.
    """
    data = settings.data
    open_size = data.size == "auto" and not isinstance(data.patch, tuple) and not isinstance(data.spacing, tuple)
    found = take_fingerprint(source, split.training, test=len(split.test), masks=masks, sizes=open_size)
    accelerator = settings.hardware.accelerator
    precision = resolved_precision(settings.finetune.precision, accelerator)
    return make_plan(settings, found, precision=precision, gpu=uses_gpu(accelerator))


def planned(
    settings: Settings, source: Source, split: Split, folder: RunFolder, *, dataset: Dataset | None = None, masks: bool = True
) -> tuple[Fill, Plan | None]:
    """Return what fills in the planned settings, and the plan: that of the run in ``folder``, if there is one.

    A run that was started by a version without plans keeps its size, and has no plan.

    Args:
        dataset: the data, if they are decoded already: their size is given.
    """
    if folder.has_run:
        return filling(folder.plan(), source)
    if dataset is None:
        return filling(plan_run(settings, source, split, masks=masks), source)
    if dataset.plan is not None:
        return filling(dataset.plan, source)
    kept = dataset.store.preprocessing
    grid = {"size": kept.size or "native", "spacing": kept.spacing or "native"}
    plan = plan_run(settings.changed(**grid), source, split, masks=masks)
    return lambda chosen: plan.applied_to(chosen.changed(**grid)), plan


def filling(plan: Plan | None, source: Source) -> tuple[Fill, Plan | None]:
    """Return what fills in the settings of a plan, and the plan; None is that of a version without plans."""
    return (partial(_before_plans, spatial_dims=source.spatial_dims) if plan is None else plan.applied_to), plan


def filled(settings: Settings, dataset: Dataset) -> Settings:
    """Return the settings with the values of the plan of a data set."""
    return filling(dataset.plan, dataset.source)[0](settings)


def describe_plan(plan: Plan, reporter: Reporter) -> None:
    for name, value, reason in plan.lines():
        reporter.say(f"{name:>10}: {value} ({reason})")


def _before_plans(settings: Settings, *, spatial_dims: int) -> Settings:
    """Return the settings as versions without plans understood them: images had 128 × 128 pixels."""
    images = spatial_dims == 2 and settings.data.size == "auto"
    return settings.changed(size=SIZE_2D) if images else settings
