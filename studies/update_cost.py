"""CPU seconds of an update of stage 2 at full width, by method and batch size, with one thread.

python -m studies.update_cost
"""

import time
from statistics import median
from typing import Any

import torch

from hebbseg.methods import make_method
from hebbseg.methods.base import Labelled, Step
from hebbseg.networks.factory import build_network

UNIMATCH = {"pseudo_loss": "dice", "dice_gated": True}
FIXMATCH = UNIMATCH | {"decay": 0.99, "cutmix": 1.0}
CASES: tuple[tuple[str, dict[str, Any], int, tuple[int, ...]], ...] = (
    ("supervised", {}, 2, (128, 128)),
    ("supervised", {}, 4, (128, 128)),
    ("supervised", {}, 8, (128, 128)),
    ("fixmatch", FIXMATCH, 4, (128, 128)),
    ("unimatch", UNIMATCH, 8, (128, 128)),
    ("supervised", {}, 1, (48, 48, 48)),
    ("supervised", {}, 1, (96, 96, 80)),
)
"""Method, options, labelled (and as many unlabelled) images per update, size."""


def seconds(name: str, options: dict[str, Any], batch: int, size: tuple[int, ...], *, updates: int = 5) -> float:
    """Return the median over the updates after the first, which is a warm-up."""
    dims = len(size)
    channels = 3 if dims == 2 else 1
    described = {"name": "unet", "spatial_dims": dims, "in_channels": channels, "out_channels": 2}
    network = build_network(**described, options={"features": [16, 32, 64, 128, 256], "norm": "group"}, seed=0)
    method = make_method(name, network=network, another=lambda: network, loss="dice+ce", options=options).train()
    optimizer = torch.optim.AdamW(method.parameters(), fused=True)
    labelled = Labelled(torch.randn(batch, channels, *size), torch.randint(0, 2, (batch, *size)))
    unlabelled = torch.randn(batch, channels, *size)
    times = []
    for number in range(updates):
        start = time.process_time()
        step = Step(number=number, progress=0.9, generator=torch.Generator().manual_seed(number))
        torch.stack(list(method(labelled, unlabelled, step).values())).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step(step)
        times.append(time.process_time() - start)
    return median(times[1:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, options, batch, size in CASES:
        updates = 3 if len(size) == 3 else 5
        print(
            f"{name:10} batch {batch}, {'x'.join(map(str, size))}: {seconds(name, options, batch, size, updates=updates):.2f} s"
        )
