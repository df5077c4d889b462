"""The Python interface: train, save, load and apply a segmentation model."""

from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from hebbseg.inference.predictor import Predictor


class Segmenter(Predictor):
    """A trained segmentation network; see `Predictor` for its attributes."""

    @classmethod
    def train(
        cls,
        data: str | Path,
        out: str | Path,
        *,
        resume: bool = False,
        quiet: bool = False,
        curve: bool = False,
        **options: Any,
    ) -> Self:
        """Pre-train on all training images, fine-tune on the labelled ones, and evaluate on held-out test cases.

        Args:
            data: folder, zip archive, or ``glas:PATH`` and the like.
            out: run folder; must be new or empty unless ``resume``.
            resume: resume the run in ``out``.
            quiet: show no progress.
            curve: repeat the training with 25 % and 50 % of the labelled images, to show how many masks would help.
            options: settings by flat name, see `hebbseg.config`; the same as on the command line.
        """
        from hebbseg.cli.arguments import in_python
        from hebbseg.cli.progress import make_reporter
        from hebbseg.config import make_settings
        from hebbseg.experiments.mask_curve import train
        from hebbseg.reporting.run_page.page import add_run_page
        from hebbseg.runs.parent import continued_options

        with in_python(), make_reporter(quiet=quiet) as reporter:
            settings = make_settings(data, continued_options(options))
            trained = train(settings, Path(out), curve=curve, resume=resume, reporter=reporter)
        add_run_page(Path(out))
        return cls(**{field.name: getattr(trained, field.name) for field in fields(trained)})
