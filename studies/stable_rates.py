"""Largest stable learning rate of each Hebbian rule with absolute steps, under the paper's preset.

A rate is stable if, over the first quarter of stage 1 (50 epochs at the full rate), all activations stay finite and no
filter of any layer exceeds ten times the mean initial norm of its layer. Rates are tried from the paper's 0.5 downwards in
steps of 1, 2, 5.

    python -m studies.stable_rates glas:PATH studies/results/stable-rates.csv --size 64
"""

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from hebbseg.config import make_settings
from hebbseg.data.progress import Quiet
from hebbseg.errors import HebbsegError
from hebbseg.networks.factory import build_network
from hebbseg.networks.modes import without_dropout
from hebbseg.pretraining.hebbian import make_plasticity
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import draw_split, open_dataset
from studies.recipe import Row, write_table

VARIANTS = (("hpca", "tsa"), ("hpca", "s"), ("swta", "s"), ("swta", "tsa"))
RATES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001)
LARGEST_GROWTH = 10.0
COLUMNS = ("dataset", "size", "rule", "transpose", "rate", "epochs", "steps", "outcome", "largest_growth")


def context_of(data: str, options: dict[str, Any]) -> RunContext:
    """Return the training images and settings of stage 1; reads no mask."""
    settings = make_settings(data, options)
    dataset = open_dataset(settings.data, Quiet())
    training = draw_split(settings.changed(labelled="0"), dataset.source).training
    return RunContext(settings, dataset, training, Fabric(accelerator="cpu", devices=1))


def steps_until_unstable(context: RunContext, *, epochs: int) -> tuple[int, float, str]:
    """Return the number of steps done, the largest growth of a filter's norm, and "stable", "grows" or "overflows"."""
    settings = context.settings.pretrain.of_hebbian()
    assert isinstance(settings.rate, float)
    network = build_network(**context.network_options(2), seed=context.settings.run_seed).train()
    batches = context.batches(augment=settings.augment, seed=context.settings.run_seed)
    steps = epochs * math.ceil(len(context.training.images) / batches.image_batch)
    growth = 1.0
    plasticity = make_plasticity(network, settings, settings.layers(len(context.settings.network.features)))
    layers = plasticity.plastic_layers.values()
    optimizer = torch.optim.SGD([layer.weight for layer in layers], lr=settings.rate)
    means = [layer.rows(layer.initial).norm(dim=-1).mean() for layer in layers]
    with plasticity, without_dropout(network), torch.no_grad():
        for step in range(steps):
            network(batches.images_only(step))
            try:
                plasticity.write_gradients(relative=settings.step == "relative")
            except HebbsegError:  # activations are not finite
                return step, math.inf, "overflows"
            optimizer.step()
            norms = [
                float(layer.rows(layer.weight).norm(dim=-1).max() / mean) for layer, mean in zip(layers, means, strict=True)
            ]
            growth = max(growth, *norms)
            if settings.rate < RATES[0] and not growth <= LARGEST_GROWTH:
                return step + 1, growth, "grows"
    return steps, growth, "stable" if growth <= LARGEST_GROWTH else "grows"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("table", type=Path)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=50)
    arguments = parser.parse_args()
    rows: list[Row] = []
    for rule, transpose in VARIANTS:
        for rate in RATES:
            options = {"rule": rule, "transpose": transpose, "pretrain_rate": rate, "size": (arguments.size,) * 2}
            context = context_of(arguments.data, {"preset": "paper", **options})
            steps, growth, outcome = steps_until_unstable(context, epochs=arguments.epochs)
            values = (arguments.data.partition(":")[0], arguments.size, rule, transpose, rate, arguments.epochs, steps)
            row = dict(zip(COLUMNS, (*map(str, values), outcome, f"{growth:.3g}"), strict=True))
            print(row, flush=True)
            rows.append(row)
            write_table(arguments.table, COLUMNS, rows)
            if outcome == "stable":
                break


if __name__ == "__main__":
    main()
