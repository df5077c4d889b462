"""The training loop of stage 2, shared by all methods."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from hebbseg.config import FinetuneSettings
from hebbseg.data.batches import Batch, Batches
from hebbseg.errors import HebbsegError
from hebbseg.methods.base import Labelled, Method, Step
from hebbseg.seeding import derive_seed
from hebbseg.training.ema import WeightAverage
from hebbseg.training.schedules import rate_factor
from hebbseg.training.session import Row, Session, State

ROWS = 100  # of the history, approximately
TYPICAL_UPDATES = 2000  # within a time limit


def fit(
    method: Method,
    batches: Batches,
    settings: FinetuneSettings,
    *,
    seed: int = 0,
    fabric: Fabric | None = None,
    validate: Callable[[nn.Module], float] | None = None,
    session: Session | None = None,
    rows: int = ROWS,
) -> tuple[nn.Module, list[Row]]:
    """Train ``method``; return the network to keep (EMA weights, or the best on validation) and the history.

    All randomness of update k derives from (seed, k), so a resumed training ends in the same weights, bit for bit, as an
    uninterrupted one.

    Args:
        batches: each batch is requested once.
        fabric: device, precision and processes; default: one process on the CPU.
        validate: computes the Dice of a network on the validation cases. The best network is kept, and training stops
            after ``settings.patience`` validations without improvement, if set. None disables both.
        rows: approximate number of rows of the history.
    """
    fabric, session = fabric or Fabric(accelerator="cpu", devices=1), session or Session()
    training = _Training(method, settings, fabric, _updates_per_row(settings, rows))
    if session.state is not None:
        with session.restoring():
            training.load_state_dict(session.state)
    wrapped, training.optimizer = fabric.setup(_Unconverted(method), training.optimizer)
    method.train()
    stopped_by = "updates"
    numbers = range(training.done, settings.updates)
    for number, batch in zip(numbers, batches.from_step(training.done), strict=False):
        progress = training.progress()
        if progress >= 1:
            stopped_by = "time_budget"
            break
        if settings.patience is not None and training.best["looks_since"] >= settings.patience:
            stopped_by = "patience"
            break
        rate = training.set_learning_rate(progress)
        torch.manual_seed(derive_seed(seed, "update", number, fabric.global_rank))
        step = Step(number=number, progress=progress, generator=batch.generator)
        arguments = (*_share(batch, fabric), step)
        terms = wrapped(lambda arguments=arguments: arguments)
        loss = torch.stack(list(terms.values())).sum()
        _refuse_divergence(loss, number, settings, fabric)
        training.optimizer.zero_grad()
        fabric.backward(loss)
        if settings.clip is not None:
            fabric.clip_gradients(wrapped, training.optimizer, max_norm=settings.clip, error_if_nonfinite=False)
        training.optimizer.step()
        method.after_step(step)
        training.include(rate, terms)
        if validate is not None and (training.done % settings.validate_every == 0 or training.done == settings.updates):
            training.validate(validate)
        session.report(training.done, training.expected(), training.log.latest())
        session.save(training.state_dict, session.stop_requested)
        session.stop_if_requested(f"Stopped after update {training.done} of {training.expected()}.")
    if validate is not None and training.best["network"] is None:  # the time limit came before the first validation
        training.validate(validate)
    session.ended(training.done, stopped_by)
    return training.best_network(), training.log.rows


class _Training:
    """The training state, as saved in checkpoints."""

    def __init__(self, method: Method, settings: FinetuneSettings, fabric: Fabric, rows_every: int) -> None:
        self.method = method
        self.settings = settings
        self.fabric = fabric
        self.optimizer: Any = _optimizer(method, settings)
        self.average = WeightAverage(method.network, settings.ema) if settings.ema else None
        if self.average is not None:
            self.average.network.to(fabric.device)
        self.log = _Log(every=rows_every)
        self.best: dict[str, Any] = {"dice": -1.0, "network": None, "looks_since": 0}
        self.done = 0
        self._elapsed_before, self._start = 0.0, time.monotonic()

    @property
    def network(self) -> nn.Module:
        """The network that is evaluated: the averaged one with EMA."""
        return self.method.network if self.average is None else self.average.network

    def progress(self) -> float:
        """Return the completed fraction of the updates or of the time limit, whichever is larger."""
        fraction = self.done / self.settings.updates
        if self.settings.time_budget_s is None:
            return fraction
        return max(fraction, _broadcast(self._elapsed(), self.fabric) / self.settings.time_budget_s)

    def expected(self) -> int:
        """Return the number of updates of the whole training; with a time limit, an estimate from those done."""
        if self.settings.time_budget_s is None or not self.done:
            return self.settings.updates
        return min(self.settings.updates, max(self.done, round(self.done / max(self.progress(), 1e-9))))

    def set_learning_rate(self, progress: float) -> float:
        factor = rate_factor(self.settings.schedule, progress + 1 / self.settings.updates, self.settings.warm_up)
        rate = self.settings.learning_rate * factor
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["relative_rate"]
        return rate

    def include(self, rate: float, terms: dict[str, Tensor]) -> None:
        """Record an update."""
        if self.average is not None:
            self.average.include(self.method.network)
        self.log.include(self.done, rate, terms)
        self.done += 1

    def validate(self, validate: Callable[[nn.Module], float]) -> None:
        dice = _broadcast(validate(self.network), self.fabric)
        self.best["last"] = dice
        self.best["looks_since"] += 1
        if dice > self.best["dice"]:
            kept = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
            self.best.update(dice=dice, looks_since=0, network=kept)
        self.log.note(dice=dice)

    def best_network(self) -> nn.Module:
        if self.best["network"] is not None:
            self.network.load_state_dict(self.best["network"])
        return self.network

    def state_dict(self) -> State:
        return {
            "step": self.done,
            "elapsed_s": self._elapsed(),
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "log": self.log.state_dict(),
            "best": self.best,
        }

    def load_state_dict(self, state: State) -> None:
        self.method.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.log.load_state_dict(state["log"])
        self.best, self.done, self._elapsed_before = state["best"], state["step"], state["elapsed_s"]

    def _elapsed(self) -> float:
        return self._elapsed_before + time.monotonic() - self._start


def _updates_per_row(settings: FinetuneSettings, rows: int) -> int:
    """Return the updates per row of the history; with a time limit, there may be more or fewer rows."""
    limited = settings.time_budget_s is not None
    return max(1, min(settings.updates, TYPICAL_UPDATES if limited else settings.updates) // rows)


def _refuse_divergence(loss: Tensor, number: int, settings: FinetuneSettings, fabric: Fabric) -> None:
    value = float(loss.detach() if fabric.world_size == 1 else fabric.all_reduce(loss.detach()))
    if not math.isfinite(value):
        raise HebbsegError(
            f"The loss became {value} at update {number}. Lower the learning rate (now {settings.learning_rate:g})"
            f"{'' if settings.clip else ' or clip gradients'}, or check for damaged images."
        )


class _Unconverted(nn.Module):
    """The method, called with a function that returns its arguments.

    Fabric would round tensor arguments to the precision of the run before strong views are computed from them, and does
    not accept a `Step`. Autocast still applies inside the network.
    """

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, arguments: Callable[[], tuple[Labelled, Tensor | None, Step]]) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = self.method(*arguments())
        return terms


def _optimizer(method: Method, settings: FinetuneSettings) -> torch.optim.Optimizer:
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, weight in method.named_parameters():
        if weight.requires_grad:
            relative = settings.encoder_rate if "encoder" in name.split(".") else 1.0
            decay = settings.weight_decay if weight.dim() > 1 else 0.0  # none for biases and norm layers
            groups.setdefault((relative, decay), []).append(weight)
    options = [{"params": p, "relative_rate": r, "weight_decay": d} for (r, d), p in groups.items()]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(options, lr=settings.learning_rate, momentum=settings.momentum)
    # The fused step cannot unscale the gradients of 16-mixed.
    return torch.optim.AdamW(options, lr=settings.learning_rate, fused=settings.precision != "16-mixed")


def _share(batch: Batch, fabric: Fabric) -> tuple[Labelled, Tensor | None]:
    """Return this process's part of the batch: every n-th image with n processes."""
    part = slice(fabric.global_rank, None, fabric.world_size)
    if fabric.world_size > len(batch.images):
        raise HebbsegError(
            f"{fabric.world_size} processes cannot share a batch of {len(batch.images)} labelled images. Raise labelled_batch "
            "or lower devices."
        )
    labelled = Labelled(fabric.to_device(batch.images[part]), fabric.to_device(batch.masks[part]))
    return labelled, None if batch.unlabelled is None else fabric.to_device(batch.unlabelled[part])


def _broadcast(value: float, fabric: Fabric) -> float:
    """Return the first process's value, so that all processes stop at the same update."""
    return value if fabric.world_size == 1 else float(fabric.broadcast(value))


class _Log:
    """The history: one row per ``every`` updates, with the means of the loss terms."""

    def __init__(self, *, every: int) -> None:
        self.every = every
        self.rows: list[Row] = []
        self._sums: dict[str, float] = {}
        self._count = 0

    def include(self, number: int, rate: float, terms: dict[str, Tensor]) -> None:
        values = {name: float(term.detach()) for name, term in terms.items()}
        for name, value in {"loss": sum(values.values()), **values}.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._count += 1
        if (number + 1) % self.every == 0:
            means = {name: value / self._count for name, value in self._sums.items()}
            self.rows.append({"stage": "fit", "step": number + 1, "learning_rate": rate, **means})
            self._sums, self._count = {}, 0

    def note(self, **values: float) -> None:
        if self.rows:
            self.rows[-1].update(values)

    def latest(self) -> Row:
        return self.rows[-1] if self.rows else {}

    def state_dict(self) -> dict[str, Any]:
        return {"rows": [dict(row) for row in self.rows], "sums": dict(self._sums), "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self._sums, self._count = state["rows"], state["sums"], state["count"]
