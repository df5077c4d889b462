"""Files of folders: OME-Zarr images, pyramids, and run folders. One file is mutated, the others are intact."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tifffile

from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.formats import map_image, map_labels, pyramid_levels, read_header, read_image, read_labels
from hebbseg.data.io.image_file import Image
from hebbseg.data.io.ome_zarr import write_mask
from hebbseg.data.sources import open_source
from hebbseg.data.splits.split import make_split
from hebbseg.errors import HebbsegError
from tests.data.trees import plain_folder
from tests.stress.kinds import Kind

SCORE = {"mean": 0.5, "ci90": 0.1}
METRICS = dict.fromkeys(("dice", "jaccard", "hd95", "asd"), SCORE) | {"dice_pooled": 0.5}
SUMMARY = {"n": 2, "unit": "px", "grid": "original", "classes": {"1": METRICS}, "class_names": {"1": "gland"}, **METRICS}
TABLES = {
    "metrics.csv": "case,class,dice,jaccard,hd95,asd,n_prediction,n_target\na,1,0.5,0.4,3,2,20,30\nb,1,0.25,0.2,3,2,9,8\n",
    "history.csv": "stage,step,loss,supervised,dice\npretrain,1,0.5,,\nfit,1,0.5,0.5,\nfit,2,0.4,0.4,0.25\n",
    "curve.csv": "masks,kind,n,dice,dice_low,dice_high,gain,gain_low,gain_high,exponent,exponent_low,exponent_high,seconds,"
    "updates_done\n2,measured,2,0.5,0.4,0.6,,,,,,,3,5\n4,measured,2,0.6,0.5,0.7,0.1,,,,,,3,5\n",
}
UNITS = {"units": 4, "moved": 0.5, "effective_units": 3.0, "cosine": 0.1, "rank": 2.0, "norm": 1.0}


def pyramid_kinds(folder: Path) -> list[Kind]:
    """OME-Zarr of both versions (metadata, chunk) and pyramids in OME-TIFF, read whole, in parts, and by level."""
    pixels = np.random.default_rng(0).integers(0, 2, (40, 50), np.uint8)
    classes = (ClassInfo(index=0, value=0), ClassInfo(index=1, value=1))
    kinds = []
    for version, metadata in ((2, (".zattrs", "0/.zarray", "1/.zarray")), (3, ("zarr.json", "0/zarr.json"))):
        place = folder / f"zarr{version}" / "a.ome.zarr"
        like = Image(array=pixels[None], path=place, geometry={"pyramid": [(20, 25)], "version": version})
        write_mask(place, pixels, like, classes)
        chunk = next(
            path for path in sorted((place / "0").rglob("*")) if path.is_file() and not path.name.startswith((".z", "z"))
        )
        for part in (*metadata, str(chunk.relative_to(place))):
            name = f"zarr{version}:{part.replace('/', '-')}"
            kinds.append(_one_of(place.parent, place / part, place, name, read_pyramid))
    path = folder / "pyramid" / "a.ome.tif"
    path.parent.mkdir()
    with tifffile.TiffWriter(path) as writer:
        options = {"tile": (16, 16), "compression": "zlib"}
        writer.write(pixels, subifds=1, metadata={"axes": "YX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5}, **options)
        writer.write(pixels[::2, ::2], subfiletype=1, **options)
    return [*kinds, _one_of(path.parent, path, path, "pyramid.tif", read_pyramid)]


def run_kinds(folder: Path) -> list[Kind]:
    """The files of a run folder, read by reports, ``--from``, ``next`` and ``--resume``."""
    import torch  # noqa: F401 - readers import it

    from hebbseg.config import make_settings
    from hebbseg.networks.model_file import save_model
    from hebbseg.networks.unet import UNet
    from tests.networks.test_model_file import GOOD

    run = folder / "run"
    run.mkdir()
    data = plain_folder(folder / "run-data")
    split = make_split(open_source(data))
    split.save(run / "split.json")
    settings = make_settings(str(data), {"updates": 5, "seed": 1, "method": "supervised"}).flat()
    described = {"status": "done", "settings": settings, "seed": 1, "split_hash": split.hash, "split_notes": [], "seconds": 3.0}
    described |= {"versions": {"hebbseg": "1.0"}, "command": "hebbseg train", "updates_done": 5, "updates_planned": 5}
    (run / "run.json").write_text(json.dumps(described | {"stopped_by": "updates"}))
    (run / "summary.json").write_text(json.dumps(SUMMARY))
    (run / "pretrain.json").write_text(json.dumps({"encoder.0": UNITS}))
    for name, text in TABLES.items():
        (run / name).write_text(text)
    weights = UNet(in_channels=3, out_channels=2, features=(4, 8), norm="batch", seed=0).state_dict()
    save_model(run / "model.safetensors", weights, GOOD)
    names = ("run.json", "split.json", "summary.json", "pretrain.json", *TABLES, "model.safetensors")
    return [_one_of(run, run / name, run, f"run:{name}", read_run_folder) for name in names]


def onnx_kind(path: Path) -> Kind:
    """An exported model, loaded and applied."""
    write_onnx(path)
    assert read_onnx(path) is None
    return Kind(name=path.name, suffix=path.suffix, contents=(path.read_bytes(),), read=read_onnx)


def write_onnx(path: Path, weight: float = 0.5, outputs: int = 2, description: object = None) -> None:
    """Write a network of one convolution and the softmax, as `hebbseg export` describes it."""
    import onnx
    from onnx import TensorProto, helper

    from hebbseg.inference.export.onnx_file import INPUT, KEY, OUTPUT
    from tests.networks.test_model_file import GOOD

    image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", 3, "height", "width"])
    probabilities = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", outputs, "height", "width"])
    kernel = helper.make_tensor("kernel", TensorProto.FLOAT, [outputs, 3, 1, 1], [weight] * 3 * outputs)
    nodes = [helper.make_node("Conv", [INPUT, "kernel"], ["logits"]), helper.make_node("Softmax", ["logits"], [OUTPUT], axis=1)]
    graph = helper.make_graph(nodes, "network", [image], [probabilities], [kernel])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {KEY: json.dumps(GOOD if description is None else description)})
    onnx.save(model, path)


def read_onnx(path: Path) -> None:
    import torch

    from hebbseg.inference.export.onnx_file import load_onnx

    load_onnx(path)["network"](torch.ones(1, 3, 8, 8))


def read_pyramid(path: Path) -> None:
    """Read an image in every way; raise if all are refused."""

    def parts() -> None:
        for mapped in (map_image(path), map_image(path, 1)):
            if mapped is not None:
                mapped.array[:, :40, :40]
        found = map_labels(path)
        if found is not None:
            found[1](found[0][:, :8, :8])

    _all(
        lambda: read_header(path), lambda: read_image(path), lambda: read_labels(path), lambda: pyramid_levels(path), parts,
        lambda: read_image(path, 1),
    )  # fmt: skip


def read_run_folder(run: Path) -> None:
    """Read a run folder in every way; raise if one is refused."""
    from hebbseg.reporting.results import read_results
    from hebbseg.reporting.run_page import mask_curve, sentences, tables
    from hebbseg.reporting.run_page.advice import next_steps
    from hebbseg.reporting.run_page.facts import is_training_run, read_run
    from hebbseg.reporting.run_page.page import written
    from hebbseg.reporting.splits_used import split_used
    from hebbseg.reporting.tables.ablations import diagnostics_table
    from hebbseg.runs.folder import RunFolder
    from hebbseg.runs.parent import continued_options
    from hebbseg.runs.provenance import describe_overlap

    def page() -> None:
        facts = read_run(run)
        with written(run):
            for make in (sentences.asked, sentences.done, sentences.warnings, next_steps, tables.test_table, tables.split_table,
                         tables.masks_table, tables.plan_table, tables.settings_table, tables.time_table):  # fmt: skip
                make(facts)
            diagnostics_table(run, "")
        points = mask_curve.read_curve(facts)
        if sum(point.measured for point in points) >= 2:
            with written(run):
                mask_curve.curve_sentences(points)
                mask_curve.curve_table(points)

    def results() -> None:
        for result in read_results([run]).runs:
            split_used(result)

    folder = RunFolder(run)
    _all(
        folder.begun_with, folder.plan, lambda: is_training_run(run), page, results,
        lambda: continued_options({"from_run": run}), lambda: describe_overlap(run, ["a"]),
    )  # fmt: skip


def _all(*readers: Callable[[], object]) -> None:
    errors = []
    for read in readers:
        try:
            read()
        except HebbsegError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _one_of(folder: Path, mutated: Path, target: Path, name: str, read: Callable[[Path], None]) -> Kind:
    """A kind whose reader puts the mutated content into a copy of ``folder`` and reads ``target`` there."""
    assert read(target) is None, name

    def in_copy(path: Path) -> None:
        with _copied(folder) as copy:
            (copy / mutated.relative_to(folder)).write_bytes(path.read_bytes())
            read(copy / target.relative_to(folder))

    return Kind(name=name, suffix=mutated.suffix, contents=(mutated.read_bytes(),), read=in_copy)


@contextmanager
def _copied(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(shutil.copytree(folder, Path(temporary) / folder.name))
