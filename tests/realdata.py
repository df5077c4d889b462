"""The real images, where there are some: ``../shared/data`` beside the repository, or ``HEBBSEG_DATA``."""

import os
from pathlib import Path

import pytest


def real(name: str) -> Path:
    """The folder of one real data set; without it the test is skipped, and says so."""
    place = os.environ.get("HEBBSEG_DATA")
    root = Path(place) if place else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (root / name).is_dir():
        pytest.skip(f"no real images: {root / name} is not there (set HEBBSEG_DATA)")
    return root / name
