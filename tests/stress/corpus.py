"""Small valid files of every kind that hebbseg reads, and how each is read."""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
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
from hebbseg.data.labels.point_files import find_tables, write_masks
from hebbseg.data.sources import open_source
from hebbseg.data.sources.archives import unpacked
from hebbseg.data.splits.split import Split, make_split
from hebbseg.errors import HebbsegError
from hebbseg.experiments.recipe import load_recipe
from tests.data.trees import disc, glas_tree, hmeps_tree, picture, plain_folder, save
from tests.stress.corpus_folders import onnx_kind, pyramid_kinds, run_kinds
from tests.stress.kinds import Kind

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
        channels = np.stack([volume, volume[::-1]], axis=-1).astype(np.int16)  # 4D: the last axis holds channels
        nibabel.save(nibabel.Nifti1Image(channels, np.eye(4)), folder / f"b{suffix}")
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
    return kinds + _of_several_files(folder, image) + pyramid_kinds(folder) + _texts(folder)


def _of_several_files(folder: Path, image: sitk.Image) -> list[Kind]:
    """Images of several files, one of which is mutated: header, data file or slice."""
    kinds = []
    for header, data in ((".mhd", ".raw"), (".nhdr", ".raw.gz")):
        place = folder / header[1:]
        place.mkdir()
        sitk.WriteImage(image, str(place / f"case{header}"), useCompression=header == ".nhdr")
        beside = place / f"case{data}"
        kinds += [
            _one_of(place, place / f"case{header}", place / f"case{header}"),
            _one_of(place, beside, place / f"case{header}", name=f"{header[1:]}{data}"),
        ]
    series = folder / "series"
    series.mkdir()
    for number, pixels in enumerate(sitk.GetArrayFromImage(image)):
        plane = sitk.GetImageFromArray(pixels[None].astype(np.uint16))
        plane.SetOrigin((0.0, 0.0, 2.0 * number))
        tags = {"0020|000e": "1.2.826.0.1.3680043.2.1125.1", "0020|0013": str(number)}
        tags |= {"0020|0032": f"0\\0\\{2 * number}", "0008|0060": "MR"}
        for tag, value in tags.items():
            plane.SetMetaData(tag, value)
        writer = sitk.ImageFileWriter()
        writer.KeepOriginalImageUIDOn()
        writer.SetFileName(str(series / f"{number}.dcm"))
        writer.Execute(plane)
    return [*kinds, _one_of(series, series / "2.dcm", series, name="dicom-series")]


def _one_of(folder: Path, mutated: Path, image: Path, name: str = "") -> Kind:
    """A kind whose reader puts the mutated content into a copy of ``folder`` and reads ``image`` there."""
    assert _read_image(image) is None

    def read(path: Path) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(shutil.copytree(folder, Path(temporary) / folder.name))
            (copy / mutated.name).write_bytes(path.read_bytes())
            _read_image(copy / image.relative_to(folder))

    suffix = mutated.suffix
    return Kind(name=name or suffix[1:], suffix=suffix, contents=(mutated.read_bytes(),), read=read)


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

    points = folder / "points"
    save(points / "images" / "a.png", picture(0, 24, 32))
    (points / "tables").mkdir()
    (points / "tables" / "a.csv").write_text("y,x\n5,6\n7.5,8\n")

    def points_table(path: Path) -> None:
        (points / "tables" / "a.csv").write_bytes(path.read_bytes())
        write_masks(find_tables(points / "images", points / "tables", points / "masks", overwrite=True), radius=2, ring=2)

    content = (points / "tables" / "a.csv").read_bytes()
    tables = [(glas / "Grade.csv", f"glas:{glas}"), (hmeps / "annotation" / "annotations.csv", f"hmeps:{hmeps}")]
    tables.append((_nnunet_tree(folder / "nnunet"), str(folder / "nnunet")))
    kinds = [
        Kind(name=target.name, suffix=target.suffix, contents=(target.read_bytes(),), read=in_place(target, spec))
        for target, spec in tables
    ]
    kinds.append(Kind(name="points.csv", suffix=".csv", contents=(content,), read=points_table))
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


def _nnunet_tree(root: Path) -> Path:
    """Write two channels and a mask for two cases in nnU-Net's layout; return dataset.json."""
    for number, name in enumerate(("a", "b")):
        for channel in ("0000", "0001"):
            save(root / "imagesTr" / f"{name}_{channel}.png", picture(number, 24, 32))
        save(root / "labelsTr" / f"{name}.png", disc(24, 32))
    described = {
        "channel_names": {"0": "T1", "1": "T2"},
        "labels": {"background": 0, "lesion": 1, "ignore": 2},
        "numTraining": 2,
        "file_ending": ".png",
        "training": [{"image": "./imagesTr/a.png", "label": "./labelsTr/a.png"}],
    }
    (root / "dataset.json").write_text(json.dumps(described))
    return root / "dataset.json"


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
    """Model file, checkpoint, run.json and the files of a run folder; these need torch."""
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
    ] + [*run_kinds(folder), onnx_kind(folder / "model.onnx")]
