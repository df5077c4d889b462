"""Stage 1 by back-propagation: the peers of Hebbian learning, which also see images alone."""

import hashlib
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hebbseg.methods.ops import seed_of, without_dropout
from hebbseg.networks.unet import UNet
from hebbseg.training.interrupt import Interrupted, Request
from hebbseg.training.schedules import rate_factor

Row = dict[str, Any]
ROWS = 20  # about how many lines the history gets
WARM_UP = 0.05
CLIP = 5.0


class Pretext(Protocol):
    """A task made from images, with a plain UNet inside that does it."""

    network: UNet
    steps: int
    rate: float

    def loss(self, images: Tensor, progress: float, generator: torch.Generator) -> dict[str, Tensor]: ...


def train_pretext(
    pretext: Pretext,
    images: Callable[[int], Tensor],
    *,
    state: dict[str, Any] | None = None,
    save: Callable[[dict[str, Any]], None] = lambda state: None,
    report: Callable[[int, int, Row], None] = lambda step, total, row: None,
    request: Request | None = None,
) -> list[Row]:
    """Lets ``pretext.network`` learn in place (AdamW, warm-up, cosine; no dropout) and gives the history.

    Everything random in step k comes from the first weights and k, so that a training that goes on from a saved state ends
    in the same weights.

    Args:
        images, state, save, report, request: as in `hebbseg.pretraining.hebbian.pretrain`.
    """
    module = pretext
    assert isinstance(module, nn.Module)
    module.to(next(pretext.network.parameters()).device).train()
    seed, first, history = seed_of(pretext.network), 0, []
    # The head takes no part; its gradient stays None.
    optimizer = torch.optim.AdamW(module.parameters(), lr=pretext.rate)
    if state is not None:
        module.load_state_dict(state["pretext"])
        optimizer.load_state_dict(state["optimizer"])
        seed, first, history = state["seed"], state["step"], list(state["history"])
    every = max(1, pretext.steps // ROWS)
    with without_dropout(module):
        for step in range(first, pretext.steps):
            for group in optimizer.param_groups:
                group["lr"] = pretext.rate * rate_factor("cosine", (step + 1) / pretext.steps, WARM_UP)
            terms = pretext.loss(images(step), step / pretext.steps, _generator(seed, step))
            optimizer.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            _share_gradients(module)
            nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            optimizer.step()
            if (step + 1) % every == 0:
                values = {name: float(term.detach()) for name, term in terms.items()}
                history.append({"stage": "pretrain", "step": step + 1, **values})
                save(
                    {
                        "step": step + 1,
                        "seed": seed,
                        "pretext": module.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "history": list(history),
                    }
                )
            report(step + 1, pretext.steps, history[-1] if history else {})
            if request is not None and request.made:
                raise Interrupted("Stopped in stage 1.")
    for parameter in module.parameters():
        parameter.grad = None
    return history


def _share_gradients(module: nn.Module) -> None:
    """The mean over all processes, where there are several."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        for parameter in module.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()


def _generator(seed: int, step: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/pretext/{step}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
