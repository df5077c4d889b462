"""The plan of a run: every setting that follows from the data, with the reason for its value."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from hebbseg.config import AUTO_BATCH, PRETRAIN_BATCH, UNLIMITED_UPDATES, Settings
from hebbseg.config.fields import Section, as_levels
from hebbseg.data.io.tiles import LARGE_PIXELS
from hebbseg.data.patches import PATCH_3D
from hebbseg.data.progress import counted
from hebbseg.networks.factory import UNET
from hebbseg.planning.fingerprint import Fingerprint
from hebbseg.planning.round_trip import LEAST_DICE, MULTIPLE, SHORT_SIDES, candidate_sizes
from hebbseg.planning.true_space import factors, plans_geometry, resampled_median, resampling, unet_geometry

PATCH_2D = (256, 256)
VOXELS_CPU = 48**3  # a patch of 96x96x80 takes eight seconds per update on a core (studies/update_cost.py)
WHOLE_PIXELS = 2**17  # larger images are trained in patches
SIZE_RATIO = 3.0  # images that differ more in size are not resized to one size
DEEPEST = 4  # pixels along a side of the deepest feature map
THIN = 3  # an axis of a volume shorter than a third of the longest does not limit the depth
FEWEST = 2  # images per batch
PIXELS = {2: 128 * 128, 3: prod(PATCH_3D)}  # of an image or patch for which AUTO_BATCH holds
GIVEN = "given"
OF_PARENT = "as in the earlier run"

Value = tuple[int, ...] | tuple[float, ...] | int | str | None


class Choice(Section):
    """A planned value and its reason; ``given``: set by the user, a preset or a recipe."""

    value: Value
    reason: str
    given: bool = False

    @property
    def text(self) -> str:
        if isinstance(self.value, tuple):
            return ",".join(f"{part:g}" for part in self.value)
        return "none" if self.value is None else str(self.value)


class Plan(Section):
    """The planned settings, by flat name, and the fingerprint they follow from.

    The choice "spacing" is that of what the network sees; ``resampled_to``, in mm, is given if images are resampled to it.
    """

    fingerprint: Fingerprint
    choices: dict[str, Choice]
    resampled_to: tuple[float, ...] | None = None

    def applied_to(self, settings: Settings) -> Settings:
        """Return the settings with the planned values where the user gave none."""
        names = ("size", "patch", "features", "strides", "kernels", "labelled_batch", "unlabelled_batch", "pretrain_batch")
        choices = {name: self.choices[name] for name in names if name in self.choices}
        planned: dict[str, Any] = {name: choice.value for name, choice in choices.items() if not choice.given}
        planned |= {name: as_levels(planned[name]) for name in ("strides", "kernels") if name in planned}
        planned |= {} if self.resampled_to is None else {"spacing": self.resampled_to}
        return settings.changed(**planned)

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Yield (name, value, reason) of each choice; the batch sizes share a line."""
        for name, choice in self.choices.items():
            if name == "labelled_batch":
                other = self.choices["unlabelled_batch"]
                reasons = choice.reason if choice.reason == other.reason else f"{choice.reason}; {other.reason}"
                yield "batch", f"{choice.text} labelled + {other.text} unlabelled", reasons
            elif name not in ("unlabelled_batch", "pretrain_batch"):
                text = choice.text.replace(",", "x") if name in ("size", "patch") else choice.text
                yield name, text, choice.reason


def make_plan(settings: Settings, found: Fingerprint, *, precision: str, gpu: bool = False) -> Plan:
    """Return the plan of a run.

    Args:
        precision: what the setting ``precision`` stands for on this machine.
        gpu: a GPU is used, so volumes are trained in larger patches.
    """
    target, why = resampling(settings, found)
    seen = found if target is None else resampled_median(found, target)
    size, patch = _size_and_patch(settings, seen, prod(PATCH_3D) if gpu else VOXELS_CPU, resampled=target is not None)
    working = _working_size(size, patch, seen)
    spacing = _spacing(size, found, why) if target is None else Choice(value=target, reason=why)
    choices = {
        "size": size,
        "patch": patch,
        "spacing": spacing.model_copy(update={"given": settings.data.spacing != "auto"}),
        **_network(settings, seen, working, spacing.value),
        **_batches(settings, found, working),
        "updates": _updates(settings),
        "precision": Choice(
            value=precision,
            reason=GIVEN if settings.finetune.precision != "auto" else "fastest that this device computes in hardware",
            given=settings.finetune.precision != "auto",
        ),
    }
    if settings.pretrain.from_run is not None:  # the network and what it sees are not a choice of this run
        for name in ("size", "patch", "features"):
            if choices[name].given:
                choices[name] = choices[name].model_copy(update={"reason": OF_PARENT})
    return Plan(fingerprint=found, choices=choices, resampled_to=target)


def _size_and_patch(settings: Settings, found: Fingerprint, voxels: int, *, resampled: bool) -> tuple[Choice, Choice]:
    data, dims = settings.data, found.spatial_dims
    if isinstance(data.size, tuple) or data.size == "native":
        size = Choice(value=_for_all_axes(data.size, dims), reason=GIVEN, given=True)
    elif resampled:
        size = Choice(value="native", reason="images are resampled to a common spacing instead")
    elif dims == 3:
        size = Choice(value="native", reason="volumes are not resized")
    elif isinstance(data.patch, tuple):
        size = Choice(value="native", reason="patches are cut from images that are not resized")
    else:
        size = _size_2d(found, patches=data.patch != "none")
    if data.patch != "auto":
        return size, Choice(value=_for_all_axes(data.patch, dims), reason=GIVEN, given=True)
    return size, _patch(size, found, voxels)


def _size_2d(found: Fingerprint, *, patches: bool) -> Choice:
    """Return the working size of images; ``patches``: False if the user excluded them."""
    if patches and prod(found.median_size) > LARGE_PIXELS:
        return Choice(value="native", reason="patches of images of more than 4096x4096 pixels are read from their files")
    candidates = candidate_sizes(found.median_size, found.aspect)
    if patches and (not candidates or found.size_ratio > SIZE_RATIO):
        reason = f"sides differ by a factor of {found.size_ratio:.3g}, too much to resize all images to one size"
        return Choice(value="native", reason=reason if candidates else "images are too large and narrow to resize")
    if not candidates:
        return Choice(value=tuple(_multiple(min(side, PATCH_2D[0])) for side in found.median_size), reason="patch=none")
    if not found.round_trips:
        return Choice(
            value=candidates[0],
            reason=f"no labelled mask shows how much detail is needed, so the short side has {SHORT_SIDES[0]} pixels",
        )
    last = found.round_trips[-1]
    if last.dice >= LEAST_DICE:
        smaller = found.round_trips[-2] if len(found.round_trips) > 1 else None
        other = "the smallest size tried" if smaller is None else f"{smaller.dice:.3f} at {_times(smaller.size)}"
        enlarged = "; smaller images are enlarged" if min(found.median_size) < SHORT_SIDES[0] else ""
        return Choice(
            value=last.size,
            reason=f"masks scaled to this size and back keep a Dice of {last.dice:.3f} ({other}){enlarged}",
        )
    lost = f"masks scaled to {_times(last.size)} and back keep a Dice of only {last.dice:.3f}, below {LEAST_DICE}"
    if patches:
        return Choice(value="native", reason=lost)
    return Choice(value=last.size, reason=f"{lost}, but patch=none")


def _patch(size: Choice, found: Fingerprint, voxels: int) -> Choice:
    if found.spatial_dims == 3:
        whole = found.median_size if size.value == "native" else size.value
        assert isinstance(whole, tuple)
        largest = tuple(min(wanted, int(side)) for wanted, side in zip(PATCH_3D, whole, strict=True))
        patch = _within(largest, voxels)
        if patch != largest:
            return Choice(value=patch, reason=f"volumes are trained in patches of at most {voxels:,} voxels without a GPU")
        limited = "" if patch == PATCH_3D else ", limited to the median size"
        return Choice(value=patch, reason=f"volumes are trained in patches of {_times(PATCH_3D)}{limited}")
    if isinstance(size.value, tuple):
        height, width = (int(side) for side in size.value)
        if size.given or height * width <= WHOLE_PIXELS:
            return Choice(value="none", reason="whole images fit a batch")
        patch = tuple(min(wanted, side) for wanted, side in zip(PATCH_2D, (height, width), strict=True))
        return Choice(value=patch, reason=f"images of more than {WHOLE_PIXELS:,} pixels are trained in patches")
    if found.one_size and size.given and prod(found.median_size) <= WHOLE_PIXELS:
        return Choice(value="none", reason="whole images fit a batch")
    patch = tuple(_multiple(min(wanted, side)) for wanted, side in zip(PATCH_2D, found.median_size, strict=True))
    limited = "" if patch == PATCH_2D else f" (at most {_times(PATCH_2D)}, limited to the median size)"
    return Choice(value=patch, reason=f"images that are not resized are trained in patches{limited}")


def _within(sides: Sequence[int], voxels: int) -> tuple[int, ...]:
    """Return the sides, the longer ones shortened to about the same multiple of 8 so that their product is within a limit."""
    kept: dict[int, int] = {}
    for axis in sorted(range(len(sides)), key=sides.__getitem__):
        equal = (voxels // prod(kept.values())) ** (1 / (len(sides) - len(kept))) + 1e-6
        kept[axis] = sides[axis] if sides[axis] <= equal else max(8, int(equal) // 8 * 8)
    return tuple(kept[axis] for axis in range(len(sides)))


def _working_size(size: Choice, patch: Choice, found: Fingerprint) -> tuple[int, ...]:
    """Return the size of what the network sees in an update."""
    for value in (patch.value, size.value, found.median_size):
        if isinstance(value, tuple):
            return tuple(int(side) for side in value)
    raise AssertionError("the median size is a tuple")


def _spacing(size: Choice, found: Fingerprint, why: str) -> Choice:
    """Return the median spacing of images that are not resampled to a spacing."""
    if found.spacing_mm is None:
        return Choice(value=None, reason=why)
    if isinstance(size.value, tuple):
        scale = (old / int(new) for old, new in zip(found.median_size, size.value, strict=True))
        spacing = tuple(round(mm * factor, 4) for mm, factor in zip(found.spacing_mm, scale, strict=True))
        return Choice(value=spacing, reason="median in mm, after resizing")
    return Choice(value=tuple(round(mm, 4) for mm in found.spacing_mm), reason=f"median in mm; {why}")


def _network(settings: Settings, found: Fingerprint, working: Sequence[int], spacing: Value) -> dict[str, Choice]:
    """Return the features, and strides and kernels for anisotropic voxels."""
    network = settings.network
    follows = plans_geometry(settings) and isinstance(spacing, tuple)
    steps = spacing if follows and isinstance(spacing, tuple) else (1,) * len(working)
    features, levels = _features(settings, found, working, steps), len(network.features)
    if isinstance(features.value, tuple):
        levels = len(features.value)
    geometry = unet_geometry(steps, levels)
    if geometry is None:
        return {"features": features}
    ratio = max(steps) / min(steps)
    reasons = f"voxels are {ratio:.3g} times as long as wide", "no kernel across the coarse axis until then"
    values = zip(("strides", "kernels"), geometry, reasons, strict=True)
    return {"features": features} | {
        name: Choice(value=",".join(map(_times, value)), reason=reason) for name, value, reason in values
    }


def _features(settings: Settings, found: Fingerprint, working: Sequence[int], spacing: Sequence[float]) -> Choice:
    network = settings.network
    if network.name != UNET or settings.preset != "hebbseg" or "features" in network.model_fields_set:
        return Choice(value=network.features, reason=GIVEN, given=True)
    longest = max(working)
    thick = [found.spatial_dims == 2 or side * THIN >= longest for side in working]
    levels = len(network.features)

    def too_deep() -> bool:
        sides = zip(working, factors(spacing, levels), thick, strict=True)
        return any(side < DEEPEST * n for side, n, limits in sides if limits)

    # Stage 1 must keep a level to train.
    while levels > 2 and too_deep() and settings.pretrain.layers(levels - 1) != ():
        levels -= 1
    deepest = _times([-(-side // n) for side, n in zip(working, factors(spacing, levels), strict=True)])
    cut = f"{levels} of {len(network.features)} levels" if levels < len(network.features) else f"{levels} levels"
    return Choice(value=network.features[:levels], reason=f"{cut}: the deepest feature map has {deepest} pixels")


def _batches(settings: Settings, found: Fingerprint, working: Sequence[int]) -> dict[str, Choice]:
    default, pixels = AUTO_BATCH[found.spatial_dims], prod(working)
    batch = max(FEWEST, min(default, default * PIXELS[found.spatial_dims] // pixels))
    reason = "the default" if batch == default else f"no more pixels per update than {default} images of 128x128"
    if batch < default and batch * pixels > default * PIXELS[found.spatial_dims]:
        reason = "the smallest batch, as the images are large"
    given = {
        "labelled_batch": settings.finetune.labelled_batch,
        "unlabelled_batch": settings.finetune.unlabelled_batch,
    }
    choices = {
        name: Choice(value=batch, reason=reason) if value == "auto" else Choice(value=value, reason=GIVEN, given=True)
        for name, value in given.items()
    }
    stage1 = settings.pretrain.batch
    if stage1 != "auto":
        return choices | {"pretrain_batch": Choice(value=stage1, reason=GIVEN, given=True)}
    most = PRETRAIN_BATCH[found.spatial_dims]
    value = max(FEWEST, min(most, most * PIXELS[found.spatial_dims] // pixels))
    return choices | {"pretrain_batch": Choice(value=value, reason="as for stage 2, without gradients")}


def _updates(settings: Settings) -> Choice:
    finetune = settings.finetune
    limit = "" if finetune.time_budget_s is None else f"; the time budget of {finetune.time_budget_s:g} s may end it earlier"
    if finetune.epochs is not None:
        return Choice(value=counted(finetune.epochs, "epoch"), reason=GIVEN + limit, given=True)
    if finetune.updates == UNLIMITED_UPDATES:
        return Choice(value="as many as fit", reason=f"into the time budget of {finetune.time_budget_s:g} s")
    given = "updates" in finetune.model_fields_set
    return Choice(value=finetune.updates, reason=(GIVEN if given else "the default") + limit, given=given)


def _for_all_axes(sides: Any, dims: int) -> Any:
    return sides * dims if isinstance(sides, tuple) and len(sides) == 1 else sides


def _multiple(side: int) -> int:
    return max(MULTIPLE, side // MULTIPLE * MULTIPLE)


def _times(sides: Sequence[float]) -> str:
    return "x".join(f"{side:g}" for side in sides)
