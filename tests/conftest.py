import pytest
import torch
from hypothesis import settings

settings.register_profile("hebbseg", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("hebbseg")


# Two test processes of one thread each, never more threads than cores. Before any fixture: results depend on it in the
# last bit, and some tests compare what two fixtures made.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Whatever the test before did."""
    torch.set_num_threads(1)
