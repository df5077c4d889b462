import io
import json

import pytest
import torch
from rich.console import Console

from hebbseg import HebbianPCA, Plasticity, SoftWTA, UNet
from hebbseg.cli.diagnostics_table import table
from hebbseg.hebbian.diagnostics import as_dict, diagnose, effective_number, effective_rank, mean_abs_cosine


def test_effective_number_counts_equal_shares() -> None:
    shares = torch.tensor([[1.0, 1, 1, 1], [1, 0, 0, 0], [3, 3, 0, 0]])
    torch.testing.assert_close(effective_number(shares), torch.tensor([4.0, 1, 2]))


def test_mean_abs_cosine() -> None:
    assert mean_abs_cosine(torch.eye(3)) == 0
    assert mean_abs_cosine(torch.tensor([[1.0, 2], [-2, -4]])) == pytest.approx(1)
    assert mean_abs_cosine(torch.tensor([[1.0, 0]])) == 0


def test_effective_rank_is_that_of_the_singular_values() -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((4, 9), (9, 4)):
        filters = torch.randn(shape, generator=generator, dtype=torch.float64)
        torch.testing.assert_close(effective_rank(filters), effective_number(torch.linalg.svdvals(filters)))
    assert effective_rank(torch.eye(5)) == pytest.approx(5)


@pytest.mark.parametrize("rule", [SoftWTA(), HebbianPCA()])
@pytest.mark.parametrize("transpose", ["s", "tsa"])
def test_every_layer_is_described(rule, transpose: str) -> None:
    net = UNet(features=(4, 6), seed=0)
    with Plasticity(net, rule, transpose=transpose) as plasticity, torch.no_grad():
        untouched = diagnose(plasticity)
        net(torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)))
        plasticity.write_gradients()
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        after = diagnose(plasticity)
    assert untouched.keys() == plasticity.plastic_layers.keys()
    assert all(d.moved == 0 and d.effective_units is None for d in untouched.values())
    for name, d in after.items():
        assert d.moved > 0, name
        assert 1 <= d.effective_units <= d.units + 1e-4, name
        assert 1 <= d.rank <= d.units + 1e-4
        assert 0 <= d.cosine <= 1
    assert json.loads(json.dumps(as_dict(after)))["encoder.level0.conv1"]["units"] == 4
    screen = io.StringIO()
    Console(file=screen, width=120).print(table(after))
    assert "encoder.level0.conv1" in screen.getvalue() and "effective" in screen.getvalue()
