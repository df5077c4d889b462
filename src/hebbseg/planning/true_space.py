"""True space: the spacing to which images are resampled, and a UNet that follows anisotropic voxels."""

from collections.abc import Sequence
from math import prod

from hebbseg.config import Settings
from hebbseg.data.io.tiles import LARGE_PIXELS
from hebbseg.errors import HebbsegError
from hebbseg.networks.factory import UNET
from hebbseg.planning.fingerprint import Fingerprint

DIFFERENT = 1.1  # ratio of spacings from which images are resampled
COARSER = 2.0  # an axis is neither pooled nor convolved across voxels while it is more than this times the finest
ROUNDING = 1e-3  # relative; spacings in headers are rounded

Steps = tuple[tuple[int, ...], ...]


def resampling(settings: Settings, found: Fingerprint) -> tuple[tuple[float, ...] | None, str]:
    """Return the spacing in mm to which images are resampled, None for no resampling, and the reason."""
    given = settings.data.spacing
    if isinstance(given, tuple):
        if found.spacing_mm is None or found.without_spacing:
            count = found.images if found.spacing_mm is None else found.without_spacing
            raise HebbsegError(
                f"spacing={shown(given)}: {count} of {found.images} images have no spacing in their files (PNG, JPEG and BMP "
                "never have one). Convert them to TIFF or NIfTI with a spacing, remove them, or pass --spacing native."
            )
        return given * found.spatial_dims if len(given) == 1 else given, "given; images are resampled"
    if given == "native":
        return None, "images are not resampled, as given"
    if found.spacing_mm is None:
        return None, "the files have no spacing: distances are in pixels"
    if settings.preset == "paper" or settings.data.size != "auto" or found.spacing_ratio <= DIFFERENT:
        return None, "images are not resampled"
    differ = f"spacings differ by a factor of {found.spacing_ratio:.3g}"
    if found.without_spacing:
        return None, f"images are not resampled: {differ}, but {found.without_spacing} of {found.images} images have none"
    if found.spatial_dims == 2 and prod(found.largest_size) > LARGE_PIXELS:
        return None, f"images are not resampled: {differ}, but patches of large images are read from their files"
    if found.spatial_dims == 2 and settings.data.patch == "none":
        return None, f"images are not resampled: {differ}, but patch=none needs images of one size"
    median = tuple(float(f"{step:.6g}") for step in found.spacing_mm)
    return median, f"median in mm; {differ}: all images are resampled"


def resampled_median(found: Fingerprint, spacing: Sequence[float]) -> Fingerprint:
    """Return the fingerprint with the median size of images that are resampled to this spacing."""
    assert found.extent_mm is not None
    sizes = tuple(max(1, round(side / step)) for side, step in zip(found.extent_mm, spacing, strict=True))
    return found.model_copy(update={"median_size": sizes})


def unet_geometry(spacing: Sequence[float], levels: int) -> tuple[Steps, Steps] | None:
    """Return (strides, kernels) of a UNet for anisotropic voxels; None if no axis is more than twice as coarse as another.

    An axis that is more than twice as coarse as the finest one is not pooled, and convolved with a kernel of 1 instead of 3;
    pooling the other axes makes them coarser, until all are treated alike. The kernels of the last level are 3.

        t_a ← 2 t_a for every axis a with t_a ≤ 2 min t

    Isensee et al., nnU-Net, Nature Methods 2021, supplement; there, an axis twice as coarse is not pooled either.

    >>> unet_geometry((1.0, 1.0, 3.0), levels=4)
    (((2, 2, 1), (2, 2, 2), (2, 2, 2)), ((3, 3, 1), (3, 3, 3), (3, 3, 3), (3, 3, 3)))
    """
    if max(spacing) <= COARSER * (1 + ROUNDING) * min(spacing):
        return None
    current = list(spacing)
    kernel = [1] * len(current)
    strides, kernels = [], []
    for level in range(levels):
        close = [step <= COARSER * (1 + ROUNDING) * min(current) for step in current]
        kernel = [3 if near or level == levels - 1 else side for near, side in zip(close, kernel, strict=True)]
        kernels.append(tuple(kernel))
        if level < levels - 1:
            strides.append(tuple(2 if near else 1 for near in close))
            current = [2 * step if near else step for near, step in zip(close, current, strict=True)]
    return tuple(strides), tuple(kernels)


def factors(spacing: Sequence[float], levels: int) -> list[int]:
    """Return the factor between the finest and the coarsest map of a UNet along each axis."""
    geometry = unet_geometry(spacing, levels)
    if geometry is None:
        return [2 ** (levels - 1)] * len(spacing)
    return [prod(steps) for steps in zip(*geometry[0], strict=True)]


def plans_geometry(settings: Settings) -> bool:
    """Return whether strides and kernels follow from the spacing."""
    network = settings.network
    return network.name == UNET and settings.preset == "hebbseg" and network.strides == network.kernels == "auto"


def shown(spacing: Sequence[float]) -> str:
    return ",".join(f"{step:g}" for step in spacing)
