"""The learning curve of a run over its number of masks, from curve.csv."""

from dataclasses import dataclass

import numpy as np

from hebbseg.data.progress import counted
from hebbseg.errors import explaining
from hebbseg.evaluation.learning_curve import power_law
from hebbseg.evaluation.metrics import INTERVAL_FROM
from hebbseg.experiments.mask_curve import REMEDY, TABLE
from hebbseg.reporting.charts import Picture, picture
from hebbseg.reporting.plots.figures import plt
from hebbseg.reporting.run_page.facts import RunFacts
from hebbseg.reporting.run_page.pictures import SIZE
from hebbseg.reporting.tables.table import EMPTY, Cell, Row, Table, number_cell, shown_number
from hebbseg.text_files import read_rows

LIMITS = (
    "One run for each number of masks, and the intervals are over test cases: they contain neither the choice of the masks nor "
    "the random seed, so the curve is more uncertain than they show."
)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A row of curve.csv: fractions with the bounds of their 90 % intervals; None where there is none."""

    masks: int
    measured: bool
    n: int
    values: dict[str, float | None]

    def interval(self, name: str) -> tuple[float, float] | None:
        low, high = self.values[f"{name}_low"], self.values[f"{name}_high"]
        return None if low is None or high is None else (low, high)


def read_curve(facts: RunFacts) -> list[Point]:
    """Return the points of curve.csv; none without the file."""
    path = facts.folder / TABLE
    if not path.is_file():
        return []
    points = []
    with explaining(path, "not a table of the curve", REMEDY):
        for row in read_rows(path, REMEDY):
            names = [f"{name}{end}" for name in ("dice", "gain", "exponent") for end in ("", "_low", "_high")]
            values = {name: float(row[name]) if row[name] else None for name in [*names, "seconds", "updates_done"]}
            points.append(Point(masks=int(row["masks"]), measured=row["kind"] == "measured", n=int(row["n"]), values=values))
    return points


def curve_sentences(points: list[Point]) -> str:
    """Return what the curve shows: the measured effect of the last doubling, and a guess at the next, with their limits."""
    measured = [point for point in points if point.measured]
    last, before = measured[-1], measured[-2]
    gain, interval = last.values["gain"] or 0.0, last.interval("gain")
    shown = f"{shown_number(100 * gain, 1, sign=True)} percentage points"
    found = f"From {before.masks} to {counted(last.masks, 'mask')}, the mean Dice changed by {shown}"
    if interval is None:
        return f"{found}; {counted(last.n, 'test case')} are too few for an interval. {LIMITS}"
    low, high = (shown_number(100 * bound, 1, sign=True) for bound in interval)
    found += f" (90 % interval over the same {last.n} test cases: {low} to {high})."
    if interval[0] > 0:
        found += " More masks helped."
    elif interval[1] < 0:
        found += " More masks did not help in these runs, which points to chance in training or to inconsistent masks."
    else:
        found += " The interval includes zero: no detectable effect of more masks in these runs."
    return " ".join([found, *map(_guess, (point for point in points if not point.measured)), LIMITS])


def _guess(far: Point) -> str:
    exponent, interval = far.interval("exponent"), far.interval("dice")
    if exponent is None or interval is None:
        return ""
    if exponent[0] <= 0:
        return (
            f"The curve does not rise clearly (exponent of the power law {exponent[0]:.2f} to {exponent[1]:.2f}), so there "
            f"is no estimate for {far.masks} masks."
        ).replace("-", "−")
    return (
        f"If the error kept falling by the same power law, {far.masks} masks would give a Dice of about "
        f"{100 * (far.values['dice'] or 0):.0f} % ({100 * interval[0]:.0f} to {100 * interval[1]:.0f} % by the test cases "
        "alone). That is a guess, and rather too high: curves flatten as the Dice approaches its limit. Beyond that, the curve "
        "says nothing."
    )


def curve_table(points: list[Point]) -> Table:
    rows = [
        Row(
            cells=(
                Cell(text=str(point.masks), sort=point.masks, numbers={"": point.masks}),
                _with_interval(point, "dice"),
                _with_interval(point, "gain"),
                number_cell(point.values["updates_done"], 0),
                number_cell(point.values["seconds"], 0),
            )
        )
        for point in points
        if point.measured
    ]
    return Table(
        name="curve",
        title="Test Dice by number of masks",
        note="The same settings, plan, test cases and time limit; smaller sets of masks are part of the larger ones. gain: "
        f"over the row above, paired by case. Brackets: 90 % t-interval over cases (none for fewer than {INTERVAL_FROM}).",
        columns=("masks", "Dice (%)", "gain (points)", "updates", "seconds"),
        rows=tuple(rows),
    )


def _with_interval(point: Point, name: str) -> Cell:
    value, interval = point.values[name], point.interval(name)
    if value is None:
        return EMPTY
    sign = name == "gain"
    bounds = () if interval is None else tuple(shown_number(100 * bound, 1, sign=sign) for bound in interval)
    return Cell(
        text=shown_number(100 * value, 1, sign=sign),
        detail=f"({bounds[0]} to {bounds[1]})" if bounds else "",
        sort=value,
        numbers={"": 100 * value} | dict(zip(("low", "high"), (100 * bound for bound in interval or ()), strict=False)),
    )


def curve_picture(points: list[Point]) -> Picture:
    """Draw the measured points with intervals, the power law through them, and the extrapolated interval."""
    measured, far = [point for point in points if point.measured], [point for point in points if not point.measured]
    figure, axis = plt.subplots(figsize=SIZE, layout="constrained")
    masks, dice = [point.masks for point in measured], np.array([point.values["dice"] for point in measured], dtype=float)
    halves = [0.0 if (bounds := point.interval("dice")) is None else (bounds[1] - bounds[0]) / 2 for point in measured]
    axis.errorbar(masks, 100 * dice, yerr=100 * np.array(halves), fmt="o", color="0.0", capsize=3, label="measured")
    if far:
        log_a, b = power_law(masks, dice)
        x = np.geomspace(masks[0], far[0].masks, 50)
        y = 100 * (1 - np.exp(log_a - b * np.log(x)))
        inside = x <= masks[-1]
        axis.plot(x[inside], y[inside], "-", color="0.4", label="power law")
        axis.plot(x[~inside], y[~inside], ":", color="0.4", label="extrapolated")
        if (bounds := far[0].interval("dice")) is not None:
            middle = 100 * (far[0].values["dice"] or 0)
            error = [[max(0.0, middle - 100 * bounds[0])], [max(0.0, 100 * bounds[1] - middle)]]
            axis.errorbar([far[0].masks], [middle], yerr=error, fmt="o", markerfacecolor="white", color="0.4", capsize=3)
    every = [point.masks for point in points]
    axis.set(xscale="log", xlabel="masks used in training", ylabel="test Dice (%)", title="Test Dice by number of masks")
    axis.set_xticks(every, [str(value) for value in every], minor=False)
    axis.minorticks_off()
    axis.grid(axis="y", color="0.9")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    words = ", ".join(f"{point.masks} masks {100 * (point.values['dice'] or 0):.1f} %" for point in measured)
    return picture(
        figure,
        alt=f"Test Dice by number of masks: {words}.",
        caption=f"Error bars: 90 % intervals over {counted(measured[0].n, 'test case')}. Open circle and dotted line: the "
        "power law 1 − Dice = a · masks⁻ᵇ, extrapolated to twice the masks.",
    )
