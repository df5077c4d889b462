"""What training would do with a data set, and how long it would take on this machine; nothing is trained."""

import time
from dataclasses import dataclass, replace

from hebbseg.config import AUTO_INIT, Settings
from hebbseg.data.sources.files import FileSource
from hebbseg.data.splits.split import Split
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError
from hebbseg.methods import AUTO, auto_method, method_class
from hebbseg.planning.fingerprint import any_partly_annotated, spread
from hebbseg.planning.plan import Plan
from hebbseg.runs.budget import LEAST_UPDATES, STAGE1_SHARE
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import Dataset, list_cases, preprocessing_of
from hebbseg.runs.planned import plan_run
from hebbseg.runs.preflight import check_listed, check_planned, check_settings, require_classes
from hebbseg.runs.timing import few_cases, time_stage1, time_test, time_update
from hebbseg.training.distributed import make_fabric

READ = 6  # images whose reading is timed


@dataclass(frozen=True, kw_only=True)
class TimeEstimate:
    """Estimated seconds of the parts of a run; ``updates`` of stage 2 are planned, or fit into the time budget of the run.

    ``optional_stage1`` is left out where a time budget is short.
    """

    reading_s: float
    stage1_s: float
    update_s: float
    test_s: float
    updates: int
    optional_stage1: bool = False

    @property
    def stage2_s(self) -> float:
        return self.updates * self.update_s

    @property
    def total_s(self) -> float:
        return self.reading_s + self.stage1_s + self.stage2_s + self.test_s

    def stage1_within(self, budget_s: float) -> float:
        if self.optional_stage1 and self._left(budget_s) < LEAST_UPDATES * self.update_s:
            return 0.0
        return min(self.stage1_s, STAGE1_SHARE * budget_s)

    def updates_within(self, budget_s: float) -> int:
        """Return the updates of stage 2 that fit into a time budget; 0 if it is too short."""
        return max(0, int((self._left(budget_s) - self.stage1_within(budget_s)) / self.update_s))

    def _left(self, budget_s: float) -> float:
        """Return the seconds for both stages."""
        return budget_s - self.reading_s - self.test_s


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The plan of a run, its split, and its time; ``time`` is None without labelled training images or if not measured.

    ``unreadable`` describes the images whose header cannot be read; training leaves them out.
    """

    plan: Plan
    split: Split
    method: str
    time: TimeEstimate | None
    unreadable: tuple[str, ...] = ()


def estimate(settings: Settings, *, measure: bool = True) -> Estimate:
    """Return the plan for a data set and the estimated time of a run.

    Reads headers, masks of labelled training cases, and a few training images.
    """
    check_settings(settings)
    source = list_cases(settings.data)
    headers = source.headers if isinstance(source, FileSource) else {}
    unreadable = {name: str(error) for name, error in headers.items() if isinstance(error, HebbsegError)}
    if isinstance(source, FileSource) and 0 < len(unreadable) < len(source.cases):
        source = source.with_cases([case for case in source.cases if case.id not in unreadable])  # as training does
    split = check_listed(settings, source, labelled=False)
    plan = plan_run(settings, source, split)
    settings = plan.applied_to(settings).changed(devices=1, num_nodes=1)
    check_planned(settings, source)
    if settings.finetune.method == AUTO:
        unlabelled = len(split.training.unlabelled) or any_partly_annotated(source, split.training.labelled)
        method, options = auto_method(unlabelled=int(unlabelled))
        settings = settings.changed(method=method, method_options=options)
    time = None
    if measure and split.training.labelled:
        store = CaseStore(
            source=source,
            preprocessing=preprocessing_of(source, settings.data),
            images=split.training.images,
            masks=split.training.labelled,
        )
        time = _time(settings, Dataset(source=source, store=store, plan=plan), split)
    found = tuple(unreadable.values())
    return Estimate(plan=plan, split=split, method=settings.finetune.method, time=time, unreadable=found)


def _time(settings: Settings, dataset: Dataset, split: Split) -> TimeEstimate:
    require_classes(settings, dataset.source)
    training = split.training
    reading_s = _time_reading(dataset, training.images) * len(dataset.source.cases)
    fabric = make_fabric(settings)
    context = RunContext(settings, dataset, few_cases(training), fabric)
    labelled_batch = context.batches(seed=0).labelled_batch
    finetune = settings.finetune.in_updates(labelled=len(training.labelled), batch=labelled_batch)
    stage1 = time_stage1(context, len(training.images))
    found = TimeEstimate(
        reading_s=reading_s,
        stage1_s=stage1.total_s * method_class(finetune.method).networks,
        update_s=time_update(context),
        test_s=time_test(context).of(len(split.test)) if split.test else 0.0,
        updates=finetune.updates,
        optional_stage1=settings.pretrain.init in (AUTO_INIT, "hebbian"),
    )
    if (budget_s := finetune.time_budget_s) is None:
        return found
    return replace(found, stage1_s=found.stage1_within(budget_s), updates=min(found.updates, found.updates_within(budget_s)))


def _time_reading(dataset: Dataset, images: tuple[str, ...]) -> float:
    """Return the seconds to read and preprocess an image."""
    chosen = spread(images, READ)
    start = time.monotonic()
    for name in chosen:
        dataset.store.image(name)
    return (time.monotonic() - start) / len(chosen)
