"""Stage 1 by backpropagation on a pretext task, for comparison with Hebbian learning."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hebbseg.config import PretrainSettings
from hebbseg.errors import HebbsegError
from hebbseg.methods.ops import seed_of
from hebbseg.networks.modes import modes_kept, without_dropout
from hebbseg.networks.unet import UNet
from hebbseg.pretraining.convergence import PLATEAUS, Convergence
from hebbseg.pretraining.pretext_images import PretextImages, Segment
from hebbseg.seeding import derive_seed
from hebbseg.training.schedules import Schedule, rate_factor
from hebbseg.training.session import Row, Session, State

ROWS = 20  # of the history, approximately, if the number of epochs is given
RATE = 2e-3
WARM_UP = 0.05
MOMENTUM = 0.9  # of SGD
CLIP = 5.0
# Training until convergence:
FEWEST_IMAGES = 10  # below, no image is held out and the number of epochs is fixed
EPOCHS = 200  # of so few images; maximum otherwise, or 3000 steps if that is more
MAX_STEPS = 3000
RISE_STEPS = 300  # until ``progress`` is 1
INTERVAL = (50, 250)  # least and most steps between validations: an epoch, within these limits


class Pretext(Protocol):
    """A self-supervised task with the UNet that is trained on it.

    ``segment`` divides a whole image into the segments that ``loss`` uses; None if it uses none. ``loss`` returns the terms
    to be minimized; ``progress`` rises from 0 to 1 during training.
    """

    network: UNet

    @property
    def segment(self) -> Segment | None: ...

    def loss(
        self, images: Tensor, progress: float, generator: torch.Generator, segments: Tensor | None = None
    ) -> dict[str, Tensor]: ...


def check_pretext(settings: PretrainSettings) -> None:
    """Raise if the schedule needs a number of epochs that is not given."""
    if settings.epochs == "auto" and settings.schedule not in ("auto", "constant"):
        raise HebbsegError(
            f"pretrain_schedule={settings.schedule}, pretrain_epochs=auto: init {settings.init} trains until its loss "
            "converges, but this schedule needs a number of epochs. Set pretrain_epochs=200, or pretrain_schedule=auto or "
            "constant."
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to train, and the learning rate.

    Args:
        steps: number of steps; the maximum if ``plateaus`` is not 0.
        every: steps between rows of the history, and between validations.
        rate: highest learning rate.
        schedule: of the learning rate; not used if ``plateaus`` is not 0.
        plateaus: number of plateaus of the validation loss until the end; 0: train all steps.
    """

    steps: int
    every: int
    rate: float
    schedule: Schedule
    plateaus: int

    @classmethod
    def of(cls, settings: PretrainSettings, images: PretextImages) -> "Plan":
        check_pretext(settings)
        per_epoch = min(images.steps_per_epoch, settings.max_batches or images.steps_per_epoch)
        converge = settings.epochs == "auto" and len(images.ids) >= FEWEST_IMAGES
        steps = per_epoch * (EPOCHS if settings.epochs == "auto" else settings.epochs)
        low, high = INTERVAL
        return cls(
            steps=max(steps, MAX_STEPS) if converge else steps,
            every=min(max(per_epoch, low), high) if converge else max(1, steps // ROWS),
            rate=RATE if settings.rate == "auto" else settings.rate,
            schedule="cosine" if settings.schedule == "auto" else settings.schedule,
            plateaus=(1 if settings.schedule == "constant" else PLATEAUS) if converge else 0,
        )

    def progress(self, step: int) -> float:
        return min(1.0, step / (RISE_STEPS if self.plateaus else self.steps))

    def rate_at(self, step: int, convergence: Convergence | None) -> float:
        """Return the learning rate of a step: by the schedule, or, until convergence, warm-up and then by plateaus."""
        if convergence is not None:
            return self.rate * min(1.0, (step + 1) / (WARM_UP * RISE_STEPS)) * convergence.rate_factor
        # In the middle of the step, so that neither the first nor the last rate is 0.
        return self.rate * rate_factor(self.schedule, (step + 0.5) / self.steps, WARM_UP if self.schedule == "cosine" else 0)


def train_pretext(
    pretext: Pretext, images: PretextImages, settings: PretrainSettings, *, session: Session | None = None
) -> list[Row]:
    """Train ``pretext.network`` in place, without dropout, and return the history.

    With a number of epochs, it trains on all images and keeps the last weights. With ``epochs="auto"``, it holds out 10 % of
    the images, trains until the loss on these converges (`Convergence`), and keeps the weights with the lowest loss.

    All randomness of step k derives from the initial weights and k, so a resumed training ends in the same weights.

    Args:
        settings: epochs, rate, optimizer and schedule.
    """
    session = session or Session()
    state, module, plan = session.state, pretext, Plan.of(settings, images)
    assert isinstance(module, nn.Module)
    module.to(next(pretext.network.parameters()).device).train()
    optimizer = make_optimizer(settings.optimizer, module.parameters(), plan.rate)
    trained, held = images.held_out() if plan.plateaus else (images, None)
    convergence, best = None, None
    if state is None:
        seed, first, history = seed_of(pretext.network), 0, []
        if held is not None:
            convergence = Convergence(initial=validation_loss(pretext, held, seed), plateaus=plan.plateaus)
    else:
        with session.restoring():
            module.load_state_dict(state["pretext"])
            optimizer.load_state_dict(state["optimizer"])
            seed, first, history, best = state["seed"], int(state["step"]), list(state["history"]), state["best"]
            convergence = None if state["convergence"] is None else Convergence(**state["convergence"])
    step = first
    with without_dropout(module):
        while step < plan.steps and not (convergence is not None and convergence.reached):
            for group in optimizer.param_groups:
                group["lr"] = plan.rate_at(step, convergence)
            generator = torch.Generator().manual_seed(derive_seed(seed, "pretext", step))
            batch, segments = trained.batch(step, pretext.segment)
            terms = pretext.loss(batch, plan.progress(step), generator, segments)
            optimizer.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            _average_gradients(module)
            nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            optimizer.step()
            step += 1
            if step % plan.every == 0:
                row: Row = {"stage": "pretrain", "step": step, **{name: float(term.detach()) for name, term in terms.items()}}
                _refuse_divergence(row, terms, plan.rate)
                if held is not None and convergence is not None:
                    row["validation"], passed = validation_loss(pretext, held, seed), convergence.passed
                    if convergence.add(row["validation"]):
                        best = {name: value.detach().clone() for name, value in module.state_dict().items()}
                    if convergence.passed > passed and best is not None:
                        module.load_state_dict(best)  # the weights since then may be overfitted
                        optimizer = make_optimizer(settings.optimizer, module.parameters(), plan.rate)
                history.append(row)
            session.save(partial(_state, step, seed, module, optimizer, history, convergence, best), False)
            session.report(step, plan.steps, history[-1] if history else {})
            session.stop_if_requested("Stopped in stage 1.")
    if best is not None:
        module.load_state_dict(best)  # also if the last step is the maximum
    if step < plan.steps:
        session.report(step, step, history[-1])
    for parameter in module.parameters():
        parameter.grad = None
    return history


def make_optimizer(name: str, parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Return the optimizer of this name; ``auto`` is AdamW. SGD has a momentum of 0.9."""
    # The head is not used; its gradient stays None.
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM)
    return (torch.optim.Adam if name == "adam" else torch.optim.AdamW)(parameters, lr=rate)


@torch.no_grad()
def validation_loss(pretext: Pretext, held: PretextImages, seed: int) -> float:
    """Return the mean loss on held-out images, with the same random numbers at every call; equal in all processes."""
    assert isinstance(pretext, nn.Module)
    losses = []
    with modes_kept(pretext):
        pretext.eval()
        for number, (images, segments) in enumerate(held.validation(pretext.segment)):
            generator = torch.Generator().manual_seed(derive_seed(seed, "pretext validation", number))
            losses.append(torch.stack(list(pretext.loss(images, 1.0, generator, segments).values())).sum())
    mean = torch.stack(losses).mean()
    if _processes() > 1:
        dist.all_reduce(mean)
        mean /= _processes()
    return float(mean)


def _refuse_divergence(row: Row, terms: dict[str, Tensor], rate: float) -> None:
    for name in terms:
        if not math.isfinite(row[name]):
            raise HebbsegError(
                f"The loss of stage 1 ({name}) became {row[name]} at step {row['step']}. Lower the learning rate with "
                f"pretrain_rate (now {rate:g}), or check for damaged images."
            )


def _state(
    step: int, seed: int, module: nn.Module, optimizer: torch.optim.Optimizer, history: list[Row],
    convergence: Convergence | None, best: dict[str, Tensor] | None,
) -> State:  # fmt: skip
    states = {"pretext": module.state_dict(), "optimizer": optimizer.state_dict(), "best": best}
    rule = None if convergence is None else asdict(convergence)
    return {"step": step, "seed": seed, **states, "convergence": rule, "history": list(history)}


def _processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _average_gradients(module: nn.Module) -> None:
    """Replace gradients by their mean over all processes."""
    if _processes() > 1:
        for parameter in module.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= _processes()
