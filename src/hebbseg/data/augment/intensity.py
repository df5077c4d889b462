"""Intensity augmentation: brightness, contrast, gamma, noise and blur, relative to the image's standard deviation."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Photometry:
    """Intensity augmentation, drawn independently for each image; each change has probability ``chance``.

    Strengths are relative to the image, so they apply equally to raw and normalized images:

        contrast and brightness   x ← μ + a (x − μ) + b σ,  a in e^(± contrast), b in ± brightness
        gamma                     x ← lo + (hi − lo) ((x − lo) / (hi − lo))^γ,  γ in e^(± gamma)
        blur                      Gaussian, standard deviation up to ``blur`` pixels
        noise                     x ← x + s σ n,  s up to ``noise``, n standard normal

    where μ, σ, lo, hi are the image's mean, standard deviation, minimum and maximum. ``colour`` is the fraction of
    contrast and brightness drawn per channel, as stains and light sources also differ in color.
    """

    chance: float
    brightness: float
    contrast: float
    gamma: float
    noise: float
    blur: float
    colour: float = 0.3

    def apply(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return the augmented images, (B, C, *S); the input is not modified."""
        images = images.clone()
        device = images.device
        chosen = torch.rand(4, len(images), generator=generator) < self.chance
        linear, gamma, blur, noise = (row.nonzero()[:, 0].to(device) for row in chosen)
        if len(linear) and (self.brightness or self.contrast):
            images[linear] = self._linear(images[linear], generator)
        if len(gamma) and self.gamma:
            images[gamma] = self._gamma(images[gamma], generator)
        if len(blur) and self.blur:
            widths = self.blur * torch.rand(len(blur), generator=generator)
            images[blur] = gaussian_blur(images[blur], widths.to(images))
        if len(noise) and self.noise:
            images[noise] = self._noise(images[noise], generator)
        return images

    def _linear(self, x: Tensor, generator: torch.Generator) -> Tensor:
        count, channels = x.shape[:2]
        ones = (1,) * (x.ndim - 2)
        shared = 2 * torch.rand(2, count, 1, generator=generator) - 1
        apart = 2 * torch.rand(2, count, channels, generator=generator) - 1
        draws = ((1 - self.colour) * shared + self.colour * apart).to(x).reshape(2, count, channels, *ones)
        factor = (self.contrast * draws[0]).exp()
        spread, mean = _spread_and_mean(x)
        return torch.addcmul(mean * (1 - factor) + self.brightness * spread * draws[1], x, factor)

    def _gamma(self, x: Tensor, generator: torch.Generator) -> Tensor:
        shape = (-1,) + (1,) * (x.ndim - 1)
        exponent = (self.gamma * (2 * torch.rand(len(x), generator=generator) - 1)).exp().to(x).reshape(shape)
        low, high = (bound.reshape(shape) for bound in torch.aminmax(x.flatten(1), dim=1))
        # Avoids division by zero for constant images.
        extent = (high - low).clamp_min(torch.finfo(x.dtype).tiny)
        # exp(γ log u) is vectorized and four times as fast as pow with a tensor of exponents; exp(log 0) = 0.
        return ((x - low) / extent).log_().mul_(exponent).exp_().mul_(extent).add_(low)

    def _noise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        strength = (self.noise * torch.rand(len(x), generator=generator)).to(x).reshape(-1, *(1,) * (x.ndim - 1))
        spread, _ = _spread_and_mean(x)
        normal = torch.randn(x.shape, generator=generator).to(x)
        return torch.addcmul(x, normal, strength * spread)


def gaussian_blur(x: Tensor, widths: Tensor) -> Tensor:
    """Convolve each image (B, C, *S) with its own Gaussian of standard deviation ``widths`` (B,), in pixels.

    Computed axis by axis as a sum of shifted copies, which is faster than a grouped convolution for few taps. The kernel
    is truncated at three standard deviations of the widest; borders are replicated.
    """
    reach = max(1, math.ceil(3 * float(widths.max())))
    offset = torch.arange(reach + 1, device=x.device, dtype=x.dtype)
    weights = torch.exp(-0.5 * (offset[:, None] / widths.clamp_min(1e-3)).square())  # (reach + 1, B)
    weights = weights / (weights[0] + 2 * weights[1:].sum(0))
    weights = weights.reshape(*weights.shape, *(1,) * (x.ndim - 1))
    for axis in range(2, x.ndim):
        size = x.shape[axis]
        # F.pad counts axes from the last one.
        pad = [reach if axis == x.ndim - 1 - position // 2 else 0 for position in range(2 * (x.ndim - 2))]
        padded = F.pad(x, pad, mode="replicate")
        x = padded.narrow(axis, reach, size) * weights[0]
        for k in range(1, reach + 1):
            for begin in (reach - k, reach + k):
                x.addcmul_(padded.narrow(axis, begin, size), weights[k])
    return x


def _spread_and_mean(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the standard deviation and mean of each image, (B, 1, …, 1)."""
    mean = x.flatten(1).mean(dim=1).reshape(-1, *(1,) * (x.ndim - 1))
    # Three times as fast as torch.std_mean.
    spread = torch.linalg.vector_norm((x - mean).flatten(1), dim=1) / math.sqrt(x[0].numel())
    return spread.reshape(mean.shape), mean
