"""Files of the objects in predicted images: label images, outlines, and one table of all objects."""

from pathlib import Path
from typing import Any

import numpy as np

from hebbseg.atomic_files import write_text
from hebbseg.data.io.image_file import Image
from hebbseg.data.io.label_image import label_suffix, write_label_image
from hebbseg.data.labels.instances import Objects
from hebbseg.errors import HebbsegError
from hebbseg.inference.object_table import object_rows
from hebbseg.inference.objects import ObjectOptions, find_objects, merged_border
from hebbseg.inference.outlines import as_text, feature_collection
from hebbseg.inference.predictor import Predictor
from hebbseg.text_files import csv_text

FIRST_COLUMNS = ("case", "object", "class", "class_name")


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
        self.rows: list[dict[str, Any]] = []

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
            self.rows += rows
        else:
            classes = merged_border(probabilities) if segmenter.borders else probabilities
            objects = find_objects(classes, ObjectOptions(fill_holes=False))
        if self.outlines:
            labels = objects.labels.T if image.axes == "xyz" else objects.labels  # QuPath has rows first
            upright = Objects(labels=labels, classes=objects.classes)
            kind = "annotation" if self.options is None else "detection"
            write_text(self._outlines(name), as_text(feature_collection(upright, segmenter.classes, kind)))
        return objects.labels

    def finish(self) -> list[tuple[str, str]]:
        """Write the table and return what was written; the columns are those of all rows: images may have no spacing."""
        facts = []
        for table in self.tables:
            columns = list(dict.fromkeys([*FIRST_COLUMNS, *(name for row in self.rows for name in row)]))
            write_text(table, csv_text([columns, *([row.get(name, "") for name in columns] for row in self.rows)]))
            facts.append(("objects", f"{len(self.rows)} in {table}, label images in {self.out / 'objects'}"))
        return [*facts, ("outlines", str(self.out / "geojson"))] if self.outlines else facts

    def check(self, segmenter: Predictor) -> None:
        """Raise if the model does not suit the files."""
        if self.outlines and segmenter.spatial_dims == 3:
            raise HebbsegError("--geojson: outlines are 2D, but this model predicts volumes. Remove --geojson.")

    def _labels(self, name: str, mask_suffix: str) -> Path:
        return self.out / "objects" / f"{name}{label_suffix(mask_suffix)}"

    def _outlines(self, name: str) -> Path:
        return self.out / "geojson" / f"{name}.geojson"
