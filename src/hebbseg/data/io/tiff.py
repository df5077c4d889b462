"""TIFF with tifffile: samples (RGB) and the ``C`` axis of ImageJ and OME files are channels.

Any other axis longer than one is depth: a file of several pages is a volume (pages, rows, columns). Files with a pyramid have
further levels of smaller sizes; level 0 is the largest.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.image_file import Header, Image, Level, RawMask, checked_level, user_colours, user_values
from hebbseg.data.io.limits import EXPORT_AGAIN, check_declared
from hebbseg.data.io.tiff_structure import check_frames, check_pages, check_tiles

_MM_PER = {"m": 1000.0, "cm": 10.0, "mm": 1.0, "um": 1e-3, "µm": 1e-3, "μm": 1e-3, "micron": 1e-3, "nm": 1e-6}
_CHANNEL_AXES = "SC"
_OPACITY = (1, 2)  # EXTRASAMPLES: associated, unassociated alpha


def opened(path: Path) -> tifffile.TiffFile:
    """Open a file without the further files that its metadata may name, which could be any file of this machine."""
    check_pages(path)
    file = tifffile.TiffFile(path, _multifile=False)
    try:
        if file.is_ndtiff:
            raise DataError(path, "an NDTiff data set, whose pixels are in several files", "Export it as OME-TIFF.")
        check_frames(path, file)
    except BaseException:
        file.close()
        raise
    return file


def levels(path: Path) -> list[Level]:
    """Return the size and spacing of each level of the pyramid; one level if there is no pyramid."""
    with opened(path) as file:
        found = []
        for number, series in enumerate(_only_series(file, path).levels):
            _, spatial = _axes(series, path)
            shape = tuple(series.shape[axis] for axis in spatial)
            found.append(Level(shape=shape, spacing_mm=_spacing_mm(file, len(shape), number)))
        return found


def read_header(path: Path, level: int = 0) -> Header:
    with opened(path) as file:
        series = _only_series(file, path, level)
        channel, spatial = _axes(series, path)
        channels = int(np.prod([series.shape[axis] for axis in channel], dtype=int))
        opacity = channels > 1 and _has_opacity(series)
        channels -= int(opacity)
        if series.keyframe.photometric == tifffile.PHOTOMETRIC.PALETTE and channels == 1:
            channels = 3
        return Header(
            channels=channels,
            shape=tuple(series.shape[axis] for axis in spatial),
            spacing_mm=_spacing_mm(file, len(spatial), level),
            opacity=opacity,
        )


def read_image(path: Path, level: int = 0) -> Image:
    with opened(path) as file:
        array = _pixels(file, path, level)  # (C, *spatial)
        keyframe = file.series[0].keyframe
        if keyframe.photometric == tifffile.PHOTOMETRIC.PALETTE and len(array) == 1:
            array = np.moveaxis(_palette(keyframe)[array[0]], -1, 0)  # (*spatial, 3) → (3, *spatial)
        return Image(
            array=np.ascontiguousarray(array),
            path=path,
            spacing_mm=_spacing_mm(file, array.ndim - 1, level),
            geometry=_resolution(file, level),
        )


def read_labels(path: Path, level: int = 0) -> RawMask:
    with opened(path) as file:
        array = _pixels(file, path, level)
        keyframe = file.series[0].keyframe
        lossy = keyframe.compression in (tifffile.COMPRESSION.JPEG, tifffile.COMPRESSION.OJPEG)
        if len(array) == 1:
            palette = _palette(keyframe) if keyframe.photometric == tifffile.PHOTOMETRIC.PALETTE else None
            return RawMask(values=array[0], palette=palette, lossy=lossy)
    return RawMask.from_channels(np.moveaxis(array, 0, -1), path, lossy=lossy)  # (C, *spatial) → (*spatial, C)


def write_mask(path: Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> None:
    """Write one page per slice, with the resolution, unit and slice distance of the image."""
    geometry = like.geometry or {"resolution": {}, "imagej": None, "ome": None}
    axes = "ZYX"[-indices.ndim :]
    colours = user_colours(indices, classes)
    if colours is not None:
        tifffile.imwrite(path, colours, photometric="rgb", compression="zlib", **geometry["resolution"])
        return
    values = user_values(indices, classes)
    if geometry["imagej"] is not None and values.dtype in (np.uint8, np.uint16):
        metadata = {"axes": axes, **geometry["imagej"]}
        tifffile.imwrite(path, values, imagej=True, metadata=metadata, **geometry["resolution"])
        return
    options: dict[str, Any] = {"photometric": "minisblack", "compression": "zlib", **geometry["resolution"]}
    if geometry["ome"] is not None:
        tifffile.imwrite(path, values, ome=True, metadata={"axes": axes, **geometry["ome"]}, **options)
    else:
        tifffile.imwrite(path, values, metadata=None, **options)


def _only_series(file: tifffile.TiffFile, path: Path, level: int = 0) -> Any:
    if len(file.series) != 1:
        shapes = ", ".join(str(series.shape) for series in file.series[:4])
        raise DataError(
            path, f"{len(file.series)} images of different shapes ({shapes})", "Export the image to segment to a separate file."
        )
    series = file.series[0]
    if series.keyframe.samplesperpixel < 1:
        raise DataError(path, f"{series.keyframe.samplesperpixel} channels", f"Channels must be positive. {EXPORT_AGAIN}")
    if level == 0:
        return series
    return series.levels[checked_level(path, level, [_plane(each) for each in series.levels])]


def _axes(series: Any, path: Path) -> tuple[list[int], list[int]]:
    """Return the channel axes and the spatial axes ([depth,] rows, columns)."""
    channel = [axis for axis, letter in enumerate(series.axes) if letter in _CHANNEL_AXES]
    plane = [series.axes.index("Y"), series.axes.index("X")]
    depth = [axis for axis, size in enumerate(series.shape) if axis not in (*channel, *plane) and size > 1]
    if len(depth) > 1:
        raise DataError(
            path, f"axes {series.axes} of sizes {series.shape}: more than three dimensions", "Export one time point per file."
        )
    return channel, depth + plane


def _pixels(file: tifffile.TiffFile, path: Path, level: int = 0) -> np.ndarray:
    """Return (C, *spatial) without alpha; 1-bit becomes 0/255, and white-is-zero is inverted."""
    series = _only_series(file, path, level)
    channel, spatial = _axes(series, path)
    shape = tuple(series.shape[axis] for axis in spatial)
    _check_size(series, path)
    check_tiles(path, file, series)
    pixels = series.asarray()
    rest = [axis for axis in range(pixels.ndim) if axis not in (*channel, *spatial)]
    # stored axes → (channels…, singletons…, *spatial) → (C, *spatial)
    pixels = pixels.transpose([*channel, *rest, *spatial]).reshape(-1, *shape)
    if len(pixels) > 1 and _has_opacity(series):
        pixels = pixels[:-1]
    return _upright(pixels, series.keyframe)


def _upright(pixels: np.ndarray, keyframe: Any) -> np.ndarray:
    """Return 1-bit values as 0/255, and white-is-zero inverted."""
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8) * 255
    if keyframe.photometric == tifffile.PHOTOMETRIC.MINISWHITE and pixels.dtype.kind == "u":
        pixels = np.iinfo(pixels.dtype).max - pixels
    return pixels


def _check_size(series: Any, path: Path) -> None:
    """Raise if the pages, each of which is decoded whole, do not fit the file, or are larger than the limit."""
    page = series.keyframe
    check_declared(path, series.shape, bits=page.bitspersample)
    if page.is_tiled:  # a page is decoded tile by tile
        check_declared(path, (page.tiledepth, page.tilelength, page.tilewidth, page.samplesperpixel), bits=page.bitspersample)


def _has_opacity(series: Any) -> bool:
    extra = series.keyframe.extrasamples
    return len(extra) == 1 and int(extra[0]) in _OPACITY


def _palette(keyframe: Any) -> np.ndarray:
    return (np.asarray(keyframe.colormap).T >> 8).astype(np.uint8)  # (3, n) 16 bit → (n, 3) 8 bit


def _resolution(file: tifffile.TiffFile, level: int = 0) -> dict[str, Any]:
    """Return what is copied to masks: the resolution tags, the metadata of ImageJ or OME, and the sizes of smaller levels."""
    series = file.series[0]
    page = series.keyframe
    down, across = _shrinking(series, level)
    resolution = {}
    if "XResolution" in page.tags and "YResolution" in page.tags:
        resolution = {
            "resolution": (_divided(page.tags["XResolution"].value, across), _divided(page.tags["YResolution"].value, down)),
            "resolutionunit": page.tags["ResolutionUnit"].value if "ResolutionUnit" in page.tags else None,
        }
    imagej = file.imagej_metadata
    kept = {key: imagej[key] for key in ("spacing", "unit") if key in imagej} if imagej is not None else None
    ome = _ome_sizes(file.ome_metadata) if file.ome_metadata else None
    for axis, factor in (("X", across), ("Y", down)):
        if ome is not None and f"PhysicalSize{axis}" in ome:
            ome[f"PhysicalSize{axis}"] *= factor
    smaller = [_plane(each) for each in series.levels[level + 1 :]]
    return {"resolution": resolution, "imagej": kept, "ome": ome, "pyramid": smaller}


def _plane(series: Any) -> tuple[int, int]:
    return series.shape[series.axes.index("Y")], series.shape[series.axes.index("X")]


def _shrinking(series: Any, level: int) -> tuple[float, float]:
    """Return by which factors (rows, columns) a level is smaller than level 0."""
    down, across = (_factor(full, side) for full, side in zip(_plane(series), _plane(series.levels[level]), strict=True))
    return down, across


def _factor(full: int, side: int) -> float:
    """Return the factor between two sides, whole if the smaller side is rounded to a pixel."""
    whole = round(full / side)
    return whole if abs(full / whole - side) <= 1 else full / side


def _divided(fraction: Any, factor: float) -> Any:
    """Return a resolution, (numerator, denominator), at a smaller size."""
    if factor == 1:
        return fraction
    if isinstance(factor, int) and fraction[1] * factor < 2**32:
        return fraction[0], fraction[1] * factor
    return fraction[0] / fraction[1] / factor if fraction[1] else fraction


def _ome_sizes(xml: str) -> dict[str, Any]:
    """Return {"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm", …} of the first image."""
    sizes = {f"PhysicalSize{axis}": float(size) for axis, size in re.findall(r'PhysicalSize([XYZ])="([^"]+)"', xml)}
    units = {f"PhysicalSize{axis}Unit": unit for axis, unit in re.findall(r'PhysicalSize([XYZ])Unit="([^"]+)"', xml)}
    return {**sizes, **units}


def _spacing_mm(file: tifffile.TiffFile, dims: int, level: int = 0) -> tuple[float, ...] | None:
    """Return the spacing of ([depth,] rows, columns) if the file has a unit; inches refer to printing and are ignored."""
    facts = _resolution(file, level)
    letters = "ZYX"[-dims:]
    if facts["ome"] is not None:
        sizes = [facts["ome"].get(f"PhysicalSize{axis}") for axis in letters]
        units = [_MM_PER.get(facts["ome"].get(f"PhysicalSize{axis}Unit", "µm")) for axis in letters]
        if all(size is not None and unit is not None for size, unit in zip(sizes, units, strict=True)):
            return tuple(size * unit for size, unit in zip(sizes, units, strict=True))
        return None
    if not facts["resolution"]:
        return None
    in_plane = []
    for fraction in reversed(facts["resolution"]["resolution"]):
        numerator, denominator = fraction if isinstance(fraction, tuple) else (fraction, 1)
        if not numerator or not denominator:
            return None
        in_plane.append(denominator / numerator)
    if facts["imagej"] is not None:
        unit = str(facts["imagej"].get("unit", "")).replace("\\u00B5", "µ")
        millimeters = _MM_PER.get(unit)
        between = [facts["imagej"].get("spacing", 1.0)] if dims == 3 else []
    elif facts["resolution"]["resolutionunit"] == tifffile.RESUNIT.CENTIMETER and dims == 2:
        millimeters, between = 10.0, []
    else:
        return None
    return None if millimeters is None else tuple(float(size) * millimeters for size in [*between, *in_plane])
