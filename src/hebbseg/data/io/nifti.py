"""NIfTI with nibabel: axes (x, y, z); further axes (time, components) are channels.

An image whose third axis has length one is 2D.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np

from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.image_file import Header, Image, RawMask, user_values
from hebbseg.data.io.limits import check_declared
from hebbseg.data.io.orientation import orientation_of

_MM_PER = {"meter": 1000.0, "micron": 1e-3}


@dataclass(frozen=True, kw_only=True, eq=False)
class NiftiGeometry:
    kind: type
    affine: np.ndarray
    header: Any
    shape: tuple[int, ...]


def read_header(path: Path) -> Header:
    volume = nibabel.load(path)
    shape = _spatial(volume.shape, path)
    components = len(volume.header.get_data_dtype().names or "1")
    channels = int(np.prod(volume.shape[3:], dtype=int)) * components
    affine = tuple(float(part) for part in volume.affine.ravel())
    found = spacing_mm(volume, len(shape))
    return Header(channels=channels, shape=shape, spacing_mm=found, axes="xyz", affine=affine, orientation=orientation(volume))


def read_image(path: Path) -> Image:
    volume = nibabel.load(path)
    shape = _spatial(volume.shape, path)
    values = _values(volume, path)
    array = np.moveaxis(values.reshape(*shape, -1), -1, 0)  # (X, Y[, Z], …) → (X, Y[, Z], C) → (C, X, Y[, Z])
    geometry = NiftiGeometry(kind=type(volume), affine=volume.affine, header=volume.header.copy(), shape=volume.shape[:3])
    return Image(
        array=np.ascontiguousarray(array),
        path=path,
        spacing_mm=spacing_mm(volume, len(shape)),
        axes="xyz",
        geometry=geometry,
        orientation=orientation(volume),
    )


def read_labels(path: Path) -> RawMask:
    volume = nibabel.load(path)
    shape = _spatial(volume.shape, path)
    values = _values(volume, path).reshape(*shape, -1)  # (X, Y[, Z], …) → (X, Y[, Z], C)
    if values.shape[-1] > 1 and not volume.header.get_data_dtype().names:
        raise DataError(path, f"mask with {values.shape[-1]} channels", "Store one class value per voxel.")
    return RawMask.from_channels(values, path, axes="xyz")


def write_mask(path: Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> None:
    """Write a mask with the affine, transform codes, units and number of spatial axes of its image."""
    geometry: NiftiGeometry = like.geometry
    values = user_values(indices, classes).reshape(geometry.shape)  # restores axes of length one
    header = geometry.header.copy()
    header.set_data_shape(values.shape)
    header.set_data_dtype(values.dtype)
    header["cal_min"] = header["cal_max"] = 0
    nibabel.save(geometry.kind(values, geometry.affine, header), path)


def _spatial(shape: tuple[int, ...], path: Path) -> tuple[int, ...]:
    if len(shape) < 2:
        raise DataError(path, f"unsupported array shape {shape}", "Store two or three spatial axes.")
    spatial = shape[:3]
    return spatial[:2] if len(spatial) == 3 and spatial[2] == 1 else spatial


def _values(volume: Any, path: Path) -> np.ndarray:
    dtype, scaled = volume.header.get_data_dtype(), volume.dataobj.slope != 1 or volume.dataobj.inter != 0
    packed = path.suffix.lower() == ".gz"
    bits = 8 * max(dtype.itemsize, 8 if scaled and packed else 0)  # scaled values are float64
    check_declared(path, volume.shape, bits=bits, compressed=packed)
    values = np.asanyarray(volume.dataobj)
    if values.dtype.names:  # RGB: one structured value per voxel
        values = np.stack([values[name] for name in values.dtype.names], axis=-1)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def spacing_mm(volume: Any, dims: int) -> tuple[float, ...] | None:
    units = volume.header.get_xyzt_units()[0] if hasattr(volume.header, "get_xyzt_units") else "mm"
    spacing = tuple(float(zoom) * _MM_PER.get(units, 1.0) for zoom in volume.header.get_zooms()[:dims])
    return spacing if all(_stored_steps(volume)[:dims]) else None  # 0: unknown


def _stored_steps(volume: Any) -> np.ndarray:
    """Return the voxel sizes in the file, among which nibabel replaces 0 by 1."""
    kind = type(volume.header)
    holder = volume.file_map.get("header", volume.file_map["image"])
    with holder.get_prepare_fileobj("rb") as file:
        stored = kind(file.read(kind.template_dtype.itemsize), check=False)
    return np.asarray(stored["pixdim"][1:4])


def orientation(volume: Any) -> str | None:
    """Return the orientation; None if both transform codes are 0, as nibabel's affine is then a guess."""
    stated = "qform_code" in volume.header and (int(volume.header["qform_code"]) or int(volume.header["sform_code"]))
    return orientation_of(volume.affine) if stated else None
