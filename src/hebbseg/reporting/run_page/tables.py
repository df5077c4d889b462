"""Tables of one run: settings, plan, split, test results, size and time."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from hebbseg.config import AUTO_INIT, FLAT_NAMES, UNLIMITED_UPDATES, make_settings
from hebbseg.data.progress import counted, duration
from hebbseg.errors import HebbsegError, printable
from hebbseg.methods import AUTO, auto_method, options_text
from hebbseg.networks.model_file import load_model
from hebbseg.reporting.run_page.facts import RunFacts
from hebbseg.reporting.statistics import Estimate
from hebbseg.reporting.tables.table import EMPTY, Cell, Row, Table, estimate_cell, number_cell, text_cell

NAMES_SHOWN = 200
STOPPED = {
    "updates": "all updates done",
    "time_budget": "time budget",
    "patience": "early stopping: no better validation Dice",
}


def settings_table(facts: RunFacts) -> Table | None:
    """Return the settings that differ from the defaults; those that ``method=auto`` chose are defaults."""
    rows = [
        Row(cells=tuple(map(text_cell, (name, _shown(value), _shown(default), str(FLAT_NAMES[name][2].description)))))
        for name, (value, default) in changed_settings(facts).items()
    ]
    return _table("settings", "Settings that differ from the defaults", ("setting", "value", "default", "meaning"), rows)


def changed_settings(facts: RunFacts) -> dict[str, tuple[Any, Any]]:
    """Return {name: (value, default)}."""
    default = make_settings(facts.settings.data.source, {}).flat(relevant=True)
    given = facts.settings.flat(relevant=True)
    training = facts.split.training
    for unlabelled in (len(training.unlabelled), 1):  # 1: partly annotated masks count as unlabelled
        if (given["method"], given["method_options"]) == auto_method(unlabelled=unlabelled):
            given |= {"method": AUTO, "method_options": {}}
    if given["init"] == AUTO_INIT:
        given["init"] = default["init"]
    if given["updates"] == UNLIMITED_UPDATES:
        given["updates"] = default["updates"]
    missing = make_settings(facts.settings.data.source, {}).flat()
    differing = {name: (value, default.get(name, missing[name])) for name, value in given.items() if name != "data"}
    return {name: pair for name, pair in differing.items() if pair[0] != pair[1]}


def spatial_dims(facts: RunFacts) -> int:
    """Return 2 or 3; 2 if neither plan nor data tell."""
    if facts.plan is not None:
        return facts.plan.fingerprint.spatial_dims
    return 2 if facts.source is None else facts.source.spatial_dims


def plan_table(facts: RunFacts) -> Table | None:
    lines = () if facts.plan is None else facts.plan.lines()
    rows = [Row(cells=tuple(map(text_cell, line))) for line in lines]
    return _table("plan", "Planned settings", ("setting", "value", "reason"), rows)


def split_table(facts: RunFacts) -> Table | None:
    """Return the number of cases, of groups (patients) and the first names of each role."""
    groups = {} if facts.source is None else {case.id: case.group for case in facts.source.cases}
    rows = []
    for role, ids in roles(facts).items():
        known = {groups.get(id) for id in ids} - {None}
        rows.append(Row(cells=(text_cell(role), number_cell(len(ids), 0), number_cell(len(known), 0) if known else EMPTY)))
    return _table("split", "Cases by role", ("role", "cases", "groups (patients)"), rows)


def roles(facts: RunFacts) -> dict[str, tuple[str, ...]]:
    training = facts.split.training
    every = {
        "training, with mask": training.labelled,
        "training, without mask": training.unlabelled,
        "validation": training.validation,
        "test": facts.split.test,
    }
    return {role: ids for role, ids in every.items() if ids}


def masks_table(facts: RunFacts) -> Table | None:
    """Return the names of the labelled training images, in the order in which they were chosen."""
    labelled = facts.split.training.labelled
    rows = [
        Row(cells=(number_cell(number, 0), text_cell(printable(name))))
        for number, name in enumerate(islice(labelled, NAMES_SHOWN), 1)
    ]
    more = f" The first {NAMES_SHOWN} of {len(labelled)}." if len(labelled) > NAMES_SHOWN else ""
    return _table("masks", f"Masks used for training ({len(labelled)})", ("order", "image"), rows, f"split.json has all.{more}")


def test_table(facts: RunFacts) -> Table | None:
    """Return the test metrics of each class with intervals over cases, and the number of cases that have the class."""
    summary = facts.summary
    if not summary:
        return None
    blocks: dict[str, Mapping[str, Any]] = {
        facts.class_names.get(int(k), f"class {k}"): v for k, v in summary["classes"].items()
    }
    present = [{row.case for row in facts.metrics if row.index == int(key) and row.annotated} for key in summary["classes"]]
    counts: list[int | None] = [len(cases) for cases in present]
    if len(blocks) > 1:
        blocks, counts = {**blocks, "mean of classes": summary}, [*counts, None]
    unit, n = summary["unit"], summary["n"]
    rows = [
        Row(
            cells=(
                text_cell(name),
                _estimate(block["dice"], n, 100),
                _estimate(block["jaccard"], n, 100),
                _estimate(block["hd95"], n, 1),
                _estimate(block["asd"], n, 1),
                number_cell(100 * block["dice_pooled"], 1),
                number_cell(count, 0),
            )
        )
        for (name, block), count in zip(blocks.items(), counts, strict=True)
    ]
    grid = "at the size of the files" if summary.get("grid", "training") == "original" else "at the size used in training"
    columns = ("class", "Dice (%)", "Jaccard (%)", f"95HD ({unit})", f"ASD ({unit})", "pooled Dice (%)", "cases with it")
    note = (
        f"Mean over {counted(n, 'test case')} ± half-width of the 90 % t-interval over cases (none for fewer than 3), {grid}. "
        "It does not contain the variation between training runs, and is too narrow if several cases are of the same patient. "
        "95HD: 95th percentile of the distances between the surfaces; ASD: their mean; both are the image diagonal if only one "
        "of prediction and ground truth is empty. pooled: over the pixels of all cases together."
    )
    return _table("test", "Metrics by class", columns, rows, note)


def time_table(facts: RunFacts) -> Table | None:
    """Return sizes, times and versions of the run."""
    run = facts.run
    made, planned = run.get("updates_done"), run.get("updates_planned")
    versions = run.get("versions") or {}
    limit = facts.settings.finetune.time_budget_s
    values = {
        "total time": "" if run.get("seconds") is None else duration(run["seconds"]),
        "time budget": "none" if limit is None else duration(limit),
        "updates of stage 2": "" if made is None else str(made) if planned is None else f"{made} of {planned}",
        "end of stage 2": STOPPED.get(run.get("stopped_by", ""), ""),
        "network": _network(facts),
        "model file": _size(facts),
        "command": printable(run.get("command", "")),
        "versions": printable(", ".join(f"{name} {version}" for name, version in versions.items())),
        "split": printable(run["split_hash"])[:12],
        "folder": printable(facts.folder),
        "data": printable(facts.settings.data.source),
    }
    rows = [Row(cells=(text_cell(name), text_cell(value))) for name, value in values.items() if value]
    return _table("time", "This run", ("fact", "value"), rows)


def _network(facts: RunFacts) -> str:
    try:
        weights, _ = load_model(facts.folder / "model.safetensors")
    except HebbsegError:
        return facts.settings.network.name
    return f"{facts.settings.network.name}, {sum(tensor.numel() for tensor in weights.values()):,} parameters"


def _size(facts: RunFacts) -> str:
    path = facts.folder / "model.safetensors"
    return f"model.safetensors, {path.stat().st_size / 1e6:.1f} MB" if path.is_file() else ""


def _estimate(block: Mapping[str, Any], n: int, scale: int) -> Cell:
    return estimate_cell(Estimate(mean=block["mean"], half=block["ci90"], n=n), scale=scale)


def _table(name: str, title: str, columns: tuple[str, ...], rows: Sequence[Row], note: str = "") -> Table | None:
    return Table(name=name, title=title, note=note, columns=columns, rows=tuple(rows)) if rows else None


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return options_text(value) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else printable(value)
