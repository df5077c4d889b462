"""hebbseg evaluate: a model measured on cases with masks."""

from pathlib import Path
from typing import Annotated

import typer

from hebbseg.cli.check import print_json
from hebbseg.cli.options import (
    AcceleratorOption,
    Data,
    InstancesOption,
    LabelMapOption,
    ThresholdOption,
    TrustOption,
    TtaOption,
    output_folder,
    show_facts,
)


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder or its model.safetensors.", show_default=False)],
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="OUT", help="Where the results go. [dim]\\[DATA's name-evaluation][/]"),
    ] = None,
    split: Annotated[
        Path | None,
        typer.Option("--split", metavar="FILE", help="Only the test cases of this split (RUN/split.json)."),
    ] = None,
    subset: Annotated[
        str | None, typer.Option("--subset", metavar="test|train", help="Only this side of a published split.")
    ] = None,
    tta: TtaOption = None,
    accelerator: AcceleratorOption = None,
    trust: TrustOption = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace results that are there already.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    label_map: LabelMapOption = None,
    mask_threshold: ThresholdOption = None,
    instances: InstancesOption = None,
) -> None:
    """Measure MODEL on the cases of DATA that have a mask: Dice, Jaccard, 95HD and ASD of each, and their summary.

    \b
    Examples:
      hebbseg evaluate run1 other_hospital/ -o run1-elsewhere
      hebbseg evaluate run1 my_data/ --split run1/split.json

    OUT gets metrics.csv (one row per case and class), summary.json and worst.png. Cases that the model was trained on
    are measured, too, if you ask for them, with a warning.
    """
    from hebbseg.cli.models import load_models
    from hebbseg.cli.progress import make_reporter
    from hebbseg.data.sources import open_source
    from hebbseg.evaluation.evaluate import describe_summary
    from hebbseg.runs.evaluate import chosen_cases, fitting_source, measure, results_folder, trained_on

    (segmenter,) = load_models([model], tta=tta, accelerator=accelerator, trust=trust)
    source = open_source(data, label_map=label_map, mask_threshold=mask_threshold, instances=instances)
    cases = chosen_cases(source, split=split, subset=subset)
    fitting = fitting_source(source, segmenter)
    folder = results_folder(source.name, None if out is None else output_folder(out, ""), overwrite=overwrite)
    with make_reporter() as reporter:
        warning = trained_on(model, cases)
        if warning:
            reporter.say(f"warning: {warning}")
        summary = measure(segmenter, fitting, cases, folder, reporter=reporter, warning=warning)
    if json:
        print_json(summary)
    else:
        show_facts(
            [
                ("result", describe_summary(summary)),
                ("metrics", f"{folder / 'metrics.csv'}, {folder / 'summary.json'}"),
                ("figure", f"{folder / 'worst.png'}"),
            ]
        )
