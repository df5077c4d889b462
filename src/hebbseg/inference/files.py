"""Masks, overlays and uncertainty maps of image files: which files are meant, where results go, one after the other."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from torch import Tensor

from hebbseg.atomic_files import replacing
from hebbseg.data.cases import Case, ClassInfo, DataError, Problem, Source
from hebbseg.data.io.formats import is_dicom, mask_suffix, read_image, stem_of, suffix_of, write_mask
from hebbseg.data.io.image_file import Image
from hebbseg.data.progress import Quiet, Reporter
from hebbseg.data.sources import open_source
from hebbseg.data.sources.archives import is_archive
from hebbseg.data.sources.listing import subfolders, visible
from hebbseg.errors import HebbsegError
from hebbseg.inference.large_tiff import is_large, predict_large, preview
from hebbseg.inference.predictor import Predictor
from hebbseg.inference.sliding_window import uncertainty

# An uncertainty map is written the way a mask is: level i of 255 is "class" i.
LEVELS = tuple(ClassInfo(index=level, value=level) for level in range(256))


@dataclass(frozen=True, kw_only=True)
class Input:
    """One image to predict. ``name`` is its place below the output folder; ``files`` is empty if it is generated."""

    name: str
    files: tuple[Path, ...]
    read: Callable[[], Image]
    suffix: str


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Where results go; ``streamed`` from disk to disk, because the image is large."""

    mask: Path
    overlay: Path | None
    uncertainty: Path | None
    streamed: bool = False

    @property
    def all(self) -> list[Path]:
        return [path for path in (self.mask, self.overlay, self.uncertainty) if path is not None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    masks: tuple[Path, ...]
    failures: tuple[str, ...]


def find_inputs(specs: Sequence[str], *, leave_out: Path | None = None) -> tuple[list[Input], list[Problem]]:
    """What the user means by files, folders and data sets; and what was found there but cannot be used.

    Args:
        specs: image files, folders, or anything `open_source` takes.
        leave_out: a folder of results that may lie among the images.
    """
    files = [Path(spec) for spec in specs if _is_one_image(Path(spec))]
    inputs = _of_files(files)
    problems: list[Problem] = []
    for spec in specs:
        if not _is_one_image(Path(spec)):
            source = open_source(spec)
            inputs += [_of_case(source, case) for case in source.cases if not _are_results(case, spec, leave_out)]
            problems += source.problems
    if not inputs:
        raise HebbsegError(f"{', '.join(specs)}: no image found. Give image files or a folder that holds some.")
    return inputs, problems


def plan(
    segmenters: Sequence[Predictor],
    inputs: Sequence[Input],
    out: Path,
    *,
    overlays: bool = True,
    uncertainty_maps: bool = True,
    overwrite: bool = False,
) -> list[Targets]:
    """Where everything goes; an error, before anything is written, if something is there already."""
    targets = [_targets(segmenters, each, out, overlays, uncertainty_maps) for each in inputs]
    originals = {path.resolve() for each in inputs for path in each.files}
    taken: dict[Path, Input] = {}
    for each, target in zip(inputs, targets, strict=True):
        for path in target.all:
            if path.resolve() in originals:
                raise HebbsegError(f"{path} is one of the images, and would be replaced by a mask. Choose another -o.")
            if path in taken:
                raise HebbsegError(
                    f"{_shown(each)} and {_shown(taken[path])} would both be written to {path}. Rename one of them, or "
                    "predict them into different folders."
                )
            taken[path] = each
    existing = [path for path in taken if path.exists()]
    if existing and not overwrite:
        raise HebbsegError(
            f"{out} has {len(existing)} of the results already, first {existing[0]}. Choose another -o, or say "
            "--overwrite; nothing was written."
        )
    return targets


def predict_files(
    segmenters: Sequence[Predictor],
    inputs: Sequence[Input],
    targets: Sequence[Targets],
    *,
    reporter: Reporter | None = None,
) -> Outcome:
    """Predicts one image after the other with the mean of all segmenters; a file that fails does not stop the rest."""
    check_ensemble(segmenters)
    reporter = reporter or Quiet()
    masks: list[Path] = []
    failures: list[str] = []
    for done, (each, target) in enumerate(zip(inputs, targets, strict=True), start=1):
        try:
            masks.append(_predict(segmenters, each, target, reporter))
        except (HebbsegError, OSError, RuntimeError, MemoryError) as error:
            message = str(error) or type(error).__name__
            failures.append(message if _shown(each) in message else f"{_shown(each)}: {message}")
            reporter.say(f"failed: {failures[-1]}")
        reporter.step("predict", done, len(inputs), {})
    return Outcome(masks=tuple(masks), failures=tuple(failures))


def check_ensemble(segmenters: Sequence[Predictor]) -> None:
    """Raises unless all segmenters tell the same classes apart in the same kind of image."""
    first = segmenters[0]
    for other in segmenters[1:]:
        for what, a, b in (
            ("classes", _classes(first), _classes(other)),
            ("spatial dimensions", first.spatial_dims, other.spatial_dims),
            ("order of axes", first.axes, other.axes),
        ):
            if a != b:
                raise HebbsegError(f"The models of an ensemble differ in {what}: {a} and {b}. Give models that agree.")


def mean_probabilities(segmenters: Sequence[Predictor], image: Image) -> Tensor:
    """(K, *S), the mean over segmenters."""
    total = segmenters[0].probabilities_of_file(image.array, image.axes)
    for segmenter in segmenters[1:]:
        total += segmenter.probabilities_of_file(image.array, image.axes)
    return total / len(segmenters)


def _predict(segmenters: Sequence[Predictor], each: Input, target: Targets, reporter: Reporter) -> Path:
    if target.streamed:
        picture = predict_large(
            segmenters,
            each.files[0],
            target.mask,
            uncertainty=target.uncertainty,
            report=lambda done, total: reporter.step(each.name, done, total, {}),
        )
    else:
        image = each.read()
        probabilities = mean_probabilities(segmenters, image)
        indices = probabilities.argmax(0).numpy().astype(np.uint8)
        if target.uncertainty is not None:
            doubt = (uncertainty(probabilities) * 255).round().byte().numpy()
            _write_uncertainty(target.uncertainty, doubt, image)
        picture = preview(image, indices) if target.overlay is not None else np.empty(0)
        write_mask(target.mask, indices, image, segmenters[0].classes)
    if target.overlay is not None:
        _write_png(target.overlay, picture)
    return target.mask


def _write_uncertainty(path: Path, doubt: np.ndarray, image: Image) -> None:
    if suffix_of(path) == ".png":
        _write_png(path, doubt.T if image.axes == "xyz" else doubt)
    else:
        write_mask(path, doubt, image, LEVELS)


def _targets(segmenters: Sequence[Predictor], each: Input, out: Path, overlays: bool, uncertainty_maps: bool) -> Targets:
    try:
        streamed = len(each.files) == 1 and is_large(each.files[0], segmenters)
    except HebbsegError:
        streamed = False  # damaged: reading it says so
    # No PNG holds a volume, and none of a picture that must be streamed can be written piece by piece.
    as_mask = segmenters[0].spatial_dims == 3 or streamed
    return Targets(
        mask=out / f"{each.name}{each.suffix}",
        overlay=out / "overlays" / f"{each.name}.png" if overlays else None,
        uncertainty=(out / "uncertainty" / f"{each.name}{each.suffix if as_mask else '.png'}" if uncertainty_maps else None),
        streamed=streamed,
    )


def _write_png(path: Path, picture: np.ndarray) -> None:
    with replacing(path) as temporary:
        Pillow.fromarray(picture).save(temporary)


def _is_one_image(path: Path) -> bool:
    return (path.is_file() and not is_archive(path)) or (path.is_dir() and _is_dicom_series(path))


def _is_dicom_series(folder: Path) -> bool:
    if subfolders(folder):
        return False
    files = [Path(entry.path) for entry in visible(folder)]
    return bool(files) and all(is_dicom(file) for file in files)


def _of_files(files: Sequence[Path]) -> list[Input]:
    if not files:
        return []
    common = Path(os.path.commonpath([file.resolve().parent for file in files]))
    inputs = []
    for file in files:
        place = file.resolve().parent.relative_to(common)
        name = (place / (stem_of(file) if file.is_file() else file.name)).as_posix()
        inputs.append(Input(name=name, files=(file,), read=_reading((file,)), suffix=mask_suffix(file)))
    return inputs


def _of_case(source: Source, case: Case) -> Input:
    if case.image:
        suffix = mask_suffix(case.image[0])
        return Input(name=case.id, files=case.image, read=_reading(case.image), suffix=suffix)
    suffix = ".png" if source.spatial_dims == 2 else ".tif"

    def generated() -> Image:
        return Image(array=source.image(case), path=Path(f"{case.id}{suffix}"), spacing_mm=case.spacing_mm)

    return Input(name=case.id, files=(), read=generated, suffix=suffix)


def _reading(files: tuple[Path, ...]) -> Callable[[], Image]:
    def read() -> Image:
        first, *others = [read_image(file) for file in files]
        if not others:
            return first
        for other in others:
            if other.shape != first.shape:
                raise DataError(other.path, f"size {other.shape}, but {first.path.name} has {first.shape}", "Mend it.")
        channels = np.concatenate([first.array, *(other.array for other in others)])
        return Image(array=channels, path=first.path, spacing_mm=first.spacing_mm, axes=first.axes, geometry=first.geometry)

    return read


def _are_results(case: Case, spec: str, results: Path | None) -> bool:
    """Whether a case lies in a folder of results that itself lies among the images."""
    if results is None or Path(spec).resolve().is_relative_to(results.resolve()):
        return False
    return any(file.resolve().is_relative_to(results.resolve()) for file in case.image)


def _shown(each: Input) -> str:
    return str(each.files[0]) if each.files else each.name


def _classes(segmenter: Predictor) -> list[tuple[str, object]]:
    return [(info.name, info.value) for info in segmenter.classes]
