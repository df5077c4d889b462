"""hebbseg evaluate: metrics of a model on labelled cases."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hebbseg.cli.check import print_json
from hebbseg.cli.options import (
    Data,
    FillHolesOption,
    MinSizeOption,
    Model,
    ObjectsOption,
    OverwriteOption,
    TrustOption,
    TtaOption,
    output_folder,
    show_facts,
)
from hebbseg.cli.settings_options import takes_settings


@takes_settings("label_map", "mask_threshold", "instances", "ignore", "images", "masks", "level", "metrics_grid", "accelerator")
def evaluate(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="OUT", help="Output folder. [dim]\\[NAME-evaluation][/]")
    ] = None,
    split: Annotated[
        Path | None, typer.Option("--split", metavar="FILE", help="Evaluate only the test cases of a split (RUN/split.json).")
    ] = None,
    subset: Annotated[
        str | None, typer.Option("--subset", metavar="test|train", help="Evaluate only this part of a published split.")
    ] = None,
    tta: TtaOption = None,
    objects: ObjectsOption = None,
    min_size: MinSizeOption = None,
    fill_holes: FillHolesOption = None,
    trust: TrustOption = False,
    overwrite: OverwriteOption = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    *,
    metrics_grid: str | None = None,
    accelerator: str | None = None,
    **reading: Any,
) -> None:
    """Evaluate MODEL on the labelled cases of DATA: Dice, Jaccard, 95 % Hausdorff distance and average surface distance.

    \b
    Examples:
      hebbseg evaluate run1 other_hospital/ -o run1-other-hospital
      hebbseg evaluate run1 my_data/ --split run1/split.json
      hebbseg evaluate run1 glas:GlaS/ --subset test --objects components --min-size 100

    OUT contains metrics.csv (one row per case and class), summary.json and worst.png. Metrics are computed in the pixels of
    the files; distances are in mm if every case has a spacing. With --objects, metrics of objects (object Dice and Hausdorff
    distance, F1, AJI, PQ) are in object_metrics.csv and summary.json. A warning lists cases that the model was trained on.
    """
    from hebbseg.cli.models import load_models, object_options
    from hebbseg.cli.progress import make_reporter
    from hebbseg.data.sources import open_source
    from hebbseg.evaluation.evaluate import checked_grid, describe_classes, describe_summary
    from hebbseg.runs.evaluate import chosen_cases, fitting_source, measure, results_folder, trained_on
    from hebbseg.runs.evaluate_objects import TABLE, describe_objects

    how = object_options(objects, min_size, fill_holes)
    grid = checked_grid(metrics_grid or "original")
    (segmenter,) = load_models([model], tta=tta, accelerator=accelerator, trust=trust)
    source = open_source(data, **reading)
    cases = chosen_cases(source, split=split, subset=subset)
    fitting = fitting_source(source, segmenter)
    folder = results_folder(source.name, None if out is None else output_folder(out, ""), overwrite=overwrite)
    with make_reporter() as reporter:
        warning = trained_on(model, cases)
        if warning:
            reporter.say(f"warning: {warning}")
        summary = measure(segmenter, fitting, cases, folder, grid=grid, reporter=reporter, warning=warning, objects=how)
    if json:
        print_json(summary)
    else:
        metrics = f"{folder / 'metrics.csv'}, {folder / 'summary.json'}"
        results = [("result", describe_summary(summary)), *describe_classes(summary)]
        if how is not None:
            results.append(("objects", describe_objects(summary["objects"])))
            metrics += f", {folder / TABLE}"
        show_facts([*results, ("metrics", metrics), ("figure", str(folder / "worst.png"))])
