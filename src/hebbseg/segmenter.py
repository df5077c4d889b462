"""The Python interface: train, save, load and apply a segmentation model."""

from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from hebbseg.inference.predictor import Predictor


class Segmenter(Predictor):
    """A trained segmentation network; see `Predictor` for its attributes."""

    @classmethod
    def train(cls, data: str | Path, out: str | Path, *, resume: bool = False, quiet: bool = False, **options: Any) -> Self:
        """Pre-train on all training images, fine-tune on the labelled ones, and evaluate on held-out test cases.

        Args:
            data: folder, zip archive, or ``glas:PATH`` and the like.
            out: run folder; must be new or empty unless ``resume``.
            resume: resume the run in ``out``.
            quiet: show no progress.
            options: settings by flat name, see `hebbseg.config`; the same as on the command line.
        """
        from hebbseg.cli.progress import make_reporter
        from hebbseg.config import make_settings
        from hebbseg.runs.parent import continued_options
        from hebbseg.runs.train import run

        with make_reporter(quiet=quiet) as reporter:
            trained = run(make_settings(data, continued_options(options)), Path(out), resume=resume, reporter=reporter)
        return cls(**{field.name: getattr(trained, field.name) for field in fields(trained)})
