"""Files of the objects in predicted images: label images, outlines, and one table of all objects."""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hebbseg.atomic_files import replacing, write_text
from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.image_file import Image
from hebbseg.data.io.label_image import label_suffix, write_label_image, write_label_image_parts
from hebbseg.data.labels.instances import Objects
from hebbseg.data.progress import counted
from hebbseg.errors import HebbsegError
from hebbseg.inference.areas import LARGEST, row_bands
from hebbseg.inference.large_images import Streamed
from hebbseg.inference.object_parts import LargeObjects, find_in_parts
from hebbseg.inference.object_table import ObjectTable, object_rows, rows_of_larger
from hebbseg.inference.objects import ObjectOptions, find_objects, merged_border
from hebbseg.inference.outlines import as_text, feature, feature_collection, features_of, polygon_of_rows, text_parts
from hebbseg.inference.predictor import Predictor


class ObjectFiles:
    """Finds the objects of images, writes their files and collects the rows of the table.

    Args:
        out: output folder.
        options: how objects are found; None writes no label images and no table: outlines are those of the mask.
        outlines: write GeoJSON files.
    """

    def __init__(self, out: Path, options: ObjectOptions | None, *, outlines: bool = False) -> None:
        self.out = out
        self.options = options
        self.outlines = outlines
        self.table = ObjectTable()
        self.whole = 0  # areas that were too large to be cut

    @property
    def tables(self) -> tuple[Path, ...]:
        """The files that are written once."""
        return () if self.options is None else (self.out / "objects.csv",)

    def targets(self, name: str, mask_suffix: str) -> tuple[Path, ...]:
        """Return the files of an image."""
        labels, outlines = self._labels(name, mask_suffix), self._outlines(name)
        return (*((labels,) if self.options is not None else ()), *((outlines,) if self.outlines else ()))

    def write(self, name: str, mask_suffix: str, image: Image, probabilities: np.ndarray, segmenter: Predictor) -> np.ndarray:
        """Write the files of an image and return the labels of its objects.

        Args:
            probabilities: (K, *S), with the border as last class if the segmenter has learned it.
            segmenter: the model, or one of an ensemble.
        """
        if self.options is not None:
            objects = find_objects(probabilities, self.options, borders=segmenter.borders, spacing=image.spacing_mm)
            rows = object_rows(objects, image.array, segmenter.classes, case=name, spacing_mm=image.spacing_mm, axes=image.axes)
            write_label_image(self._labels(name, mask_suffix), objects.labels, image)
            self.table.add(rows)
        else:
            classes = merged_border(probabilities) if segmenter.borders else probabilities
            objects = find_objects(classes, ObjectOptions(fill_holes=False))
        if self.outlines:
            labels = objects.labels.T if image.axes == "xyz" else objects.labels  # QuPath has rows first
            upright = Objects(labels=labels, classes=objects.classes)
            write_text(self._outlines(name), as_text(feature_collection(upright, segmenter.classes, self._kind)))
        return objects.labels

    def write_large(self, name: str, mask_suffix: str, found: Streamed, segmenter: Predictor) -> np.ndarray:
        """Like `write`, for an image that was predicted in parts; the labels are on disk, in its scratch folder."""
        options = self.options or ObjectOptions(fill_holes=False)
        inside = None if self.options is None else found.inside  # outlines of the mask are not those of objects
        image, classes = found.image, segmenter.classes
        objects = find_in_parts(found.classes, len(classes), options, found.scratch, inside=inside, spacing=image.spacing_mm)
        self.whole += objects.whole
        features = self._parts(objects, image, classes, name)
        if self.outlines:
            with replacing(self._outlines(name)) as temporary, temporary.open("w", encoding="utf-8") as file:
                file.writelines(text_parts(features))
        else:
            deque(features, maxlen=0)
        if self.options is not None:
            rows = rows_of_larger(objects, image.array, classes, case=name, spacing_mm=image.spacing_mm, axes=image.axes)
            self.table.add(rows)
            write_label_image_parts(self._labels(name, mask_suffix), objects.labels, len(objects), image)
        return objects.labels

    def _parts(self, objects: LargeObjects, image: Image, classes: Sequence[ClassInfo], name: str) -> Iterator[dict[str, Any]]:
        """Measure the objects part by part, and yield their outlines."""
        for window, numbers, part in objects.parts():
            offset = [each.start for each in window]
            if self.options is not None:
                values, spacing = np.asarray(image.array[(slice(None), *window)]), image.spacing_mm
                place: dict[str, Any] = {"axes": image.axes, "numbers": numbers, "offset": offset}
                self.table.add(object_rows(part, values, classes, case=name, spacing_mm=spacing, **place))
            if self.outlines:
                yield from features_of(part, classes, self._kind, numbers=numbers, offset=offset)
        for number in objects.larger if self.outlines else ():
            shape = objects.labels.shape
            polygon = polygon_of_rows(partial(_mask_of, objects.labels, number), row_bands(shape), shape[1])
            yield feature([polygon], int(objects.classes[number - 1]), int(number), classes, self._kind)

    def finish(self) -> list[tuple[str, str]]:
        """Write the table and return what was written."""
        facts = []
        for table in self.tables:
            self.table.write(table)
            facts.append(("objects", f"{len(self.table)} in {table}, label images in {self.out / 'objects'}"))
        if self.whole:
            facts.append(("not cut", f"{counted(self.whole, 'area')} of more than {LARGEST:,} pixels"))
        return [*facts, ("outlines", str(self.out / "geojson"))] if self.outlines else facts

    def check(self, segmenter: Predictor) -> None:
        """Raise if the model does not suit the files."""
        if self.outlines and segmenter.spatial_dims == 3:
            raise HebbsegError("--geojson: outlines are 2D, but this model predicts volumes. Remove --geojson.")

    @property
    def _kind(self) -> str:
        return "annotation" if self.options is None else "detection"

    def _labels(self, name: str, mask_suffix: str) -> Path:
        return self.out / "objects" / f"{name}{label_suffix(mask_suffix)}"

    def _outlines(self, name: str) -> Path:
        return self.out / "geojson" / f"{name}.geojson"


def _mask_of(labels: np.ndarray, number: int, rows: slice) -> np.ndarray:
    found: np.ndarray = labels[rows] == number
    return found
