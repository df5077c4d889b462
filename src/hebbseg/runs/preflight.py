"""Every error that can be found before images are decoded."""

from pathlib import Path

from hebbseg.config import Settings
from hebbseg.data.cases import Source
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.methods import check_method
from hebbseg.pretraining.hebbian import make_rule
from hebbseg.pretraining.initializers import check_init, check_weights, is_initializer
from hebbseg.runs.context import network_options
from hebbseg.runs.dataset import draw_split
from hebbseg.training.tensorboard import require_tensorboard


def check_settings(settings: Settings) -> None:
    """What can be found from the settings alone."""
    check_method(settings.finetune.method, settings.finetune.method_options)
    check_init(settings.pretrain.init, settings.pretrain.init_options)
    make_rule(settings.pretrain)
    if settings.hardware.tensorboard:
        require_tensorboard()


def check_listed(settings: Settings, source: Source, *, labelled: bool = True) -> Split:
    """What can be found from the names and headers of files; returns the split if all of them can be read.

    Args:
        labelled: the run needs labelled training images.
    """
    dims = source.spatial_dims
    for name, sides in (("size", settings.data.size), ("patch", settings.data.patch)):
        if isinstance(sides, tuple) and len(sides) not in (1, dims):
            raise HebbsegError(
                f"{name}={'x'.join(map(str, sides))}: {len(sides)} numbers, but the images of {source.name} are {dims}D. "
                f"Give {dims} numbers, or one for all axes."
            )
    if not is_initializer(settings.pretrain.init):
        check_weights(Path(settings.pretrain.init), network_options(settings, source, classes=2))
    try:
        split = draw_split(settings, source)
        if labelled:
            require_labelled(settings, split)
    except HebbsegError as error:
        if not source.problems:
            raise
        # Masks that match no image are often the reason why there are too few.
        raise HebbsegError(
            f"{error}\n{len(source.problems)} problems with the files were found; `hebbseg check` lists all. "
            f"First: {source.problems[0]}"
        ) from error
    return split


def require_labelled(settings: Settings, split: Split) -> None:
    if not split.training.labelled:
        raise HebbsegError(
            f"{settings.data.source}, labelled={settings.data.labelled}: no training case has a mask to be used, so there is "
            "nothing to fine-tune on. Learn from the images alone with `hebbseg pretrain`, or add masks (`hebbseg check` "
            "shows where they are expected)."
        )


def require_classes(settings: Settings, source: Source) -> None:
    if len(source.classes) < 2:
        only = source.classes[0]
        raise HebbsegError(
            f"{settings.data.source}: the masks hold only one class ({only.name or only.value}), so there is nothing to tell "
            "apart. Are they the right masks? `hebbseg check` shows what was read."
        )
