import math

import pytest
import torch

from hebbseg.data.augment.geometry import Geometry, spread_control_points
from hebbseg.data.augment.intensity import Photometry, gaussian_blur
from hebbseg.data.augment.views import HARSH, Augment
from hebbseg.errors import HebbsegError

NOTHING = Photometry(chance=0.0, brightness=0, contrast=0, gamma=0, noise=0, blur=0)
STILL = Geometry(flip=0.0, quarter_turns=False, free=0.0)
SHAPES = {2: (24, 24), 3: (16, 16, 12)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(dims, count=6, channels=2):
    images = torch.rand(count, channels, *SHAPES[dims], generator=generator(9))
    masks = torch.randint(0, 3, (count, *SHAPES[dims]), generator=generator(8))
    return images, masks


@pytest.mark.parametrize("dims", [2, 3])
def test_same_seed_same_views_and_inputs_are_left_alone(dims):
    images, masks = batch(dims)
    before = images.clone(), masks.clone()
    augment = Augment(spatial_dims=dims)
    first, second = augment.weak(images, masks, generator(1)), augment.weak(images, masks, generator(1))
    other = augment.weak(images, masks, generator(2))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert not torch.equal(first[0], other[0])
    assert torch.equal(augment.strong(images, generator(1)), augment.strong(images, generator(1)))
    assert torch.equal(images, before[0]) and torch.equal(masks, before[1])
    assert first[0].dtype == images.dtype and first[1].dtype == masks.dtype and first[0].shape == images.shape


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize(
    "geometry",
    [
        Geometry(flip=1.0, quarter_turns=False, free=0.0),
        Geometry(flip=0.5, quarter_turns=True, free=0.0),
        Geometry(free=1.0),
    ],
)
def test_image_and_mask_move_together(dims, geometry):
    # The image is the mask of a few large blocks: after any motion, away from edges they must still agree.
    small = torch.randint(0, 3, (5, *[4] * dims), generator=generator(3))
    masks = small.float()[:, None]
    masks = torch.nn.functional.interpolate(masks, scale_factor=8, mode="nearest")[:, 0].long()
    moved, moved_masks = geometry.apply(masks[:, None].float(), masks, generator(4))
    agree = (moved[:, 0].round().long() == moved_masks).float().mean()
    assert agree > 0.93
    assert not torch.equal(moved_masks, masks)
    assert set(moved_masks.unique().tolist()) <= {0, 1, 2}


@pytest.mark.parametrize("dims", [2, 3])
def test_flips_and_quarter_turns_only_rearrange_pixels(dims):
    images, masks = batch(dims)
    geometry = Geometry(free=0.0)
    moved, moved_masks = geometry.apply(images, masks, generator())
    for index in range(len(images)):
        assert torch.equal(moved[index].flatten().sort().values, images[index].flatten().sort().values)
        assert torch.equal(moved_masks[index].flatten().sort().values, masks[index].flatten().sort().values)


def test_quarter_turns_reach_all_four_and_leave_unequal_axes_alone():
    corner = torch.zeros(64, 1, 8, 8)
    corner[:, :, 0, 0] = 1
    moved, _ = Geometry(flip=0.0, free=0.0).apply(corner, None, generator())
    assert {tuple(position) for position in moved[:, 0].nonzero()[:, 1:].tolist()} == {(0, 0), (0, 7), (7, 0), (7, 7)}
    oblong = torch.rand(8, 1, 8, 6)
    moved, _ = Geometry(flip=0.0, free=0.0).apply(oblong, None, generator())
    assert torch.equal(moved, oblong)


@pytest.mark.parametrize("shape", [(33, 33), (33, 65), (33, 33, 33)])
def test_free_rotation_is_rigid_in_pixels(shape):
    # A ball stays a ball of the same volume, whatever the aspect of the image.
    axes = torch.meshgrid(*[torch.arange(n) - (n - 1) / 2 for n in shape], indexing="ij")
    radius = torch.stack(axes).square().sum(0).sqrt()
    ball = torch.sigmoid(11 - radius).expand(4, 1, *shape)
    geometry = Geometry(flip=0, quarter_turns=False, free=1.0, scale=(1.0, 1.0), elastic=0.0, rotation_degrees=90)
    moved, _ = geometry.apply(ball.clone(), None, generator())
    # Farther out there are mirror images.
    assert (moved - ball)[:, :, radius < 15].abs().max() < 0.1


@pytest.mark.parametrize("dims", [2, 3])
def test_scale_magnifies(dims):
    shape = (41,) * dims
    axes = torch.meshgrid(*[torch.arange(n) - 20.0 for n in shape], indexing="ij")
    ball = (torch.stack(axes).square().sum(0).sqrt() < 8).float()[None, None]
    geometry = Geometry(flip=0, quarter_turns=False, free=1, scale=(1.5, 1.5), elastic=0, rotation_degrees=0)
    moved, _ = geometry.apply(ball, None, generator())
    assert moved.sum() / ball.sum() == pytest.approx(1.5**dims, rel=0.08)


@pytest.mark.parametrize("dims", [2, 3])
def test_outside_is_the_mirror_image_of_inside(dims):
    images = torch.rand(1, 1, *[16] * dims, generator=generator(1))
    geometry = Geometry(flip=0, quarter_turns=False, free=1, scale=(0.5, 0.5), elastic=0, rotation_degrees=0)
    moved, _ = geometry.apply(images, None, generator())
    for axis in range(2, dims + 2):
        # At half the size the image ends between 3 and 4, and between 11 and 12.
        assert torch.allclose(moved.narrow(axis, 0, 4), moved.narrow(axis, 4, 4).flip(axis), atol=1e-5)
        assert torch.allclose(moved.narrow(axis, 12, 4), moved.narrow(axis, 8, 4).flip(axis), atol=1e-5)
    inside = moved[(..., *[slice(4, 12)] * dims)]
    pool = torch.nn.functional.avg_pool2d if dims == 2 else torch.nn.functional.avg_pool3d
    assert torch.allclose(inside, pool(images, 2), atol=1e-5)


@pytest.mark.parametrize("shape", [(9,), (9, 12), (6, 7, 8)])
def test_spline_through_equal_points_is_constant_and_through_a_ramp_is_a_ramp(shape):
    control = torch.full((1, 1, *[5] * len(shape)), 0.7)
    assert torch.allclose(spread_control_points(control, shape), torch.full((1, 1, *shape), 0.7))
    ramp = torch.arange(5.0).reshape(1, 1, 5, *[1] * (len(shape) - 1)).expand(1, 1, *[5] * len(shape))
    field = spread_control_points(ramp, shape)
    line = field.movedim(2, -1).flatten(0, -2)[0]
    assert torch.allclose(line, torch.linspace(1, 3, shape[0]), atol=1e-6)


@pytest.mark.parametrize("dims", [2, 3])
def test_strong_view_stays_in_place(dims):
    # An edge in the middle is still in the middle after any change of light.
    images = torch.zeros(16, 1, *SHAPES[dims])
    images[..., SHAPES[dims][-1] // 2 :] = 1
    view = Augment(spatial_dims=dims).strong(images, generator(5))
    assert not torch.equal(view, images)
    dark, bright = view[..., :4].flatten(1).mean(1), view[..., -4:].flatten(1).mean(1)
    assert (bright > dark).all()
    middle = (dark + bright)[:, None] / 2
    profile = view.movedim(-1, 1).flatten(2).mean(2)
    assert torch.equal((profile > middle).sum(1), torch.full((16,), SHAPES[dims][-1] - SHAPES[dims][-1] // 2))


@pytest.mark.parametrize("dims", [2, 3])
def test_blur_is_scipys_gaussian(dims):
    from scipy import ndimage

    images = torch.rand(2, 2, *[17, 12, 14][:dims], generator=generator(1), dtype=torch.float64)
    widths = torch.tensor([0.7, 1.4], dtype=torch.float64)
    blurred = gaussian_blur(images, widths)
    for index, width in enumerate(widths.tolist()):
        axes = tuple(range(1, dims + 1))
        expected = ndimage.gaussian_filter(images[index].numpy(), width, mode="nearest", radius=5, axes=axes)
        assert abs(blurred[index].numpy() - expected).max() < 1e-12
    constant = torch.full((1, 1, *[9] * dims), 3.0)
    assert torch.allclose(gaussian_blur(constant, torch.tensor([2.0])), constant)


def test_light_is_relative_to_the_image():
    # In units of its own spread, an image and the same image on another scale are changed alike.
    images = torch.rand(8, 3, 16, 16, generator=generator(2))
    scaled = 40 * images - 7
    view, view_scaled = HARSH.apply(images, generator(3)), HARSH.apply(scaled, generator(3))
    assert torch.allclose(40 * view - 7, view_scaled, atol=1e-2)


def test_each_change_of_light_does_what_it_says():
    images = torch.rand(64, 2, 16, 16, generator=generator(2))
    off = {"brightness": 0, "contrast": 0, "gamma": 0, "noise": 0, "blur": 0, "chance": 1.0}
    brightness = Photometry(**{**off, "brightness": 0.5, "colour": 0}).apply(images, generator())
    shift = brightness - images
    assert shift.flatten(1).std(dim=1).max() < 1e-5 and shift.abs().mean() > 0.02
    contrast = Photometry(**{**off, "contrast": 0.5, "colour": 0}).apply(images, generator())
    ratio = contrast.flatten(1).std(1) / images.flatten(1).std(1)
    assert ratio.min() >= math.exp(-0.5) - 1e-4 and ratio.max() <= math.exp(0.5) + 1e-4 and ratio.std() > 0.1
    assert torch.allclose(contrast.flatten(1).mean(1), images.flatten(1).mean(1), atol=1e-5)
    gamma = Photometry(**{**off, "gamma": 0.5}).apply(images, generator())
    assert torch.equal(gamma.flatten(1).argsort(1), images.flatten(1).argsort(1))
    assert torch.allclose(gamma.flatten(1).amax(1), images.flatten(1).amax(1))
    noise = Photometry(**{**off, "noise": 0.5}).apply(images, generator()) - images
    assert noise.mean().abs() < 0.01 and 0.05 < noise.std() < 0.2
    assert torch.equal(NOTHING.apply(images, generator()), images)


def test_an_image_of_one_grey_stays_finite():
    for value in (0.0, 1.0, -3.0):
        view = HARSH.apply(torch.full((8, 3, 16, 16), value), generator())
        assert view.isfinite().all() and torch.allclose(view, torch.full_like(view, value), atol=1e-5)


def test_nothing_asked_nothing_changed():
    images, masks = batch(2)
    augment = Augment(spatial_dims=2, geometry=STILL, weak_light=NOTHING)
    view, view_masks = augment.weak(images, masks, generator())
    assert torch.equal(view, images) and torch.equal(view_masks, masks)


def test_wrong_shapes_are_named():
    augment = Augment(spatial_dims=3)
    with pytest.raises(HebbsegError, match=r"\(2, 3, 8, 8\).*3 spatial axes"):
        augment.weak(torch.rand(2, 3, 8, 8), None, generator())
    with pytest.raises(HebbsegError, match="floating point"):
        Augment(spatial_dims=2).strong(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), generator())
    with pytest.raises(HebbsegError, match=r"masks of shape \(2, 8, 9\)"):
        Augment(spatial_dims=2).weak(torch.rand(2, 3, 8, 8), torch.zeros(2, 8, 9), generator())


@pytest.mark.parametrize("dims", [2, 3])
def test_cutmix_fills_a_box_from_the_next_labelled_image_and_its_mask(dims):
    _, masks = batch(dims)
    masks = masks + 10 * torch.arange(len(masks)).reshape(-1, *(1,) * dims)  # tells from which case a pixel is
    images = masks[:, None].float()
    augment = Augment(spatial_dims=dims, geometry=STILL, weak_light=NOTHING, cutmix=1.0)
    mixed_images, mixed_masks = augment.labelled(images, masks, generator())
    assert torch.equal(mixed_images[:, 0].long(), mixed_masks)
    sources = mixed_masks // 10
    for case, source in enumerate(sources):
        assert set(source.unique().tolist()) == {case, (case - 1) % len(masks)}
        inside = (source != case).nonzero()
        sides = inside.max(0).values - inside.min(0).values + 1
        assert len(inside) == sides.prod()  # a box
    without = Augment(spatial_dims=dims, geometry=STILL, weak_light=NOTHING).labelled(images, masks, generator())
    assert torch.equal(without[0], images) and torch.equal(without[1], masks)
    alone = augment.labelled(images[:1], masks[:1], generator())
    assert torch.equal(alone[0], images[:1]) and torch.equal(alone[1], masks[:1])


def test_cutmix_has_its_probability():
    images, masks = torch.zeros(400, 1, 8, 8), torch.arange(400)[:, None, None].expand(400, 8, 8).clone()
    augment = Augment(spatial_dims=2, geometry=STILL, weak_light=NOTHING, cutmix=0.5)
    _, mixed_masks = augment.labelled(images, masks, generator())
    assert 160 < int((mixed_masks != masks).flatten(1).any(1).sum()) < 240
