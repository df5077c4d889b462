"""Stage 1 by a variational autoencoder."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hebbseg.methods.ops import ramp_up, seed_of
from hebbseg.methods.options import Count, Weight
from hebbseg.networks.heads import cropped
from hebbseg.networks.unet import _CONV, UNet, initialize

RAMP_SHARE = 0.5  # of the training until β reaches its full value; measured in docs/reference/methods/vae.md


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) = ½ Σ (μ² + σ² − ln σ² − 1) over the latent of each image. Shapes: twice (B, Z, *s) → (B,)."""
    return 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).flatten(1).sum(dim=1)


def standardized(images: Tensor) -> Tensor:
    """Subtract each channel's mean over the batch and divide by its standard deviation. Shapes: (B, C, *S) → the same."""
    deviation, mean = torch.std_mean(images, dim=(0, *range(2, images.ndim)), keepdim=True)
    return (images - mean) / deviation.clamp_min(1e-6)


class VariationalAutoEncoder(nn.Module):
    """The UNet's encoder and decoder around a latent, trained to reconstruct the image:

        L = ½ ln( ‖x − x̂‖² / D ) + β KL( q(z|x) ‖ N(0, 1) ) / D        per image of D numbers

    with x standardized per channel: up to constants, the negative evidence lower bound of a Gaussian decoder with the
    optimal variance. z = μ + σ ε is sampled from two 1×1 convolutions of the coarsest map; a third maps it back to the
    decoder. Skip connections are zero, so the decoder depends on z alone and its weights for skips stay unchanged. β
    rises from 0 over the first half, so that the decoder first learns to use the latent. The trained UNet has no latent.

    Kingma and Welling, Auto-encoding variational Bayes, ICLR 2014; the variance as in Rybkin et al., ICML 2021.

    Shapes: images (B, C, *S) → {"reconstruction": (), "divergence": ()}.

    Options:
        latent: channels of z at each position of the coarsest map
        beta: β, of the divergence
    """

    segment = None

    def __init__(self, *, network: UNet, latent: Count = 32, beta: Weight = 1.0) -> None:
        super().__init__()
        self.network = network
        self.latent = latent
        self.beta = beta
        conv = _CONV[network.spatial_dims]
        fine, deep = network.features_per_level[0], network.features_per_level[-1]
        with torch.random.fork_rng(devices=[]):
            self.new = nn.ModuleDict(
                {
                    "encode": conv(deep, 2 * latent, 1),
                    "decode": conv(latent, deep, 1),
                    "image": conv(fine, network.in_channels, 1),
                }
            )
        initialize(self.new, generator=torch.Generator().manual_seed(seed_of(network)))
        with torch.no_grad():
            # A small initial noise (σ = e^−2) leaves more of the latent in use after training.
            for name, parameter in self.new["encode"].named_parameters():
                parameter[latent:] = -4.0 if name == "bias" else 0.0
            # Nearly constant initial reconstructions: the gradient then concerns structure, not contrast.
            for parameter in self.new["image"].parameters():
                parameter.mul_(0.1)

    def loss(
        self, images: Tensor, progress: float, generator: torch.Generator, segments: Tensor | None = None
    ) -> dict[str, Tensor]:
        mean, log_variance = self.encode(images)
        ε = torch.randn(mean.shape, generator=generator).to(mean)
        decoded = cropped(self.decode(mean + (0.5 * log_variance).exp() * ε), images.shape[2:])
        # A perfect reconstruction must have a finite logarithm.
        error = F.mse_loss(decoded, standardized(images), reduction="none").flatten(1).mean(dim=1) + 1e-6
        return {
            "reconstruction": 0.5 * error.log().mean(),
            "divergence": self.beta
            * ramp_up("linear", progress, RAMP_SHARE)
            * divergence(mean, log_variance).mean()
            / images[0].numel(),
        }

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ and ln σ² of the latent, each (B, Z, *s)."""
        deepest = self.network.encoder(self.network.padded(images))[-1]
        mean, log_variance = self.new["encode"](deepest).chunk(2, dim=1)
        return mean, log_variance.clamp(-10, 10)  # prevents overflow

    def decode(self, z: Tensor) -> Tensor:
        """Return the image (B, C, *S) of z (B, Z, *s); S is s times the strides of all levels."""
        count, deepest = len(z), z.shape[2:]
        skips: list[Tensor] = []
        size = tuple(deepest)
        for features, stride in zip(self.network.features_per_level[-2::-1], self.network.strides[::-1], strict=True):
            size = tuple(n * step for n, step in zip(size, stride, strict=True))
            skips.insert(0, z.new_zeros(count, features, *size))
        return self.new["image"](self.network.decoder([*skips, self.new["decode"](z)])[-1])
