from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from hebbseg.segmenter import Segmenter
from tests.run_page import with_run_page, without_run_page
from tests.tiny import bright_folder

settings.register_profile("hebbseg", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("hebbseg")


# Two test processes of one thread each, never more threads than cores. Before any fixture: results depend on it in the
# last bit, and some tests compare what two fixtures made.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Whatever the test before did."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _no_page_of_a_run() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_run_page(monkeypatch)
        yield


@pytest.fixture(scope="session")
def curve_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run with its page and its curve, on images whose names are markup; no test changes it."""
    root = tmp_path_factory.mktemp("curve")
    names = ["<img src=x onerror=alert(1)>", "a&amp;b", *(f"image {n}" for n in range(10))]
    tiny = {"size": "16x16", "features": "4,8", "updates": 3, "pretrain_epochs": 1, "labelled_batch": 2, "test": "0.4"}
    data = bright_folder(root / "<b>data", names)
    with pytest.MonkeyPatch.context() as monkeypatch:
        with_run_page(monkeypatch)
        Segmenter.train(data, root / "<i>run", quiet=True, curve=True, **tiny)
    return root / "<i>run"
