"""Writes the training history for TensorBoard."""

from pathlib import Path
from typing import Any, Self

from hebbseg.data.progress import Reporter
from hebbseg.errors import HebbsegError


def require_tensorboard() -> None:
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise HebbsegError("tensorboard=True: TensorBoard is not installed; `pip install hebbseg[tensorboard]`.") from None


class WithTensorBoard:
    """Passes everything on, and writes the numbers of every row to a folder that TensorBoard reads."""

    def __init__(self, reporter: Reporter, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._reporter = reporter
        self._writer = SummaryWriter(str(folder), flush_secs=10)
        self._written: dict[tuple[str, int], float] = {}

    def say(self, text: str) -> None:
        self._reporter.say(text)

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None:
        self._reporter.step(stage, done, total, row)
        # A row may get further numbers after it was first shown: the Dice of a later look at the validation cases.
        for name, value in row.items():
            place = (f"{stage}/{name}", row["step"])
            if isinstance(value, float) and self._written.get(place) != value:
                self._written[place] = value
                self._writer.add_scalar(place[0], value, row["step"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.close()
