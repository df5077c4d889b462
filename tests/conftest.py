import pytest
import torch
from hypothesis import settings

settings.register_profile("hebbseg", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("hebbseg")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Two test processes of one thread each, never more threads than cores."""
    torch.set_num_threads(1)
