"""Dropout from 16 random bits."""

import pytest
import torch

from hebbseg.networks.dropout import Dropout


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_rate_scale_and_independence(rate, layout):
    torch.manual_seed(0)
    x = torch.ones(4, 16, 64, 64).contiguous(memory_format=layout).requires_grad_()
    y = Dropout(rate)(x)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / (1 - rate)], rel=1e-4)
    share = (y == 0).double()
    n = x.numel()
    assert abs(float(share.mean()) - rate) < 5 * (rate * (1 - rate) / n) ** 0.5
    # Neighbors in memory share one draw of the generator: they must still be independent.
    flat = share.permute(0, 2, 3, 1).flatten() if layout is torch.channels_last else share.flatten()
    for lag in (1, 2, 3, 4):
        covariance = float(((flat[:-lag] - rate) * (flat[lag:] - rate)).mean())
        assert abs(covariance) < 5 * rate * (1 - rate) / n**0.5
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


def test_expectation_is_kept():
    torch.manual_seed(0)
    assert float(Dropout(0.3)(torch.ones(1_000_001)).mean()) == pytest.approx(1, abs=5e-3)


def test_no_change_in_evaluation_or_at_rate_0():
    x = torch.rand(2, 3, 5, 5)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert not Dropout(1.0)(x).any()


def test_the_seed_decides():
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(Dropout(0.5)(torch.ones(2, 8, 9, 7)))
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_bfloat16_and_volumes():
    torch.manual_seed(0)
    y = Dropout(0.5)(torch.ones(2, 8, 9, 7, 5, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last_3d))
    assert y.dtype == torch.bfloat16 and y.is_contiguous(memory_format=torch.channels_last_3d)
    assert set(y.float().unique().tolist()) == {0.0, 2.0}
