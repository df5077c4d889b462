"""Prediction that continues in a folder of results, alone or together with other processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hebbseg.data.progress import Quiet, Reporter
from hebbseg.inference.claims import Claims
from hebbseg.inference.files import Input, Outcome, Targets, predict_files
from hebbseg.inference.predictor import Predictor

CLAIMS = ".claims"


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The outcome of this process; ``finished``: had a mask already; ``elsewhere``: another process is predicting them."""

    outcome: Outcome
    finished: int
    elsewhere: int


def predict_shared(
    segmenters: Sequence[Predictor],
    inputs: Sequence[Input],
    targets: Sequence[Targets],
    folder: Path,
    *,
    reporter: Reporter | None = None,
) -> Shared:
    """Like `predict_files`, for the images without a mask in ``folder`` that no other process is predicting.

    Images of other processes are tried a second time in the end, as their processes may have been killed.
    """
    reporter = reporter or Quiet()
    masks: list[Path] = []
    failures: list[str] = []
    before = {target.mask for target in targets if target.mask.exists()}
    waiting = [(each, target) for each, target in zip(inputs, targets, strict=True) if target.mask not in before]
    total = len(waiting)
    with Claims(folder / CLAIMS) as claims:
        for _ in range(2):
            left = []
            for each, target in waiting:
                if target.mask.exists():
                    continue
                if not claims.take(each.name):
                    left.append((each, target))
                    continue
                try:
                    if not target.mask.exists():  # another process may have finished it before the claim
                        found = predict_files(segmenters, [each], [target], reporter=_WithoutTotal(reporter))
                        masks += found.masks
                        failures += found.failures
                        reporter.step("predict", len(masks) + len(failures), total, {})
                finally:
                    claims.release(each.name)
            waiting = left
    unfinished = sum(not target.mask.exists() for _, target in waiting)
    done = total - unfinished - len(masks) - len(failures)
    outcome = Outcome(masks=tuple(masks), failures=tuple(failures))
    return Shared(outcome=outcome, finished=len(before) + done, elsewhere=unfinished)


class _WithoutTotal(Quiet):
    """A reporter for one image: its steps are not those of all images."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def say(self, text: str) -> None:
        self._reporter.say(text)

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None:
        if stage != "predict":
            self._reporter.step(stage, done, total, row)
