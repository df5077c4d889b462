"""Small valid files of every kind that hebbseg reads, and how each is read."""

import json
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import nibabel
import numpy as np
import SimpleITK as sitk
import tifffile
from PIL import Image as Pillow

from hebbseg.data.inspect import examine
from hebbseg.data.io.formats import read_header, read_image, read_labels
from hebbseg.data.labels.label_map import parse_label_map
from hebbseg.data.sources import open_source
from hebbseg.data.sources.archives import unpacked
from hebbseg.data.splits.split import Split, make_split
from hebbseg.errors import HebbsegError
from hebbseg.experiments.recipe import load_recipe
from tests.data.trees import glas_tree, hmeps_tree, plain_folder

RECIPE = """name = "small"
[settings]
updates = 5
[data.glands]
source = "phantom:glands?n=8"
[axes]
seed = [0, 1]
[[arms]]
name = "random"
init = "random"
"""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of file: valid contents, and the function that reads a mutated one."""

    name: str
    suffix: str
    contents: tuple[bytes, ...]
    read: Callable[[Path], object]


def corpus(folder: Path) -> list[Kind]:
    """Write the files to ``folder`` and return their kinds."""
    rng = np.random.default_rng(0)
    plane, volume = rng.integers(0, 255, (12, 14), np.uint8), rng.integers(0, 255, (4, 12, 14), np.uint8)
    colour = rng.integers(0, 255, (12, 14, 3), np.uint8)
    for suffix in (".png", ".bmp", ".jpg", ".gif"):
        Pillow.fromarray(colour if suffix != ".gif" else plane).save(folder / f"a{suffix}")
        Pillow.fromarray(plane).save(folder / f"b{suffix}")
    tifffile.imwrite(folder / "a.tif", volume, photometric="minisblack", compression="zlib")
    tifffile.imwrite(folder / "b.tif", colour, photometric="rgb", tile=(16, 16))
    tifffile.imwrite(folder / "c.tif", volume, photometric="minisblack", ome=True, metadata={"axes": "ZYX"})
    for suffix in (".nii", ".nii.gz"):
        nibabel.save(nibabel.Nifti1Image(volume.astype(np.int16), np.eye(4)), folder / f"a{suffix}")
    image = sitk.GetImageFromArray(volume.astype(np.int16))
    for suffix in (".mha", ".nrrd"):
        sitk.WriteImage(image, str(folder / f"a{suffix}"))
        sitk.WriteImage(image, str(folder / f"b{suffix}"), useCompression=True)
    sitk.WriteImage(sitk.GetImageFromArray(plane.astype(np.uint16)), str(folder / "a.dcm"))
    np.save(folder / "a.npy", plane)
    np.savez_compressed(folder / "a.npz", image=plane, label=plane)
    np.savez(folder / "b.npz", image=volume)
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("image", data=volume, compression="gzip", chunks=(2, 6, 7))
        file["label"] = volume
    images = (".png", ".bmp", ".jpg", ".gif", ".tif", ".nii", ".nii.gz", ".mha", ".nrrd", ".dcm", ".npy", ".npz", ".h5")
    kinds = [_kind(folder, suffix, _read_image) for suffix in images]
    return kinds + _texts(folder)


def _texts(folder: Path) -> list[Kind]:
    (folder / "glas").mkdir()
    glas, hmeps, plain = glas_tree(folder / "glas"), hmeps_tree(folder / "hmeps"), plain_folder(folder / "plain")
    labels = {"labels": {"background": 0, "gland": 255}, "channel_names": {"0": "red"}}
    (folder / "map.json").write_text(json.dumps(labels))
    make_split(open_source(plain)).save(folder / "split.json")
    (folder / "recipe.toml").write_text(RECIPE)

    def in_place(target: Path, spec: str) -> Callable[[Path], None]:
        def read(path: Path) -> None:
            target.write_bytes(path.read_bytes())
            examine(open_source(spec))

        return read

    def archive(path: Path) -> None:
        unpacked(path)

    tables = [(glas / "Grade.csv", f"glas:{glas}"), (hmeps / "annotation" / "annotations.csv", f"hmeps:{hmeps}")]
    kinds = [
        Kind(name=target.name, suffix=".csv", contents=(target.read_bytes(),), read=in_place(target, spec))
        for target, spec in tables
    ]
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
            for path in sorted(plain.rglob("*.png")):
                zipped.write(path, path.relative_to(plain))
        file.seek(0)
        kinds.append(Kind(name="zip", suffix=".zip", contents=(file.read(),), read=archive))
    for name, reader in (("map.json", parse_label_map), ("split.json", Split.load), ("recipe.toml", load_recipe)):
        content = (folder / name).read_bytes()
        kinds.append(Kind(name=name, suffix=Path(name).suffix, contents=(content,), read=reader))
    return kinds


def _kind(folder: Path, suffix: str, read: Callable[[Path], None]) -> Kind:
    files = sorted(path for path in folder.glob(f"?{suffix}"))
    return Kind(name=suffix.lstrip("."), suffix=suffix, contents=tuple(path.read_bytes() for path in files), read=read)


def _read_image(path: Path) -> None:
    """Read header, image and mask; the image even if the header is refused."""
    errors = []
    for read in (read_header, read_image, read_labels):
        try:
            read(path)
        except HebbsegError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def model_kinds(folder: Path) -> list[Kind]:
    """Model file, checkpoint and run.json; these need torch."""
    import torch
    from safetensors.torch import save_file

    from hebbseg.inference.predictor import Predictor
    from hebbseg.networks.unet import UNet
    from hebbseg.runs.checkpoint import check_stage, load_checkpoint, save_checkpoint
    from hebbseg.runs.folder import RunFolder
    from tests.networks.test_model_file import GOOD

    weights = UNet(in_channels=3, out_channels=2, features=(4, 8), norm="batch", seed=0).state_dict()
    save_file(weights, folder / "model.safetensors", metadata={"hebbseg": json.dumps(GOOD)})
    save_checkpoint(folder / "checkpoint.pt", {"stage": "fit", "history": [], "state": {"a": torch.ones(8)}, "seconds": 1.0})
    settings = {"data": "my_data/", "updates": 5, "seed": 1, "method": "supervised"}
    described = {"status": "running", "settings": settings, "split_hash": "0" * 64}
    (folder / "run.json").write_text(json.dumps(described))

    def checkpoint(path: Path) -> None:
        check_stage(path, load_checkpoint(path))

    def run_json(path: Path) -> None:
        path.replace(path.with_name("run.json"))
        RunFolder(path.parent).begun_with()

    readers = {"model.safetensors": Predictor.load, "checkpoint.pt": checkpoint, "run.json": run_json}
    return [
        Kind(
            name=name,
            suffix=Path(name).suffix,
            contents=((folder / name).read_bytes(),),
            read=read,
        )
        for name, read in readers.items()
    ]
