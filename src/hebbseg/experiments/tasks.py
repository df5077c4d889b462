"""Tasks of a grid, as a worker executes them: resumable, locked and logged."""

import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from filelock import FileLock

from hebbseg.atomic_files import write_json
from hebbseg.config import DataSettings, Settings
from hebbseg.data.progress import Lines
from hebbseg.errors import HebbsegError
from hebbseg.text_files import read_json
from hebbseg.training.interrupt import Interrupted

if TYPE_CHECKING:  # imports torch, which the driver does not need
    from hebbseg.data.cases import Source
    from hebbseg.runs.dataset import Dataset

WEIGHTS = "weights.safetensors"
Status = Literal["done", "failed", "stopped", "lost"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A fit of stage 1 or a run.

    Args:
        id: also names the log and the lock.
        folder: where the result is written.
        out: the output folder of the grid.
        stage1: folders of the initial weights, one per network; if empty, the run computes them.
        network: number of the network a stage-1 fit is for.
        note: the value of "grid" in run.json.
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
    """Result of a task. ``lost``: its worker died; ``stopped``: stopped on request, with its state saved."""

    status: Status
    message: str = ""
    seconds: float = 0.0


def is_done(task: Task) -> bool:
    if task.kind == "stage1":
        return (task.folder / WEIGHTS).is_file()
    return described(task.folder).get("status") == "done"


def described(folder: Path) -> dict[str, Any]:
    """Return run.json of a run, or an empty dict if there is no readable one."""
    try:
        return read_json(folder / "run.json", "")
    except HebbsegError:
        return {}


def take_over(task: Task) -> None:
    """Assign a finished run, perhaps of another recipe, to the current one."""
    description = described(task.folder)
    if description.get("grid") != task.note:
        write_json(task.folder / "run.json", description | {"grid": task.note})


def carry_out(task: Task) -> Outcome:
    """Execute the task and return its outcome; errors are logged, not raised."""
    status: Status = "done"
    message = ""
    with _logged(task) as log, _alone(task):
        start = time.monotonic()
        try:
            if not is_done(task):
                if task.settings.hardware.devices * task.settings.hardware.num_nodes > 1:
                    from hebbseg.experiments.executors.multi_process import perform_in_processes

                    perform_in_processes(task)
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
        return Outcome(status=status, message=message, seconds=time.monotonic() - start)


def perform(task: Task) -> None:
    """Execute the task in this process and in those that Fabric starts for further devices."""
    from hebbseg.experiments.probe import probe
    from hebbseg.experiments.stage1_cache import cached_weights, fit_stage1
    from hebbseg.runs.train import run

    settings, reporter = task.settings, Lines(sys.stderr)
    if task.kind == "stage1":
        dataset = dataset_of(settings, any_regime=True)
        fit_stage1(settings, task.network, task.folder, dataset=dataset, reporter=reporter)
        return
    if task.folder.exists() and not all((task.folder / name).exists() for name in ("run.json", "split.json")):
        shutil.rmtree(task.folder)  # killed before it recorded its settings and split
    _update_data_path(task)
    dataset = dataset_of(settings, folder=task.folder)
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


def _update_data_path(task: Task) -> None:
    """Resume an interrupted run although its data were moved; the hash of the split shows whether the cases are the same."""
    description = described(task.folder)
    before = description.get("settings")
    if isinstance(before, dict) and before.get("data") != task.settings.data.source:
        moved = before | {"data": task.settings.data.source}
        write_json(task.folder / "run.json", description | {"settings": moved})


def dataset_of(settings: Settings, *, folder: Path | None = None, any_regime: bool = False) -> "Dataset":
    """Return the data of a task at their planned size, decoded once for consecutive tasks of a worker with the same size.

    The size follows from the labelled masks of the run, so runs with the same split share it.

    Args:
        folder: a run folder; the plan of a run that was started there is kept.
        any_regime: plan without masks if there are fewer than the label regime needs: stage 1 reads none.
    """
    from hebbseg.runs.dataset import draw_split
    from hebbseg.runs.folder import RunFolder
    from hebbseg.runs.planned import filling, plan_run
    from hebbseg.runs.selection import draw_selected_split

    source = _listed(_of_files(settings.data).model_copy(update={"size": "auto", "spacing": "auto"}))
    if folder is not None and RunFolder(folder).has_run:
        plan = RunFolder(folder).plan()
    else:
        try:
            split = draw_selected_split(settings, source, Lines(sys.stderr))
        except HebbsegError:
            if not any_regime:
                raise
            split = draw_split(settings.changed(labelled="0"), source)
        plan = plan_run(settings, source, split)
    fill, _ = filling(plan, source)
    originals = settings.finetune.metrics_grid == "original"
    return replace(_dataset(_of_files(fill(settings).data), originals), plan=plan)


def _of_files(settings: DataSettings) -> DataSettings:
    """Return the settings that decoding depends on; the others have their defaults."""
    default = DataSettings(source=settings.source)
    of_split = ("labelled", "protocol", "folds", "folds_by", "fold", "test", "split_seed", "select")
    of_patches = ("patch", "patch_foreground", "window_blend")
    return settings.model_copy(update={name: getattr(default, name) for name in of_split + of_patches})


@lru_cache(maxsize=1)
def _listed(settings: DataSettings) -> "Source":
    from hebbseg.runs.dataset import list_cases

    return list_cases(settings)


@lru_cache(maxsize=1)
def _dataset(settings: DataSettings, originals: bool) -> "Dataset":
    """Decode the cases; ``originals``: keep the masks before resizing, as any case may be tested."""
    from hebbseg.runs.dataset import decode_cases

    source = _listed(settings.model_copy(update={"size": "auto", "spacing": "auto"}))
    kept = [case.id for case in source.cases if case.has_mask] if originals else ()
    return decode_cases(source, settings, Lines(sys.stderr), originals=kept)


@contextmanager
def _logged(task: Task) -> Iterator[TextIO]:
    task.log.parent.mkdir(parents=True, exist_ok=True)
    with task.log.open("a", encoding="utf-8", buffering=1) as log, redirect_stdout(log), redirect_stderr(log):
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {task.id}\n")
        yield log


@contextmanager
def _alone(task: Task) -> Iterator[None]:
    """Wait until no other process executes this task; the lock of a process that dies is released."""
    folder = task.out / ".locks"
    folder.mkdir(exist_ok=True)
    with FileLock(folder / f"{task.id}.lock"):
        yield
