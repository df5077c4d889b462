"""The Hebbian step against a supervised step of the same network and against an implementation that unfolds.

python -m benchmarks.hebbian CASE     prints the extra peak memory of one kind of step in MiB
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import nn

from benchmarks.timing import Row, peak_mib, report_extra_peak, row, seconds
from benchmarks.unfold import UnfoldPlasticity
from hebbseg import HebbianPCA, Plasticity, SoftWTA, UNet
from hebbseg.pretraining.hebbian import forward_until

SHAPES = {
    "2D 128², batch 8": (8, 3, 128, 128),
    "2D 128², batch 2": (2, 3, 128, 128),
    "3D 96×96×80, batch 1": (1, 1, 96, 96, 80),
}
CONDITIONED = {"unit_norm": True, "center": True, "standardize": True, "whiten": 1.0}


def network(shape: tuple[int, ...]) -> UNet:
    return UNet(spatial_dims=len(shape) - 2, in_channels=shape[1], seed=0).train()


def supervised(net: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    target = torch.randint(2, (x.shape[0], *x.shape[2:]))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(x), target).backward()
        optimizer.step()

    return step


def without_dropout(net: nn.Module) -> nn.Module:
    """As stage 1 runs it: batch norm by batch, nothing dropped."""
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    return net


def hebbian(net: nn.Module, x: torch.Tensor, rule=None, **options) -> Callable[[], None]:
    """A step inside an open block, which stays open for the life of the process."""
    net = without_dropout(net)
    plasticity = Plasticity(net, rule or SoftWTA(temperature=0.05), **options)
    plasticity.__enter__()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)  # HPCA on raw activations diverges at larger ones

    forward = _open(forward_until(net, list(plasticity.plastic_layers)[-1]))

    @torch.no_grad()
    def step() -> None:
        forward(x)
        plasticity.write_gradients()
        optimizer.step()
        if plasticity.conditioning.unit_norm:
            plasticity.normalize()

    return step


def _open(block: AbstractContextManager[Callable[[torch.Tensor], None]]) -> Callable[[torch.Tensor], None]:
    """Behind the last plastic layer a step of stage 1 has nothing to do; the block stays open, too."""
    return block.__enter__()


def unfolding(net: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    plasticity = UnfoldPlasticity(without_dropout(net), temperature=0.05)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    forward = _open(forward_until(net, "decoder.level0.block.conv2"))

    @torch.no_grad()
    def step() -> None:
        forward(x)
        plasticity.write_gradients()
        optimizer.step()

    return step


def forward(net: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    @torch.no_grad()
    def step() -> None:
        without_dropout(net)(x)

    return step


STEPS = {"hebbian": hebbian, "unfold": unfolding, "forward": forward}


def run() -> list[Row]:
    rows = []
    for name, shape in SHAPES.items():
        x = torch.randn(shape)
        rounds = 15 if len(shape) == 4 else 6
        detached = network(shape)
        with Plasticity(detached, SoftWTA()), torch.no_grad():
            detached(x)
        times = seconds(
            {
                "supervised": supervised(network(shape), x),
                "swta": hebbian(network(shape), x),
                "hpca": hebbian(network(shape), x, HebbianPCA()),
                "conditioned": hebbian(network(shape), x, **CONDITIONED, layers=("encoder",)),
                "unfold": unfolding(network(shape), x),
                "never attached": forward(network(shape), x),
                "detached": forward(detached, x),
            },
            rounds=rounds,
        )
        step = times["supervised"]
        rows += [
            row(f"SWTA-TSA step / supervised step, {name}", times["swta"], step, at_most=0.75),
            row(f"HPCA-TSA step / supervised step, {name}", times["hpca"], step, at_most=1.0),
            row(f"conditioned encoder step / supervised step, {name}", times["conditioned"], step, at_most=1.0),
            row(f"unfold step / SWTA-TSA step, {name}", times["unfold"], times["swta"], at_least=2.5),
            row(
                f"forward after detaching / never attached, {name}",
                times["detached"],
                times["never attached"],
                at_most=1.1,
            ),
        ]
        memory = {case: peak_mib("benchmarks.hebbian", f"{case}:{name}") for case in STEPS}
        extra = {case: max(memory[case] - memory["forward"], 1.0) for case in ("hebbian", "unfold")}
        rows.append(
            row(f"extra peak MiB over a forward, ours / unfold, {name}", extra["hebbian"], extra["unfold"], at_most=0.25)
        )
    return rows


def main(case: str) -> None:
    kind, name = case.split(":")
    shape = SHAPES[name]
    report_extra_peak(STEPS[kind](network(shape), torch.randn(shape)))


if __name__ == "__main__":
    main(sys.argv[1])
