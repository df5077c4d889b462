"""Exported files give PyTorch's probabilities at any size, describe their use, and nothing wrong is written."""

import json
import zipfile
from dataclasses import replace
from importlib import util
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from hebbseg.data.cases import ClassInfo
from hebbseg.data.io.formats import read_labels
from hebbseg.data.preprocessing import Preprocessing
from hebbseg.errors import HebbsegError
from hebbseg.inference.export import onnx_file
from hebbseg.inference.export.bioimageio import processed
from hebbseg.inference.export.formats import export_model, find_format
from hebbseg.inference.predictor import Predictor
from hebbseg.networks.unet import UNet
from hebbseg.segmenter import Segmenter
from tests.data.trees import picture, save
from tests.tiny import TWO_CLASSES, command, tiny_segmenter


def onnx_run(path: Path, image: Tensor) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"image": image.numpy()})[0]


def expected(segmenter: Predictor, image: Tensor) -> np.ndarray:
    with torch.no_grad():
        return segmenter.network(image).softmax(1).numpy()


@pytest.mark.parametrize(("dims", "channels", "sizes"), [(2, 3, [(37, 50), (16, 16)]), (3, 1, [(9, 14, 11)])])
def test_onnx_and_torchscript_give_the_probabilities_of_pytorch(tmp_path: Path, dims: int, channels: int, sizes):
    segmenter = tiny_segmenter(dims=dims, channels=channels, size=None)
    checked = export_model(segmenter, tmp_path / "m.onnx")
    export_model(segmenter, tmp_path / "m.pt")
    assert checked.step == 1 and len(checked.sizes) == 2 and checked.sizes[0] != checked.sizes[1]
    script = torch.jit.load(str(tmp_path / "m.pt"))
    for batch, size in enumerate(sizes, start=1):
        image = torch.randn(batch, channels, *size, generator=torch.Generator().manual_seed(batch))
        wanted = expected(segmenter, image)
        assert wanted.std() > 0.01
        assert np.allclose(onnx_run(tmp_path / "m.onnx", image), wanted, atol=1e-5)
        with torch.no_grad():
            assert np.allclose(script(image).numpy(), wanted, atol=1e-5)


def test_a_resampling_anisotropic_model_is_exported_with_its_steps(tmp_path: Path):
    geometry = {"strides": [[2, 2, 1]], "kernels": [[3, 3, 1], [3, 3, 3]]}
    shape = {"spatial_dims": 3, "in_channels": 1, "out_channels": 2, "features": [4, 8], "norm": "instance", **geometry}
    segmenter = Segmenter(
        network=UNet(**shape, seed=0).eval(),
        network_options=shape,
        preprocessing=Preprocessing(size=None, normalize="zscore", spacing=(0.5, 0.5, 3.0)),
        classes=TWO_CLASSES,
        axes="xyz",
        orientation="LPS",
    )
    export_model(segmenter, tmp_path / "m.onnx")
    export_model(segmenter, tmp_path / "m.pt")
    image = torch.randn(1, 1, 9, 14, 5, generator=torch.Generator().manual_seed(0))
    wanted = expected(segmenter, image)
    assert np.allclose(onnx_run(tmp_path / "m.onnx", image), wanted, atol=1e-5)
    with torch.no_grad():
        assert np.allclose(torch.jit.load(str(tmp_path / "m.pt"))(image).numpy(), wanted, atol=1e-5)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    steps = " ".join(json.loads(session.get_modelmeta().custom_metadata_map["hebbseg"])["export"]["steps"])
    assert "orientation LPS" in steps and "Resample it to 0.5×0.5×3 mm" in steps and "size of the image" in steps
    loaded, volume = Segmenter.load(tmp_path / "m.onnx"), image[0].numpy()
    given = {"spacing": (1.0, 0.5, 2.0)}
    ours, theirs = (model.probabilities_of_channels(volume, **given) for model in (loaded, segmenter))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    segmenter.save(tmp_path / "m.safetensors")
    again = Segmenter.load(tmp_path / "m.safetensors").probabilities_of_channels(volume, **given)
    assert torch.equal(again, theirs)


def test_files_describe_preprocessing_and_classes(tmp_path: Path):
    segmenter = tiny_segmenter(normalize="zscore")
    export_model(segmenter, tmp_path / "m.onnx")
    export_model(segmenter, tmp_path / "m.pt")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    extra = {"hebbseg.json": ""}
    torch.jit.load(str(tmp_path / "m.pt"), _extra_files=extra)
    for text in (session.get_modelmeta().custom_metadata_map["hebbseg"], extra["hebbseg.json"]):
        about = json.loads(text)
        assert about["preprocessing"] == {"size": [16, 16], "normalize": "zscore"}
        assert [info["value"] for info in about["classes"]] == [0, 255]
        assert about["export"]["input"]["axes"] == ["batch", "channel", "y", "x"]
        assert "16×16" in " ".join(about["export"]["steps"])


@pytest.mark.parametrize("options", [{}, {"size": None, "window": (16, 16), "tta": "flips", "normalize": "zscore"}])
def test_predict_gives_the_masks_of_the_torch_model(tmp_path: Path, monkeypatch, options):
    segmenter = tiny_segmenter(**options)
    segmenter.save(tmp_path / "model.safetensors")
    assert command(monkeypatch, "export", tmp_path / "model.safetensors", "-o", tmp_path / "m.onnx") == 0
    for n, size in enumerate(((20, 28), (33, 17))):
        save(tmp_path / "new" / f"{n}.png", picture(n, *size, 3))
    for model, out in (("model.safetensors", "a"), ("m.onnx", "b")):
        assert command(monkeypatch, "predict", tmp_path / model, tmp_path / "new", "-o", tmp_path / out) == 0
    for n in range(2):
        first, second = (read_labels(tmp_path / out / f"{n}.png").values for out in "ab")
        probabilities = segmenter.probabilities(tmp_path / "new" / f"{n}.png")
        ties = (probabilities[0] - probabilities[1]).abs().numpy() < 1e-5
        assert np.array_equal(first[~ties], second[~ties])
        assert len(np.unique(first)) == 2 and ties.mean() < 0.01


def test_loaded_onnx_is_a_predictor_without_weights(tmp_path: Path):
    segmenter = tiny_segmenter()
    export_model(segmenter, tmp_path / "m.onnx")
    loaded = Predictor.load(tmp_path / "m.onnx")
    assert loaded.describe() == segmenter.describe()
    with pytest.raises(HebbsegError, match="no weights to save"):
        loaded.save(tmp_path / "copy.safetensors")
    with pytest.raises(HebbsegError, match="cannot be exported again"):
        export_model(loaded, tmp_path / "n.onnx")


class Square(nn.Module):
    """Logits with a term that is written into the trace as a constant: right at the traced size only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 2, 1)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([1.0, -1.0])[:, None, None, None])

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * (int(x.shape[2]) / 64)


class Halving(nn.Module):
    """A network that fails for odd sides."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 4, 2, stride=2), nn.ConvTranspose2d(4, 2, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x))


def other_network(network: nn.Module) -> Predictor:
    made = tiny_segmenter(channels=1, size=None)
    options = {"name": "mine.net", "spatial_dims": 2, "in_channels": 1, "out_channels": 2, "options": {}}
    return Predictor(network=network.eval(), network_options=options, preprocessing=made.preprocessing, classes=made.classes)


@pytest.mark.parametrize("suffix", [".onnx", ".pt"])
def test_a_wrong_export_is_not_written(tmp_path: Path, suffix: str):
    with pytest.raises(HebbsegError, match=r"mine\.net: .*another image size"):
        export_model(other_network(Square()), tmp_path / f"m{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_the_step_of_other_networks_is_found(tmp_path: Path):
    checked = export_model(other_network(Halving()), tmp_path / "m.onnx")
    assert checked.step == 2
    with pytest.raises(HebbsegError, match=r"for an input \(1, 1, 15, 16\)"):
        Predictor.load(tmp_path / "m.onnx").predict(np.zeros((15, 16), np.uint8))
    with pytest.raises(HebbsegError, match="cannot be applied to an image of 16×18 pixels"):
        Predictor.load(tmp_path / "m.onnx").network(torch.zeros(1, 5, 16, 18))


def test_errors(tmp_path: Path, monkeypatch, capsys):
    model = tmp_path / "model.safetensors"
    tiny_segmenter().save(model)
    (tmp_path / "there.onnx").write_bytes(b"mine")

    def error(*arguments: object) -> str:
        assert command(monkeypatch, "export", *map(str, arguments)) == 2
        return capsys.readouterr().err

    assert "Did you mean 'onnx'" in error(model, "-o", tmp_path / "m.onnx", "--format", "onx")
    assert "no --format is given" in error(model, "-o", tmp_path / "m.model")
    assert "end in .onnx" in error(model, "-o", tmp_path / "m.pt", "--format", "onnx")
    assert "Option -o is missing" in error(model)
    assert "no such file" in error(tmp_path / "absent", "-o", tmp_path / "m.onnx")
    assert "--example" in error(model, "-o", tmp_path / "m.onnx", "--example", "a.png")
    assert "--overwrite" in error(model, "-o", tmp_path / "there.onnx")
    assert (tmp_path / "there.onnx").read_bytes() == b"mine"
    monkeypatch.setattr(onnx_file.importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    assert "pip install 'hebbseg[export]'" in error(model, "-o", tmp_path / "m.onnx")
    monkeypatch.undo()
    with pytest.raises(HebbsegError, match="Allowed"):
        find_format("unknown", Path("m.onnx"))
    with pytest.raises(HebbsegError, match="not an ONNX model"):
        Predictor.load(tmp_path / "there.onnx")
    with pytest.raises(HebbsegError, match="hebbseg export"):
        Predictor.load(tmp_path / "absent.onnx")


def test_onnx_of_other_programs_is_refused(tmp_path: Path):
    import onnx

    export_model(tiny_segmenter(), tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(HebbsegError, match="Only ONNX files of `hebbseg export`"):
        Predictor.load(tmp_path / "other.onnx")
    onnx.helper.set_model_props(model, {"hebbseg": json.dumps(tiny_segmenter().describe() | {"tta": "all"})})
    onnx.save(model, tmp_path / "damaged.onnx")
    with pytest.raises(HebbsegError, match="tta"):
        Predictor.load(tmp_path / "damaged.onnx")


@pytest.mark.parametrize(("normalize", "dims"), [("zscore", 2), ("unit", 2), ("zscore", 3)])
def test_bioimageio_package_is_complete(tmp_path: Path, normalize: str, dims: int):
    """The weights give the test output from the test input, processed as rdf.yaml says."""
    size = (16, 32) if dims == 2 else None
    segmenter = tiny_segmenter(dims=dims, channels=3 if dims == 2 else 1, size=size, normalize=normalize)
    example = save(tmp_path / "a.png", picture(0, 50, 70, 3)) if dims == 2 else None
    export_model(segmenter, tmp_path / "m.zip", example=example)
    with zipfile.ZipFile(tmp_path / "m.zip") as archive:
        archive.extractall(tmp_path / "m")
    rdf = json.loads((tmp_path / "m" / "rdf.yaml").read_text(encoding="utf-8"))
    (given,), (found,) = rdf["inputs"], rdf["outputs"]
    raw, output = (np.load(tmp_path / "m" / tensor["test_tensor"]["source"]) for tensor in (given, found))
    assert str(raw.dtype) == given["data"]["type"]
    if size:
        assert tuple(axis["size"] for axis in given["axes"][2:]) == size == raw.shape[2:]
    image = torch.from_numpy(processed(raw, segmenter))
    assert np.allclose(onnx_run(tmp_path / "m" / rdf["weights"]["onnx"]["source"], image), output, atol=1e-5)
    # The pipeline of hebbseg rounds to half precision.
    ours = segmenter.preprocessing.to_network(segmenter.preprocessing.image(raw[0]))
    assert np.allclose(expected(segmenter, ours[None]), output, atol=0.01)
    for name in ("README.md", "cover.png", "weights.pt"):
        assert (tmp_path / "m" / name).stat().st_size > 100
    if util.find_spec("bioimageio") and util.find_spec("bioimageio.spec"):
        from bioimageio.spec import load_description

        assert load_description(tmp_path / "m" / "rdf.yaml").validation_summary.status == "valid-format"


def with_borders(dims: int = 2) -> Predictor:
    three = tuple(ClassInfo(index=k, value=k) for k in range(3))
    return replace(tiny_segmenter(dims=dims, size=None, classes=three), classes=TWO_CLASSES, borders=True)


@pytest.mark.parametrize(("dims", "names"), [(2, ["m.onnx", "m.pt", "m.zip"]), (3, ["m.onnx", "m.pt"])])
def test_all_formats_have_the_border_as_second_output(tmp_path: Path, dims: int, names: list[str]):
    segmenter = with_borders(dims)
    for name in names:
        assert export_model(segmenter, tmp_path / name).border
    x = torch.randn(2, segmenter.in_channels, *(11, 18, 13)[:dims], generator=torch.Generator().manual_seed(0))
    classes = expected(segmenter, x)
    wanted = np.stack([classes[:, 0], classes[:, 1:].sum(1)], 1), classes[:, 2:]
    assert wanted[1].std() > 0.001
    folders = [tmp_path]
    if "m.zip" in names:
        folders.append(tmp_path / "m")
        with zipfile.ZipFile(tmp_path / "m.zip") as archive:
            archive.extractall(folders[-1])
    for stem, folder in zip(("m", "weights"), folders, strict=False):
        session = onnxruntime.InferenceSession(folder / f"{stem}.onnx")
        with torch.no_grad():
            traced = torch.jit.load(str(folder / f"{stem}.pt"))(x)
        for outputs in (session.run(["probabilities", "border"], {"image": x.numpy()}), traced):
            assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(outputs, wanted, strict=True))


def test_packages_test_the_border_of_rdf_yaml(tmp_path: Path):
    segmenter = with_borders()
    export_model(segmenter, tmp_path / "m.zip")
    with zipfile.ZipFile(tmp_path / "m.zip") as archive:
        archive.extractall(tmp_path)
    outputs = json.loads((tmp_path / "rdf.yaml").read_text())["outputs"]
    assert [output["id"] for output in outputs] == ["probabilities", "border"]
    raw, *stored = (np.load(tmp_path / f"test_{name}.npy") for name in ("input", "output", "border"))
    session = onnxruntime.InferenceSession(tmp_path / "weights.onnx")
    found = session.run(["probabilities", "border"], {"image": processed(raw, segmenter)})
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(found, stored, strict=True))
    assert stored[1].shape == (1, 1, *raw.shape[2:]) and "twice that of the border" in (tmp_path / "README.md").read_text()


def test_exported_onnx_files_separate_objects_by_their_border(tmp_path: Path, monkeypatch, capsys):
    segmenter = with_borders()
    segmenter.save(tmp_path / "model.safetensors")
    assert command(monkeypatch, "export", tmp_path / "model.safetensors", "-o", tmp_path / "m.pt") == 0
    assert "second output" in (said := capsys.readouterr().out) and "hebbseg predict" not in said
    assert command(monkeypatch, "export", tmp_path / "model.safetensors", "-o", tmp_path / "m.onnx") == 0
    assert "second output; `hebbseg predict --objects`" in " ".join(capsys.readouterr().out.split())
    image = save(tmp_path / "new" / "a.png", picture(0, 20, 28, 3))
    loaded = Segmenter.load(tmp_path / "m.onnx")
    torch.testing.assert_close(loaded.probabilities(image), segmenter.probabilities(image), atol=1e-5, rtol=0)
    for model in ("model.safetensors", "m.onnx"):
        arguments = ("predict", tmp_path / model, image, "--objects", "components", "-o", tmp_path / f"out-{model}")
        assert command(monkeypatch, *arguments) == 0
    ours, labels = (read_labels(tmp_path / f"out-{m}" / "objects" / "a.tif").values for m in ("model.safetensors", "m.onnx"))
    assert np.array_equal(ours, labels) and labels.max() > 0
