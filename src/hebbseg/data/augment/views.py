"""Weak and strong augmentation of 2D and 3D batches.

A weak view changes the geometry and, slightly, the intensity. A strong view changes the intensity of a weak view further but
not its geometry, so that the prediction on the weak view is a pseudo-label for the strong view.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from hebbseg.data.augment.cutmix import cutmix_boxes, mixed
from hebbseg.data.augment.geometry import Geometry
from hebbseg.data.augment.intensity import Photometry
from hebbseg.errors import HebbsegError

MILD = Photometry(chance=0.3, brightness=0.2, contrast=0.15, gamma=0.2, noise=0.05, blur=0.6)
HARSH = Photometry(chance=0.8, brightness=0.6, contrast=0.4, gamma=0.5, noise=0.25, blur=1.5)


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Weak and strong augmentation of a batch.

    Shapes: images (B, C, *S) floating point, masks (B, *S) integers; S has ``spatial_dims`` axes. Inputs are not
    modified; outputs have their device and data type.

    Args:
        spatial_dims: 2 or 3.
        geometry: geometric augmentation of the weak view.
        weak_light: intensity augmentation of the weak view.
        strong_light: intensity augmentation of the strong view.
        cutmix: probability that a box of a labelled image is replaced by that of the next one in the batch, with its mask.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> augment = Augment(spatial_dims=2)
        >>> images, masks = augment.weak(torch.rand(4, 3, 32, 32), torch.zeros(4, 32, 32).long(), generator)
        >>> augment.strong(images, generator).shape
        torch.Size([4, 3, 32, 32])
    """

    spatial_dims: int
    geometry: Geometry = field(default_factory=Geometry)
    weak_light: Photometry = MILD
    strong_light: Photometry = HARSH
    cutmix: float = 0.0

    def weak(self, images: Tensor, masks: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Return weak views of images and masks, with the same geometry; masks use nearest neighbor."""
        self._check(images, masks)
        images, masks = self.geometry.apply(images, masks, generator)
        return self.weak_light.apply(images, generator), masks

    def labelled(self, images: Tensor, masks: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return weak views of labelled images and their masks, with CutMix between them.

        S. Yun et al., CutMix, ICCV 2019; for segmentation, the mask is cut like the image.
        """
        images, moved = self.weak(images, masks, generator)
        assert moved is not None
        if not self.cutmix or len(images) < 2:
            return images, moved
        boxes = cutmix_boxes(len(images), images.shape[2:], self.cutmix, generator)
        images, masks = (mixed(x.roll(1, dims=0), x, boxes) for x in (images, moved))
        return images, masks

    def strong(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return strong views of weak views, with unchanged geometry."""
        self._check(images, None)
        return self.strong_light.apply(images, generator)

    def _check(self, images: Tensor, masks: Tensor | None) -> None:
        if images.ndim != self.spatial_dims + 2 or not images.is_floating_point():
            raise HebbsegError(
                f"images of shape {tuple(images.shape)} and type {images.dtype}: expected (batch, channels, "
                f"{self.spatial_dims} spatial axes) in floating point."
            )
        if masks is not None and masks.shape != (images.shape[0], *images.shape[2:]):
            raise HebbsegError(
                f"masks of shape {tuple(masks.shape)} beside images of shape {tuple(images.shape)}: expected "
                f"{(images.shape[0], *images.shape[2:])}, (batch, spatial axes)."
            )
