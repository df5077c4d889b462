"""What a run was asked to do and what it did, in a sentence each, and the warnings of the run."""

from hebbseg.data.progress import counted, duration
from hebbseg.errors import printable
from hebbseg.methods import AUTO_TITLE
from hebbseg.reporting.arm_names import arm_of, dataset_of
from hebbseg.reporting.run_page.facts import RunFacts

ENDS = {
    "updates": "",
    "time_budget": "; the time budget ended stage 2",
    "patience": "; stage 2 ended early, without a better validation Dice",
}


def asked(facts: RunFacts) -> str:
    training, settings = facts.split.training, facts.settings
    name = printable(dataset_of(settings.data.source))
    dims = "" if facts.plan is None else f" ({facts.plan.fingerprint.spatial_dims}D)"
    classes = f" {_listed(list(facts.class_names.values()))} in" if facts.class_names else ""
    limit = settings.finetune.time_budget_s
    within = "" if limit is None else f", within {duration(limit)}"
    continued = settings.pretrain.from_run
    arm = printable(arm_of(settings.flat(relevant=True))[0])
    if arm.startswith("Default "):
        arm = f"Hebbian pre-training and {AUTO_TITLE} (the default pipeline)"
    arm = f"continuing from {continued}" if continued else arm
    return (
        f"segment{classes} {name}{dims}, trained on {counted(len(training.labelled), 'image')} with a mask and "
        f"{len(training.unlabelled) or 'none'} without, by {arm}, with seed {settings.seed}{within}."
    )


def done(facts: RunFacts) -> str:
    if not facts.finished:
        return f"the run is not finished (status: {printable(facts.run['status'])})."
    made, planned = facts.run.get("updates_done"), facts.run.get("updates_planned")
    updates = "all updates" if made is None else counted(made, "update")
    updates = f"{made} of {counted(planned, 'update')}" if made is not None and planned is not None else updates
    seconds = facts.run.get("seconds")
    took = "" if seconds is None else f"; the whole run took {duration(seconds)}"
    trained = f"{_stage1(facts)}{updates} of stage 2{ENDS.get(facts.run.get('stopped_by', ''), '')}{took}"
    trained += _without_pseudo_labels(facts)
    if not facts.summary:
        return f"{trained}. No case was held out for testing, so the quality of the model is unknown."
    return f"{trained}. {dice_text(facts)}"


def _stage1(facts: RunFacts) -> str:
    """Return what a time budget has done to stage 1."""
    changed = (facts.run.get("time_budget") or {}).get("stage1") or {}
    if not changed:
        return ""
    left_out = "init" in changed
    return "stage 1 left out, as the time budget was too short for it; " if left_out else "stage 1, shortened by the budget; "


def _without_pseudo_labels(facts: RunFacts) -> str:
    """Return that the training ended before its method used unlabelled images, if it did."""
    start, made = int(facts.settings.finetune.method_options.get("start_updates", 0)), facts.run.get("updates_done")
    if not start or not isinstance(made, int) or made > start:
        return ""
    return f"; pseudo-labels begin after {counted(start, 'update')}, so only the labelled images were used in stage 2"


def dice_text(facts: RunFacts) -> str:
    """Return the mean Dice of the test with its interval and n."""
    dice, n = facts.summary["dice"], facts.summary["n"]
    interval = "no interval for fewer than 3 cases"
    if dice["ci90"] is not None:
        interval = (
            f"90 % interval over cases: {_percent(dice['mean'] - dice['ci90'])} to {_percent(dice['mean'] + dice['ci90'])}"
        )
    return f"On {counted(n, 'held-out test case')}, the mean Dice is {_percent(dice['mean'])} ({interval})."


def warnings(facts: RunFacts) -> list[str]:
    return [printable(facts.run["warning"])] if facts.run.get("warning") else []


def _percent(value: float) -> str:
    return f"{100 * min(1.0, max(0.0, value)):.1f} %"


def _listed(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
