"""Stage 1 by backpropagation on a pretext task, for comparison with Hebbian learning."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hebbseg.methods.ops import seed_of
from hebbseg.networks.modes import without_dropout
from hebbseg.networks.unet import UNet
from hebbseg.seeding import derive_seed
from hebbseg.training.schedules import rate_factor
from hebbseg.training.session import Row, Session, State

ROWS = 20  # of the history, approximately
WARM_UP = 0.05
CLIP = 5.0


class Pretext(Protocol):
    """A self-supervised task with the UNet that is trained on it."""

    network: UNet
    steps: int
    rate: float

    def loss(self, images: Tensor, progress: float, generator: torch.Generator) -> dict[str, Tensor]: ...


def train_pretext(pretext: Pretext, images: Callable[[int], Tensor], *, session: Session | None = None) -> list[Row]:
    """Train ``pretext.network`` in place (AdamW, warm-up, cosine schedule, no dropout) and return the history.

    All randomness of step k derives from the initial weights and k, so a resumed training ends in the same weights.

    Args:
        images: returns batch number k of images, (B, C, *S).
    """
    session = session or Session()
    state, module = session.state, pretext
    assert isinstance(module, nn.Module)
    module.to(next(pretext.network.parameters()).device).train()
    seed, first, history = seed_of(pretext.network), 0, []
    # The head is not used; its gradient stays None.
    optimizer = torch.optim.AdamW(module.parameters(), lr=pretext.rate)
    if state is not None:
        with session.restoring():
            module.load_state_dict(state["pretext"])
            optimizer.load_state_dict(state["optimizer"])
            seed, first, history = state["seed"], int(state["step"]), list(state["history"])
    every = max(1, pretext.steps // ROWS)
    with without_dropout(module):
        for step in range(first, pretext.steps):
            for group in optimizer.param_groups:
                group["lr"] = pretext.rate * rate_factor("cosine", (step + 1) / pretext.steps, WARM_UP)
            generator = torch.Generator().manual_seed(derive_seed(seed, "pretext", step))
            terms = pretext.loss(images(step), step / pretext.steps, generator)
            optimizer.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            _average_gradients(module)
            nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            optimizer.step()
            if (step + 1) % every == 0:
                values = {name: float(term.detach()) for name, term in terms.items()}
                history.append({"stage": "pretrain", "step": step + 1, **values})
                session.save(partial(_state, step + 1, seed, module, optimizer, history), False)
            session.report(step + 1, pretext.steps, history[-1] if history else {})
            session.stop_if_requested("Stopped in stage 1.")
    for parameter in module.parameters():
        parameter.grad = None
    return history


def _state(step: int, seed: int, module: nn.Module, optimizer: torch.optim.Optimizer, history: list[Row]) -> State:
    states = {"pretext": module.state_dict(), "optimizer": optimizer.state_dict()}
    return {"step": step, "seed": seed, **states, "history": list(history)}


def _average_gradients(module: nn.Module) -> None:
    """Replace gradients by their mean over all processes."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        for parameter in module.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
