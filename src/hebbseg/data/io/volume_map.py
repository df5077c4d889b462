"""Volumes too large for memory: decoded into a file of plain values, which is mapped."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from SimpleITK import GetArrayViewFromImage

from hebbseg.atomic_files import reserve
from hebbseg.data.io import itk, nifti
from hebbseg.data.io.formats import FORMATS, explained, read_image, suffix_of
from hebbseg.data.io.image_file import Image
from hebbseg.data.io.limits import check_declared
from hebbseg.data.io.tiles import release_pages
from hebbseg.errors import explaining

SLICES = 32  # decoded at a time


def map_volume(path: Path, scratch: Path) -> Image:
    """Return a volume like `read_image`, mapped from the file ``scratch``, which is written.

    NIfTI files are decoded slice by slice and scaled values stored as float32; other files are decoded whole.
    """
    with explained(path):
        kind = FORMATS.get(suffix_of(path), "itk")
        found = _nifti(path, scratch) if kind == "nifti" else _itk(path, scratch) if kind == "itk" else None
        if found is not None:
            return found
    image = read_image(path)
    array = new_map(scratch, image.array.shape, image.array.dtype)
    array[...] = image.array
    return replace(image, array=array)


def new_map(path: Path, shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """Return a new writable memory-mapped array; raises if the disk is full, where writing to a map would end the process."""
    count = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    remedy = "Free disk space, or choose another folder."
    with explaining(path, f"could not be written ({count} bytes)", remedy), path.open("wb") as file:
        reserve(file.fileno(), count)
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)


def _nifti(path: Path, scratch: Path) -> Image | None:
    volume: Any = nibabel.load(path, keep_file_open=True)  # otherwise every slice would decompress the file from its start
    dtype, shape = volume.header.get_data_dtype(), volume.shape[:3]
    if len(shape) != 3 or volume.shape[3:] not in ((), (1,)) or dtype.names:
        return None
    packed = path.suffix.lower() == ".gz"
    check_declared(path, volume.shape, bits=8 * dtype.itemsize, compressed=packed)
    scaled = volume.dataobj.slope != 1 or volume.dataobj.inter != 0
    array = new_map(scratch, (1, *shape), np.dtype(np.float32) if scaled else dtype.newbyteorder("="))
    for start in range(0, shape[2], SLICES):
        part = np.asarray(volume.dataobj[:, :, start : start + SLICES])
        array[0, :, :, start : start + SLICES] = part.reshape(*shape[:2], -1)
        release_pages(array)
    geometry = nifti.NiftiGeometry(kind=type(volume), affine=volume.affine, header=volume.header.copy(), shape=shape)
    spacing_mm, orientation = nifti.spacing_mm(volume, 3), nifti.orientation(volume)
    return Image(array=array, path=path, spacing_mm=spacing_mm, axes="xyz", geometry=geometry, orientation=orientation)


def _itk(path: Path, scratch: Path) -> Image | None:
    image = itk.read_volume(path)
    if image is None:
        return None
    values, geometry = GetArrayViewFromImage(image), itk.geometry_of(image)  # (Z, Y, X), not a copy
    array = new_map(scratch, (1, *values.shape), values.dtype)
    for start in range(0, len(values), SLICES):
        array[0, start : start + SLICES] = values[start : start + SLICES]
        release_pages(array)
    spacing_mm = geometry.spacing[::-1]
    return Image(array=array, path=path, spacing_mm=spacing_mm, geometry=geometry, orientation=itk.orientation(image))
