"""Stage-1 weights computed once for all runs that share them.

They depend on the training images, the settings of stage 1, the network and its seed, not on the label regime or the
method of stage 2. One file, written atomically, holds them with the history and diagnostics of stage 1.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from hebbseg.config import Settings
from hebbseg.data.progress import Reporter
from hebbseg.data.splits.split import TrainingCases
from hebbseg.errors import HebbsegError, explaining
from hebbseg.experiments.tasks import WEIGHTS
from hebbseg.hebbian.diagnostics import LayerDiagnostics, as_dict
from hebbseg.networks.factory import build_network
from hebbseg.networks.model_file import load_model, save_model
from hebbseg.pretraining.initializers import Initialized
from hebbseg.runs.checkpoint import load_checkpoint
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import Dataset, draw_split
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.planned import filled
from hebbseg.runs.stages import SEEDS_APART, Initialize, stage1_session
from hebbseg.training.distributed import launched, make_fabric
from hebbseg.training.interrupt import interrupt_requests


def fit_stage1(settings: Settings, network: int, folder: Path, *, dataset: Dataset, reporter: Reporter) -> None:
    """Run stage 1 of network number ``network`` (see `Stage1Fit`), resumable, and write `WEIGHTS` to ``folder``."""
    settings = filled(settings, dataset)
    # Without masks: too few of them for a label regime is an error of the runs in that regime only.
    training = draw_split(settings.changed(labelled="0"), dataset.source).training
    fabric = make_fabric(settings)
    with launched(fabric), interrupt_requests() as request:
        context = RunContext(settings, dataset, training, fabric)
        classes = context.outputs
        files = RunFolder(folder, writes=fabric.global_rank == 0)
        checkpoint = files / "checkpoint.pt"
        state = load_checkpoint(checkpoint) if checkpoint.exists() else None
        session = stage1_session(settings, files, state, reporter, request if files.writes else None)
        made, first = context.initialize(classes, settings.run_seed + network * SEEDS_APART, session)
        if files.writes:
            described = {
                "network": context.network_options(classes),
                "images": _images_hash(training),
                "planned": _planned(context),
                # As text, which keeps the order of columns and layers: metadata keys are sorted.
                "report": json.dumps({"history": first.history, "diagnostics": as_dict(first.diagnostics)}),
            }
            save_model(files / WEIGHTS, made.state_dict(), described)
            checkpoint.unlink(missing_ok=True)
        fabric.barrier()


def cached_weights(folders: Sequence[Path]) -> Initialize:
    """Return an initializer that loads the weights `fit_stage1` wrote to these folders, one per network.

    They are those of the plan of one label regime. A run whose labelled masks lead to another size computes its own.
    """

    def initialize(context: RunContext, network: int) -> tuple[nn.Module, Initialized]:
        path = folders[network] / WEIGHTS
        weights, described = load_model(path)
        with explaining(path, "not weights of stage 1 of a grid", "Delete its folder; the grid makes it again."):
            report, images = json.loads(described["report"]), described["images"]
            diagnostics = {name: LayerDiagnostics(**numbers) for name, numbers in report["diagnostics"].items()}
            history = list(report["history"])
        if images != _images_hash(context.training):
            raise HebbsegError(
                f"{path}: these weights were trained on different training images than those of this run, as the data have "
                "changed. Restore the data, or choose another output folder with -o."
            )
        if described.get("planned", _planned(context)) != _planned(context):
            return context.initialize(context.outputs, context.settings.run_seed + network * SEEDS_APART)
        made = build_network(**context.network_options(context.outputs)).to(context.fabric.device)
        made.load_state_dict(weights)
        return made, Initialized(history=history, diagnostics=diagnostics)

    return initialize


def _planned(context: RunContext) -> dict[str, Any]:
    """Return the planned values that stage 1 depends on, as JSON has them."""
    batches, size = context.batches(seed=0), context.store.preprocessing.size
    spacing = context.store.preprocessing.spacing
    return {
        "size": None if size is None else list(size),
        **({} if spacing is None else {"spacing": list(spacing)}),
        "patch": None if batches.patch is None else list(batches.patch),
        "features": list(context.settings.network.features),
        "batch": batches.image_batch,
    }


def _images_hash(training: TrainingCases) -> str:
    return hashlib.sha256("\n".join(training.images).encode()).hexdigest()
