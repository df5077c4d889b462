"""Stage 1 done once for all runs that begin with the same weights.

The weights follow from the data, the training images, the settings of stage 1, the network and its seed; regimes and
methods of stage 2 share them. They lie in one file, written whole or not at all, with what a run reports of its stage 1.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from hebbseg.config import Settings
from hebbseg.data.cases import Source
from hebbseg.data.progress import Reporter
from hebbseg.data.splits.split import TrainingCases
from hebbseg.errors import HebbsegError
from hebbseg.experiments.tasks import WEIGHTS
from hebbseg.hebbian.diagnostics import LayerDiagnostics, as_dict
from hebbseg.networks.model_file import load_model, save_model
from hebbseg.networks.unet import UNet
from hebbseg.pretraining.initializers import Initialised
from hebbseg.runs.checkpoint import load_checkpoint
from hebbseg.runs.context import Run
from hebbseg.runs.dataset import draw_split
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.train import SEEDS_APART, Starts, stage1_handlers
from hebbseg.training.distributed import launched, make_fabric
from hebbseg.training.interrupt import interrupt_requests


def fit_stage1(settings: Settings, network: int, folder: Path, *, source: Source, reporter: Reporter) -> None:
    """Stage 1 of network number ``network`` (from 1 on for methods with several), resumable; leaves `WEIGHTS` in ``folder``."""
    # Without masks, as stage 1 needs none: a regime that the data are too few for is the matter of the runs that ask for it.
    training = draw_split(settings.model_copy(update={"labelled": "0"}), source, reporter).training
    fabric = make_fabric(settings)
    classes = len(source.classes)
    with launched(fabric), interrupt_requests() as request:
        this = Run(settings, source, training, fabric)
        files = RunFolder(folder, writes=fabric.global_rank == 0)
        checkpoint = files / "checkpoint.pt"
        state = load_checkpoint(checkpoint) if checkpoint.exists() else None
        handlers = stage1_handlers(this, files, state, reporter, request if files.writes else None)
        made, first = this.initialise(classes, settings.seed + network * SEEDS_APART, **handlers)
        if files.writes:
            described = {
                "network": this.network_options(classes),
                "images": _images_hash(training),
                # As text: the order of rows' columns and of layers is theirs, and a description is sorted.
                "report": json.dumps({"history": first.history, "diagnostics": as_dict(first.diagnostics)}),
            }
            save_model(files / WEIGHTS, made.state_dict(), described)
            checkpoint.unlink(missing_ok=True)
        fabric.barrier()


def starts_from(folders: Sequence[Path]) -> Starts:
    """Gives a run the weights that `fit_stage1` left in these folders, one for each network."""

    def start(this: Run, network: int) -> tuple[UNet, Initialised]:
        path = folders[network] / WEIGHTS
        weights, described = load_model(path)
        if described["images"] != _images_hash(this.training):
            raise HebbsegError(
                f"{path}: these weights were learned from other training images than this run has: the data have changed "
                "since. Restore them, or choose another output folder."
            )
        made = UNet(**this.network_options(len(this.source.classes))).to(this.fabric.device)
        made.load_state_dict(weights)
        report = json.loads(described["report"])
        diagnostics = {name: LayerDiagnostics(**numbers) for name, numbers in report["diagnostics"].items()}
        return made, Initialised(history=report["history"], diagnostics=diagnostics)

    return start


def _images_hash(training: TrainingCases) -> str:
    return hashlib.sha256("\n".join(training.images).encode()).hexdigest()
