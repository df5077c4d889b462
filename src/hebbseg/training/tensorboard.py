"""Training history as TensorBoard events."""

from pathlib import Path
from typing import Any, Self

from hebbseg.data.progress import Reporter
from hebbseg.errors import HebbsegError


def require_tensorboard() -> None:
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise HebbsegError("tensorboard=True: TensorBoard is not installed. Run `pip install hebbseg[tensorboard]`.") from None


class WithTensorBoard:
    """A reporter that also writes the numbers of every row as TensorBoard events."""

    def __init__(self, reporter: Reporter, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._reporter = reporter
        self._writer = SummaryWriter(str(folder), flush_secs=10)
        self._written: dict[tuple[str, int], float] = {}

    def say(self, text: str) -> None:
        self._reporter.say(text)

    def step(self, stage: str, done: int, total: int, row: dict[str, Any]) -> None:
        self._reporter.step(stage, done, total, row)
        # A row can gain values after its first report: the Dice of a later validation.
        for name, value in row.items():
            key = (f"{stage}/{name}", row["step"])
            if isinstance(value, float) and self._written.get(key) != value:
                self._written[key] = value
                self._writer.add_scalar(key[0], value, row["step"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._writer.close()
