"""What to try next, derived from the run: sentences with a command where there is one."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from scipy import stats

from hebbseg.config import PRESETS, FinetuneSettings, make_settings
from hebbseg.data.progress import counted
from hebbseg.errors import printable
from hebbseg.evaluation.metrics import INTERVAL_FROM
from hebbseg.experiments.mask_curve import TABLE
from hebbseg.reporting.run_page.facts import RunFacts
from hebbseg.reporting.run_page.tables import changed_settings

DEFAULT_UPDATES = int(FinetuneSettings.model_fields["updates"].default)
FEW_MASKS = 20
FEW_CASES = 10  # test cases
LATE = 0.8  # a best validation after this share of the updates is late
ENOUGH = 8  # cases, for a statement on what bad results have in common
LEVEL = 0.01  # of the tests for it
WORST = 5
SIZE_RATIO = 1.5  # predicted to annotated area, from which a prediction is called too large
FLAGS = ("from", "preset", "labelled", "seed", "init", "method", "updates", "size", "patch")
REPLACED = {"--updates": {"time_budget_s", "epochs"}, "--time-budget": {"time_budget_s"}, "--folds": {"test"}}
STILL = 0.01  # a layer that stage 1 changes by less has not learned
UNUSED = 0.25  # share of units that win, from which units are called unused


@dataclass(frozen=True, kw_only=True)
class Step:
    """A suggestion and the command for it, if there is one."""

    sentence: str
    command: str = ""


def next_steps(facts: RunFacts) -> list[Step]:
    """Return what the run suggests to try next, and at last what every run leaves open."""
    if not facts.finished:
        return [
            Step(sentence="The run is not finished. Continue it.", command=_command("train", "--resume", "-o", facts.folder))
        ]
    return [*_length(facts), *_masks(facts), *_classes(facts), *_bad_cases(facts), *_stage1(facts), *_certainty(facts)]


def _length(facts: RunFacts) -> Iterator[Step]:
    """Whether longer training may help."""
    made, planned = facts.run.get("updates_done"), facts.run.get("updates_planned")
    reason = facts.run.get("stopped_by")
    if made is None:
        return
    of_planned = "" if planned is None else f" of {planned}"
    rising = _best_is_late(facts)
    seen = {
        True: " The best validation Dice was among the last ones, so longer training may help.",
        False: " The validation Dice had stopped rising before, so longer training is unlikely to help.",
        None: " Without a validation set, the run does not show whether longer training would help.",
    }[rising]
    if reason == "time_budget":
        seconds = facts.run.get("seconds")
        yield Step(
            sentence=f"The time budget ended stage 2 after {made}{of_planned} updates.{seen}",
            command=""
            if rising is False or not seconds or not made
            else _again(facts, "--time-budget", _longer(facts, seconds)),
        )
    elif reason == "patience":
        yield Step(
            sentence=f"Stage 2 ended early, after {made}{of_planned} updates: the validation Dice no longer rose. More "
            "updates are unlikely to help; more masks or other settings may."
        )
    elif made < DEFAULT_UPDATES or rising:
        short = f"Stage 2 had {counted(made, 'update')}; the default is {DEFAULT_UPDATES}."
        sentence = f"{short if made < DEFAULT_UPDATES else f'Stage 2 had {made} updates.'}{seen}"
        yield Step(sentence=sentence, command=_again(facts, "--updates", str(max(DEFAULT_UPDATES, 2 * made))))


def _best_is_late(facts: RunFacts) -> bool | None:
    """Whether the best validation is in the last fifth of the updates; None with fewer than three validations."""
    found = facts.validations
    if len(found) < 3:
        return None
    return max(found, key=lambda each: each[1])[0] > LATE * found[-1][0]


def _longer(facts: RunFacts, seconds: float) -> str:
    """Return the time for all updates, as a value of --time-budget: two to four times that of the run."""
    made, planned = facts.run["updates_done"], facts.run.get("updates_planned")
    longer = 2.0 if planned is None else min(4.0, max(2.0, planned / made))
    return f"{max(1, round(seconds * longer / 60))}m"


def _masks(facts: RunFacts) -> Iterator[Step]:
    """Whether more masks are at hand, and how to find out what they are worth."""
    training = facts.split.training
    labelled, hidden = len(training.labelled), 0
    if facts.source is not None:
        masked = {case.id for case in facts.source.cases if case.has_mask}
        hidden = sum(name in masked for name in training.unlabelled)
    if hidden:
        yield Step(
            sentence=f"{counted(hidden, 'training image')} counted as unlabelled although the data have a mask "
            f"(labelled={facts.settings.data.labelled}). Use all masks for the best model.",
            command=_again(facts, "--labelled", "100%"),
        )
    elif training.unlabelled and labelled < FEW_MASKS:
        yield Step(
            sentence=f"Training had {counted(labelled, 'mask')}, and {counted(len(training.unlabelled), 'image')} without one. "
            "Annotate the images that this model is least certain of, then continue from this run with --from.",
            command=_command("next", facts.folder, "-n", "10"),
        )
    if labelled >= 4 and facts.summary and not (facts.folder / TABLE).is_file() and facts.settings.pretrain.from_run is None:
        yield Step(
            sentence="How many masks would help? --curve repeats this training with a quarter and half of the masks.",
            command=_command("train", "--resume", "--curve", "-o", facts.folder),
        )


def _classes(facts: RunFacts) -> Iterator[Step]:
    """Classes that the test cannot judge, or that the model never predicts."""
    for index, name in facts.class_names.items():
        rows = [row for row in facts.metrics if row.index == index]
        if rows and not any(row.annotated for row in rows):
            yield Step(
                sentence=f"No test case contains {name}, so its test result says nothing. Draw another split (--seed), or "
                "annotate cases with it."
            )
        elif rows and not any(row.predicted for row in rows):
            count = sum(row.annotated > 0 for row in rows)
            yield Step(
                sentence=f"The model never predicts {name}, which is in {counted(count, 'test case')}. "
                "Add masks with it, or train longer."
            )


def _bad_cases(facts: RunFacts) -> Iterator[Step]:
    """What the worst test cases have in common, if it is more than chance."""
    dice = facts.dice_by_case
    if len(dice) < ENOUGH:
        return
    worst = sorted(dice, key=lambda case: (dice[case], case))[:WORST]
    predicted, annotated = (dict.fromkeys(dice, 0) for _ in range(2))
    for row in facts.metrics:
        predicted[row.case] += row.predicted
        annotated[row.case] += row.annotated
    ratios = [predicted[case] / annotated[case] for case in worst if annotated[case]]
    for wrong, verb in ((ratios, "larger"), ([1 / ratio if ratio else float("inf") for ratio in ratios], "smaller")):
        if sum(each > SIZE_RATIO for each in wrong) >= WORST - 1:
            yield Step(
                sentence=f"In at least {WORST - 1} of the {WORST} worst test cases, the predicted area is {verb} than the "
                f"ground truth by a factor of more than {SIZE_RATIO:g} (median {min(median(wrong), 99.0):.1f})."
            )
    rho, p = (
        stats.spearmanr([annotated[case] for case in dice], list(dice.values())) if len(set(annotated.values())) > 1 else (0, 1)
    )
    if p < LEVEL:
        which = "small" if rho > 0 else "large"
        sentence = f"Test cases with a {which} annotated area have a lower Dice (rank correlation {rho:.2f}, n = {len(dice)})."
        small = " Small objects need detail: a larger working size (--size), or native with patches, may help."
        yield Step(sentence=sentence.replace("-", "−") + (small if rho > 0 else ""))
    yield from _shared_group(facts, worst)


def _shared_group(facts: RunFacts, worst: list[str]) -> Iterator[Step]:
    """Report the group, or side of a published split, that has more of the worst cases than chance explains."""
    if facts.source is None:
        return
    tested = {case.id: case for case in facts.source.cases if case.id in facts.dice_by_case}
    groups: dict[str, str | None] = {id: case.group for id, case in tested.items()}
    for group in sorted({groups.get(case) for case in worst} - {None}, key=str):
        members = [case for case, other in groups.items() if other == group]
        hits = sum(groups.get(case) == group for case in worst)
        p = float(stats.hypergeom.sf(hits - 1, len(groups), len(members), len(worst)))
        if hits > 1 and p * len(set(groups.values())) < LEVEL:  # Bonferroni: any group could have been found
            yield Step(
                sentence=f"{hits} of the {len(worst)} worst test cases are of the group (patient) {printable(group)}, which "
                f"has {len(members)} of the {len(groups)} test cases. Look at its images; masks of similar ones may help."
            )


def _stage1(facts: RunFacts) -> Iterator[Step]:
    """Layers that stage 1 has hardly changed, or in which few units win."""
    layers = [layer for layer in facts.layers.values() if isinstance(layer, dict)]
    still = sum(isinstance(layer.get("moved"), float) and layer["moved"] < STILL for layer in layers)
    few = sum(
        isinstance(layer.get("effective_units"), float) and layer["effective_units"] < UNUSED * layer["units"]
        for layer in layers
    )
    if still:
        yield Step(
            sentence=f"Stage 1 changed the weights of {still} of {counted(len(layers), 'layer')} by less than {STILL:.0%}: it "
            "was too short for them to learn. More epochs (--set pretrain_epochs=N) or a larger time budget may help."
        )
    if few:
        yield Step(
            sentence=f"In {few} of {counted(len(layers), 'layer')} of stage 1, fewer than a quarter of the units took part in "
            "learning. A higher temperature lets more units learn.",
            command=_again(facts, "--set", f"temperature={2 * facts.settings.pretrain.temperature:g}"),
        )


def _certainty(facts: RunFacts) -> Iterator[Step]:
    """How certain the result is."""
    n = facts.summary.get("n", 0)
    if not n:
        yield Step(
            sentence="No case was held out, so the quality of the model is unknown. Hold out a share of the cases with masks.",
            command=_again(facts, "--set", "test=0.2"),
        )
        return
    if n < FEW_CASES:
        none = " (too few for an interval)" if n < INTERVAL_FROM else ""
        yield Step(
            sentence=f"The test has {counted(n, 'case')}{none}, so its result is uncertain. Cross-validation tests every case "
            "with a mask once: train one run per fold, then compare them with hebbseg report.",
            command=_again(facts, "--folds", "5", "--fold", "0"),
        )
    yield Step(
        sentence="This is one run with one random seed. Train with other seeds before concluding that a setting is better.",
        command=_again(facts, "--seed", str(facts.settings.seed + 1)),
    )


def _again(facts: RunFacts, option: str, value: str, *others: str) -> str:
    """Return the command of a new run with the settings of this one, changed by these options."""
    names = [name.removeprefix("--").replace("-", "_") for name in (option, *others[::2])]
    replaced = {*names, *REPLACED.get(option, ())} | ({value.partition("=")[0]} if option == "--set" else set())
    kept = [
        part for name, text in options(facts).items() if name.partition(".")[0] not in replaced for part in _option(name, text)
    ]
    return _command("train", facts.settings.data.source, "-o", "NEW_RUN", *kept, option, value, *others)


def options(facts: RunFacts) -> dict[str, str]:
    """Return {name: text} of the settings that a new run needs to repeat this one."""
    settings, source = facts.settings, facts.settings.data.source
    if settings.pretrain.from_run is not None:
        return {"from": settings.pretrain.from_run} | ({"seed": str(settings.seed)} if settings.seed else {})
    default = make_settings(source, {"preset": settings.preset}).flat(relevant=True)
    found: dict[str, str] = {"preset": settings.preset} if settings.preset != PRESETS[0] else {}
    for name, (value, _) in changed_settings(facts).items():
        if name == "preset" or value == default.get(name):
            continue
        if isinstance(value, dict):
            found |= {f"{name}.{key}": _text(part) for key, part in value.items()}
        else:
            found[name] = _text(value, "x" if name in ("size", "patch") else ",")
    return found


def _text(value: Any, separator: str = ",") -> str:
    if isinstance(value, list):
        return separator.join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _option(name: str, text: str) -> list[str]:
    if name == "time_budget_s":
        return ["--time-budget", f"{float(text):g}s"]
    return [f"--{name}", text] if name in FLAGS else ["--set", f"{name}={text}"]


def _command(*parts: str | Path) -> str:
    return shlex.join(["hebbseg", *(printable(part) for part in parts)])
