"""Real images, from the folder that the environment variable ``HEBBSEG_DATA`` names."""

import os
from pathlib import Path

import pytest


def real(name: str) -> Path:
    """Return the folder of a data set; skip the test if there is none."""
    root = os.environ.get("HEBBSEG_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip(f"real images of {name} not found: set HEBBSEG_DATA to the folder that contains {name}/")
    return Path(root) / name
