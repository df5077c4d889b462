"""Every loss term against its literal version, from the networks' own outputs."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hebbseg.data.augment.cutmix import copy_paste_box, cutmix_boxes, mixed
from hebbseg.data.augment.views import Augment
from hebbseg.methods.adversarial import virtual_adversarial
from hebbseg.methods.base import Step
from hebbseg.methods.bcp import largest_parts, single_objects
from hebbseg.methods.dtc import signed_distance
from hebbseg.methods.losses import foreground_dice, region_loss, segmentation_loss
from hebbseg.methods.ops import entropy, follow, input_noise, make_teacher, masked_mean, ramp_up
from hebbseg.methods.perturbations import channel_dropout, feature_drop, feature_noise, guided_cutout, masked_out
from hebbseg.methods.urpc import LEVEL_PERTURBATIONS, rectified_consistency
from tests.literal import methods as literal
from tests.methods.tiny import batch, method, network, step

SHAPES = [{"dims": 2, "classes": 2}, {"dims": 2, "classes": 4}, {"dims": 3, "classes": 3}]


@torch.no_grad()
def probabilities(net, images) -> np.ndarray:
    return literal.softmax(net(images).numpy())


def close(term, expected: float) -> None:
    assert float(term.detach()) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_supervised_term_is_the_same_for_all():
    labelled, u = batch()
    p, masks = probabilities(network(), labelled.images), labelled.masks.numpy()
    expected = literal.region_loss(p, masks, np.ones(masks.shape), cross=True)
    for name in ("supervised", "em", "mean-teacher", "uamt", "cct", "dtc", "fixmatch", "unimatch"):
        terms = method(name)(labelled, u, step())
        # The criterion is single precision.
        assert terms["supervised"].item() == pytest.approx(expected, rel=1e-5), name


@pytest.mark.parametrize("shape", SHAPES)
def test_em(shape):
    m, (labelled, u) = method("em", **shape), batch(**shape)
    expected = 5 * 0.6 * literal.normalized_entropy(probabilities(m.network, u))
    close(m(labelled, u, step())["entropy"], expected)


def test_entropy_of_a_certain_answer_is_0_and_so_is_its_gradient():
    logits = torch.tensor([[1000.0], [0.0]]).reshape(1, 2, 1).requires_grad_()
    h = entropy(logits.softmax(1)).sum()
    h.backward()
    assert float(h) == 0 and logits.grad.abs().max() == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_mean_teacher(shape):
    m, (labelled, u) = method("mean-teacher", **shape), batch(**shape)
    m.teacher.load_state_dict(network(5, **shape).state_dict())
    noisy = input_noise(u, step().generator, 0.1)
    p, q = probabilities(m.network, u), probabilities(m.teacher, noisy)
    close(m(labelled, u, step())["consistency"], 5 * 0.6 * literal.squared_distance(p, q))


def test_input_noise_is_in_units_of_each_image():
    u = torch.rand(3, 2, 20, 20, dtype=torch.float64) * torch.tensor([1.0, 10.0, 0.0]).reshape(3, 1, 1, 1)
    noise = input_noise(u, torch.Generator().manual_seed(0), 0.1) - u
    spread = u.flatten(1).std(dim=1)
    assert noise.abs().flatten(1).amax(1)[:2] == pytest.approx((0.2 * spread)[:2].tolist())
    # A normal distribution clipped at two standard deviations has 0.96 of its spread.
    assert (noise[:2].flatten(1).std(1) / spread[:2]).tolist() == pytest.approx([0.096, 0.096], abs=0.006)
    assert noise[2].abs().max() == 0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("progress", [0.0, 0.8])
def test_uamt_batched_passes_are_the_looped_ones(shape, progress):
    m, (labelled, u) = method("uamt", options={"passes": 3}, **shape), batch(**shape)
    # A teacher that is surer than a fresh network, so that some positions pass the threshold and some do not.
    teacher = network(5, **shape)
    with torch.no_grad():
        teacher.head.weight.mul_(3)
    m.teacher.load_state_dict(teacher.state_dict())
    noisy = input_noise(u.repeat(4, *(1,) * (u.ndim - 1)), step().generator, 0.1).reshape(4, *u.shape)
    target, *passes = [probabilities(m.teacher, each) for each in noisy]
    expected = literal.certain_distance(probabilities(m.network, u), target, passes, progress)
    everywhere = literal.squared_distance(probabilities(m.network, u), target)
    assert expected > 0 and expected != pytest.approx(everywhere)
    λ = 0.2 * math.exp(-5 * (1 - progress) ** 2)
    close(m(labelled, u, step(progress=progress))["consistency"], λ * expected)


def test_nothing_certain_is_no_loss():
    assert float(masked_mean(torch.ones(3), torch.zeros(3))) == 0


def test_uamt_teacher_drops_units_in_every_pass_in_2d_and_3d():
    for dims in (2, 3):
        m, (labelled, u) = method("uamt", dims=dims, dropout=0.5, options={"noise": 0.0}).train(), batch(dims=dims)
        seen = []
        m.teacher.register_forward_hook(lambda module, args, out, seen=seen: seen.append(out))
        m(labelled, u, step())
        passes = seen[0].reshape(9, *u.shape[:1], *seen[0].shape[1:])
        assert len(seen) == 1  # one batch, not a loop
        assert all(not torch.equal(passes[i], passes[j]) for i in range(9) for j in range(i))


@pytest.mark.parametrize("shape", SHAPES)
def test_cct(shape):
    m, (labelled, u) = method("cct", **shape), batch(**shape)
    s = step(progress=0.05)
    main = probabilities(m.network, u)
    objects = torch.from_numpy(literal.argmax(main) > 0)
    assert 0 < objects.sum() < objects.numel()
    with torch.no_grad():
        maps = [z[2:] for z in m.network.encoder(torch.cat([labelled.images, u]))]
        size = u.shape[2:]
        inputs = [[perturb(z, s.generator) for z in maps] for perturb in (feature_noise, feature_drop, channel_dropout)]
        boxes = guided_cutout(objects, s.generator)
        inputs += [[masked_out(z, mask) for z in maps] for mask in (boxes, ~objects, objects)]
        r = virtual_adversarial(maps, lambda z: m.auxiliary[6](z, size), s.generator)
        inputs.append([*maps[:-1], maps[-1] + r])
        answers = [literal.softmax(decoder(z, size).numpy()) for decoder, z in zip(m.auxiliary, inputs, strict=True)]
    expected = literal.mean(literal.squared_distance(a, main) for a in answers)
    close(m(labelled, u, step(progress=0.05))["consistency"], 30 * math.exp(-5 * 0.5**2) * expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_cps(shape):
    m, (labelled, u) = method("cps", **shape), batch(**shape)
    both = torch.cat([labelled.images, u])
    p, q = probabilities(m.network, both), probabilities(m.second, both)
    expected = literal.cross_entropy(p, literal.argmax(q)) + literal.cross_entropy(q, literal.argmax(p))
    terms = m(labelled, u, step())
    close(terms["cross"], 1.5 * expected)
    ones = np.ones(labelled.masks.shape)
    supervised = sum(literal.region_loss(x[:2], labelled.masks.numpy(), ones, cross=True) for x in (p, q))
    assert float(terms["supervised"]) == pytest.approx(supervised, rel=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_urpc(shape):
    m, (labelled, u) = method("urpc", **shape), batch(**shape)
    with torch.no_grad():
        scales = m.pyramid(torch.cat([labelled.images, u]), step().generator)
    assert len(scales) == 2  # a decoder of two levels
    torch.testing.assert_close(scales[0][2:], m.network(u))  # without gradients, maps have another memory format
    expected = literal.rectified([literal.softmax(logits[2:].numpy()) for logits in scales])
    terms = m(labelled, u, step())
    assert float(terms["consistency"]) == pytest.approx(0.2 * math.exp(-5 * 0.16) * expected, rel=1e-7)
    ones = np.ones(labelled.masks.shape)
    known = [literal.softmax(logits[:2].numpy()) for logits in scales]
    supervised = [literal.region_loss(p, labelled.masks.numpy(), ones, cross=True) for p in known]
    assert float(terms["supervised"]) == pytest.approx(literal.mean(supervised), rel=1e-5)


def test_urpc_of_scales_that_agree_is_0():
    p = torch.rand(1, 2, 3, 5, 5).softmax(2).expand(4, -1, -1, -1, -1)
    assert float(rectified_consistency(p)) == pytest.approx(0, abs=1e-7)


def test_urpc_has_four_scales_by_default():
    m = method("urpc", features=(2, 3, 4, 5, 6))
    assert [name for name, _ in m.heads.named_children()] == ["level1", "level2", "level3"]
    u = torch.rand(1, 2, 19, 33, dtype=torch.float64)
    assert [tuple(x.shape) for x in m.pyramid(u, step().generator)] == [(1, 3, 19, 33)] * 4


@pytest.mark.parametrize("shape", SHAPES)
def test_dtc(shape):
    m, (labelled, u) = method("dtc", options={"steepness": 2.0}, **shape), batch(**shape)
    both = torch.cat([labelled.images, u])
    with torch.no_grad():
        s = m.distance_head(m.network.features(both)["dec0"]).numpy()
    p = probabilities(m.network, both)
    terms = m(labelled, u, step())
    step_of = 1 / (1 + np.exp(2.0 * s))
    consistency = literal.mean(((step_of - p[:, 1:]) ** 2).ravel().tolist())
    close(terms["consistency"], math.exp(-5 * 0.16) * consistency)
    truth = np.stack(
        [[literal.signed_distance(mask == c) for c in range(1, shape["classes"])] for mask in labelled.masks.numpy()]
    )
    # The truth is kept in single precision.
    assert float(terms["distance"]) == pytest.approx(0.3 * np.mean((s[:2] - truth) ** 2), rel=1e-6)


def test_signed_distance_of_a_disc_and_of_degenerate_masks():
    y, x = np.mgrid[:20, :30]
    masks = np.zeros((4, 20, 30), dtype=np.int64)
    masks[0][(y - 9) ** 2 + (x - 14) ** 2 < 36] = 1
    masks[1, 5, 5] = 1  # one pixel
    masks[2] = 1  # full; and the last one is empty
    field = signed_distance(torch.from_numpy(masks), 2)[:, 0].numpy()
    for mask, mine in zip(masks, field):
        np.testing.assert_allclose(mine, literal.signed_distance(mask == 1), atol=1e-6)
    assert field[0].min() == -1 and field[0].max() == 1 and field[0][9, 14] == -1
    assert (field[2] == -1).all() and (field[3] == 1).all()
    assert np.abs(field).max() <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_fixmatch(shape):
    options = {"threshold": 0.6, "cutmix": 1.0}
    m, (labelled, u) = method("fixmatch", options=options, **shape), batch(unlabelled=3, **shape)
    s = step()
    strong = Augment(spatial_dims=shape["dims"]).strong(u, s.generator)
    boxes = cutmix_boxes(3, u.shape[2:], 1.0, s.generator).numpy()
    assert boxes.any() and not boxes.all()
    q = probabilities(m.network, u)
    for b in range(3):
        box = boxes[b]
        strong[b][:, box] = Augment(spatial_dims=shape["dims"]).strong(u, step().generator)[b - 1][:, box]
    label, sure = literal.argmax(q), literal.confidence(q)
    label, sure = (np.where(boxes, x[[-1, 0, 1]], x) for x in (label, sure))
    trusted = sure >= 0.6
    assert trusted.any() and not trusted.all()
    expected = literal.cross_entropy(probabilities(m.network, strong), label, trusted)
    close(m(labelled, u, step())["pseudo"], expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pseudo_loss", ["ce", "dice"])
def test_fixmatch_with_teacher_gate_and_labelled_cutmix(shape, pseudo_loss):
    options = {"threshold": 0.6, "cutmix": 1.0, "cutmix_with": "labelled", "decay": 0.9, "dice_gated": True, "weight": 2.0}
    m = method("fixmatch", options=options | {"pseudo_loss": pseudo_loss}, **shape)
    m.teacher.load_state_dict(network(5, **shape).state_dict())
    labelled, u = batch(unlabelled=3, **shape)
    augment, s = Augment(spatial_dims=shape["dims"]), step()
    strong = augment.strong(u, s.generator)
    boxes = cutmix_boxes(3, u.shape[2:], 1.0, s.generator).numpy()
    turns = [b % len(labelled.images) for b in range(3)]
    pasted = augment.strong(labelled.images[turns], s.generator)
    q = probabilities(m.teacher, u)
    label, sure = literal.argmax(q), literal.confidence(q)
    for b in range(3):
        strong[b][:, boxes[b]] = pasted[b][:, boxes[b]]
        label[b][boxes[b]] = labelled.masks[turns[b]].numpy()[boxes[b]]
        sure[b][boxes[b]] = 1
    trusted = sure >= 0.6
    assert trusted.any() and not trusted.all()
    p = probabilities(m.network, strong)
    if pseudo_loss == "ce":
        expected = literal.cross_entropy(p, label, trusted)
    else:
        expected = literal.region_loss(p, label, trusted, cross=False)
    D = literal.foreground_dice(probabilities(m.network, labelled.images), labelled.masks.numpy())
    close(m(labelled, u, step())["pseudo"], 2 * D * expected)


@pytest.mark.parametrize("name", ["fixmatch", "unimatch"])
def test_before_the_start_only_masks_are_used(name):
    m, (labelled, u) = method(name, options={"start": 0.7}), batch()
    assert step().progress == 0.6
    early = m(labelled, None, step())
    assert set(early) == {"supervised"}
    assert float(early["supervised"]) == pytest.approx(float(m.criterion(m.network(labelled.images), labelled.masks)))
    late = method(name, options={"start": 0.6})(labelled, u, step())
    assert len(late) > 1


def test_fixmatch_starts_after_a_number_of_updates():
    labelled, u = batch()
    for first, terms in ((step().number + 1, {"supervised"}), (step().number, {"supervised", "pseudo"})):
        m = method("fixmatch", options={"start": 0.5, "start_updates": first})
        assert set(m(labelled, u, step())) == terms


def test_the_teacher_of_fixmatch_follows_the_network():
    m = method("fixmatch", options={"decay": 0.75})
    before = [weight.clone() for weight in m.teacher.parameters()]
    with torch.no_grad():
        for weight in m.network.parameters():
            weight += 1
    m.after_step(Step(number=100, progress=0.5, generator=torch.Generator()))
    for old, new, student in zip(before, m.teacher.parameters(), m.network.parameters()):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * student)
        assert not new.requires_grad


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pseudo_loss", ["ce", "dice"])
def test_unimatch(shape, pseudo_loss):
    options = {"threshold": 0.6, "cutmix": 0.0, "weight": 2.0, "pseudo_loss": pseudo_loss}
    m, (labelled, u) = method("unimatch", options=options, **shape), batch(**shape)
    s = step()
    with torch.no_grad():
        maps = [channel_dropout(z, s.generator) for z in m.network.encoder(u)]
        perturbed = literal.softmax(m.network.head(m.network.decoder(maps)[-1]).numpy())
    strong = []
    for _ in range(2):
        strong.append(probabilities(m.network, Augment(spatial_dims=shape["dims"]).strong(u, s.generator)))
        cutmix_boxes(2, u.shape[2:], 0.0, s.generator)
    assert not np.allclose(*strong)
    q = probabilities(m.network, u)
    label, trusted = literal.argmax(q), literal.confidence(q) >= 0.6
    assert trusted.any() and not trusted.all()

    def agreement(p):
        if pseudo_loss == "ce":
            return literal.cross_entropy(p, label, trusted)
        return literal.region_loss(p, label, trusted, cross=False)

    terms = m(labelled, u, step())
    close(terms["features"], 2 * 0.5 * agreement(perturbed))
    close(terms["strong"], 2 * 0.25 * sum(agreement(p) for p in strong))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pseudo_loss", ["ce", "dice"])
def test_dice_gated_unimatch(shape, pseudo_loss):
    (labelled, u), terms = batch(**shape), {}
    for dice_gated in (False, True):
        options = {"threshold": 0.6, "dice_gated": dice_gated, "pseudo_loss": pseudo_loss}
        m = method("unimatch", options=options, **shape)
        terms[dice_gated] = m(labelled, u, step())
    dice = literal.foreground_dice(probabilities(m.network, labelled.images), labelled.masks.numpy())
    assert 0 < dice < 1
    for name in ("features", "strong"):
        close(terms[True][name], dice * float(terms[False][name].detach()))
    torch.testing.assert_close(terms[True]["supervised"], terms[False]["supervised"])


@pytest.mark.parametrize("pseudo_loss", ["ce", "dice"])
def test_dice_gated_unimatch_that_predicts_background_alone_is_not_taught_by_itself(pseudo_loss):
    """The failure on volumes: its own labels keep it where it is, and only the masks pull it away."""
    (labelled, u), pull = batch(), {}
    for dice_gated in (False, True):
        m = method("unimatch", options={"dice_gated": dice_gated, "pseudo_loss": pseudo_loss})
        with torch.no_grad():
            m.network.head.weight *= 0.1
            m.network.head.bias[0] += 6
        assert not literal.argmax(probabilities(m.network, u)).any()
        terms = m(labelled, u, step())
        (terms["features"] + terms["strong"]).backward()
        pull[dice_gated] = float(m.network.head.bias.grad.norm())
    assert 0 < pull[True] < 0.02 * pull[False]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_many_positions_of_half_precision_are_counted_in_full(dtype):
    """131² · 4 positions are more than the largest number that float16 has."""
    logits = torch.zeros(4, 2, 131, 131, dtype=dtype)
    logits[:, 0] += 3
    masks = torch.zeros(4, 131, 131).long()
    masks[:, :40] = 1
    for score in (foreground_dice, lambda x, y: region_loss(x, y, torch.ones_like(y).bool(), "dice")):
        torch.testing.assert_close(score(logits, masks), score(logits.float(), masks), rtol=1e-3, atol=1e-4)


def test_foreground_dice():
    logits = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    masks = torch.zeros(2, 4, 5).long()
    assert foreground_dice(logits, masks) == 0  # nothing to be seen proves nothing
    masks[0, 1:3, 2:] = 2
    p = literal.softmax(logits.numpy())
    close(foreground_dice(logits, masks), literal.foreground_dice(p, masks.numpy()))  # class 1 is not there
    masks[1, 0, 0] = 1
    close(foreground_dice(logits, masks), literal.foreground_dice(p, masks.numpy()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", ["dice", "dice+ce"])
def test_bcp(shape, loss):
    m, (labelled, u) = method("bcp", loss=loss, options={"largest_part": "always"}, **shape), batch(**shape)
    m.teacher.load_state_dict(network(5, **shape).state_dict())
    box = copy_paste_box(u.shape[2:], 2 / 3, step().generator).numpy()[0]
    assert box.sum() == math.prod(int(2 / 3 * n) for n in u.shape[2:])
    guess = literal.argmax(probabilities(m.teacher, u))
    for image in guess:
        for c in range(1, shape["classes"]):
            image[(image == c) & ~literal.largest_part(image == c)] = 0
    x, y, v = labelled.images.numpy(), labelled.masks.numpy(), u.numpy()
    inward = np.where(box, x, v)  # a labelled middle in an unlabelled image
    outward = np.where(box, v[::-1], x)  # an unlabelled middle in a labelled image; of two, the other one
    p_in, p_out = (probabilities(m.network, torch.from_numpy(i)) for i in (inward, outward))
    inside = np.broadcast_to(box, y.shape)
    cross = loss == "dice+ce"
    terms = m(labelled, u, step(progress=0.5))
    close(
        terms["supervised"],
        literal.region_loss(p_in, y, inside, cross=cross) + literal.region_loss(p_out, y, ~inside, cross=cross),
    )
    close(
        terms["pseudo"],
        0.5 * literal.region_loss(p_in, guess, ~inside, cross=cross)
        + 0.5 * literal.region_loss(p_out, guess[::-1], inside, cross=cross),
    )


def test_bcp_begins_with_labelled_images_alone():
    m, (labelled, u) = method("bcp"), batch()
    terms = m(labelled, u, step(progress=0.2))
    assert list(terms) == ["supervised"]
    assert float(terms["supervised"]) == float(m(labelled, u + 9, step(progress=0.2))["supervised"])


@pytest.mark.parametrize("labelled, unlabelled", [(1, 1), (3, 2), (2, 5)])
def test_bcp_with_any_batch(labelled, unlabelled):
    known, u = batch(labelled=labelled, unlabelled=unlabelled)
    assert all(term.isfinite() for term in method("bcp")(known, u, step()).values())


@pytest.mark.parametrize("loss", ["dice", "dice+ce"])
def test_loss_of_a_region_that_is_everything_is_the_supervised_loss(loss):
    (_, masks), _ = batch()
    logits = torch.randn(2, 3, *masks.shape[1:])
    everywhere = torch.ones_like(masks, dtype=torch.bool)
    torch.testing.assert_close(region_loss(logits, masks, everywhere, loss), segmentation_loss(loss)(logits, masks))


def test_largest_parts_only_of_classes_that_are_one_object():
    mask = torch.zeros(1, 8, 8, dtype=torch.int64)
    mask[0, :2, :2], mask[0, 5:, 5:], mask[0, 0, 7], mask[0, 7, :4] = 1, 1, 2, 2
    cleaned = largest_parts(mask, [1])
    assert (cleaned[0, :2, :2] == 0).all() and (cleaned[0, 5:, 5:] == 1).all() and (cleaned == 2).sum() == 5
    assert single_objects(mask, 3) == [] and single_objects(cleaned, 3) == [1]
    assert single_objects(torch.zeros_like(mask), 3) == []


def test_boxes_cut_what_they_say():
    generator = torch.Generator().manual_seed(0)
    for size in ((40, 60), (16, 20, 24)):
        boxes = cutmix_boxes(200, size, 0.5, generator)
        shares = boxes.flatten(1).float().mean(1)
        with_box = shares[shares > 0]
        assert 70 < len(with_box) < 130
        assert with_box.min() > 0.01 and with_box.max() < 0.46
    a, b = torch.zeros(2, 3, 4, 4), torch.ones(2, 3, 4, 4)
    box = copy_paste_box((4, 4), 0.5, generator)
    assert mixed(a, b, box).sum() == 2 * 3 * 12 and mixed(a[:, 0], b[:, 0], box).sum() == 2 * 12


def test_perturbations_do_what_they_say():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, 50, 9, 9, dtype=torch.float64) + 0.5
    dropped = channel_dropout(x, generator)
    gone = (dropped == 0).all(dim=(2, 3))
    assert 0.3 < gone.double().mean() < 0.7
    torch.testing.assert_close(dropped[~gone], 2 * x[~gone])
    ratio = feature_noise(x, generator) / x
    assert 0.7 <= ratio.min() < 0.71 and 1.29 < ratio.max() <= 1.3
    x[:, :, 4, 4] = 9.0
    kept = feature_drop(x, generator)
    assert (kept[:, :, 4, 4] == 0).all() and (kept != 0).double().mean() > 0.95


def test_ramps():
    assert [ramp_up("linear", t) for t in (0, 0.5, 1)] == [0, 0.5, 1]
    assert ramp_up("sigmoid", 0.3) == pytest.approx(math.exp(-5 * 0.49))
    assert ramp_up("sigmoid", 0.1, 0.1) == ramp_up("sigmoid", 0.7, 0.1) == 1
    assert ramp_up("constant", 0.0) == 1 and ramp_up("linear", 0.0, 0.0) == 1


def test_a_teacher_is_the_plain_mean_at_first_then_forgets():
    students = [network(k) for k in range(4)]
    teacher = make_teacher(network(9))
    for number, student in enumerate(students):
        follow(teacher, student, 0.99, number)
    expected = sum(s.head.weight for s in students) / 4
    torch.testing.assert_close(teacher.head.weight, expected)
    follow(teacher, students[0], 0.9, 1000)
    torch.testing.assert_close(teacher.head.weight, 0.9 * expected + 0.1 * students[0].head.weight)
    assert F.mse_loss(teacher.encoder.level0.norm1.weight, students[0].encoder.level0.norm1.weight) == 0


def test_urpc_perturbs_noise_then_positions_then_channels_from_fine_to_coarse():
    """As in the authors' code for 2D images, which drops positions above 0.7 to 0.9 of the largest activation."""
    x = torch.linspace(0, 1, 101, dtype=torch.float64).reshape(1, 1, 1, 101).expand(64, 3, 1, 101)
    noise, positions, channels = (perturb(x, step().generator) for perturb in LEVEL_PERTURBATIONS)
    assert (noise[..., 1:] > 0).all() and not torch.equal(noise, x)
    kept = (positions[:, 0, 0] > 0).sum(1)  # of 100 that are not 0 themselves
    assert 69 <= kept.min() < 73 and 87 < kept.max() <= 89
    assert set(channels[..., -1].unique().tolist()) == {0.0, 2.0}
