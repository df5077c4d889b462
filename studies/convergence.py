"""How many epochs Hebbian learning needs: HPCA against the principal components of its input, SWTA by the change of filters.

For HPCA, |cos(filter j, component j)| after each number of epochs, for the first 8 components; a component whose eigenvalue is
within 10 % of a neighbor's has no direction of its own and is left out. For SWTA, the relative change of the filters in the
last epoch. Each layer is trained alone, on the output of those before it.

    python -m studies.convergence glas:PATH studies/results/convergence.csv
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hebbseg.networks.factory import build_network
from hebbseg.networks.modes import without_dropout
from hebbseg.pretraining.hebbian import forward_until, make_plasticity
from hebbseg.runs.context import RunContext
from hebbseg.training.schedules import rate_factor
from studies.recipe import Row, write_table
from studies.stable_rates import context_of

LAYERS = ("encoder.level0.conv1", "encoder.level0.conv2", "encoder.level1.conv1")
EPOCHS = (1, 2, 5, 10, 20, 50, 100, 200)
COMPONENTS = 8
APART = 1.1
COLUMNS = ("dataset", "preset", "rule", "layer", "epochs", "components", "smallest_cosine", "cosines", "moved")
PLAIN = {"whiten": None}  # components of the patches themselves, not of whitened ones


def second_moments(network: nn.Module, layer: str, batches: list[Tensor], *, center: bool) -> Tensor:
    """Return E[s sᵀ] of the input patches s of a convolution, in float64; less the mean of each channel if centered."""
    module = network.get_submodule(layer)
    assert isinstance(module, nn.Conv2d)
    inputs: list[Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, args: inputs.append(args[0].double()))
    with forward_until(network, layer) as forward:
        for images in batches:
            forward(images)
    handle.remove()
    if center:
        mean = torch.cat([x.mean((0, 2, 3))[None] for x in inputs]).mean(0)
        inputs = [x - mean[:, None, None] for x in inputs]
    padding = module.padding
    assert not isinstance(padding, str)
    total, count = torch.zeros(module.weight[0].numel(), module.weight[0].numel(), dtype=torch.float64), 0
    for x in inputs:
        patches = F.unfold(x, module.kernel_size, padding=padding, stride=module.stride).movedim(1, 0).flatten(1)  # (size, n)
        total += patches @ patches.T
        count += patches.shape[1]
    return total / count


def cosines(weight: Tensor, moments: Tensor) -> dict[int, float]:
    """Return {j: |cos(filter j, component j)|} of the first components, from 1, whose eigenvalues are apart."""
    values, vectors = torch.linalg.eigh(moments)
    values, vectors = values.flip(0), vectors.flip(1)
    ratios = (values[:-1] / values[1:].clamp_min(1e-30)).tolist()
    filters = F.normalize(weight.double().flatten(1), dim=1)
    apart = [j for j in range(min(COMPONENTS, len(filters))) if ratios[j] > APART and (j == 0 or ratios[j - 1] > APART)]
    return {j + 1: abs(float(filters[j] @ vectors[:, j])) for j in apart}


def learn(context: RunContext) -> Iterator[tuple[str, int, dict[int, float], float]]:
    """Yield layer, epochs, cosines (of HPCA) and the relative change in the last epoch."""
    settings = context.settings.pretrain.of_hebbian()
    assert isinstance(settings.rate, float)
    network = build_network(**context.network_options(2), seed=context.settings.run_seed).train()
    batches = context.batches(augment=settings.augment, seed=context.settings.run_seed)
    steps = math.ceil(len(context.training.images) / batches.image_batch)
    sample = [batches.images_only(step) for step in range(steps)]
    for layer in LAYERS:
        plasticity = make_plasticity(network, settings, (layer,))
        weight = network.get_submodule(layer).get_parameter("weight")
        with without_dropout(network), torch.no_grad():
            moments = second_moments(network, layer, sample, center=settings.center) if settings.rule == "hpca" else None
            with plasticity, forward_until(network, layer) as forward:
                for epoch in range(max(EPOCHS)):
                    before = weight.clone()
                    for step in range(epoch * steps, (epoch + 1) * steps):
                        forward(batches.images_only(step))
                        plasticity.write_gradients(relative=settings.step == "relative")
                        progress = step / (max(EPOCHS) * steps)
                        factor = 1 - 0.9 * progress if settings.schedule == "linear" else rate_factor("step", progress)
                        torch.optim.SGD([weight], lr=settings.rate * factor).step()
                        if settings.unit_norm:
                            plasticity.normalize()
                    if epoch + 1 in EPOCHS:
                        found = {} if moments is None else cosines(weight, moments)
                        yield layer, epoch + 1, found, float((weight - before).norm() / before.norm())
                if settings.restore_norms:
                    plasticity.restore_norms()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("table", type=Path)
    parser.add_argument("--size", type=int, default=128)
    arguments = parser.parse_args()
    rows: list[Row] = []
    for preset, rule in (("hebbseg", "hpca"), ("paper", "hpca"), ("hebbseg", "swta"), ("paper", "swta")):
        own = PLAIN if rule == "hpca" else {}
        # The same training images for both presets.
        split = {"protocol": "paper", "folds": 10, "folds_by": "images", "size": (arguments.size,) * 2}
        context = context_of(arguments.data, {"preset": preset, "rule": rule, **own, **split})
        for layer, epochs, found, moved in learn(context):
            shown = [f"{j}:{cosine:.3f}" for j, cosine in found.items()]
            smallest = f"{min(found.values()):.3f}" if found else ""
            name = arguments.data.partition(":")[0]
            values = (name, preset, rule, layer, str(epochs), str(len(found)), smallest, " ".join(shown), f"{moved:.4g}")
            rows.append(dict(zip(COLUMNS, values, strict=True)))
            print(rows[-1], flush=True)
            write_table(arguments.table, COLUMNS, rows)


if __name__ == "__main__":
    main()
