"""Prediction of image files: inputs, output paths, masks, overlays and uncertainty maps."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

from hebbseg.atomic_files import replacing
from hebbseg.data.cases import Case, DataError, Problem, Source
from hebbseg.data.io.formats import FOLDERS, is_dicom, mask_suffix, read_image, stem_of, suffix_of, write_mask
from hebbseg.data.io.image_file import Image
from hebbseg.data.progress import Quiet, Reporter
from hebbseg.data.resampling import resized_classes
from hebbseg.data.sources import open_source
from hebbseg.data.sources.archives import is_archive
from hebbseg.data.sources.listing import subfolders, visible
from hebbseg.errors import HebbsegError
from hebbseg.inference.ensemble import check_ensemble, mean_probabilities
from hebbseg.inference.large_images import LEVELS, is_large, predict_large, preview
from hebbseg.inference.object_files import ObjectFiles
from hebbseg.inference.objects import merged_border
from hebbseg.inference.overlap import overlapped
from hebbseg.inference.predictor import Predictor
from hebbseg.inference.probability_files import write_probabilities
from hebbseg.inference.sliding_window import uncertainty

_Job = tuple["Input", "Targets"]
PNG_LEVEL = 1  # of overlays and uncertainty maps: the fastest; a higher one would take most of the time


@dataclass(frozen=True, kw_only=True)
class Input:
    """One image to predict: ``name`` is its path below the output folder, ``level`` that of the pyramid.

    ``files`` is empty for generated images.
    """

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Image]
    suffix: str
    level: int = 0


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Output paths of one image. ``streamed``: the image is large and predicted from disk to disk."""

    mask: Path
    overlay: Path | None
    uncertainty: Path | None
    streamed: bool = False
    probabilities: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    masks: tuple[Path, ...]
    failures: tuple[str, ...]


def find_inputs(specs: Sequence[str], *, leave_out: Path | None = None) -> tuple[list[Input], list[Problem]]:
    """Return the images to predict and the problems found while listing them.

    Args:
        specs: image files, folders, or anything `open_source` accepts.
        leave_out: a folder of results inside a folder of images.
    """
    inputs = _of_files([Path(spec) for spec in specs if _is_one_image(Path(spec))])
    problems: list[Problem] = []
    for spec in specs:
        if not _is_one_image(Path(spec)):
            source = open_source(spec, masks="none")
            inputs += [_of_case(source, case) for case in source.cases if not _are_results(case, spec, leave_out)]
            problems += source.problems
    if not inputs:
        raise HebbsegError(f"{', '.join(specs)}: no image found. Pass image files, or a folder that contains images.")
    return inputs, problems


def plan(
    segmenters: Sequence[Predictor],
    inputs: Sequence[Input],
    out: Path,
    *,
    overlays: bool = True,
    uncertainty_maps: bool = True,
    objects: ObjectFiles | None = None,
    overwrite: bool = False,
) -> list[Targets]:
    """Return the output paths. Raises, before anything is written, if a file would be overwritten.

    Args:
        objects: has further output paths.
    """
    targets = [_targets(segmenters, each, out, overlays, uncertainty_maps) for each in inputs]
    originals = {path.resolve() for each in inputs for path in each.files}
    taken: dict[Path, Input] = {}
    for each, target in zip(inputs, targets, strict=True):
        of_objects = objects.targets(each.name, each.suffix) if objects else ()
        for path in filter(None, (target.mask, target.overlay, target.uncertainty, *of_objects)):
            if path.resolve() in originals:
                raise HebbsegError(f"{path} is an input image and would be overwritten by a mask. Choose another -o.")
            if path in taken:
                raise HebbsegError(
                    f"{_shown(each)} and {_shown(taken[path])} would both be written to {path}. Rename one of them, or "
                    "write them to different folders."
                )
            taken[path] = each
    existing = [path for path in (*taken, *(objects.tables if objects else ())) if path.exists()]
    if existing and not overwrite:
        raise HebbsegError(
            f"{out} already contains {len(existing)} of the results, first {existing[0]}. Choose another -o, or pass "
            "--overwrite. Nothing was written."
        )
    return targets


def predict_files(
    segmenters: Sequence[Predictor],
    inputs: Sequence[Input],
    targets: Sequence[Targets],
    *,
    objects: ObjectFiles | None = None,
    reporter: Reporter | None = None,
) -> Outcome:
    """Predict every image with the mean of all segmenters; a failed image does not stop the others.

    The next image is read and the previous one written meanwhile.
    """
    check_ensemble(segmenters)
    reporter = reporter or Quiet()
    masks: list[Path] = []
    failures: list[str] = []
    jobs = list(zip(inputs, targets, strict=True))
    outcomes = overlapped(
        jobs,
        read=lambda job: None if job[1].streamed else job[0].read(),
        compute=lambda job, image: _compute(segmenters, job, image, objects, reporter),
        write=lambda job, ready: _write(*job, ready, segmenters[0], objects),
    )
    with closing(outcomes):
        for done, ((each, _), outcome) in enumerate(zip(jobs, outcomes, strict=True), start=1):
            try:
                masks.append(outcome.result())
            except (HebbsegError, OSError, RuntimeError, MemoryError) as error:
                message = str(error) or type(error).__name__
                failures.append(message if _shown(each) in message else f"{_shown(each)}: {message}")
                reporter.say(f"failed: {failures[-1]}")
            reporter.step("predict", done, len(inputs), {})
    return Outcome(masks=tuple(masks), failures=tuple(failures))


@dataclass(frozen=True, kw_only=True)
class _Predicted:
    """What is written for one image; a streamed one is written already, but for its overlay, the ``picture``.

    ``outputs`` are class probabilities (K, *S), with the border as last class if the models have learned it.
    """

    image: Image | None = None
    indices: np.ndarray | None = None
    outputs: np.ndarray | None = None
    probabilities: np.ndarray | None = None
    levels: np.ndarray | None = None
    picture: np.ndarray | None = None


def _compute(
    segmenters: Sequence[Predictor], job: _Job, image: Image | None, objects: ObjectFiles | None, reporter: Reporter
) -> _Predicted:
    each, target = job
    if image is None:
        picture = predict_large(
            segmenters,
            each.files[0],
            target.mask,
            level=each.level,
            uncertainty=target.uncertainty,
            further=None if objects is None else partial(objects.write_large, each.name, each.suffix, segmenter=segmenters[0]),
            report=lambda done, total: reporter.step(each.name, done, total, {}),
        )
        return _Predicted(picture=picture)
    if (unknown := segmenters[0].not_stated(image)) is not None:
        reporter.say(f"note: {_shown(each)} has no {unknown}; it is taken to be that of the training images")
    outputs = mean_probabilities([segmenter.with_border_class for segmenter in segmenters], image)
    probabilities = merged_border(outputs) if segmenters[0].borders else outputs
    levels = None if target.uncertainty is None else (uncertainty(probabilities) * 255).round().byte().numpy()
    indices = resized_classes(probabilities, probabilities.shape[1:]).numpy()  # faster than argmax over the first axis
    kept = None if target.probabilities is None else probabilities.numpy()
    return _Predicted(image=image, indices=indices, outputs=outputs.numpy(), probabilities=kept, levels=levels)


def _write(each: Input, target: Targets, ready: _Predicted, segmenter: Predictor, objects: ObjectFiles | None) -> Path:
    picture = ready.picture
    if ready.image is not None and ready.indices is not None and ready.outputs is not None:
        labels = objects.write(each.name, each.suffix, ready.image, ready.outputs, segmenter) if objects else ready.indices
        if target.probabilities is not None and ready.probabilities is not None:
            write_probabilities(target.probabilities, ready.probabilities, ready.image)
        if target.uncertainty is not None and ready.levels is not None:
            _write_uncertainty(target.uncertainty, ready.levels, ready.image)
        picture = preview(ready.image, labels) if target.overlay is not None else None
        write_mask(target.mask, ready.indices, ready.image, segmenter.classes)
    if target.overlay is not None and picture is not None:
        _write_png(target.overlay, picture)
    return target.mask


def _write_uncertainty(path: Path, levels: np.ndarray, image: Image) -> None:
    if suffix_of(path) == ".png":
        _write_png(path, levels.T if image.axes == "xyz" else levels)
    else:
        write_mask(path, levels, image, LEVELS)


def _targets(segmenters: Sequence[Predictor], each: Input, out: Path, overlays: bool, uncertainty_maps: bool) -> Targets:
    try:
        streamed = len(each.files) == 1 and is_large(each.files[0], segmenters, each.level)
    except HebbsegError:
        streamed = False  # damaged: reading it reports the error
    # A PNG cannot contain a volume and cannot be written in tiles.
    as_mask = segmenters[0].spatial_dims == 3 or streamed
    return Targets(
        mask=out / f"{each.name}{each.suffix}",
        overlay=out / "overlays" / f"{each.name}.png" if overlays else None,
        uncertainty=out / "uncertainty" / f"{each.name}{each.suffix if as_mask else '.png'}" if uncertainty_maps else None,
        streamed=streamed,
    )


def _write_png(path: Path, picture: np.ndarray) -> None:
    with replacing(path) as temporary:
        Pillow.fromarray(picture).save(temporary, compress_level=PNG_LEVEL)


def _is_one_image(path: Path) -> bool:
    """Return whether the path is an image file or a folder of DICOM slices."""
    if suffix_of(path) in FOLDERS and path.is_dir():
        return True
    if not path.is_dir() or subfolders(path):
        return path.is_file() and not is_archive(path)
    files = [Path(entry.path) for entry in visible(path)]
    return bool(files) and all(is_dicom(file) for file in files)


def _of_files(files: Sequence[Path]) -> list[Input]:
    if not files:
        return []
    common = Path(os.path.commonpath([file.resolve().parent for file in files]))
    inputs = []
    for file in files:
        place = file.resolve().parent.relative_to(common)
        name = (place / (stem_of(file) if file.is_file() or suffix_of(file) in FOLDERS else file.name)).as_posix()
        inputs.append(Input(name=name, files=(file,), read=partial(read_image, file), suffix=mask_suffix(file)))
    return inputs


def _of_case(source: Source, case: Case) -> Input:
    if case.image:
        read = partial(_read_channels, case.image)
        return Input(name=case.id, files=case.image, read=read, suffix=mask_suffix(case.image[0]))
    suffix = ".png" if source.spatial_dims == 2 else ".tif"

    def generated() -> Image:
        return Image(array=source.image(case), path=Path(f"{case.id}{suffix}"), spacing_mm=case.spacing_mm)

    return Input(name=case.id, files=(), read=generated, suffix=suffix)


def _read_channels(files: tuple[Path, ...]) -> Image:
    """Read an image whose channels are one or more files."""
    images = [read_image(file) for file in files]
    first = images[0]
    if len(images) == 1:
        return first
    for other in images[1:]:
        if other.shape != first.shape:
            remedy = "All channels of an image must have the same size."
            raise DataError(other.path, f"size {other.shape}, but {first.path.name} has {first.shape}", remedy)
    channels = np.concatenate([image.array for image in images])
    return replace(first, array=channels)


def _are_results(case: Case, spec: str, results: Path | None) -> bool:
    """Return whether a case is in a folder of results inside the folder of images."""
    if results is None or Path(spec).resolve().is_relative_to(results.resolve()):
        return False
    return any(file.resolve().is_relative_to(results.resolve()) for file in case.image)


def _shown(each: Input) -> str:
    return str(each.files[0]) if each.files else each.name
