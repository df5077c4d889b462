"""The table of stage-2 methods (``--method``)."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from hebbseg.config import current_options
from hebbseg.data.augment.views import Augment
from hebbseg.errors import HebbsegError, look_up
from hebbseg.methods.base import Method
from hebbseg.methods.bcp import BidirectionalCopyPaste
from hebbseg.methods.cct import CrossConsistency
from hebbseg.methods.cps import CrossPseudoSupervision
from hebbseg.methods.dtc import DualTaskConsistency
from hebbseg.methods.em import EntropyMinimization
from hebbseg.methods.fixmatch import FixMatch
from hebbseg.methods.mean_teacher import MeanTeacher
from hebbseg.methods.options import checked_options, help_text
from hebbseg.methods.supervised import Supervised
from hebbseg.methods.uamt import UncertaintyAwareMeanTeacher
from hebbseg.methods.unimatch import UniMatch
from hebbseg.methods.urpc import PyramidConsistency
from hebbseg.networks.factory import UNET

METHODS: dict[str, type[Method]] = {
    "supervised": Supervised,
    "em": EntropyMinimization,
    "mean-teacher": MeanTeacher,
    "uamt": UncertaintyAwareMeanTeacher,
    "cct": CrossConsistency,
    "cps": CrossPseudoSupervision,
    "urpc": PyramidConsistency,
    "dtc": DualTaskConsistency,
    "fixmatch": FixMatch,
    "unimatch": UniMatch,
    "bcp": BidirectionalCopyPaste,
}
AUTO = "auto"
# The method and options of auto if there are unlabelled images; see studies/study.md.
WITH_UNLABELLED = "fixmatch"
AUTO_OPTIONS: dict[str, Any] = {
    "start": 0.5, "start_updates": 500, "pseudo_loss": "dice", "dice_gated": True, "decay": 0.99, "cutmix": 1.0
}  # fmt: skip
AUTO_TITLE = "FixMatch with teacher"


def check_method(name: str, options: Mapping[str, Any], *, network: str = UNET) -> None:
    """Raise an error for an unknown method, an invalid option or a method that cannot train this network."""
    if name != AUTO:
        own = checked_options(name, method_class(name), current_options(name, options))
        if network != UNET and method_class(name).needs_unet and own.get("feature_view", True):
            fitting = ", ".join(other for other, cls in METHODS.items() if not cls.needs_unet)
            without = ", or set method_options.feature_view=false" if "feature_view" in own else ""
            raise HebbsegError(
                f"Method {name} uses feature maps of the UNet's encoder and decoder, which network={network} does not provide. "
                f"Use one of {fitting}{without}, or network={UNET}."
            )
    elif options:
        raise HebbsegError(
            f"method_options.{next(iter(options))} cannot be set with method=auto, which chooses the method from the data. "
            f"Set the method explicitly; with unlabelled images, auto is method={WITH_UNLABELLED} "
            f"{options_text(AUTO_OPTIONS, prefix='method_options.')}."
        )


def auto_method(*, unlabelled: int) -> tuple[str, dict[str, Any]]:
    """Return the method and options of ``auto`` for this number of training images without a mask or with a partial one."""
    if not unlabelled:
        return "supervised", {}
    return WITH_UNLABELLED, dict(AUTO_OPTIONS)


def method_class(name: str) -> type[Method]:
    """Return the built-in method or the entry point in ``hebbseg.methods`` with this name."""
    found = look_up(name, METHODS, "method", "hebbseg.methods")
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise HebbsegError(f"Method {name!r}: {found!r} is not a subclass of hebbseg.methods.base.Method.")
    return found


def method_title(name: str, options: Mapping[str, Any]) -> str:
    """Return the title of a method in reports, with the options that were set."""
    if name == WITH_UNLABELLED and options == AUTO_OPTIONS:
        return AUTO_TITLE
    try:
        title = method_class(name).title or name
    except HebbsegError:  # its package is not installed
        title = name
    return f"{title} ({options_text(options)})" if options else title


def make_method(
    name: str,
    *,
    network: nn.Module,
    another: Callable[[], nn.Module],
    loss: str,
    augment: Augment | None = None,
    options: Mapping[str, Any] | None = None,
) -> Method:
    """Return a method with validated options; options given as text are converted. For the other arguments, see `Method`."""
    cls = method_class(name)
    own = checked_options(name, cls, current_options(name, options or {}))
    return cls(network=network, another=another, loss=loss, augment=augment, **own)


def method_help(name: str) -> str:
    """Return the output of ``hebbseg train --method NAME --help-method``."""
    if name == AUTO:
        return (
            f"{AUTO}: {WITH_UNLABELLED} with {options_text(AUTO_OPTIONS)} if some training images are unlabelled, "
            "otherwise supervised.\n\n" + method_help(WITH_UNLABELLED)
        )
    return help_text(name, method_class(name))


def options_text(options: Mapping[str, Any], *, prefix: str = "") -> str:
    """Format options as on the command line: ``pseudo_loss=dice dice_gated=true``."""
    return " ".join(f"{prefix}{name}={str(value).lower()}" for name, value in options.items())
