"""A segmenter predicts whatever it is handed, is the same after a journey through a file, and runs no code from one."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import PIL.Image
import pytest
import tifffile
import torch
from PIL import Image as Pillow

from hebbseg import Segmenter
from hebbseg.data.cases import ClassInfo
from hebbseg.errors import HebbsegError
from tests.data.trees import picture, save
from tests.tiny import TWO_CLASSES, tiny_segmenter

COLOUR = picture(0, 20, 28, 3)


def test_the_mask_has_the_size_of_the_image_and_the_users_values(tmp_path: Path):
    segmenter = tiny_segmenter()
    mask = segmenter.predict(COLOUR)
    assert mask.shape == (20, 28) and mask.dtype == np.uint8
    assert set(np.unique(mask)) == {0, 255}, "an untrained network that says one thing everywhere would test nothing"
    path = save(tmp_path / "image.png", COLOUR)
    for same in (path, str(path), np.moveaxis(COLOUR, -1, 0), COLOUR.astype(int)):
        assert np.array_equal(segmenter.predict(same), mask)


def test_a_list_of_images_gives_a_list_of_masks(tmp_path: Path):
    segmenter = tiny_segmenter()
    other = picture(1, 12, 9, 3)
    path = save(tmp_path / "image.png", COLOUR)
    for images in ([COLOUR, other, path], (COLOUR, other, str(path))):
        first, second, third = segmenter.predict(images)
        assert np.array_equal(first, segmenter.predict(COLOUR)) and np.array_equal(first, third)
        assert second.shape == (12, 9)
    assert segmenter.predict([]) == []
    pictures = segmenter.predict([PIL.Image.fromarray(COLOUR)] * 2)
    assert len(pictures) == 2 and np.array_equal(pictures[1], first), "also of one size"
    assert np.array_equal(segmenter.predict(COLOUR.tolist()), first), "nested lists of numbers are one image"
    with pytest.raises(HebbsegError, match="Pass several images as a list"):
        segmenter.predict(np.stack([COLOUR, COLOUR]))


@pytest.mark.parametrize("image", [None, [COLOUR, None], iter([COLOUR])])
def test_what_is_no_image_is_named(image: object):
    with pytest.raises(HebbsegError, match="pass the path of an image, an array"):
        tiny_segmenter().predict(image)


def test_an_empty_array_is_refused():
    with pytest.raises(HebbsegError, match="no pixels"):
        tiny_segmenter().predict(COLOUR[:0])


def test_repr_is_one_line():
    assert repr(tiny_segmenter()) == "Segmenter(UNet, 2D, 3 channels, size 16×16, classes: background, foreground)"
    volumes = tiny_segmenter(dims=3, channels=1, size=None, window=(8, 8, 8))
    assert repr(volumes) == "Segmenter(UNet, 3D, 1 channel, native size, classes: background, foreground)"


def test_class_values_of_any_kind():
    def predicted(*values: int | tuple[int, ...]) -> np.ndarray:
        classes = tuple(ClassInfo(index=i, value=value) for i, value in enumerate(values))
        return tiny_segmenter(classes=classes).predict(COLOUR)

    plain = predicted(0, 1)
    assert np.array_equal(predicted(0, 1000), plain.astype(np.uint16) * 1000)
    assert np.array_equal(predicted(-1, 1), plain.astype(np.int8) * 2 - 1)
    assert np.array_equal(predicted((0, 0, 0), (255, 0, 0)), plain)


def test_grey_colour_and_opacity_are_turned_into_what_the_model_takes(tmp_path: Path):
    colour, grey = tiny_segmenter(channels=3), tiny_segmenter(channels=1)
    opaque = np.dstack([COLOUR, np.full((20, 28), 7, np.uint8)])
    for image in (opaque, np.moveaxis(opaque, -1, 0), save(tmp_path / "opaque.png", opaque)):
        assert np.array_equal(colour.predict(image), colour.predict(COLOUR))
    level = picture(3, 20, 28)
    repeated = np.dstack([level] * 3)
    for image in (level, level[None], level[..., None], save(tmp_path / "level.png", level)):
        assert np.array_equal(colour.predict(image), colour.predict(repeated))
        assert np.array_equal(grey.predict(image), grey.predict(repeated))
    assert np.array_equal(grey.predict(COLOUR), grey.predict(np.asarray(Pillow.fromarray(COLOUR).convert("L"))))


def test_number_types():
    segmenter = tiny_segmenter(channels=1, normalize="zscore")
    level = picture(3, 20, 28)
    for same in (
        level.astype(np.uint16) * 257,
        level.astype(np.float32) / 255,
        level.astype(np.float64),
        level.astype(int),
    ):
        assert (segmenter.predict(same) == segmenter.predict(level)).mean() > 0.98  # kept as half precision
    deep = tiny_segmenter(channels=1, normalize="unit")
    assert (deep.predict(level.astype(np.uint16) * 257) == deep.predict(level)).mean() > 0.98
    assert np.array_equal(deep.predict(level > 100), deep.predict((level > 100).astype(np.uint8) * 255))
    with pytest.raises(HebbsegError, match="complex"):
        segmenter.predict(level.astype(complex))


@pytest.mark.parametrize("shape", [(20,), (2, 20, 28), (20, 28, 5), (2, 3, 20, 28)])
def test_what_is_no_image_for_the_model(shape: tuple[int, ...]):
    with pytest.raises(HebbsegError, match=r"2 spatial axes|channels"):
        tiny_segmenter().predict(np.zeros(shape, np.uint8))


def test_volumes_in_every_order_of_axes(tmp_path: Path):
    segmenter = tiny_segmenter(dims=3, channels=1, size=None, normalize="zscore", window=(8, 8, 8), axes="xyz")
    volume = np.random.default_rng(0).normal(size=(9, 12, 15)).astype(np.float32)
    expected = segmenter.predict(volume)
    assert expected.shape == (9, 12, 15) and len(np.unique(expected)) == 2
    assert np.array_equal(segmenter.predict(volume[None]), expected)
    assert np.array_equal(segmenter.predict(volume[..., None]), expected)
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), tmp_path / "volume.nii.gz")
    assert np.array_equal(segmenter.predict(tmp_path / "volume.nii.gz"), expected)
    # TIFF has the slices first: turned to the order the model learnt, and the mask turned back.
    tifffile.imwrite(tmp_path / "volume.tif", volume.transpose(2, 1, 0), photometric="minisblack")
    assert np.array_equal(segmenter.predict(tmp_path / "volume.tif").transpose(2, 1, 0), expected)


def test_probabilities_sum_to_one_at_the_images_size():
    probabilities = tiny_segmenter(tta="flips").probabilities(COLOUR)
    assert probabilities.shape == (2, 20, 28)
    torch.testing.assert_close(probabilities.sum(0), torch.ones(20, 28))


def test_save_and_load_in_a_fresh_process_predicts_identically(tmp_path: Path):
    segmenter = tiny_segmenter(tta="flips", axes="zyx")
    segmenter.save(tmp_path / "model.safetensors")
    save(tmp_path / "image.png", COLOUR)
    code = (
        "import sys, numpy, torch; torch.set_num_threads(1); from hebbseg import Segmenter; "
        "s = Segmenter.load(sys.argv[1]); numpy.save(sys.argv[3], s.probabilities(sys.argv[2]).numpy())"
    )
    arguments = [tmp_path / "model.safetensors", tmp_path / "image.png", tmp_path / "there.npy"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True, env=environment)
    assert np.array_equal(np.load(tmp_path / "there.npy"), segmenter.probabilities(COLOUR).numpy())
    loaded = Segmenter.load(tmp_path)  # a run folder means its model
    assert loaded.describe() == segmenter.describe() and loaded.classes == TWO_CLASSES


class _Evil:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self):
        return Path.touch, (self.place,)


def test_a_pickle_named_like_a_model_is_refused_and_not_executed(tmp_path: Path):
    evil = tmp_path / "model.safetensors"
    evil.write_bytes(pickle.dumps(_Evil(tmp_path / "executed")))
    with pytest.raises(HebbsegError, match=r"model\.safetensors: not a hebbseg model"):
        Segmenter.load(evil)
    torch.save({"weights": _Evil(tmp_path / "executed")}, evil)
    with pytest.raises(HebbsegError, match="not a hebbseg model"):
        Segmenter.load(tmp_path)
    assert not (tmp_path / "executed").exists()
    pickle.loads(pickle.dumps(_Evil(tmp_path / "executed")))
    assert (tmp_path / "executed").exists(), "the pickle would have done harm"


def test_a_damaged_or_foreign_model_is_refused(tmp_path: Path):
    from safetensors.torch import save_file

    with pytest.raises(HebbsegError, match="no such file"):
        Segmenter.load(tmp_path / "model.safetensors")
    save_file({"weight": torch.zeros(3)}, tmp_path / "foreign.safetensors")
    with pytest.raises(HebbsegError, match="not a hebbseg model"):
        Segmenter.load(tmp_path / "foreign.safetensors")
    tiny_segmenter().save(tmp_path / "model.safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(HebbsegError, match="not a hebbseg model"):
        Segmenter.load(tmp_path / "model.safetensors")


def test_unknown_options_get_a_did_you_mean(tmp_path: Path):
    with pytest.raises(HebbsegError, match=r"Unknown option 'label_mpa'\. Did you mean 'label_map'"):
        Segmenter.train("phantom:glands", tmp_path / "run", label_mpa="x")
    assert not (tmp_path / "run").exists()
