"""Checks that need no decoded image: settings, file names and headers."""

from pathlib import Path

import torch

from hebbseg.config import FLAT_NAMES, Settings
from hebbseg.config.pretrain import PRETEXT
from hebbseg.data.cases import IGNORE, Source
from hebbseg.data.io.image_file import Header
from hebbseg.data.patches import PATCH_3D
from hebbseg.data.preprocessing import SIZE_2D
from hebbseg.data.progress import Reporter, counted
from hebbseg.data.sources.files import FileSource
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.methods import check_method
from hebbseg.networks.factory import UNET, build_network, called_layers, default_options, find_factory
from hebbseg.pretraining.hebbian import make_rule
from hebbseg.pretraining.initializers import check_init, check_weights, is_initializer
from hebbseg.pretraining.pretext import check_pretext
from hebbseg.runs.context import network_options
from hebbseg.runs.dataset import Dataset, draw_split, for_all_axes
from hebbseg.runs.true_space import check_resampled, check_spacing
from hebbseg.training.tensorboard import require_tensorboard

ANY_SIZE = (61, 47, 37)  # stands for images that are neither resized nor cropped: odd sides, as some will have


def check_settings(settings: Settings) -> None:
    """Check everything that depends on the settings alone."""
    network = settings.network.name
    check_method(settings.finetune.method, settings.finetune.method_options, network=network)
    check_init(settings.pretrain.init, settings.pretrain.init_options, network=network)
    if settings.pretrain.init in PRETEXT:
        check_pretext(settings.pretrain)
    check_network(settings)
    make_rule(settings.pretrain)
    if settings.hardware.tensorboard:
        require_tensorboard()


def check_network(settings: Settings) -> None:
    """Check that the network exists and reads every network setting that was given."""
    chosen = settings.network
    if chosen.name == UNET:
        if chosen.options:
            raise HebbsegError("network_options: the UNet has none. Set features, norm or dropout instead.")
        return
    find_factory(chosen.name)
    unread = dict.fromkeys(("norm", "dropout", "strides", "kernels"), "network_options")
    unread |= {"part": "layers", "levels": "layers"}
    if not default_options(chosen.name, chosen.features):
        unread["features"] = "network_options"
    given = settings.flat()
    for name, remedy in unread.items():
        default = FLAT_NAMES[name][2].default
        if given[name] != (list(default) if isinstance(default, tuple) else default):
            raise HebbsegError(f"{name}: only the UNet has this setting, but network={chosen.name}. Set {remedy} instead.")


def _check_forward(settings: Settings, source: Source) -> None:
    """Build the network and check its output at the training size, as far as that is known."""
    network = build_network(**network_options(settings, source, classes=2), seed=settings.seed)
    dims = source.spatial_dims
    sides = [sides for sides in (settings.data.patch, settings.data.size) if isinstance(sides, tuple)]
    if settings.data.patch == "auto" and dims == 3:
        sides.insert(0, PATCH_3D)
    elif settings.data.size == "auto" and dims == 2:
        sides.append(SIZE_2D)
    size = for_all_axes(sides[0] if sides else ANY_SIZE[:dims], dims)
    called_layers(network, torch.zeros(2, source.channels, *size), name=settings.network.name, out_channels=2)


def _check_small(settings: Settings, source: Source) -> None:
    """Raise if the norm layers of the UNet cannot train on an image, as a level would have a single value per channel."""
    data, dims, levels = settings.data, source.spatial_dims, len(settings.network.features)
    if isinstance(data.size, tuple):
        sizes = {data.size * dims if len(data.size) == 1 else data.size}
    elif data.size == "auto" and dims == 2:
        return
    else:
        headers = source.headers.values() if isinstance(source, FileSource) else ()
        sizes = {header.shape for header in headers if isinstance(header, Header)}
    if isinstance(data.patch, tuple):
        patch = data.patch * dims if len(data.patch) == 1 else data.patch
        sizes = {tuple(min(a, b) for a, b in zip(size, patch, strict=True)) for size in sizes}
    small = [size for size in sizes if max(size) <= 2 ** (levels - 1)]
    if not small:
        return
    network = build_network(**network_options(settings, source, classes=2), seed=settings.seed)
    try:
        network.train()(torch.zeros(1, source.channels, *min(small)))
    except ValueError as error:
        raise HebbsegError(
            f"{source.name}: an image of {'×'.join(map(str, min(small)))} pixels is too small for a UNet of {levels} levels "
            f"with norm={settings.network.norm} ({error}). Use larger images or a larger size, or fewer features."
        ) from error


def check_listed(settings: Settings, source: Source, *, labelled: bool = True) -> Split:
    """Check everything that depends on file names and headers; return the split, valid if all files can be read.

    Args:
        labelled: the run needs labelled training images.
    """
    dims = source.spatial_dims
    check_spacing(settings.data)
    for name, sides in (("size", settings.data.size), ("spacing", settings.data.spacing), ("patch", settings.data.patch)):
        if isinstance(sides, tuple) and len(sides) not in (1, dims):
            given = ("," if name == "spacing" else "x").join(map(str, sides))
            raise HebbsegError(
                f"{name}={given}: {len(sides)} numbers, but the images of {source.name} are {dims}D. "
                f"Give {dims} numbers, or one for all axes."
            )
    try:
        split = draw_split(settings, source)
        if labelled:
            require_labelled(settings, split)
    except HebbsegError as error:
        if not source.problems:
            raise
        # Masks that match no image are often the cause.
        raise HebbsegError(
            f"{error}\nFound {counted(len(source.problems), 'problem')} with the files; `hebbseg check` lists all. "
            f"First: {source.problems[0]}"
        ) from error
    return split


def check_planned(settings: Settings, source: Source) -> None:
    """Check that the network fits the planned size, initial weights the network, and resampled images the limits."""
    check_resampled(settings.data, source)
    if settings.network.name != UNET:
        _check_forward(settings, source)
    else:
        _check_small(settings, source)
    if not is_initializer(settings.pretrain.init):
        check_weights(Path(settings.pretrain.init), network_options(settings, source, classes=2))


def require_labelled(settings: Settings, split: Split) -> None:
    if not split.training.labelled:
        raise HebbsegError(
            f"{settings.data.source}, labelled={settings.data.labelled}: no training case has a usable mask, so there is "
            "nothing to fine-tune on. Pre-train on the images alone with `hebbseg pretrain`, or add masks (`hebbseg check` "
            "shows where they are expected)."
        )


def require_annotated(dataset: Dataset, split: Split) -> None:
    """Raise if resizing has removed every annotated pixel of a mask that the run uses, or if borders would be guessed."""
    training = split.training
    partial = [name for name in training.labelled if dataset.store.annotated(name) is not None]
    if dataset.store.borders and partial:
        raise HebbsegError(
            f"borders: the masks of {len(partial)} labelled case(s), such as {partial[0]!r}, are not annotated everywhere, so "
            "the outlines of their objects are unknown. Remove --borders, or annotate these masks fully."
        )
    for role, names in (("labelled", training.labelled), ("validation", training.validation)):
        points = {name: dataset.store.annotated(name) for name in names}
        lost = [name for name, found in points.items() if found is not None and not len(found)]
        if lost:
            size = "×".join(map(str, dataset.store.mask(lost[0]).shape))
            raise HebbsegError(
                f"{dataset.source.name}: at the working size {size}, no annotated pixel is left in the mask of {len(lost)} "
                f"{role} case(s), such as {lost[0]!r}. Use a larger size (--size), annotate more of these images, or remove "
                "their masks."
            )


def warn_of_single_class(dataset: Dataset, split: Split, reporter: Reporter) -> None:
    """Say if the labelled masks show one class only: a few that are drawn can, and training from them learns nothing."""
    found: set[int] = set()
    for name in split.training.labelled:
        if dataset.store.is_large(name):
            return
        found |= set(dataset.store.mask(name).unique().tolist()) - {IGNORE}
        if len(found) > 1:
            return
    if found:
        only = dataset.source.classes[found.pop()]
        count = counted(len(split.training.labelled), "labelled training image")
        reporter.say(
            f"warning: the masks of {count} show only {only.name or only.value}, so there is nothing to learn from them. Check "
            "the masks with `hebbseg check`, or label other images (another --seed draws others)."
        )


def require_classes(settings: Settings, source: Source) -> None:
    if settings.data.borders and len(source.classes) > 2:
        raise HebbsegError(
            f"--borders: the masks of {settings.data.source} have {len(source.classes) - 1} foreground classes, but borders "
            "can be learned for one class of objects only. Remove --borders, or pass --instances if the values number objects."
        )
    if len(source.classes) < 2:
        only = source.classes[0]
        raise HebbsegError(
            f"{settings.data.source}: the masks contain only one class ({only.name or only.value}), so there is nothing to "
            "segment. Check that these are the right masks; `hebbseg check` shows what was read."
        )
