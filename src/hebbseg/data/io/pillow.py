"""PNG, JPEG, BMP and GIF with Pillow: 2D, (rows, columns), without spacing (their resolution refers to screens)."""

import io
import mmap
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps, UnidentifiedImageError

from hebbseg.data.cases import ClassInfo, DataError
from hebbseg.data.io.image_file import Header, Image, RawMask, grey_or_colour, user_colours, user_values
from hebbseg.data.io.limits import check_declared

# Files with a wrong suffix are read if they are common images; other formats start programs (EPS) or open further files.
_FORMATS = ("PNG", "JPEG", "BMP", "DIB", "GIF", "TIFF", "WEBP", "PPM")
_BITS = {"1": 1, "I": 32, "F": 32, "RGB": 24, "RGBA": 32, "RGBa": 32, "CMYK": 32, "YCbCr": 24, "LAB": 24, "HSV": 24, "LA": 16}
_EXIF_ORIENTATION = 0x0112
_SHORT_READS = 100_000
_LONG_FILE = 1_000_000  # bytes
_MOST_SCANS = 500
_OPACITY_MODES = {"LA", "La", "PA", "RGBA", "RGBa"}
# Color types of PNG: 2 RGB, 4 gray with alpha, 6 RGB with alpha.
_GREY_WITH_OPACITY = 4
_HALVED_BY_PILLOW = {2, _GREY_WITH_OPACITY, 6}
_GREY_MODES = {"1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"}


def read_header(path: Path) -> Header:
    with _opened(path) as picture:
        width, height = picture.size
        if _orientation(picture) >= 5:  # the orientations that swap width and height
            width, height = height, width
        grey = picture.mode in _GREY_MODES or (picture.mode == "P" and _is_grey(_palette(picture)))
        grey = grey or _deep_png_kind(path) == _GREY_WITH_OPACITY  # opened as RGB by Pillow
        opacity = picture.mode in _OPACITY_MODES or "transparency" in picture.info
        return Header(channels=1 if grey else 3, shape=(height, width), opacity=opacity)


def read_image(path: Path) -> Image:
    """Read an image without alpha; applies palettes and EXIF orientation, converts 1-bit to 0/255."""
    with _opened(path) as picture:
        if _deep_png_kind(path) is not None:
            pixels = _deep_png(path)
        elif picture.mode == "P":
            palette = _palette(picture)
            pixels = palette[np.asarray(picture)]
            pixels = pixels[..., 0] if _is_grey(palette) else pixels
        else:
            pixels = _pixels(picture, path)
    array = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels[..., :3], -1, 0)  # (H, W[, C]) → (C, H, W)
    return Image(array=np.ascontiguousarray(array), path=path)


def read_labels(path: Path) -> RawMask:
    with _opened(path) as picture:
        if picture.mode == "P":
            return RawMask(values=np.asarray(picture), palette=_palette(picture))
        lossy = picture.format == "JPEG"
        values = _pixels(picture, path) if _deep_png_kind(path) is None else _deep_png(path)
    colour = False
    if values.ndim == 3:  # (H, W, 3)
        values, colour = grey_or_colour(values)
    return RawMask(values=values, colour=colour, lossy=lossy)


def write_mask(path: Path, indices: np.ndarray, like: Image, classes: Sequence[ClassInfo]) -> None:
    """Write colors as RGB, palettes as indexed images, and other values with 8 or 16 bits."""
    colours = user_colours(indices, classes)
    if colours is not None:
        Pillow.fromarray(colours).save(path)
        return
    values = user_values(indices, classes)
    if values.dtype == np.uint8:
        picture = Pillow.fromarray(values)
        colours_of = {c.value: c.colour for c in classes if c.colour is not None}
        if len(colours_of) == len(classes):
            palette = [colours_of.get(value, (0, 0, 0)) for value in range(256)]
            picture.putpalette([part for colour in palette for part in colour])
        picture.save(path)
    elif values.dtype == np.uint16 and path.suffix.lower() == ".png":
        Pillow.fromarray(values).save(path)
    else:
        raise DataError(
            path,
            f"a {path.suffix} file cannot store the class values {sorted(str(c.value) for c in classes)}",
            "Use values from 0 to 255 in the label map.",
        )


@contextmanager
def _opened(path: Path) -> Iterator[Pillow.Image]:
    with warnings.catch_warnings():
        # Large images are normal in histology; Pillow warns long before its limit.
        warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
        try:
            _refuse_junk(path)
            picture = Pillow.open(path, formats=_FORMATS)
        except Pillow.DecompressionBombError as error:
            raise DataError(path, f"too large to read at once ({error})", "Split it into tiles.") from error
        with picture:
            check_declared(path, picture.size[::-1], bits=_BITS.get(picture.mode, 16 if picture.mode[:2] == "I;" else 8))
            yield picture


class _Counted(io.FileIO):
    """A file whose very short reads are counted: decoders search for a header byte by byte."""

    short = 0

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and 0 < size < 4:
            self.short += 1
            if self.short > _SHORT_READS:
                raise ValueError(f"no header in the first {_SHORT_READS} bytes")
        return super().read(size) or b""


def _refuse_junk(path: Path) -> None:
    """Raise if Pillow would search a long file for its header; JPEG and GIF may have any bytes before it."""
    if path.stat().st_size < _LONG_FILE:
        return
    with _Counted(path) as file, suppress(UnidentifiedImageError), Pillow.open(file, formats=_FORMATS):
        pass


def _refuse_many_scans(path: Path) -> None:
    """Raise for a progressive JPEG of very many scans, each of which goes through all pixels."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        scans = sum(1 for _ in re.finditer(rb"\xff\xda", content))  # never inside of pixels, where 0xff is followed by 0
    if scans > _MOST_SCANS:
        raise DataError(path, f"{scans} scans, more than {_MOST_SCANS}", "Save it again, for example as PNG.")


def _orientation(picture: Pillow.Image) -> int:
    return int(picture.getexif().get(_EXIF_ORIENTATION, 1)) if picture.format == "JPEG" else 1


def _pixels(picture: Pillow.Image, path: Path) -> np.ndarray:
    """Return (H, W) or (H, W, 3) pixels of an image that is not indexed."""
    if picture.format == "JPEG":
        _refuse_many_scans(path)
    if _orientation(picture) != 1:
        picture = ImageOps.exif_transpose(picture)
    if picture.mode == "1":
        return np.asarray(picture.convert("L"))
    if picture.mode in ("LA", "La"):
        return np.asarray(picture)[..., 0]
    if picture.mode in _GREY_MODES:
        values = np.asarray(picture)
        return values.astype(values.dtype.newbyteorder("="))
    return np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))


def _palette(picture: Pillow.Image) -> np.ndarray:
    """Return the palette, (256, 3), of an indexed image; undefined entries are black."""
    colours = np.asarray(picture.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
    return np.concatenate([colours, np.zeros((256 - len(colours), 3), np.uint8)])


def _is_grey(palette: np.ndarray) -> bool:
    return bool((palette == palette[:, :1]).all())


def _deep_png_kind(path: Path) -> int | None:
    """Return the color type of 16-bit PNG files that Pillow reduces to 8 bits (all but plain gray), else None."""
    if path.suffix.lower() != ".png":
        return None
    with path.open("rb") as file:
        start = file.read(26)
    deep = start[24:25] == b"\x10" and start[25] in _HALVED_BY_PILLOW
    return start[25] if deep else None


def _deep_png(path: Path) -> np.ndarray:
    """Return (H, W) or (H, W, 3) pixels without alpha."""
    import imagecodecs

    pixels = imagecodecs.png_decode(path.read_bytes())
    return pixels[..., 0] if pixels.shape[-1] == 2 else pixels[..., :3]
