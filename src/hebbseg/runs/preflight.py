"""What can be known to fail before a run reads its images: nobody should wait for an error."""

from pathlib import Path

from hebbseg.runs.context import network_options
from hebbseg.config import Settings
from hebbseg.data.cases import Source
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.runs.dataset import draw_split
from hebbseg.data.progress import Quiet
from hebbseg.training.tensorboard import require_tensorboard
from hebbseg.pretraining.initializers import check_init, check_weights, is_initializer
from hebbseg.pretraining.rules import make_rule


def check_start(settings: Settings) -> None:
    """What can be known to fail before any file is read."""
    check_init(settings.init, settings.init_options)
    make_rule(settings.rule, temperature=settings.temperature, options=settings.rule_options)
    if settings.tensorboard:
        require_tensorboard()


def check_listed(settings: Settings, source: Source) -> Split:
    """What can be known to fail from the names and headers of files, before their images and masks are read.

    Gives the split as it will be if all of them can be read.
    """
    dims = source.spatial_dims
    for name, sides in (("size", settings.size), ("patch", settings.patch)):
        if isinstance(sides, tuple) and len(sides) not in (1, dims):
            raise HebbsegError(
                f"{name}={'x'.join(map(str, sides))}: {len(sides)} numbers, but the images of {source.name} are {dims}D. Give "
                f"{dims} numbers, or one for all axes."
            )
    if not is_initializer(settings.init):
        check_weights(Path(settings.init), network_options(settings, source, classes=2))
    return draw_split(settings, source, Quiet())


def refuse_without_masks(settings: Settings, split: Split) -> None:
    if not split.training.labelled:
        raise HebbsegError(
            f"{settings.data}, labelled={settings.labelled}: no training case has a mask to be used, so there is nothing to "
            "fine-tune on. Learn from the images alone with `hebbseg pretrain`, or add masks (`hebbseg check` says where "
            "they are looked for)."
        )
