"""Pyramids on disk, written by tifffile and zarr directly."""

from pathlib import Path

import numpy as np
import tifffile
import zarr


def write_ome_tiff(path: Path, image: np.ndarray, levels: int = 3, micrometers: float | None = 0.5, **options: object) -> Path:
    """Write (H, W) or (H, W, 3) and levels of every 2nd, 4th … pixel."""
    metadata = {"axes": "YXS" if image.ndim == 3 else "YX"}
    if micrometers is not None:
        for axis in "XY":
            metadata |= {f"PhysicalSize{axis}": micrometers, f"PhysicalSize{axis}Unit": "µm"}  # type: ignore[dict-item]
    settings = {"photometric": "rgb" if image.ndim == 3 else "minisblack", "tile": (16, 16), "compression": "zlib", **options}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tifffile.TiffWriter(path, ome=True) as writer:
        writer.write(image, subifds=levels - 1, metadata=metadata, **settings)
        for level in range(1, levels):
            writer.write(image[:: 2**level, :: 2**level], subfiletype=1, **settings)
    return path


def write_ome_zarr(path: Path, image: np.ndarray, levels: int = 3, micrometers: float | None = 0.5, version: int = 2) -> Path:
    """Write (H, W) or (C, H, W) and levels of every 2nd, 4th … pixel, as OME-Zarr 0.4 (Zarr 2) or 0.5 (Zarr 3)."""
    group = zarr.open_group(path, mode="w", zarr_format=version)
    unit = {} if micrometers is None else {"unit": "micrometer"}
    axes = [{"name": "c", "type": "channel"}] * (image.ndim - 2) + [{"name": n, "type": "space", **unit} for n in "yx"]
    datasets = []
    for level in range(levels):
        part = image[..., :: 2**level, :: 2**level]
        array = group.create_array(str(level), shape=part.shape, chunks=(*part.shape[:-2], 16, 16), dtype=part.dtype)
        array[...] = part
        scale = [1.0] * (image.ndim - 2) + [(micrometers or 1.0) * 2**level] * 2
        transforms = [{"type": "scale", "scale": scale}]
        datasets.append({"path": str(level), "coordinateTransformations": transforms})
    entry = {"axes": axes, "datasets": datasets}
    if version == 2:
        group.attrs["multiscales"] = [{"version": "0.4", **entry}]
    else:
        group.attrs["ome"] = {"version": "0.5", "multiscales": [entry]}
    return path
