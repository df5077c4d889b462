"""What is exported: a network with the softmax, traced for any batch and image size, and the check of its outputs."""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hebbseg.errors import HebbsegError, reason_of
from hebbseg.inference.predictor import Predictor
from hebbseg.networks.factory import UNET

TOLERANCE = 1e-4
STEPS = (1, 2, 4, 8, 16, 32)
SIDE = {2: 64, 3: 32}  # of the images that are checked, by spatial dimensions; a multiple of the largest step

Run = Callable[[Tensor], Tensor]


class Probabilities(nn.Module):
    """The network followed by the softmax over classes: (B, C, *S) → (B, K, *S)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> Tensor:
        return self.network(image).softmax(dim=1)


class WithBorder(nn.Module):
    """A network of background, inside and border: (B, C, *S) → probabilities (B, 2, *S) and border (B, 1, *S).

    The border, which is part of the foreground, separates touching objects.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        found = self.network(image).softmax(dim=1)
        return torch.cat([found[:, :1], found[:, 1:].sum(1, keepdim=True)], 1), found[:, 2:]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """An exported model compared with PyTorch.

    Args:
        step: sides of images must be multiples of it.
        sizes: (batch, C, *S) of the inputs that were compared.
        difference: largest difference between two probabilities.
        border: the probability of the border is a second output.
    """

    step: int
    sizes: tuple[tuple[int, ...], ...]
    difference: float
    border: bool = False


def exported_module(predictor: Predictor) -> Probabilities | WithBorder:
    """Return a copy on the CPU, in evaluation mode; with the border as second output if the model has learned it."""
    kind = WithBorder if predictor.borders else Probabilities
    return kind(copy.deepcopy(predictor.network).cpu()).eval()


def example(predictor: Predictor, *, batch: int = 2, longer: int = 0, seed: int = 0) -> Tensor:
    """Return normal noise (B, C, *S); ``longer`` is added to the sides, doubled for each further axis."""
    dims = predictor.spatial_dims
    sides = [SIDE[dims] + longer * (axis + 1) for axis in range(dims)]
    return torch.randn(batch, predictor.in_channels, *sides, generator=torch.Generator().manual_seed(seed))


def check_outputs(predictor: Predictor, run: Run, what: str) -> Checked:
    """Compare exported probabilities with PyTorch's at two sizes and batch sizes.

    Our UNet takes any size. For another network, the smallest step between sizes is searched at which it agrees. Of models
    that have learned borders, both outputs are compared, along the channel axis.

    Raises:
        HebbsegError: they differ by more than `TOLERANCE`, or the second size fails.
    """
    module = exported_module(predictor)
    first = example(predictor)
    worst = _difference(module, run, first)
    if isinstance(worst, str) or worst > TOLERANCE:
        raise HebbsegError(f"{_of(predictor, what)} {_described(worst)}. Nothing was written.")
    problem: float | str = ""
    for step in STEPS[:1] if name_of(predictor) == UNET else STEPS:
        other = example(predictor, batch=1, longer=step, seed=1)
        problem = _difference(module, run, other)
        if not isinstance(problem, str) and problem <= TOLERANCE:
            sizes = tuple(tuple(x.shape) for x in (first, other))
            return Checked(step=step, sizes=sizes, difference=max(worst, problem), border=predictor.borders)
    raise HebbsegError(
        f"{_of(predictor, what)} {_described(problem)} at another image size than it was exported with. The network "
        "cannot be exported for all sizes. Nothing was written."
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Silence warnings of tracing; `check_outputs` tests what they warn about. Nothing is recorded for gradients."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


def trace(predictor: Predictor) -> torch.jit.ScriptModule:
    """Return the TorchScript of `exported_module`."""
    with quietly():
        return torch.jit.trace(exported_module(predictor), (example(predictor),), check_trace=False)


def joined(outputs: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Return one or more outputs as one, along the channel axis."""
    return torch.cat(outputs, 1) if isinstance(outputs, tuple) else outputs


def axes_names(dims: int) -> Sequence[str]:
    return ("y", "x") if dims == 2 else ("z", "y", "x")


def _difference(module: nn.Module, run: Run, x: Tensor) -> float | str:
    """Return the largest difference, or the error of one of the two."""
    try:
        with torch.no_grad():
            expected = joined(module(x))
        found = run(x)
    except Exception as error:  # of any network and runtime
        return reason_of(error)
    if expected.shape[2:] != x.shape[2:]:
        return f"PyTorch's output is {tuple(expected.shape)} for an input {tuple(x.shape)}"
    if found.shape != expected.shape:
        return f"its output is {tuple(found.shape)}, PyTorch's {tuple(expected.shape)}"
    difference = (found - expected).abs().max().item()
    return difference if difference == difference else "its output is NaN"


def name_of(predictor: Predictor) -> str:
    return str(predictor.network_options.get("name", UNET))


def _of(predictor: Predictor, what: str) -> str:
    return f"{what} of network {name_of(predictor)}:"


def _described(problem: float | str) -> str:
    if isinstance(problem, str):
        return f"failed ({problem})"
    return f"differs from PyTorch by {problem:.2g}, more than {TOLERANCE:g},"
