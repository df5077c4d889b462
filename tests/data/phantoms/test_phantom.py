import time

import numpy as np
import pytest
import torch

from hebbseg.data.augment.views import Augment
from hebbseg.data.batches import Batches
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.resampling import resized_classes, resized_mask
from hebbseg.data.sources.phantom import PHANTOMS, phantom
from hebbseg.data.splits.split import make_split
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError

FLAT = ("glands", "lesions", "pupils", "vessels")
SMALL = {name: {"n": 30, "size": 64} for name in FLAT} | {"atrium": {"n": 6, "size": 32}}


def drawn(name, **options):
    source = phantom(name, **{**SMALL[name], **options})
    return source, [source.image(case) for case in source.cases], [source.mask(case) for case in source.cases]


@pytest.mark.parametrize("name", PHANTOMS)
def test_arrays_are_what_the_contract_says(name):
    source, images, masks = drawn(name)
    assert source.spatial_dims == len(source.size) and source.problems == ()
    for case, image, mask in zip(source.cases, images, masks):
        assert case.has_mask and case.image == () and case.group is not None
        assert image.shape == (source.channels, *source.size)
        assert image.dtype == (np.float32 if name == "atrium" else np.uint8)
        assert np.isfinite(image).all() and image.std() > 0
        assert mask.shape == source.size and mask.dtype == np.uint8
        assert set(np.unique(mask)) <= {0, 1}
    shares = np.array([mask.mean() for mask in masks])
    assert (shares > 0).mean() > 0.9 and shares.max() < 0.9
    assert shares.std() > 0.15 * shares.mean()
    if name == "atrium":
        assert all(len(case.spacing_mm) == 3 for case in source.cases)


@pytest.mark.parametrize("name", PHANTOMS)
def test_a_case_depends_on_seed_kind_and_number_alone(name):
    size = SMALL[name]["size"]
    few, many = phantom(name, n=3, size=size), phantom(name, n=200, size=size)
    other = phantom(name, n=3, size=size, seed=1)
    last_first = many.image(many.cases[2])
    for index in range(3):
        case = few.cases[index]
        assert case.id == many.cases[index].id
        assert np.array_equal(few.image(case), many.image(many.cases[index]))
        assert np.array_equal(few.mask(case), many.mask(many.cases[index]))
        assert not np.array_equal(few.image(case), other.image(case))
    assert np.array_equal(last_first, few.image(few.cases[2]))


def test_what_is_given_out_may_be_changed():
    source = phantom("pupils", n=1, size=32)
    before = source.image(source.cases[0]).copy()
    source.image(source.cases[0])[:] = 0
    assert np.array_equal(source.image(source.cases[0]), before)


def test_drawing_is_the_same_on_every_machine():
    # Means, not hashes: the last bit of a logarithm may differ between processors.
    found = {}
    for name in PHANTOMS:
        source = phantom(name, n=2, size=48)
        found[name] = (source.image(source.cases[1]).astype(np.float64).std(), source.mask(source.cases[1]).mean())
    for name, expected in EXPECTED.items():
        assert found[name] == pytest.approx(expected, rel=1e-3), name


EXPECTED = {
    "glands": (45.15291, 0.41233),
    "lesions": (51.75998, 0.23524),
    "pupils": (44.70778, 0.03602),
    "atrium": (1.00000, 0.02599),
    "vessels": (60.62449, 0.07682),
}


def test_patients_share_a_side_and_a_look():
    source, images, _ = drawn("glands", n=60, size=48)
    sides = {}
    for case in source.cases:
        sides.setdefault(case.group, set()).add(case.subset)
    assert all(len(side) == 1 for side in sides.values())
    assert sum(side == {"test"} for side in sides.values()) == round(len(sides) / 3)
    colours = np.array([image.mean((1, 2)) for image in images]).reshape(15, 4, 3)
    assert colours.mean(1).var(0).sum() > colours.var(1).mean(0).sum()
    one = phantom("glands", n=3)
    assert {case.subset for case in one.cases} == {"train"}


@pytest.mark.parametrize("name", PHANTOMS)
def test_oblong_sizes(name):
    size = (40, 64) if name in FLAT else (32, 40, 36)
    source = phantom(name, n=2, size=size)
    for case in source.cases:
        assert source.image(case).shape[1:] == source.mask(case).shape == size


@pytest.mark.parametrize("name", FLAT)
def test_colour_alone_does_not_tell(name):
    """The best any rule on single pixels could do, knowing half of the set and the best threshold on the other half."""
    _, images, masks = drawn(name, n=60)
    codes = [sum((channel.astype(int) >> 3) << (5 * k) for k, channel in enumerate(image)) for image in images]
    seen, foreground = np.concatenate(codes[:30]).ravel(), np.concatenate(masks[:30]).ravel()
    bins = 32 ** len(images[0])
    posterior = (np.bincount(seen, foreground, bins) + 0.1) / (np.bincount(seen, minlength=bins) + 0.5)
    best = max(
        np.mean([dice(posterior[code] > threshold, mask) for code, mask in zip(codes[30:], masks[30:])])
        for threshold in np.linspace(0.05, 0.9, 18)
    )
    assert best < 0.78


def test_twenty_pictures_a_second():
    # Measured: 22, 14 and 10 ms at 128 × 128. Processor time, and the best of five: others may be at work.
    for name in set(FLAT) - {"vessels"}:  # larger, and 35 ms at 128 × 128
        source = phantom(name, n=5)
        times = []
        for case in source.cases:
            begin = time.process_time()
            source.image(case)
            times.append(time.process_time() - begin)
        assert min(times) < 0.05, name


def test_vessels_are_too_thin_for_the_default_size():
    source = phantom("vessels", n=1)
    mask = torch.from_numpy(source.mask(source.cases[0]))
    assert mask.shape == (1000, 1000) and 0.02 < mask.float().mean() < 0.15
    small = torch.nn.functional.one_hot(resized_mask(mask, (128, 128), 2).long(), 2).movedim(-1, 0)
    assert dice(resized_classes(small.float(), (1000, 1000)).numpy() > 0, mask.numpy()) < 0.75
    large = torch.nn.functional.one_hot(resized_mask(mask, (800, 800), 2).long(), 2).movedim(-1, 0)
    assert dice(resized_classes(large.float(), (1000, 1000)).numpy() > 0, mask.numpy()) > 0.9


@pytest.mark.parametrize(
    ("spec", "n", "size", "seed"),
    [
        ("phantom:glands", 120, (128, 128), 0),
        ("glands", 120, (128, 128), 0),
        ("phantom:glands?n=80&size=96&seed=3", 80, (96, 96), 3),
        ("phantom:atrium?size=64x48x40", 30, (64, 48, 40), 0),
        ("phantom:vessels?n=6", 6, (1000, 1000), 0),
        ("phantom:pupils?seed=9", 240, (128, 128), 9),
    ],
)
def test_specs(spec, n, size, seed):
    source = phantom(spec)
    assert (source.n, source.size, source.seed) == (n, size, seed)
    assert len(source.cases) == n
    assert phantom(source.name).name == source.name


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("phantom:gland", "Did you mean 'glands'"),
        ("phantom:", "Allowed: 'atrium'"),
        ("phantom:glands?count=3", "unknown option 'count'"),
        ("phantom:glands?n=many", "n='many' is not an integer"),
        ("phantom:glands?n=", "n='' is not an integer"),
        ("phantom:glands?n=3&n=4", "n is given twice"),
        ("phantom:glands?n=3x4", "only size"),
        ("phantom:glands?n=0", "n=0"),
        ("phantom:glands?n=-2", "n=-2"),
        ("phantom:glands?size=16", "at least 32"),
        ("phantom:atrium?size=64x64", "3 integers"),
        ("phantom:glands?seed=-1", "seed=-1"),
    ],
)
def test_wrong_specs_say_what_is_allowed(spec, words):
    with pytest.raises(HebbsegError) as caught:
        phantom(spec)
    assert words in str(caught.value)


@pytest.mark.slow
def test_five_percent_of_the_labels_is_clearly_worse_than_all():
    """A small UNet, the same number of updates."""
    from monai.networks.nets import BasicUNet

    source = phantom("glands", size=64)
    scores = {}
    for labelled in ("5%", "100%"):
        split = make_split(source, labelled=labelled)
        preprocessing = Preprocessing(size=(64, 64), normalize="unit")
        store = CaseStore.for_training(source, split.training, preprocessing=preprocessing)
        batches = Batches(
            store=store,
            training=split.training,
            steps=100,
            unlabelled_batch=0,
            augment=Augment(spatial_dims=2),
        )
        torch.manual_seed(0)
        net = BasicUNet(spatial_dims=2, in_channels=3, out_channels=2, features=(8, 16, 32, 32, 64, 8))
        optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, len(batches))
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(net(batch.images), batch.masks)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        test = CaseStore(source=source, preprocessing=preprocessing, images=split.test, masks=split.test)
        with torch.no_grad():
            predictions = net.eval()(test.images(split.test)).argmax(1) == 1
        masks = test.masks(split.test)
        scores[labelled] = np.mean([dice(p.numpy(), m.numpy()) for p, m in zip(predictions, masks)])
    assert scores["5%"] < scores["100%"] - 0.03, scores


def test_an_option_is_not_given_in_two_places():
    assert phantom("glands?n=8", size=64).name == "phantom:glands?n=8&size=64x64&seed=0"
    with pytest.raises(HebbsegError, match="n is given twice"):
        phantom("glands?n=8", n=9)


def dice(prediction, mask):
    both = prediction.sum() + mask.sum()
    return 2 * (prediction & (mask > 0)).sum() / both if both else 1.0
