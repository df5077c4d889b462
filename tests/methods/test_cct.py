"""Auxiliary decoders of CCT: their weights, what they get, and what their perturbations leave as it was."""

from itertools import combinations

import pytest
import torch
from torch import nn

from hebbseg.methods.cct import PERTURBATIONS
from hebbseg.methods.perturbations import guided_cutout
from tests.methods import tiny
from tests.methods.tiny import batch, method, step


def convolutions(module: nn.Module) -> list[torch.Tensor]:
    return [p for p in module.parameters() if p.ndim > 1]


def test_one_decoder_per_perturbation_by_default_and_any_number_in_turn():
    assert method("cct")._names == [*PERTURBATIONS] and len(PERTURBATIONS) == 7
    m = method("cct", options={"decoders": "5", "perturbations": "vat, noise"})
    assert m._names == ["vat", "noise", "vat", "noise", "vat"] and len(m.auxiliary) == 5
    assert method("cct", options={"decoders": 2})._names == ["noise", "drop"]


@pytest.mark.parametrize("dims", [2, 3])
def test_no_two_decoders_share_weights(dims):
    m = method("cct", dims=dims, options={"decoders": 9})
    main = [*convolutions(m.network.decoder), *convolutions(m.network.head)]
    decoders = [main, *(convolutions(decoder) for decoder in m.auxiliary)]
    for one, two in combinations(decoders, 2):
        assert len(one) == len(two)
        assert all(a.shape == b.shape and not torch.isclose(a, b).all() for a, b in zip(one, two))
    again = method("cct", dims=dims, options={"decoders": 9})
    assert all(torch.equal(a, b) for a, b in zip(m.auxiliary.parameters(), again.auxiliary.parameters()))
    other = method("cct", dims=dims, seed=3)
    assert not torch.equal(m.auxiliary[0].head.weight, other.auxiliary[0].head.weight)


@pytest.mark.parametrize("norm", ["batch", "group", "instance"])
def test_decoders_inherit_nothing_of_a_pre_trained_network(norm, monkeypatch):
    plain = tiny.network

    def pre_trained(*args, **options):
        net = plain(*args, **options)
        with torch.no_grad():
            for tensor in [*net.decoder.parameters(), *net.decoder.buffers(), *net.head.parameters()]:
                tensor.fill_(3)
        return net

    fresh = method("cct", norm=norm)
    monkeypatch.setattr(tiny, "network", pre_trained)
    m = method("cct", norm=norm)
    assert (m.network.head.bias == 3).all()
    assert all(torch.equal(a, b) for a, b in zip(m.auxiliary.state_dict().values(), fresh.auxiliary.state_dict().values()))


@pytest.mark.parametrize("name", PERTURBATIONS)
@pytest.mark.parametrize("dims, classes", [(2, 2), (2, 4), (3, 3)])
def test_each_perturbation_alone(name, dims, classes):
    options = {"perturbations": name, "decoders": 2}
    m = method("cct", dims=dims, classes=classes, norm="batch", options=options).train()
    labelled, u = batch(dims=dims, classes=classes, unlabelled=3)

    def loss(seed: int) -> torch.Tensor:
        return m(labelled, u, step(seed=seed))["consistency"]

    first = loss(1)
    assert first.isfinite() and first > 0
    assert torch.equal(first, loss(1))
    drawn = name not in ("context", "object")
    assert torch.equal(first, loss(2)) is not drawn
    first.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in m.auxiliary.parameters())


@pytest.mark.parametrize("name", PERTURBATIONS)
@pytest.mark.parametrize("favored", [0, 1])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_images_without_predicted_foreground_and_without_background(name, favored, norm):
    m, (labelled, u) = method("cct", norm=norm, options={"perturbations": name, "decoders": 1}).train(), batch()
    with torch.no_grad():
        m.network.head.bias[favored] = 100.0
    term = m(labelled, u, step())["consistency"]
    term.backward()
    assert term.isfinite()
    assert all(p.grad.isfinite().all() for p in m.parameters() if p.grad is not None)


def test_auxiliary_decoders_get_unlabelled_images_only():
    m, (labelled, u) = method("cct"), batch(labelled=2, unlabelled=3)
    seen = []
    for decoder in m.auxiliary:
        decoder.register_forward_hook(lambda module, args, out: seen.append([len(z) for z in args[0]]))
    m(labelled, u, step())
    assert seen == [[3, 3, 3]] * (7 + 2)  # VAT decodes three times


def test_adversarial_passes_leave_running_statistics_modes_and_gradients():
    m, (labelled, u) = method("cct", norm="batch", options={"perturbations": "vat", "decoders": 1}).train(), batch()
    m(labelled, u, step())
    norms = [module for module in m.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms and all(norm.num_batches_tracked == 1 and norm.track_running_stats for norm in norms)
    assert all(module.training for module in m.modules())
    assert all(p.grad is None for p in m.parameters())


def test_the_adversarial_perturbation_is_of_the_deepest_map_only():
    m, (labelled, u) = method("cct", options={"perturbations": "vat", "decoders": 1}), batch()
    seen = []
    m.auxiliary[0].register_forward_hook(lambda module, args, out: seen.append(args[0]))
    m(labelled, u, step())
    clean, _, perturbed = seen
    assert all(torch.equal(a, b) for a, b in zip(clean[:-1], perturbed[:-1]))
    assert (perturbed[-1] - clean[-1]).flatten(1).norm(dim=1).tolist() == pytest.approx([2.0, 2.0])
    assert perturbed[-1].requires_grad and not clean[-1].requires_grad


def test_the_foreground_of_padded_images_has_the_size_of_the_maps(monkeypatch):
    m, (labelled, u) = method("cct"), batch()
    labelled = labelled._replace(images=labelled.images[..., :7, :11], masks=labelled.masks[..., :7, :11])
    seen = []

    def spy(foreground, generator):
        seen.append(foreground)
        return guided_cutout(foreground, generator)

    monkeypatch.setattr("hebbseg.methods.cct.guided_cutout", spy)
    m(labelled, u[..., :7, :11], step())
    images = m.network.padded(u[..., :7, :11])
    assert torch.equal(seen[0], m.network(images).argmax(1) > 0)


def test_mixed_precision():
    m, (labelled, u) = method("cct", norm="batch").float().train(), batch()
    labelled, u = labelled._replace(images=labelled.images.float()), u.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        terms = m(labelled, u, step())
    sum(terms.values()).backward()
    assert all(p.grad.isfinite().all() for p in m.parameters())
