"""Whether the arms of a comparison were trained for equally long, and a remark if not."""

from collections.abc import Sequence

from hebbseg.reporting.comparison import Comparison
from hebbseg.reporting.results import RunResult

ENDED_BY = {"time_budget": "the time budget", "patience": "early stopping"}


def budget_remark(comparison: Comparison) -> str:
    """Return a sentence if arms differ in their number of updates, or their runs were ended early; else an empty text."""
    if comparison.kind == "probe":
        return ""
    by_arm = {label: [run for run in comparison.runs if comparison.label(run) == label] for label in comparison.labels}
    lengths = {label: {run.updates_done for run in runs} for label, runs in by_arm.items()}
    known = [numbers for numbers in lengths.values() if None not in numbers]
    differ = len({frozenset(numbers) for numbers in known}) > 1
    ended = any(run.stopped_by in ENDED_BY for run in comparison.runs)
    if not differ and not ended:
        return ""
    described = "; ".join(f"{label}: {_length(runs)}" for label, runs in by_arm.items())
    if len(by_arm) > 1 and differ:
        return f"The arms have different budgets, which differences between them include. Updates of stage 2: {described}."
    return f"Runs were ended early. Updates of stage 2: {described}."


def _length(runs: Sequence[RunResult]) -> str:
    """``"212 to 230 of 1000 (3 of 3 runs ended by the time budget)"``."""
    done = sorted(run.updates_done for run in runs if run.updates_done is not None)
    if not done:
        return "not recorded"
    text = f"{done[0]}" if done[0] == done[-1] else f"{done[0]} to {done[-1]}"
    planned = sorted({run.updates_planned for run in runs if run.updates_planned is not None})
    if planned and planned != sorted(set(done)):
        text += f" of {planned[0]}" if len(planned) == 1 else f" of {planned[0]} to {planned[-1]}"
    ended = [
        f"{count} of {len(runs)} runs ended by {name}"
        for why, name in ENDED_BY.items()
        if (count := sum(run.stopped_by == why for run in runs))
    ]
    return f"{text} ({', '.join(ended)})" if ended else text
