import multiprocessing
import shutil
from collections import Counter

import nibabel
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from hebbseg.data.augment.views import Augment
from hebbseg.data.batches import Batches
from hebbseg.data.cache import cache_folder, cache_key, mapped
from hebbseg.data.cases import Case
from hebbseg.data.patches import cut, foreground_points, random_start, start_around
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.data.sources import open_source
from hebbseg.data.sources.phantom import phantom
from hebbseg.data.splits.split import TrainingCases, make_split
from hebbseg.data.store import CaseStore
from hebbseg.errors import HebbsegError
from tests.data.arrays_source import ArraysSource
from tests.data.trees import picture, save
from tests.realdata import real

AS_IT_IS = Preprocessing(size=None, normalize="unit")


def numbered(n=10, *, shape=(8, 8), dims=2) -> ArraysSource:
    """Image i is all i, so that a tensor tells whose it is."""
    cases = [Case(id=f"c{i:02d}", mask=()) for i in range(n)]
    return ArraysSource(
        cases,
        images={c.id: np.full((1, *shape), i, dtype=np.uint8) for i, c in enumerate(cases)},
        masks={c.id: np.full(shape, i % 2, dtype=np.uint8) for i, c in enumerate(cases)},
        spatial_dims=dims,
    )


def batches_of(source, training, **options) -> Batches:
    store = CaseStore.for_training(source, training, preprocessing=AS_IT_IS)
    return Batches(**{"store": store, "training": training, "steps": 7, "patch": None, **options})


TRAINING = TrainingCases(labelled=("c01", "c04", "c00"), unlabelled=("c02", "c03", "c05", "c06"), validation=("c07",))


# Preprocessing


def test_bytes_stay_bytes_and_become_zero_to_one():
    image = np.random.default_rng(0).integers(0, 256, (3, 40, 50), dtype=np.uint8)
    kept = Preprocessing(size=(20, 30), normalize="unit").image(image)
    assert kept.dtype == torch.uint8 and kept.shape == (3, 20, 30)
    seen = Preprocessing.to_network(kept)
    assert seen.dtype == torch.float32 and seen.min() >= 0 and seen.max() <= 1
    assert torch.equal(Preprocessing(size=None, normalize="unit").image(image), torch.from_numpy(image))


def test_resizing_is_anti_aliased_for_images_and_area_weighted_for_masks():
    stripes = np.zeros((1, 64, 64), dtype=np.uint8)
    stripes[:, :, ::2] = 200
    kept = Preprocessing(size=(16, 16), normalize="unit").image(stripes)
    assert (kept.float() - 100).abs().max() < 20  # a plain subsample would be all 200 or all 0
    mask = np.random.default_rng(0).integers(0, 5, (64, 48)).astype(np.uint8)
    small = Preprocessing(size=(32, 24), normalize="unit").mask(mask)
    assert small.dtype == torch.uint8
    assert set(small.unique().tolist()) <= set(range(5))
    for row, column in ((0, 0), (5, 20), (31, 23)):
        counts = np.bincount(mask[2 * row : 2 * row + 2, 2 * column : 2 * column + 2].ravel())
        assert small[row, column] == counts.argmax()


def test_volumes_are_resized_by_means():
    volume = np.random.default_rng(0).normal(size=(1, 8, 8, 8)).astype(np.float32)
    kept = Preprocessing(size=(4, 4, 4), normalize="zscore").image(volume).float()
    means = torch.from_numpy(volume).reshape(1, 4, 2, 4, 2, 4, 2).mean((2, 4, 6))
    assert torch.corrcoef(torch.stack([kept.flatten(), means.flatten()]))[0, 1] > 0.999


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32, np.float64, ">f4", ">u2"])
def test_zscore_has_mean_0_and_variance_1_for_every_type(dtype):
    image = np.random.default_rng(0).integers(10, 200, (2, 50, 50)).astype(dtype)
    kept = Preprocessing(size=None, normalize="zscore").image(image)
    assert kept.dtype == torch.float16
    assert kept.float().mean((1, 2)).abs().max() < 1e-2
    assert (kept.float().std((1, 2)) - 1).abs().max() < 1e-2


def test_zscore_clips_outliers_and_survives_nan_and_one_grey():
    preprocessing = Preprocessing(size=None, normalize="zscore")
    image = np.random.default_rng(0).normal(size=(1, 50, 50)).astype(np.float32)
    image[0, 0, 0], image[0, 1, 1], image[0, 2, 2] = 1e9, np.nan, -np.inf
    kept = preprocessing.image(image).float()
    assert kept.isfinite().all() and kept.abs().max() < 20 and kept[0, 1, 1] == 0
    assert abs(float(kept.std()) - 1) < 0.05
    for value in (0, 7, 40000):
        assert (preprocessing.image(np.full((1, 9, 9), value, np.uint16)) == 0).all()
    assert (preprocessing.image(np.full((1, 9, 9), np.nan, np.float32)) == 0).all()


def test_a_small_bright_object_is_not_an_outlier():
    # Five bright pixels in a thousand times as many: less than any percentile, and all the picture is about.
    image = np.zeros((1, 70, 70), np.float32)
    image[0, 30, 30:35] = 1
    for normalize in ("zscore", "unit"):
        kept = Preprocessing(size=None, normalize=normalize).image(image)
        assert (kept[0, 30, 30:35] > kept[0, 0, 0]).all()
    noisy = image + np.random.default_rng(0).normal(0, 0.2, image.shape)
    kept = Preprocessing(size=None, normalize="zscore").image(noisy).float()
    assert torch.corrcoef(torch.stack([kept.flatten(), torch.from_numpy(noisy).flatten()]))[0, 1] > 0.9999


def test_unit_scales_by_type_and_floats_by_percentile():
    preprocessing = Preprocessing(size=None, normalize="unit")
    assert preprocessing.image(np.full((1, 4, 4), 65535, np.uint16)).max() == 1
    kept = preprocessing.image(np.linspace(-4, 9, 1000, dtype=np.float32).reshape(1, 10, 100))
    assert kept.min() == pytest.approx(0, abs=0.01) and kept.max() == pytest.approx(1, abs=0.01)
    assert (preprocessing.image(np.full((1, 4, 4), 3.0, np.float32)) == 0).all()


def test_settings_suit_the_source():
    glands, pupils, atrium = phantom("glands", n=4), phantom("pupils", n=4), phantom("atrium", n=2, size=32)
    assert Preprocessing.for_source(glands) == Preprocessing(size=(128, 128), normalize="zscore")
    assert Preprocessing.for_source(pupils) == Preprocessing(size=(128, 128), normalize="zscore")
    preprocessing = Preprocessing.for_source(atrium)
    assert preprocessing == Preprocessing(size=None, normalize="zscore")
    assert Preprocessing.from_description(preprocessing.describe()) == preprocessing
    with pytest.raises(HebbsegError, match="3 integers"):
        Preprocessing.for_source(atrium, size=(64, 64))
    with pytest.raises(HebbsegError, match="Did you mean 'zscore'"):
        Preprocessing(size=None, normalize="z-score")


# The store


def test_only_what_is_allowed_is_read():
    source = numbered()
    store = CaseStore.for_training(source, TRAINING, preprocessing=AS_IT_IS)
    store.load()
    assert {name for what, name in source.reads} == {f"c{i:02d}" for i in range(8)}
    assert all(what == "image" for what, _ in source.reads)
    assert store.masks(["c01", "c07"]).dtype == torch.int64
    for ask in (store.images, store.masks):
        with pytest.raises(HebbsegError, match="'c09' is not available in this stage"):
            ask(["c09"])
    for ask in (store.mask, store.foreground):
        with pytest.raises(HebbsegError, match=r"mask of case 'c02'"):
            ask("c02")


def test_each_file_is_read_once():
    source = numbered()
    store = CaseStore.for_training(source, TRAINING, preprocessing=AS_IT_IS)
    for _ in range(3):
        store.images(["c01", "c02"]), store.masks(["c01"])
    assert source.reads == {("image", "c01"): 1, ("image", "c02"): 1, ("mask", "c01"): 1}


def test_beyond_the_memory_limit_arrays_are_mapped_and_the_same(tmp_path):
    source = phantom("glands", n=12, size=64)
    training = make_split(source, labelled="50%").training
    options = {"preprocessing": Preprocessing(size=(48, 48), normalize="unit"), "folder": tmp_path}
    roomy = CaseStore.for_training(source, training, **options)
    tight = CaseStore.for_training(source, training, memory_limit_bytes=2 * 3 * 48 * 48, **options)
    ids = training.images
    expected = roomy.images(ids)
    assert not any(tmp_path.iterdir())
    assert torch.equal(tight.images(ids), expected)
    assert len(list(tmp_path.rglob("*.npy"))) == len(ids) - 2
    # Another process finds them: nothing is read again.
    again = CaseStore.for_training(source, training, memory_limit_bytes=0, **options)
    again.images(ids)
    source.image = lambda case: pytest.fail("read again")
    third = CaseStore.for_training(source, training, memory_limit_bytes=0, **options)
    assert torch.equal(third.images(ids), expected)
    assert torch.equal(third.masks(training.labelled), roomy.masks(training.labelled))


def test_arrays_on_disk_are_mapped_only_while_they_are_used(tmp_path):
    """A mapping for each of many thousand images would exceed the limit of the system, and their pages would stay in memory."""
    store = kept_on_disk(numbered(5), tmp_path)
    read = {name: store.image(name) for name in store.ids}
    assert all(torch.equal(store.image(name), image) for name, image in read.items()) and not store._arrays.in_memory
    for file in list(tmp_path.rglob("*.npy")):
        file.unlink()
    assert torch.equal(store.image("c00"), read["c00"]), "the cache can be deleted at any time"


def test_cache_notices_changed_files_and_settings(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(b"one")
    key = cache_key("s", "a", [file], {"size": 1})
    assert key == cache_key("s", "a", [file], {"size": 1})
    others = {cache_key("t", "a", [file], {"size": 1}), cache_key("s", "a", [file], {"size": 2})}
    file.write_bytes(b"three")
    others.add(cache_key("s", "a", [file], {"size": 1}))
    assert len(others) == 3 and key not in others
    assert cache_key("s", "a", [file / "in" / "zip.png"], {}) != cache_key("s", "a", [file / "other.png"], {})


def kept_on_disk(source, folder) -> CaseStore:
    ids = [case.id for case in source.cases]
    return CaseStore(
        source=source, preprocessing=AS_IT_IS, images=ids, masks=ids, memory_limit_bytes=0, folder=folder / "cache"
    )


def test_masks_on_disk_are_those_of_the_threshold_and_the_map_asked_for(tmp_path):
    save(tmp_path / "data" / "images" / "a.png", picture(0, 8, 8))
    mask = np.repeat(np.array([0, 100, 200, 200], np.uint8), 2)[None].repeat(8, axis=0)
    save(tmp_path / "data" / "masks" / "a.png", mask)
    maps = ("a=0;b=100;b=200", "a=0;b=200;a=100", "a=0;b=100;a=200")
    asked = [{"mask_threshold": 50}, {"mask_threshold": 150}, *({"label_map": given} for given in maps)]
    for options in asked:
        source = open_source(tmp_path / "data", **options)
        np.testing.assert_array_equal(kept_on_disk(source, tmp_path).mask("a").numpy(), source.mask(source.cases[0]))


def test_images_on_disk_have_the_channels_the_set_has_now(tmp_path):
    save(tmp_path / "data" / "images" / "a.png", picture(0, 8, 8))
    colour = save(tmp_path / "data" / "images" / "b.png", picture(1, 8, 8, 3))
    assert kept_on_disk(open_source(tmp_path / "data"), tmp_path).image("a").shape == (3, 8, 8)
    colour.unlink()
    assert kept_on_disk(open_source(tmp_path / "data"), tmp_path).image("a").shape == (1, 8, 8)


def test_masks_on_disk_are_turned_as_their_images_are(tmp_path):
    rng, data = np.random.default_rng(0), tmp_path / "data"
    for name in "ab":
        mask = rng.random((8, 9, 10)) > 0.5
        for kind, array in (("images", mask.astype(np.float32)), ("masks", mask.astype(np.uint8))):
            (data / kind).mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), data / kind / f"{name}.nii.gz")
    axes = set()
    for _ in range(2):
        source = open_source(data)
        axes.add(source.axes)
        store = kept_on_disk(source, tmp_path)
        assert torch.equal(store.image("a")[0] > 0, store.mask("a") > 0)
        tifffile.imwrite(data / "images" / "c.tif", rng.random((10, 9, 8)).astype(np.float32))
    assert len(axes) == 2, "another format turns the axes of all"


def test_damaged_cache_file_is_made_anew(tmp_path):
    array = np.arange(6).reshape(2, 3)
    assert np.array_equal(mapped("abc", lambda: array, tmp_path), array)
    (path,) = tmp_path.rglob("*.npy")
    for damage in (b"", b"nonsense", path.read_bytes()[:-8]):
        path.write_bytes(damage)
        assert np.array_equal(mapped("abc", lambda: array, tmp_path), array)


def test_writing_to_a_mapped_array_never_reaches_the_file(tmp_path):
    torch.from_numpy(mapped("abc", lambda: np.zeros(4), tmp_path)).add_(1)
    assert np.array_equal(mapped("abc", lambda: pytest.fail("made again"), tmp_path), np.zeros(4))


def _fill(folder):
    for index in range(40):
        mapped(f"{index:03d}", lambda index=index: np.full(1000, index), folder)


def test_two_processes_fill_one_cache(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_fill, args=(tmp_path,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert len(list(tmp_path.rglob("*.npy"))) == 40
    assert not list(tmp_path.rglob(".writing-*"))
    assert all(int(mapped(f"{i:03d}", lambda: pytest.fail("gone"), tmp_path)[5]) == i for i in range(40))


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HEBBSEG_CACHE", raising=False)
    assert cache_folder() == tmp_path / "hebbseg"
    monkeypatch.setenv("HEBBSEG_CACHE", "")
    assert cache_folder() == tmp_path / "hebbseg"
    monkeypatch.setenv("HEBBSEG_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"


def test_odd_arrays_are_named():
    source = numbered()
    source.images["c01"] = np.zeros((3, 8, 8), np.uint8)
    source.images["c02"] = np.zeros((1, 9, 8), np.uint8)
    store = CaseStore.for_training(source, TRAINING, preprocessing=AS_IT_IS)
    with pytest.raises(HebbsegError, match=r"c01.*\(3, 8, 8\).*1 channels"):
        store.images(["c01"])
    with pytest.raises(HebbsegError, match="2 different sizes"):
        store.images(["c00", "c02"])
    with pytest.raises(HebbsegError, match="no case 'gone'"):
        CaseStore(source=source, preprocessing=AS_IT_IS, images=["gone"])


def test_evaluation_at_native_size():
    source = phantom("glands", n=12, size=64)
    split = make_split(source, labelled="50%")
    prep = Preprocessing(size=(32, 32), normalize="unit")
    store = CaseStore(source=source, preprocessing=prep, images=split.test, masks=split.test)
    name = split.test[0]
    assert store.native_shape(name) == (64, 64)
    assert store.images([name]).shape == (1, 3, 32, 32) and store.masks([name]).shape == (1, 32, 32)


@pytest.mark.parametrize("memory_limit_bytes", [None, 0])
def test_original_masks_of_tested_cases_are_kept_and_no_mask_is_read_twice(tmp_path, memory_limit_bytes):
    source = numbered(4, shape=(9, 14))
    source.masks["c01"][2:7, 3:4] = 0  # a structure that vanishes at the size used in training
    ids = [case.id for case in source.cases]
    options = {"source": source, "images": ids, "masks": ids[:3], "memory_limit_bytes": memory_limit_bytes, "folder": tmp_path}
    store = CaseStore(preprocessing=Preprocessing(size=(3, 4), normalize="unit"), originals=["c01"], **options)
    for case in source.cases:
        store.keep(case, source.images[case.id], source.masks[case.id])
    tested = store.restricted_to(source, images=["c00", "c01"], masks=["c00", "c01"])
    assert np.array_equal(tested.original_mask("c01").numpy(), source.masks["c01"])
    assert tested.mask("c01").shape == (3, 4) and (tested.mask("c01") == 1).all()
    assert not source.reads
    tested.original_mask("c00")
    assert source.reads == {("mask", "c00"): 1}, "not among the cases to be tested"
    with pytest.raises(HebbsegError, match="mask of case 'c03'"):
        store.original_mask("c03")
    native = CaseStore(preprocessing=AS_IT_IS, **options)
    assert torch.equal(native.original_mask("c01"), native.mask("c01"))
    assert {what for what, _ in (*native._arrays.in_memory, *native._arrays.on_disk)} == {"mask"}, "one copy"


def test_masks_resized_otherwise_by_earlier_versions_are_not_taken_from_the_cache(tmp_path):
    source = numbered(1)
    store = CaseStore(source=source, preprocessing=Preprocessing(size=(4, 4), normalize="unit"), images=[], folder=tmp_path)
    case = source.cases[0]
    keys = {store._key(what, case) for what in ("image", "mask", "original mask")}
    old = {"what": "mask", "axes": None, **store.preprocessing.describe(), "rule": None}
    assert len(keys | {cache_key("arrays", "c00", (), old)}) == 4


# Batches


def test_batch_is_a_function_of_seed_and_step():
    source = phantom("glands", n=18, size=32)
    training = make_split(source, labelled="50%").training
    store = CaseStore.for_training(source, training, preprocessing=Preprocessing(size=(32, 32), normalize="unit"))
    options = {"store": store, "training": training, "steps": 6, "augment": Augment(spatial_dims=2)}
    options |= {"labelled_batch": 2, "unlabelled_batch": 3}
    batches = Batches(**options, seed=5)
    walked = list(batches)
    assert len(walked) == len(batches) == 6
    resumed = list(Batches(**options, seed=5, prefetch=True).from_step(3))
    assert [b.step for b in resumed] == [3, 4, 5]
    for once, again in zip(walked[3:], resumed):
        assert once.ids == again.ids and once.unlabelled_ids == again.unlabelled_ids
        assert torch.equal(once.images, again.images) and torch.equal(once.masks, again.masks)
        assert torch.equal(once.unlabelled, again.unlabelled)
        assert torch.equal(torch.rand(3, generator=once.generator), torch.rand(3, generator=again.generator))
    assert torch.equal(batches.images_only(4), Batches(**options, seed=5).images_only(4))
    assert not torch.equal(batches.images_only(4), Batches(**options, seed=6).images_only(4))
    assert walked[0].images.shape == (2, 3, 32, 32) and walked[0].unlabelled.shape == (3, 3, 32, 32)


def test_rounds_are_even_and_images_belong_to_their_ids():
    batches = batches_of(numbered(), TRAINING, labelled_batch=2, unlabelled_batch=4, image_batch=5, steps=21)
    seen = Counter()
    labelled, unlabelled, images = [], [], []
    for batch in batches:
        for tensor, ids in ((batch.images, batch.ids), (batch.unlabelled, batch.unlabelled_ids)):
            assert [round(float(image.mean() * 255)) for image in tensor] == [int(name[1:]) for name in ids]
        assert [int(mask.float().mean()) for mask in batch.masks] == [int(name[1:]) % 2 for name in batch.ids]
        labelled += batch.ids
        unlabelled += batch.unlabelled_ids
        images += batches.image_ids(batch.step)
        seen.update(batch.ids)
    for walked, whole in ((labelled, 3), (unlabelled, 7), (images, 7)):
        rounds = [tuple(walked[i : i + whole]) for i in range(0, len(walked) - whole + 1, whole)]
        assert all(len(set(r)) == whole for r in rounds)
        assert len(set(rounds)) > 1  # each round in its own order
    assert set(images) == set(TRAINING.images) and set(unlabelled) == set(TRAINING.images)
    assert set(labelled) == set(TRAINING.labelled)


def test_pools():
    batches = batches_of(numbered(), TRAINING, pool="unlabelled", labelled_batch=1, unlabelled_batch=2)
    assert {name for b in batches for name in b.unlabelled_ids} == set(TRAINING.unlabelled)
    assert batches_of(numbered(), TRAINING, unlabelled_batch=0).batch(0).unlabelled is None
    everything = TrainingCases(labelled=("c01", "c02"), unlabelled=())
    assert batches_of(numbered(), everything, pool="unlabelled").batch(0).unlabelled is None
    with pytest.raises(HebbsegError, match="Did you mean 'unlabelled'"):
        batches_of(numbered(), TRAINING, pool="unlabeled")
    with pytest.raises(HebbsegError, match="labelled_batch=0"):
        batches_of(numbered(), TRAINING, labelled_batch=0)
    with pytest.raises(HebbsegError, match="no labelled case"):
        batches_of(numbered(), TrainingCases(labelled=(), unlabelled=("c01",))).batch(0)
    with pytest.raises(HebbsegError, match="no training image"):
        batches_of(numbered(), TrainingCases(labelled=(), unlabelled=()))


def test_order_does_not_depend_on_how_the_ids_came():
    turned = TrainingCases(labelled=TRAINING.labelled[::-1], unlabelled=TRAINING.unlabelled[::-1])
    first, second = batches_of(numbered(), TRAINING), batches_of(numbered(), turned)
    assert [b.ids for b in first] == [b.ids for b in second]
    assert [b.unlabelled_ids for b in first] == [b.unlabelled_ids for b in second]


# Patches


@pytest.mark.parametrize("shape", [(20, 30), (12, 14, 16)])
def test_patches_lie_inside_and_reach_every_corner(shape):
    generator = torch.Generator().manual_seed(0)
    patch = (8,) * len(shape)
    starts = torch.tensor([random_start(shape, patch, generator) for _ in range(600)])
    assert starts.min(0).values.tolist() == [0] * len(shape)
    assert starts.max(0).values.tolist() == [size - 8 for size in shape]
    array = torch.arange(torch.Size(shape).numel()).reshape(1, *shape)
    for start in starts[:20].tolist():
        assert torch.equal(cut(array, start, patch), array[(..., *[slice(s, s + 8) for s in start])])


def test_patch_around_a_point_holds_it():
    generator = torch.Generator().manual_seed(0)
    array = torch.zeros(30, 20, 25)
    for point in [(0, 0, 0), (29, 19, 24), (15, 3, 20)]:
        array.zero_()[point] = 1
        starts = {tuple(start_around(point, array.shape, (8, 24, 8), generator)) for _ in range(50)}
        assert all(cut(array, start, (8, 24, 8)).sum() == 1 for start in starts)
        assert all(0 <= s[0] <= 22 and s[1] == -2 and 0 <= s[2] <= 17 for s in starts)
    assert len(starts) > 10


def test_small_volumes_are_centred_in_zeros():
    array = torch.ones(2, 4, 10)
    start = random_start((4, 10), (8, 6), torch.Generator().manual_seed(0))
    patch = cut(array, start, (8, 6))
    assert patch.shape == (2, 8, 6)
    assert torch.equal(patch[0, :, 0], torch.tensor([0, 0, 1, 1, 1, 1, 0, 0.0]))


def test_foreground_points_are_of_each_class():
    mask = torch.zeros(40, 40, 40, dtype=torch.uint8)
    mask[:20] = 1
    mask[39, 39, 39] = 3
    first, second = foreground_points(mask)
    assert 2000 < len(first) <= 4096 and all(mask[tuple(p)] == 1 for p in first[::100].tolist())
    assert second.tolist() == [[39, 39, 39]]
    assert foreground_points(torch.zeros(4, 4)) == []


def volumes(n=6, shape=(40, 36, 30)):
    cases = [Case(id=f"v{i}", mask=()) for i in range(n)]
    masks = {}
    for i, case in enumerate(cases):
        masks[case.id] = np.zeros(shape, np.uint8)
        if i:  # the first has no foreground at all
            masks[case.id][2:5, 30:33, 20:24] = 1
    images = {case.id: masks[case.id][None] * np.float32(100) for case in cases}
    return ArraysSource(cases, images=images, masks=masks, spatial_dims=3)


def test_labelled_patches_are_balanced_and_masks_stay_with_images():
    source = volumes()
    training = TrainingCases(labelled=tuple(f"v{i}" for i in range(6)), unlabelled=())
    store = CaseStore.for_training(source, training, preprocessing=Preprocessing(size=None, normalize="zscore"))

    def share(foreground):
        batches = Batches(store=store, training=training, steps=60, labelled_batch=2, patch=(12, 12, 48), foreground=foreground)
        hits = 0
        for batch in batches:
            assert batch.images.shape == (2, 1, 12, 12, 48) and batch.masks.shape == (2, 12, 12, 48)
            assert batch.unlabelled.shape == (8, 1, 12, 12, 48)
            for image, mask in zip(batch.images[:, 0], batch.masks):
                if mask.any():
                    hits += 1
                    assert image[mask == 1].min() > image[mask == 0].max()
        return hits / 120

    assert share(1.0) == pytest.approx(5 / 6, abs=0.01)
    assert share(0.0) < 0.4
    assert 0.3 < share(0.5) < 0.8


def test_default_patch():
    source = volumes(n=2)
    training = TrainingCases(labelled=("v1",), unlabelled=("v0",))
    store = CaseStore.for_training(source, training)
    batches = Batches(store=store, training=training, steps=1, labelled_batch=1, unlabelled_batch=1)
    assert batches.batch(0).images.shape == (
        1,
        1,
        *source.image(source.cases[0]).shape[1:],
    )  # smaller than 96 × 96 × 80
    assert store.fitting((8, 500, 500), store.ids) == (8, *source.image(source.cases[0]).shape[2:])
    with pytest.raises(HebbsegError, match="3 positive integers"):
        Batches(store=store, training=training, steps=1, patch=(96, 96))


# Real images


@pytest.mark.real
def test_glas_as_batches():
    source = open_source(f"glas:{real('glas')}")
    split = make_split(source, labelled="10%")
    store = CaseStore.for_training(source, split.training)
    batches = Batches(store=store, training=split.training, steps=1, augment=Augment(spatial_dims=2))
    batch = batches.batch(0)
    assert store.preprocessing == Preprocessing(size=(128, 128), normalize="zscore")
    assert batch.images.shape == batch.unlabelled.shape == (8, 3, 128, 128)
    assert set(batch.masks.unique().tolist()) == {0, 1}
    assert 0.2 < batch.masks.float().mean() < 0.8
    name = split.training.labelled[0]
    native = source.mask(next(case for case in source.cases if case.id == name))
    assert native.shape != (128, 128)
    assert abs(native.mean() - store.masks([name]).float().mean()) < 0.02


@pytest.mark.real
def test_la_as_patches():
    source = open_source(f"la:{real('la')}")
    split = make_split(source, labelled="25%")
    store = CaseStore.for_training(source, split.training)
    batch = Batches(store=store, training=split.training, steps=1, labelled_batch=2, unlabelled_batch=1, foreground=1.0).batch(
        0
    )
    assert batch.images.shape == (2, 1, 96, 96, 80) and batch.unlabelled.shape == (1, 1, 96, 96, 80)
    assert all(mask.any() for mask in batch.masks)


# Stage 1 without masks


def folder_of_files(root):
    made = phantom("pupils", n=24, size=32)
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True)
    for case in made.cases:
        Image.fromarray(made.image(case)[0]).save(root / "images" / f"{case.id}.png")
        Image.fromarray(made.mask(case) * 255).save(root / "masks" / f"{case.id}.png")
    return root


@pytest.mark.parametrize("memory_limit_bytes", [None, 0])
@pytest.mark.parametrize("removed", ["before listing", "after the split"])
def test_stage_1_reads_batches_when_every_mask_file_is_gone(tmp_path, memory_limit_bytes, removed):
    data = folder_of_files(tmp_path / "data")
    if removed == "before listing":
        shutil.rmtree(data / "masks")
        source = open_source(data)
        split = make_split(source, labelled=0)
    else:
        source = open_source(data)
        split = make_split(source, labelled="10%")
        shutil.rmtree(data / "masks")
    store = CaseStore.for_training(source, split.training, memory_limit_bytes=memory_limit_bytes, folder=tmp_path / "cache")
    batches = Batches(store=store, training=split.training, steps=9, augment=Augment(spatial_dims=2), image_batch=4)
    seen = set()
    for step in range(len(batches)):
        images = batches.images_only(step)
        assert images.shape == (4, 1, 128, 128) and images.isfinite().all()
        seen.update(batches.image_ids(step))
    assert seen == set(split.training.images) and not seen & set(split.test)
    with pytest.raises((HebbsegError, FileNotFoundError)):
        batches.batch(0)
