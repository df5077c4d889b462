"""Every way of stage 2, by the name the command line uses."""

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
# What auto is where images have no mask; studies/study.md says why.
WITH_UNLABELLED = "unimatch"
AUTO_OPTIONS: dict[str, Any] = {"pseudo_loss": "dice", "dice_gated": True}
AUTO_TITLE = "UniMatch, dice-gated"
FOR_ANY_NETWORK: dict[str, Any] = {"feature_view": False}


def check_method(name: str, options: Mapping[str, Any], *, network: str = UNET) -> None:
    """Raises an error where the name or one of the options is wrong, or where the method cannot train this network."""
    if name != AUTO:
        own = checked_options(name, method_class(name), current_options(name, options))
        if network != UNET and method_class(name).needs_unet and own.get("feature_view", True):
            fitting = ", ".join(other for other, cls in METHODS.items() if not cls.needs_unet)
            without = ", or set method_options.feature_view=false" if "feature_view" in own else ""
            raise HebbsegError(
                f"Method {name} reads the maps of the UNet's encoder and decoder, which network={network} does not have. "
                f"Use one of {fitting}{without}, or network={UNET}."
            )
    elif options:
        raise HebbsegError(
            f"method_options.{next(iter(options))}: which method's? With method=auto it depends on the data. "
            f"Name the method; what auto does with images without masks is method={WITH_UNLABELLED} "
            f"{options_text(AUTO_OPTIONS, prefix='method_options.')}."
        )


def auto_method(*, unlabelled: int, network: str = UNET) -> tuple[str, dict[str, Any]]:
    """The method, and its options, that ``auto`` stands for where so many training images come without a mask."""
    if not unlabelled:
        return "supervised", {}
    return WITH_UNLABELLED, AUTO_OPTIONS | ({} if network == UNET else FOR_ANY_NETWORK)


def method_class(name: str) -> type[Method]:
    """The class behind a name, built in or from an entry point in ``hebbseg.methods``."""
    found = look_up(name, METHODS, "method", "hebbseg.methods")
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise HebbsegError(f"Method {name!r}: {found!r} is not a subclass of hebbseg.methods.base.Method.")
    return found


def method_title(name: str, options: Mapping[str, Any]) -> str:
    """A method in reports: its title, and the options that were given."""
    if name == WITH_UNLABELLED and options in (AUTO_OPTIONS, AUTO_OPTIONS | FOR_ANY_NETWORK):
        return AUTO_TITLE
    try:
        title = method_class(name).title or name
    except HebbsegError:  # of a package that is not installed here
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
    """A method ready to train; its options are checked, and converted where they came as text.

    Args:
        network, another, loss, augment: see `Method`.
        options: the method's own, by name; see `options_of`.
    """
    cls = method_class(name)
    own = checked_options(name, cls, current_options(name, options or {}))
    return cls(network=network, another=another, loss=loss, augment=augment, **own)


def method_help(name: str) -> str:
    """What ``hebbseg train --method NAME --help-method`` prints."""
    if name == AUTO:
        return (
            f"{AUTO}: {WITH_UNLABELLED} with {options_text(AUTO_OPTIONS)} where training images are without a mask, "
            "supervised where all have one.\n\n" + method_help(WITH_UNLABELLED)
        )
    return help_text(name, method_class(name))


def options_text(options: Mapping[str, Any], *, prefix: str = "") -> str:
    """As one would write them: ``pseudo_loss=dice dice_gated=true``."""
    return " ".join(f"{prefix}{name}={str(value).lower()}" for name, value in options.items())
