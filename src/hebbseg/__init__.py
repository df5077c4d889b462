"""hebbseg: biomedical image segmentation when images are many and masks are few.

The public names are loaded when first used, so that ``import hebbseg`` (and the command line's ``--help``)
does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hebbseg.hebbian.plasticity import Plasticity
    from hebbseg.hebbian.rules import Hebb, HebbianPCA, SoftWTA
    from hebbseg.networks.unet import UNet
    from hebbseg.segmenter import Segmenter

__version__ = "0.2.0"

_HOME = {
    "Hebb": "hebbseg.hebbian.rules",
    "SoftWTA": "hebbseg.hebbian.rules",
    "HebbianPCA": "hebbseg.hebbian.rules",
    "Plasticity": "hebbseg.hebbian.plasticity",
    "UNet": "hebbseg.networks.unet",
    "Segmenter": "hebbseg.segmenter",
}

__all__ = ["Hebb", "HebbianPCA", "Plasticity", "Segmenter", "SoftWTA", "UNet", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'hebbseg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
