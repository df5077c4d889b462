"""One piece of a grid's work, as a worker does it: found done or done now, resumed where it was cut, logged."""

import json
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from filelock import FileLock

from hebbseg.atomic_files import write_json
from hebbseg.config import DataSettings, Settings
from hebbseg.data.progress import Lines
from hebbseg.errors import HebbsegError
from hebbseg.training.interrupt import Interrupted

if TYPE_CHECKING:  # a driver needs none of what comes with it
    from hebbseg.runs.dataset import Dataset

WEIGHTS = "weights.safetensors"
Status = Literal["done", "failed", "stopped", "lost"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A fit of stage 1 or a run.

    Args:
        id: of the task, its log and its lock.
        kind: what is done.
        settings: resolved.
        folder: of the result.
        out: of the grid.
        stage1: folders of the weights it begins with, one per network; none computes them in the run.
        network: which one a fit of stage 1 is for.
        note: goes into run.json as "grid".
    """

    id: str
    kind: Literal["stage1", "train", "probe"]
    settings: Settings
    folder: Path
    out: Path
    stage1: tuple[Path, ...] = ()
    network: int = 0
    note: dict[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.out / "logs" / f"{self.id}.log"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a task ended, and how long it took itself.

    ``lost``: its worker died; ``stopped``: somebody asked it to stop, and its state is saved.
    """

    status: Status
    message: str = ""
    seconds: float = 0.0


def is_done(task: Task) -> bool:
    if task.kind == "stage1":
        return (task.folder / WEIGHTS).is_file()
    return described(task.folder).get("status") == "done"


def described(folder: Path) -> dict[str, Any]:
    """run.json of a run, or nothing where there is none that can be read."""
    try:
        description = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return description if isinstance(description, dict) else {}


def take_over(task: Task) -> None:
    """Lets a run that is done count for the recipe that asks for it now; another may have done it."""
    description = described(task.folder)
    if description.get("grid") != task.note:
        write_json(task.folder / "run.json", description | {"grid": task.note})


def carry_out(task: Task) -> Outcome:
    """Does the task; whatever goes wrong with it becomes an outcome, and its log tells."""
    status: Status = "done"
    message = ""
    with _logged(task) as log, _alone(task):
        begun = time.monotonic()
        try:
            if not is_done(task):
                if task.settings.hardware.devices * task.settings.hardware.num_nodes > 1:
                    from hebbseg.experiments.executors.multi_process import perform_apart

                    perform_apart(task)
                else:
                    perform(task)
        except Interrupted as stop:
            status, message = "stopped", str(stop)
            log.write(f"{stop}\n")
        except Exception as error:
            status, message = "failed", str(error)
            if not isinstance(error, HebbsegError):
                message = f"{type(error).__name__}: {error}"
            traceback.print_exc(file=log)
        return Outcome(status=status, message=message, seconds=time.monotonic() - begun)


def perform(task: Task) -> None:
    """Does the task in this process, and in the further ones that its settings ask for."""
    from hebbseg.experiments.probe import probe
    from hebbseg.experiments.stage1_cache import cached_weights, fit_stage1
    from hebbseg.runs.train import run

    settings, reporter = task.settings, Lines(sys.stderr)
    dataset = dataset_of(settings)
    if task.kind == "stage1":
        fit_stage1(settings, task.network, task.folder, dataset=dataset, reporter=reporter)
        return
    _clear_unbegun(task.folder)
    _follow_data(task)
    do = run if task.kind == "train" else probe
    do(
        settings,
        task.folder,
        resume=task.folder.exists(),
        reporter=reporter,
        dataset=dataset,
        initialize=cached_weights(task.stage1) if task.stage1 else None,
        notes={"grid": task.note},
    )


def _clear_unbegun(folder: Path) -> None:
    """Removes what is left of a run that was killed before it had written down what it is."""
    if folder.exists() and not ((folder / "run.json").exists() and (folder / "split.json").exists()):
        shutil.rmtree(folder)


def _follow_data(task: Task) -> None:
    """Lets a run that was cut go on where its data are now: its id has the name of the data set, which may lie anywhere.

    Whether they are the same cases, the hash of the split says.
    """
    description = described(task.folder)
    before = description.get("settings")
    if isinstance(before, dict) and before.get("data") != task.settings.data.source:
        moved = before | {"data": task.settings.data.source}
        write_json(task.folder / "run.json", description | {"settings": moved})


def dataset_of(settings: Settings) -> "Dataset":
    """The data of a task, decoded once for all tasks on them that a worker gets in a row, whatever their split."""
    unsplit = DataSettings(source=settings.data.source)
    split = ("labelled", "protocol", "folds", "fold", "test", "split_seed", "patch")
    return _dataset(settings.data.model_copy(update={name: getattr(unsplit, name) for name in split}))


@lru_cache(maxsize=1)
def _dataset(settings: DataSettings) -> "Dataset":
    from hebbseg.runs.dataset import open_dataset

    return open_dataset(settings, Lines(sys.stderr))


@contextmanager
def _logged(task: Task) -> Iterator[TextIO]:
    task.log.parent.mkdir(parents=True, exist_ok=True)
    with task.log.open("a", encoding="utf-8", buffering=1) as log, redirect_stdout(log), redirect_stderr(log):
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {task.id}\n")
        yield log


@contextmanager
def _alone(task: Task) -> Iterator[None]:
    """Waits until no other process is at this task; a process that dies gives its lock back."""
    folder = task.out / ".locks"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / f"{task.id}.lock"):
        yield
