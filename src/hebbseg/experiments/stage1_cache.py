"""Stage 1 done once for all runs that begin with the same weights.

The weights follow from the data, the training images, the settings of stage 1, the network and its seed; regimes and
methods of stage 2 share them. They lie in one file, written whole or not at all, with what a run reports of its stage 1.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from hebbseg.config import Settings
from hebbseg.data.progress import Reporter
from hebbseg.data.splits.split import TrainingCases
from hebbseg.errors import HebbsegError
from hebbseg.experiments.tasks import WEIGHTS
from hebbseg.hebbian.diagnostics import LayerDiagnostics, as_dict
from hebbseg.networks.factory import build_network
from hebbseg.networks.model_file import load_model, save_model
from hebbseg.pretraining.initializers import Initialized
from hebbseg.runs.checkpoint import load_checkpoint
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import Dataset, draw_split
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.stages import SEEDS_APART, Initialize, stage1_session
from hebbseg.training.distributed import launched, make_fabric
from hebbseg.training.interrupt import interrupt_requests


def fit_stage1(settings: Settings, network: int, folder: Path, *, dataset: Dataset, reporter: Reporter) -> None:
    """Stage 1 of network number ``network`` (from 1 on for methods with several), resumable; leaves `WEIGHTS` in ``folder``."""
    # Without masks, as stage 1 needs none: a regime that the data are too few for is the matter of the runs that ask for it.
    training = draw_split(settings.changed(labelled="0"), dataset.source).training
    fabric = make_fabric(settings)
    classes = len(dataset.source.classes)
    with launched(fabric), interrupt_requests() as request:
        context = RunContext(settings, dataset, training, fabric)
        files = RunFolder(folder, writes=fabric.global_rank == 0)
        checkpoint = files / "checkpoint.pt"
        state = load_checkpoint(checkpoint) if checkpoint.exists() else None
        session = stage1_session(settings, files, state, reporter, request if files.writes else None)
        made, first = context.initialize(classes, settings.seed + network * SEEDS_APART, session)
        if files.writes:
            described = {
                "network": context.network_options(classes),
                "images": _images_hash(training),
                # As text: the order of rows' columns and of layers is theirs, and a description is sorted.
                "report": json.dumps({"history": first.history, "diagnostics": as_dict(first.diagnostics)}),
            }
            save_model(files / WEIGHTS, made.state_dict(), described)
            checkpoint.unlink(missing_ok=True)
        fabric.barrier()


def cached_weights(folders: Sequence[Path]) -> Initialize:
    """Gives a run the weights that `fit_stage1` left in these folders, one for each network."""

    def initialize(context: RunContext, network: int) -> tuple[nn.Module, Initialized]:
        path = folders[network] / WEIGHTS
        weights, described = load_model(path)
        if described["images"] != _images_hash(context.training):
            raise HebbsegError(
                f"{path}: these weights were learned from other training images than this run has: the data have changed "
                "since. Restore them, or choose another output folder."
            )
        made = build_network(**context.network_options(len(context.source.classes))).to(context.fabric.device)
        made.load_state_dict(weights)
        report = json.loads(described["report"])
        diagnostics = {name: LayerDiagnostics(**numbers) for name, numbers in report["diagnostics"].items()}
        return made, Initialized(history=report["history"], diagnostics=diagnostics)

    return initialize


def _images_hash(training: TrainingCases) -> str:
    return hashlib.sha256("\n".join(training.images).encode()).hexdigest()
