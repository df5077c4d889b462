"""Linear probe of stage 1: a run without stage 2 that fits a linear layer to the features of each level."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hebbseg.atomic_files import write_json
from hebbseg.config import Settings
from hebbseg.data.progress import Reporter
from hebbseg.data.splits.split import Split
from hebbseg.data.store import CaseStore
from hebbseg.evaluation.linear_probe import linear_probe
from hebbseg.hebbian.diagnostics import as_dict
from hebbseg.networks.unet import UNet
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import Dataset, describe_split
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.planned import filled
from hebbseg.runs.selection import draw_selected_split
from hebbseg.runs.stages import Initialize
from hebbseg.training.distributed import make_fabric

HALVES = {"enc": "encoder", "dec": "decoder"}


def probe(
    settings: Settings,
    out: Path,
    *,
    dataset: Dataset,
    reporter: Reporter,
    initialize: Initialize | None = None,
    notes: Mapping[str, Any] | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Run stage 1, fit a linear layer per level on the labelled training cases and evaluate it on the test cases.

    Writes run.json, split.json, pretrain.json and summary.json (see `hebbseg.experiments`) to ``out`` and returns the summary.
    """
    source = dataset.source
    split = draw_selected_split(settings, source, reporter)
    describe_split(split, source, reporter)
    folder = RunFolder(out)
    folder.begin(settings, split, resume=resume, plan=dataset.plan)
    if notes:
        folder.note(**notes)
    with folder.failure_noted():
        summary = _probed(filled(settings, dataset), dataset, split, folder, initialize)
    folder.note(status="done", seconds=round(folder.seconds, 1))
    return summary


def _probed(
    settings: Settings, dataset: Dataset, split: Split, folder: RunFolder, initialize: Initialize | None
) -> dict[str, Any]:
    source = dataset.source
    context = RunContext(settings, dataset, split.training, make_fabric(settings))
    classes = len(source.classes)
    network, first = initialize(context, 0) if initialize else context.initialize(classes, settings.run_seed)
    if first.diagnostics:
        write_json(folder / "pretrain.json", as_dict(first.diagnostics))
    assert isinstance(network, UNet)
    held_out = dataset.store.restricted_to(source, images=split.test, masks=split.test)
    scores = linear_probe(
        network.eval().features,
        list(_examples(context.store, split.training.labelled, network)),
        _examples(held_out, split.test, network),
        n_classes=classes,
        generator=torch.Generator().manual_seed(settings.run_seed),
        multiple_of=2 ** (len(settings.network.features) - 1),
    )
    summary = {
        "kind": "probe",
        "n": len(split.test),
        "fitted": len(split.training.labelled),
        "levels": {_module_name(name): score._asdict() for name, score in scores.items()},
        "split_notes": list(split.provenance.notes),
    }
    write_json(folder / "summary.json", summary)
    return summary


def _examples(store: CaseStore, ids: Sequence[str], network: UNet) -> Iterator[tuple[Tensor, Tensor]]:
    device = next(network.parameters()).device
    for name in ids:
        yield store.images([name])[0].to(device), store.mask(name).to(device)


def _module_name(feature: str) -> str:
    """``enc0`` → ``encoder.level0``."""
    half, level = re.fullmatch(r"(enc|dec)(\d+)", feature).groups()  # type: ignore[union-attr]
    return f"{HALVES[half]}.level{level}"
