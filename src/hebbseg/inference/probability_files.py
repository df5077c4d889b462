"""Files of class probabilities, with the geometry of their image."""

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import tifffile

from hebbseg.atomic_files import replacing
from hebbseg.data.io.formats import FORMATS, suffix_of
from hebbseg.data.io.image_file import Image

SUFFIX = {"nifti": ".nii.gz", "itk": ".nii.gz", "tiff": ".tif"}  # by module of the image's format; others: .npz
_LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


def probabilities_suffix(path: Path) -> str:
    """Return the suffix for an image: NIfTI for medical formats, TIFF for TIFF, NumPy for all others."""
    return SUFFIX.get(FORMATS.get(suffix_of(path), "itk"), ".npz")


def write_probabilities(path: Path, probabilities: np.ndarray, image: Image) -> None:
    """Write probabilities (K, *S) of an image (C, *S); the suffix chooses the format.

    * ``.nii.gz``: float32 (x, y, z, K) in the position and orientation of the image.
    * ``.tif``: float32 (K, *S), one page per class and slice, with the resolution of the image.
    * ``.npz``: ``probabilities`` float16 (K, *S), and ``spacing_mm`` if it is known.
    """
    with replacing(path) as temporary:
        if suffix_of(path) == ".nii.gz":
            nibabel.save(_as_nifti(probabilities.astype(np.float32), image), temporary)
        elif suffix_of(path) == ".tif":
            resolution = (image.geometry or {}).get("resolution", {})
            axes = {"axes": "C" + "ZYX"[1 - probabilities.ndim :]}
            values = probabilities.astype(np.float32)
            tifffile.imwrite(temporary, values, photometric="minisblack", compression="zlib", metadata=axes, **resolution)
        else:
            arrays: dict[str, Any] = {"probabilities": probabilities.astype(np.float16)}
            if image.spacing_mm is not None:
                arrays["spacing_mm"] = np.asarray(image.spacing_mm)
            np.savez_compressed(temporary, **arrays)


def _as_nifti(values: np.ndarray, image: Image) -> Any:
    if image.axes == "xyz":
        shape = (*image.geometry.shape, 1)[:3]
        values = np.moveaxis(values, 0, -1).reshape(*shape, len(values))  # (K, X, Y[, Z]) → (X, Y, Z, K)
        header = image.geometry.header.copy()
        header.set_data_shape(values.shape)
        header.set_data_dtype(np.float32)
        header["cal_min"], header["cal_max"] = 0, 1
        return image.geometry.kind(values, image.geometry.affine, header)
    values = values.transpose(*range(values.ndim - 1, 0, -1), 0)  # (K, [Z,] Y, X) → (X, Y[, Z], K)
    values = values.reshape(*(*values.shape[:-1], 1)[:3], values.shape[-1])
    dims = len(image.geometry.spacing)
    affine = np.eye(4)
    affine[:dims, :dims] = np.reshape(image.geometry.direction, (dims, dims)) * np.asarray(image.geometry.spacing)
    affine[:dims, 3] = image.geometry.origin
    found = nibabel.Nifti1Image(values, _LPS_TO_RAS @ affine)
    found.header.set_xyzt_units("mm")
    return found
