"""Which images of a data set to annotate next, without a model or with that of a run."""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from hebbseg.atomic_files import refuse_unwritable, replacing
from hebbseg.config import DataSettings
from hebbseg.data.cases import Case, Source
from hebbseg.data.inspect import examine
from hebbseg.data.progress import Reporter, counted
from hebbseg.data.sources.files import FileSource
from hebbseg.data.splits.draw import Regime
from hebbseg.data.splits.split import Split
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError
from hebbseg.inference.predictor import Predictor
from hebbseg.networks.unet import UNet
from hebbseg.planning.criteria import Pool, rank_images
from hebbseg.planning.descriptors import feature_descriptors
from hebbseg.planning.uncertainty import uncertainty_of
from hebbseg.runs.evaluate import fitting_source
from hebbseg.runs.ranking import describe_images, descriptor_store, progress_of

Row = dict[str, Any]


NUMBER = 10  # of images to rank, if there are as many


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The images to choose from and those that are labelled already, sorted by id, and notes on the others."""

    unlabelled: tuple[Case, ...]
    labelled: tuple[Case, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The image at a rank, the score of the criterion and the reason in words."""

    rank: int
    case: Case
    score: float
    reason: str

    def row(self) -> Row:
        files = ";".join(str(path) for path in self.case.image)
        named = {"rank": self.rank, "case": self.case.id, "group": self.case.group or ""}
        return named | {"score": f"{self.score:.4g}", "reason": self.reason, "image": files}


def find_candidates(source: Source, split: Split | None = None, *, hidden: bool = False) -> Candidates:
    """Return the unlabelled and labelled images. Test images of a published split or of the run are neither.

    Args:
        split: of a run, whose labelled and validation images are labelled.
        hidden: the run did not use the masks of its unlabelled images on purpose (``labelled`` below 100 %), so that these
            images are unlabelled although their masks exist.
    """
    test = set(split.test) if split is not None else {case.id for case in source.cases if case.subset == "test"}
    used: set[str] = set() if split is None else {*split.training.labelled, *split.training.validation}
    masked_unused = set(split.training.unlabelled) if split is not None and hidden else set()
    cases = sorted((case for case in source.cases if case.id not in test), key=lambda case: case.id)
    labelled = tuple(c for c in cases if c.id in used or (c.has_mask and c.id not in masked_unused))
    names = {case.id for case in labelled}
    unlabelled = tuple(case for case in cases if case.id not in names)
    notes = []
    if test:
        notes.append(f"{counted(len(test), 'test image')} {'is' if len(test) == 1 else 'are'} neither read nor ranked.")
    if with_mask := sum(case.has_mask for case in unlabelled):
        notes.append(f"{with_mask} of the images have masks that the run did not use.")
    return Candidates(unlabelled=unlabelled, labelled=labelled, notes=tuple(notes))


def check_count(count: int | None, candidates: Candidates, name: str) -> int:
    """Return the number of images to rank; None is `NUMBER`, or all if there are fewer. Raise if there are not as many."""
    left = len(candidates.unlabelled)
    if count is None:
        count = max(1, min(NUMBER, left))
    if count < 1:
        raise HebbsegError(f"-n {count}: allowed are numbers from 1 to {left}, the number of unlabelled images.")
    if left == 0:
        raise HebbsegError(
            f"{name}: there is no image to annotate, as all {len(candidates.labelled)} images outside the test set are "
            "labelled. Add images without masks."
        )
    if count > left:
        images = f"{left} unlabelled image" + ("s" if left > 1 else "")
        raise HebbsegError(f"-n {count}: {name} has only {images}. Request at most -n {left}.")
    return count


def next_images(
    source: Source,
    candidates: Candidates,
    count: int | None,
    *,
    criterion: str,
    descriptors: str,
    seed: int,
    reporter: Reporter,
    model: Predictor | None = None,
) -> list[Ranked]:
    """Return ``count`` unlabelled images in the order in which to annotate them. Reads no mask and no test image.

    Args:
        count: None for `NUMBER`, or all if there are fewer.
        criterion: a name in `hebbseg.planning.criteria.CRITERIA`; ``uncertainty`` needs a model.
        descriptors: a name in `hebbseg.runs.ranking.DESCRIPTORS`, or ``model``.
        seed: random seed of the descriptors and of the criterion ``random``.
    """
    cases = {case.id: case for case in (*candidates.unlabelled, *candidates.labelled)}
    if isinstance(source, FileSource):
        source = source.with_cases([cases[name] for name in sorted(cases)])
    used = {descriptors, *(["model"] if criterion == "uncertainty" else [])}
    stores = {name: _store(source, sorted(cases), name, model) for name in used}
    ids = _readable(source, sorted(cases), list(stores.values()), reporter)
    stores = {name: store.restricted_to(store.source, images=ids) for name, store in stores.items()}
    labelled = {case.id for case in candidates.labelled}
    count = check_count(count, replace(candidates, unlabelled=tuple(cases[n] for n in ids if n not in labelled)), source.name)
    uncertainties: list[float] = []
    found = None
    if "model" in stores:
        assert model is not None
        found = _of_model(model, stores["model"], uncertainties, reporter)
    if descriptors != "model":
        found = describe_images(stores[descriptors], descriptors, seed=seed, reporter=reporter)
    assert found is not None
    pool = Pool(
        names=ids,
        descriptors=found,
        groups=[cases[name].group for name in ids],
        labelled=tuple(i for i, name in enumerate(ids) if name in labelled),
        uncertainty=np.array(uncertainties) if uncertainties else None,
        seed=seed,
    )
    picks = rank_images(criterion, pool, count)
    counts = Counter(pool.groups[i] for i in pool.labelled)
    ranked = []
    for rank, pick in enumerate(picks, start=1):
        case = cases[ids[pick.index]]
        reason = pick.reason
        if case.group is not None:
            counts[case.group] += 1
            reason += f"; {_ordinal(counts[case.group])} of {case.group}"
        ranked.append(Ranked(rank=rank, case=case, score=pick.score, reason=reason))
    return ranked


def check_copies(ranked: Sequence[Ranked] | None, cases: Sequence[Case], folder: Path) -> None:
    """Raise unless the images of the cases are files, ``folder`` is writable and, once ranked, has no file of their names."""
    if not any(case.image for case in cases):
        raise HebbsegError("--copy-to: generated images have no files to copy. Use a data set of files.")
    refuse_unwritable(folder)
    if ranked is None:
        return
    targets = Counter(path.name for each in ranked for path in each.case.image)
    if twice := [name for name, number in targets.items() if number > 1]:
        raise HebbsegError(
            f"--copy-to {folder}: {targets[twice[0]]} of the images have the file name {twice[0]!r} in different folders. Use "
            "the column image of -o next.csv instead."
        )
    if there := sorted(name for name in targets if (folder / name).exists()):
        raise HebbsegError(
            f"--copy-to {folder}: {there[0]} already exists there ({len(there)} of {len(targets)} files). Choose another "
            "folder. Nothing was copied."
        )


def copy_images(ranked: Sequence[Ranked], folder: Path) -> int:
    """Copy the image files of the ranked cases to ``folder``; return their number."""
    check_copies(ranked, [each.case for each in ranked], folder)
    files = [path for each in ranked for path in each.case.image]
    for path in files:
        with replacing(folder / path.name) as temporary:
            shutil.copyfile(path, temporary)
    return len(files)


def hides_masks(settings: DataSettings) -> bool:
    """Return whether a run with these settings may have left masks of training images unused on purpose."""
    return Regime.parse(settings.labelled).share != 1


def _ordinal(number: int) -> str:
    return "first image" if number == 1 else f"image number {number}"


def _store(source: Source, names: Sequence[str], descriptors: str, model: Predictor | None) -> CaseStore:
    if descriptors != "model":
        return descriptor_store(source, names, descriptors)
    assert model is not None
    return CaseStore(source=fitting_source(source, model, masks=False), preprocessing=model.preprocessing, images=names)


def _readable(source: Source, names: Sequence[str], stores: Sequence[CaseStore], reporter: Reporter) -> list[str]:
    """Decode every image into the stores; return the names of those that can be read, and report the others."""
    if not isinstance(source, FileSource):
        return list(names)  # generated

    def keep(case: Case, image: Any, mask: Any) -> None:
        for store in stores:
            if store.source is source:
                store.keep(case, image, None)

    found = examine(source, masks=False, on_case=progress_of(reporter, "reading", len(source.cases)), keep=keep)
    usable = {case.id for case in found.usable}
    for fact in found.facts:
        if fact.case.id not in usable:
            for problem in fact.problems:
                reporter.say(f"left out: {problem}")
    return [name for name in names if name in usable]


def _of_model(model: Predictor, store: CaseStore, uncertainties: list[float], reporter: Reporter) -> np.ndarray:
    """Return descriptors of the images: features of the model's encoder. Appends the uncertainty of each prediction."""

    def forward(image: Tensor) -> None:
        uncertainties.append(uncertainty_of(model.probabilities_of_preprocessed(image)))

    images = (store.images([name])[0] for name in store.ids)
    done = progress_of(reporter, "predicting", len(store.ids))
    return feature_descriptors(model.network, images, layers=feature_layers(model.network), forward=forward, done=done)


def feature_layers(network: nn.Module) -> list[str]:
    """Return the levels of a UNet's encoder, or all convolutions of another network."""
    if isinstance(network, UNet):
        return [f"encoder.level{level}" for level in range(len(network.features_per_level))]
    return [name for name, module in network.named_modules() if isinstance(module, _ConvNd)]
