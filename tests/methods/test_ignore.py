"""Pixels that are not annotated teach nothing, in every loss and method; without them, nothing changes."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from monai.losses import DiceCELoss, DiceLoss

from hebbseg.data.augment.views import Augment
from hebbseg.data.cases import IGNORE
from hebbseg.data.labels.ignore import completed
from hebbseg.methods import METHODS
from hebbseg.methods.base import Labelled
from hebbseg.methods.bcp import single_objects
from hebbseg.methods.cutmix import strong_view
from hebbseg.methods.dtc import regression_loss, signed_distance
from hebbseg.methods.losses import foreground_dice, pseudo_label_loss, region_loss, segmentation_loss
from tests.literal import methods as literal
from tests.methods.tiny import batch, method, step

SHAPES = [{"dims": 2, "classes": 2}, {"dims": 2, "classes": 4}, {"dims": 3, "classes": 3}]
LOSSES = {"dice": False, "dice+ce": True}


def partial_batch(share: float = 0.6, **shape) -> tuple[Labelled, torch.Tensor]:
    """A batch in which this share of the labelled pixels is not annotated."""
    labelled, unlabelled = batch(**shape)
    ignored = torch.rand(labelled.masks.shape, generator=torch.Generator().manual_seed(3)) < share
    return Labelled(labelled.images, labelled.masks.masked_fill(ignored, IGNORE)), unlabelled


def logits_for(masks: torch.Tensor, classes: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return 2 * torch.randn(len(masks), classes, *masks.shape[1:], generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_the_literal_ones_over_annotated_pixels(shape, loss):
    masks = partial_batch(**shape)[0].masks
    logits = logits_for(masks, shape["classes"])
    p, label = literal.softmax(logits.numpy()), masks.numpy()
    known = literal.annotated(label)
    expected = literal.region_loss(p, label, known, cross=LOSSES[loss])
    assert segmentation_loss(loss)(logits, masks).item() == pytest.approx(expected, rel=1e-12)
    region = torch.rand(masks.shape, generator=torch.Generator().manual_seed(8)) < 0.5
    expected = literal.region_loss(p, label, known & region.numpy(), cross=LOSSES[loss])
    assert region_loss(logits, masks, region, loss).item() == pytest.approx(expected, rel=1e-12)
    assert foreground_dice(logits, masks).item() == pytest.approx(literal.annotated_dice(p, label), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_mask_that_is_annotated_everywhere_has_the_same_loss_bit_for_bit(loss, dtype):
    masks = batch(classes=3)[0].masks
    logits = logits_for(masks, 3).to(dtype)
    options = {"softmax": True, "to_onehot_y": True, "batch": True, "smooth_nr": 1.0, "smooth_dr": 1.0}
    plain = DiceCELoss(**options) if loss == "dice+ce" else DiceLoss(**options)
    assert torch.equal(segmentation_loss(loss)(logits, masks), plain(logits.float(), masks.unsqueeze(1)))
    truth = signed_distance(masks, 3)
    distance = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(regression_loss(distance, truth, masks), F.mse_loss(distance, truth))


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_annotated_is_no_loss_and_no_gradient(loss):
    masks = torch.full((2, 4, 4), IGNORE)
    logits = logits_for(masks, 3).requires_grad_()
    value = segmentation_loss(loss)(logits, masks)
    value.backward()
    assert value.item() == 0 and not logits.grad.any() and foreground_dice(logits.detach(), masks).item() == 0


def captured(m: torch.nn.Module) -> list[torch.Tensor]:
    """The outputs of all heads of a method, filled by its next loss."""
    outputs: list[torch.Tensor] = []

    def keep(module, arguments, result) -> None:
        for each in result if isinstance(result, list) else [result]:
            if each.requires_grad:  # not the predictions that make pseudo-labels
                each.retain_grad()
                outputs.append(each)

    for name, module in m.named_modules():
        if name in ("network.head", "second.head", "heads", "distance_head"):
            module.register_forward_hook(keep)
    return outputs


@pytest.mark.parametrize("progress", [0.0, 0.6])
@pytest.mark.parametrize("name", METHODS)
def test_the_gradient_of_supervised_terms_is_zero_where_nothing_is_annotated(name, progress):
    m, (labelled, unlabelled) = method(name), partial_batch()
    outputs = captured(m)
    terms = m(labelled, unlabelled, step(progress=progress))
    assert all(torch.isfinite(term) for term in terms.values())
    sum(term for key, term in terms.items() if key in ("supervised", "distance")).backward()
    known = labelled.masks != IGNORE
    graded = 0
    for output in outputs:
        if output.grad is None:
            continue
        parts = output.grad.split(len(known))
        if name == "bcp" and progress == 0:
            # Labelled images are pasted into one another: a pixel is annotated in one of the two.
            parts = [part * ~(known | known.roll(1, 0)).unsqueeze(1) for part in parts]
        elif name != "bcp":
            assert not any(part.any() for part in parts[1:]), "unlabelled images"
            parts = parts[:1]
        graded += sum(int(part.count_nonzero()) for part in parts if name != "bcp" or progress > 0)
        for part in parts:
            assert not (part * ~known.unsqueeze(1)).any()
    assert graded or (name == "bcp" and progress == 0)


def test_pasted_pixels_that_are_not_annotated_are_never_used():
    labelled, unlabelled = partial_batch(classes=3)
    generator = torch.Generator().manual_seed(0)
    label, confidence = torch.ones(unlabelled[:, 0].shape, dtype=torch.long), torch.full(unlabelled[:, 0].shape, 0.7)
    _, q, c = strong_view(unlabelled, label, confidence, Augment(spatial_dims=2), 1.0, generator, labelled)
    pasted = (c != 0.7).nonzero().tolist()
    assert len(pasted) > 10
    for b, *x in pasted:
        known = labelled.masks[(b, *x)]
        assert c[(b, *x)] == (-1 if known == IGNORE else 1) and q[(b, *x)] == (0 if known == IGNORE else known)
    logits = logits_for(label, 3).requires_grad_()
    for kind in ("ce", "dice"):
        (gradient,) = torch.autograd.grad(pseudo_label_loss(logits, q, c, 0.0, kind), logits)
        assert not (gradient * (c == -1).unsqueeze(1)).any() and gradient.any()


@pytest.mark.parametrize("shape", SHAPES)
def test_distance_regression_of_partial_masks(shape):
    masks = partial_batch(share=0.4, **shape)[0].masks
    classes = shape["classes"]
    whole = torch.stack([torch.from_numpy(completed(mask)) for mask in masks.numpy()])
    truth = signed_distance(masks, classes)
    for b, c in np.ndindex(len(masks), classes - 1):
        expected = literal.signed_distance(whole[b].numpy() == c + 1)
        np.testing.assert_allclose(truth[b, c].numpy(), expected, atol=1e-6)
    distance = torch.randn(truth.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = literal.annotated_regression(distance.numpy(), truth.numpy(), masks.numpy())
    assert regression_loss(distance, truth.double(), masks).item() == pytest.approx(expected, rel=1e-9)


def test_an_object_scribbled_on_twice_is_one_object():
    mask = torch.full((1, 12, 12), IGNORE)
    mask[0, 0], mask[0, 11] = 0, 0
    mask[0, 5, 2:4] = mask[0, 5, 8:10] = 1
    assert single_objects(mask, 2) == [1]
    assert single_objects(torch.where(mask == IGNORE, 0, mask), 2) == []
