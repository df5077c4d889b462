"""Biomedical image segmentation with many images and few masks.

Public names are imported on first use, so that ``import hebbseg`` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hebbseg.hebbian.plasticity import Plasticity
    from hebbseg.hebbian.rules import Hebb, HebbianPCA, SoftWTA
    from hebbseg.networks.unet import UNet
    from hebbseg.segmenter import Segmenter

__version__ = "1.0.0rc1"

_MODULES = {
    "Hebb": "hebbseg.hebbian.rules",
    "SoftWTA": "hebbseg.hebbian.rules",
    "HebbianPCA": "hebbseg.hebbian.rules",
    "Plasticity": "hebbseg.hebbian.plasticity",
    "UNet": "hebbseg.networks.unet",
    "Segmenter": "hebbseg.segmenter",
}

__all__ = ["Hebb", "HebbianPCA", "Plasticity", "Segmenter", "SoftWTA", "UNet", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'hebbseg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
