"""Stage 2: the only training loop, whatever the method."""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from hebbseg.data.batches import Batch, Batches
from hebbseg.errors import HebbsegError
from hebbseg.methods.base import Labelled, Method, Step
from hebbseg.training.ema import WeightAverage
from hebbseg.training.interrupt import Interrupted, Request
from hebbseg.training.schedules import Schedule, rate_factor

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Stage2:
    """How stage 2 learns; see `hebbseg.config.Settings` for what each means."""

    updates: int = 1000
    seed: int = 0
    optimiser: str = "adamw"
    learning_rate: float = 2e-3
    encoder_rate: float = 1.0
    weight_decay: float = 1e-2
    schedule: Schedule = "cosine"
    warm_up: float = 0.05
    ema: float = 0.99
    clip: float | None = 5.0
    time_budget_s: float | None = None
    validate_every: int = 50
    patience: int = 10
    rows: int = 100
    """About how many lines the history gets."""


def fit(
    method: Method,
    batches: Batches,
    stage: Stage2,
    *,
    fabric: Fabric | None = None,
    validate: Callable[[nn.Module], float] | None = None,
    state: dict[str, Any] | None = None,
    save: Callable[[Callable[[], dict[str, Any]], bool], None] = lambda state, now: None,
    report: Callable[[int, int, Row], None] = lambda step, total, row: None,
    request: Request | None = None,
) -> tuple[nn.Module, list[Row]]:
    """Trains ``method`` and gives the network to keep (averaged weights, or the best on validation) and the history.

    Everything random in update k comes from (seed, k), so a training that goes on from a saved state ends in the same
    weights, bit for bit, as one that was never stopped.

    Args:
        batches: give batch k; the loop asks for each once.
        fabric: device, precision and processes; default one process on the processor.
        validate: Dice of a network on the validation cases; the best one is kept, and no better one for
            ``stage.patience`` looks ends the training. None trains to the end.
        state: of an earlier call that was cut short.
        save: called after every update with a function that makes the state, and whether it must be written now.
        report: called after every update with (updates done, updates in all, newest row of the history).
        request: looked at after every update; when made, the state is saved and `Interrupted` raised.
    """
    fabric = fabric or Fabric(accelerator="cpu", devices=1)
    optimizer = _optimizer(method, stage)
    average = WeightAverage(method.network, stage.ema).to(fabric.device) if stage.ema else None
    log = _Log(every=max(1, stage.updates // stage.rows))
    best: dict[str, Any] = {"dice": -1.0, "network": None, "looks_since": 0}
    first, elapsed_before = 0, 0.0
    if state is not None:
        method.load_state_dict(state["method"])
        optimizer.load_state_dict(state["optimizer"])
        if average is not None:
            average.load_state_dict(state["average"])
        log.load_state_dict(state["log"])
        best, first, elapsed_before = state["best"], state["step"], state["elapsed_s"]
    wrapped, optimizer = fabric.setup(_AsGiven(method), optimizer)
    method.train()
    start = time.monotonic()

    def elapsed() -> float:
        return elapsed_before + time.monotonic() - start

    def kept() -> nn.Module:
        return method.network if average is None else average.network

    for number in range(first, stage.updates):
        progress = number / stage.updates
        if stage.time_budget_s is not None:
            progress = max(progress, _as_in_first(elapsed(), fabric) / stage.time_budget_s)
        if progress >= 1 or best["looks_since"] >= stage.patience:
            break
        rate = stage.learning_rate * rate_factor(stage.schedule, progress + 1 / stage.updates, stage.warm_up)
        for group in optimizer.param_groups:
            group["lr"] = rate * group["relative_rate"]
        batch = batches.batch(number)
        torch.manual_seed(_seed(stage.seed, number, fabric.global_rank))
        step = Step(number=number, progress=progress, generator=batch.generator)
        given = (*_share(batch, fabric), step)
        terms = wrapped(lambda given=given: given)
        loss = torch.stack(list(terms.values())).sum()
        value = float(loss.detach() if fabric.world_size == 1 else fabric.all_reduce(loss.detach()))
        if not math.isfinite(value):
            raise HebbsegError(
                f"The loss became {value} at update {number}. Lower the learning rate (now {stage.learning_rate:g})"
                f"{'' if stage.clip else ' or clip gradients'}, or look for broken images."
            )
        optimizer.zero_grad()
        fabric.backward(loss)
        if stage.clip is not None:
            fabric.clip_gradients(wrapped, optimizer, max_norm=stage.clip, error_if_nonfinite=False)
        optimizer.step()
        method.after_step(step)
        if average is not None:
            average.include(method.network)
        log.include(number, rate, terms)

        done = number + 1
        if validate is not None and (done % stage.validate_every == 0 or done == stage.updates):
            _look(best, _as_in_first(validate(kept()), fabric), kept())
            log.note(dice=best["last"])
        stopping = request is not None and request.made

        def current(done: int = done) -> dict[str, Any]:
            return {
                "step": done,
                "elapsed_s": elapsed(),
                "method": method.state_dict(),
                "optimizer": optimizer.state_dict(),
                "average": None if average is None else average.state_dict(),
                "log": log.state_dict(),
                "best": best,
            }

        report(done, stage.updates, log.newest())
        save(current, stopping)
        if stopping:
            raise Interrupted(f"Stopped after update {done} of {stage.updates}.")
    network = kept()
    if best["network"] is not None:
        network.load_state_dict(best["network"])
    return network, log.rows


class _AsGiven(nn.Module):
    """The method, whose arguments come in a function.

    Fabric takes all other arguments apart and rounds them to the precision of a run, so that strong views would be made
    from rounded images, and stops at a `Step`. What a network computes in lower precision, autocast chooses without that.
    """

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, given: Callable[[], tuple[Labelled, Tensor | None, Step]]) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = self.method(*given())
        return terms


def _optimizer(method: Method, stage: Stage2) -> torch.optim.Optimizer:
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, weight in method.named_parameters():
        if weight.requires_grad:
            relative = stage.encoder_rate if "encoder" in name.split(".") else 1.0
            # Biases and norm layers hold no features to forget.
            decay = stage.weight_decay if weight.dim() > 1 else 0.0
            groups.setdefault((relative, decay), []).append(weight)
    options = [{"params": p, "relative_rate": r, "weight_decay": d} for (r, d), p in groups.items()]
    if stage.optimiser == "sgd":
        return torch.optim.SGD(options, lr=stage.learning_rate, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(options, lr=stage.learning_rate)


def _share(batch: Batch, fabric: Fabric) -> tuple[Labelled, Tensor | None]:
    """This process's part of the batch: every n-th image, so that n processes see one batch together."""
    part = slice(fabric.global_rank, None, fabric.world_size)
    if fabric.world_size > len(batch.images):
        raise HebbsegError(
            f"{fabric.world_size} processes share a batch of {len(batch.images)} labelled images; raise labelled_batch or "
            "lower devices."
        )
    labelled = Labelled(fabric.to_device(batch.images[part]), fabric.to_device(batch.masks[part]))
    return labelled, None if batch.unlabelled is None else fabric.to_device(batch.unlabelled[part])


def _as_in_first(value: float, fabric: Fabric) -> float:
    """The first process's value: where processes decided by their own, one would stop and the others wait for it."""
    return value if fabric.world_size == 1 else float(fabric.broadcast(value))


def _seed(seed: int, step: int, rank: int) -> int:
    digest = hashlib.sha256(f"{seed}/update/{step}/{rank}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def _look(best: dict[str, Any], dice: float, network: nn.Module) -> None:
    best["last"] = dice
    if dice > best["dice"]:
        weights = {name: value.detach().clone() for name, value in network.state_dict().items()}
        best.update(dice=dice, network=weights, looks_since=0)
    else:
        best["looks_since"] += 1


class _Log:
    """Means of the loss terms over each stretch of updates, one row of the history a stretch."""

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

    def newest(self) -> Row:
        return self.rows[-1] if self.rows else {}

    def state_dict(self) -> dict[str, Any]:
        return {"rows": [dict(row) for row in self.rows], "sums": dict(self._sums), "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self._sums, self._count = state["rows"], state["sums"], state["count"]
