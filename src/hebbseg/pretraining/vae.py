"""Stage 1 by a variational auto-encoder: encoder and decoder learn to describe an image through a narrow gate."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hebbseg.methods.ops import ramp_up, seed_of
from hebbseg.methods.options import Count, Positive, Weight
from hebbseg.networks.heads import cropped
from hebbseg.networks.unet import _CONV, UNet, initialize

RAMP_SHARE = 0.5  # of the training until β has its full value; docs/methods/vae.md has what it is worth


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) = ½ Σ (μ² + σ² − ln σ² − 1) over the latent of each image. Shapes: twice (B, Z, *s) → (B,)."""
    return 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).flatten(1).sum(dim=1)


def standardized(images: Tensor) -> Tensor:
    """Each channel less its mean over the batch, divided by its spread. Shapes: (B, C, *S) → the same."""
    spread, mean = torch.std_mean(images, dim=(0, *range(2, images.ndim)), keepdim=True)
    return (images - mean) / spread.clamp_min(1e-6)


class VariationalAutoEncoder(nn.Module):
    """The plain UNet's encoder and decoder around a latent, trained to give the image back:

        L = ½ ln( ‖x − x̂‖² / D ) + β KL( q(z|x) ‖ N(0, 1) ) / D        per image of D numbers

    x standardised channel by channel: the negative evidence bound, up to constants, of a Gaussian decoder whose variance is
    the best one for the data. z = μ + σ ε is sampled from two 1×1 convolutions of the coarsest map; a third leads back
    into the decoder. The skips are zero meanwhile: all that the decoder knows of the image came through z, and its
    weights for skips stay as initialised. β rises from 0 over the first half, so that the decoder
    learns to use the latent first. Afterwards the UNet has neither latent nor sampling.

    Kingma and Welling, Auto-encoding variational Bayes, ICLR 2014; the variance as in Rybkin et al., ICML 2021.

    Shapes: images (B, C, *S) → {"reconstruction": (), "divergence": ()}.

    Options:
        latent: channels of z at each position of the coarsest map
        beta: β, of the divergence
        steps: updates
        rate: highest learning rate of AdamW
    """

    def __init__(
        self, *, network: UNet, latent: Count = 32, beta: Weight = 1.0, steps: Count = 300, rate: Positive = 2e-3
    ) -> None:
        super().__init__()
        self.network = network
        self.latent = latent
        self.beta = beta
        self.steps = steps
        self.rate = rate
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
            # The latent begins nearly without noise (σ = e^−2), so that more of it is in use in the end.
            for name, parameter in self.new["encode"].named_parameters():
                parameter[latent:] = -4.0 if name == "bias" else 0.0
            # The first picture is nearly flat: what there is to learn is structure, not contrast.
            for parameter in self.new["image"].parameters():
                parameter.mul_(0.1)

    def loss(self, images: Tensor, progress: float, generator: torch.Generator) -> dict[str, Tensor]:
        mean, log_variance = self.encode(images)
        ε = torch.randn(mean.shape, generator=generator).to(mean)
        decoded = cropped(self.decode(mean + (0.5 * log_variance).exp() * ε), images.shape[2:])
        # An image that is given back exactly has no logarithm of its error.
        error = F.mse_loss(decoded, standardized(images), reduction="none").flatten(1).mean(dim=1) + 1e-6
        return {
            "reconstruction": 0.5 * error.log().mean(),
            "divergence": self.beta
            * ramp_up("linear", progress, RAMP_SHARE)
            * divergence(mean, log_variance).mean()
            / images[0].numel(),
        }

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """μ and ln σ² of the latent, each (B, Z, *s)."""
        deepest = self.network.encoder(self.network.padded(images))[-1]
        mean, log_variance = self.new["encode"](deepest).chunk(2, dim=1)
        # e^±10 is as wide or as narrow as any latent can use; beyond it only overflows.
        return mean, log_variance.clamp(-10, 10)

    def decode(self, z: Tensor) -> Tensor:
        """The image (B, C, *S) that z (B, Z, *s) describes; S is s doubled once for each level."""
        count, deepest = len(z), z.shape[2:]
        levels = len(self.network.features_per_level) - 1
        skips = [
            z.new_zeros(count, features, *(n * 2 ** (levels - level) for n in deepest))
            for level, features in enumerate(self.network.features_per_level[:-1])
        ]
        return self.new["image"](self.network.decoder([*skips, self.new["decode"](z)])[-1])
