"""Gradients flow where they should, and only there."""

import pytest
import torch
import torch.nn.functional as F

from hebbseg.methods import METHODS
from hebbseg.methods.ops import pseudo_label
from tests.methods.tiny import batch, gradients, method, network, step

UNSUPERVISED = {
    "em": ["entropy"], "mean-teacher": ["consistency"], "uamt": ["consistency"], "cct": ["consistency"], "cps": ["cross"],
    "urpc": ["consistency"], "dtc": ["consistency"], "fixmatch": ["pseudo"], "unimatch": ["features", "strong"],
    "bcp": ["pseudo"],
}  # fmt: skip
# Labels of a fresh network are not sure enough for the originals' thresholds.
EASY = {"fixmatch": {"threshold": 0.4}, "unimatch": {"threshold": 0.4}, "dtc": {"steepness": 2.0}}


def parts(found: dict) -> set[str]:
    """``network.encoder``, ``network.head``, ``auxiliary`` …: which modules the gradient reaches."""
    return {".".join(name.split(".")[:2]) if name.startswith("network.") else name.split(".")[0] for name in found}


WHOLE = {"network.encoder", "network.decoder", "network.head"}
REACHED = {
    ("cct", "consistency"): {"network.encoder", "auxiliary"},
    ("cps", "cross"): WHOLE | {"second"},
    ("urpc", "consistency"): WHOLE | {"heads"},
    ("dtc", "consistency"): WHOLE | {"distance_head"},
}


def test_every_method_is_tried():
    assert set(UNSUPERVISED) | {"supervised"} == set(METHODS)


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_the_unsupervised_terms_reach_what_they_should_teach(name):
    m, (labelled, u) = method(name, options=EASY.get(name)), batch()
    terms = m(labelled, u, step())
    for term in UNSUPERVISED[name]:
        assert parts(gradients(terms[term], m)) == REACHED.get((name, term), WHOLE), term


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_the_supervised_term_reaches_the_plain_network(name):
    m, (labelled, u) = method(name), batch()
    reached = parts(gradients(m(labelled, u, step())["supervised"], m))
    assert reached == WHOLE | {"cps": {"second"}, "urpc": {"heads"}}.get(name, set())


def test_distance_regression_reaches_its_head_but_not_the_masks():
    m, (labelled, u) = method("dtc"), batch()
    reached = parts(gradients(m(labelled, u, step())["distance"], m))
    assert reached == {"network.encoder", "network.decoder", "distance_head"}


@pytest.mark.parametrize("name", ["mean-teacher", "uamt", "bcp"])
def test_a_teacher_learns_only_by_following(name):
    m, (labelled, u) = method(name), batch()
    assert not any(p.requires_grad for p in m.teacher.parameters())
    assert all(torch.equal(a, b) for a, b in zip(m.teacher.parameters(), m.network.parameters()))
    optimizer = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.1)
    before = [p.clone() for p in m.teacher.parameters()]
    sum(m(labelled, u, step()).values()).backward()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(m.teacher.parameters(), before))
    m.after_step(step(number=500))
    for old, new, student in zip(before, m.teacher.parameters(), m.network.parameters()):
        torch.testing.assert_close(new, 0.99 * old + 0.01 * student.detach())


def test_gradient_of_a_consistency_treats_the_target_as_given():
    """Against automatic differentiation of the same formula with the target written in as numbers."""
    m, (labelled, u) = method("mean-teacher", options={"noise": 0.0, "ramp": "constant"}), batch()
    m.teacher.load_state_dict(network(5).state_dict())
    target = m.teacher(u).softmax(1).detach()
    expected = gradients(5 * F.mse_loss(m.network(u).softmax(1), target), m)
    mine = gradients(m(labelled, u, step())["consistency"], m)
    assert mine.keys() == expected.keys()
    for key in mine:
        torch.testing.assert_close(mine[key], expected[key])


def test_cps_takes_the_other_network_as_a_label():
    m, (labelled, u) = method("cps"), batch()
    both = torch.cat([labelled.images, u])
    label = m.second(both).argmax(1)
    expected = gradients(1.5 * F.cross_entropy(m.network(both), label), m.network)
    cross = m(labelled, u, step())["cross"]
    for key, value in gradients(cross, m.network).items():
        torch.testing.assert_close(value, expected[key])


def test_fixmatch_looks_at_the_weak_view_without_gradient_and_without_dropout():
    m, (labelled, u) = method("fixmatch", dropout=0.5), batch()
    m.train()
    seen = []
    m.network.register_forward_hook(lambda module, args, out: seen.append((args[0], out)))
    m(labelled, u, step())
    (weak, answer), (_, learned) = seen
    assert torch.equal(weak, u) and not answer.requires_grad and learned.requires_grad
    m.network.eval()
    torch.testing.assert_close(answer, m.network(u))
    assert all(layer.training for layer in m.train().modules())


def test_pseudo_labels_carry_no_gradient():
    logits = torch.randn(2, 3, 4, 4, requires_grad=True)
    label, confidence = pseudo_label(logits)
    assert not label.requires_grad and not confidence.requires_grad
    torch.testing.assert_close(confidence, logits.softmax(1).amax(1))


@pytest.mark.parametrize("name", ["em", "mean-teacher", "uamt", "cct", "urpc", "fixmatch", "unimatch"])
def test_unsupervised_terms_see_only_unlabelled_images(name):
    m, (labelled, u) = method(name), batch()
    other = labelled._replace(images=labelled.images * 0.5, masks=labelled.masks * 0)
    one, two = m(labelled, u, step()), m(other, u, step())
    assert one["supervised"] != two["supervised"]
    for term in UNSUPERVISED[name]:
        torch.testing.assert_close(one[term], two[term])


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_every_weight_that_may_learn_has_a_gradient(name):
    """Processes that share the gradients wait for all of them."""
    m, (labelled, u) = method(name), batch()
    for progress in (0.0, 0.6):
        m.zero_grad()
        sum(m(labelled, u, step(progress=progress)).values()).backward()
        assert all(p.grad is not None for p in m.parameters() if p.requires_grad)
