"""The Python interface: train, load and use a segmenter."""

from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from hebbseg.inference.predictor import Predictor


class Segmenter(Predictor):
    """A trained network that predicts masks; see `Predictor` for what it holds."""

    @classmethod
    def train(cls, data: str | Path, out: str | Path, *, resume: bool = False, quiet: bool = False, **options: Any) -> Self:
        """Both stages: Hebbian learning on all training images, then fine-tuning on the masks; measured on test cases.

        Args:
            data: a folder, or ``glas:PATH`` and the like.
            out: the run folder, which must not hold another run.
            resume: go on with the run in ``out``.
            quiet: no progress is shown.
            options: any of `hebbseg.config.Settings`, the same as on the command line.
        """
        from hebbseg.cli.progress import make_reporter
        from hebbseg.config import make_settings
        from hebbseg.runs.train import run

        with make_reporter(quiet=quiet) as reporter:
            trained = run(make_settings(data, options), Path(out), resume=resume, reporter=reporter)
        return cls(**{field.name: getattr(trained, field.name) for field in fields(trained)})
