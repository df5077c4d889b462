"""Another package adds a rule, a method, an initializer and a source: they train, grid and report like built-in ones."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hebbseg.config import PretrainSettings
from hebbseg.data.sources import open_source
from hebbseg.errors import HebbsegError
from hebbseg.experiments.grid import plan
from hebbseg.experiments.recipe import load_recipe
from hebbseg.hebbian.rules import rule_class
from hebbseg.methods import method_class
from hebbseg.pretraining.hebbian import make_rule
from hebbseg.pretraining.initializers import check_init
from hebbseg.segmenter import Segmenter
from tests.tiny import TINY, bright_folder, command

PLUGIN = '''
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from hebbseg.data.cases import Case
from hebbseg.data.sources.files import FileSource
from hebbseg.methods.base import Method
from hebbseg.methods.options import Weight
from hebbseg.pretraining.initializers import Initialized, Initializer

SEEN = []


@dataclass(frozen=True, kw_only=True)
class Louder:
    """Winner takes all of activations times a gain."""

    gain: float = 1.0
    temperature: float = 0.05
    reconstruction: ClassVar[str] = "own"
    competitive: ClassVar[bool] = True

    def gate(self, y, dim):
        SEEN.append((self.gain, self.temperature))
        return (self.gain * y / self.temperature).softmax(dim)


class Twins(Method):
    """L = L_sup(p_1) + L_sup(p_2) + weight · mean |p_1 - p_2|.

    Options:
        weight: of the difference
    """

    title = "Twin networks"
    networks = 2

    def __init__(self, *, weight: Weight = 1.0, **parts):
        super().__init__(**parts)
        self.weight = weight
        self.second = parts["another"]()
        SEEN.append(("weight", weight))

    def loss(self, labelled, unlabelled, step):
        first, second = self.network(labelled.images), self.second(labelled.images)
        return {
            "supervised": self.criterion(first, labelled.masks) + self.criterion(second, labelled.masks),
            "difference": self.weight * (first - second).abs().mean(),
        }


def scale(network, context, *, factor: float = 1.0):
    SEEN.append(("factor", factor))
    with torch.no_grad():
        network.encoder.level0.conv1.weight.mul_(factor)
    return Initialized()


scaled = Initializer(title="Scaled weights", function=scale)


def pairs(path, masks):
    images = sorted((path / "images").iterdir())
    cases = [Case(id=file.stem, image=(file,), mask=(path / "masks" / file.name,)) for file in images]
    return FileSource(name="pairs", root=path, cases=cases, masks=masks)
'''
ENTRY_POINTS = """
[hebbseg.rules]
louder = toyplugin:Louder
broken = toyplugin.nowhere:Rule
strange = toyplugin:scale

[hebbseg.methods]
twins = toyplugin:Twins

[hebbseg.initializers]
scaled = toyplugin:scaled
plain = toyplugin:scale

[hebbseg.sources]
pairs = toyplugin:pairs
"""
RECIPE = """
name = "toys"
table = "sota"
baseline = "Supervised"
[settings]
size = [32, 32]
features = [4, 8]
updates = 2
labelled = "4"
labelled_batch = 2
unlabelled_batch = 2
pretrain_epochs = 1
[data.squares]
source = "pairs:squares"
[[arms]]
name = "Supervised"
init = "scaled"
init_options = { factor = 0.5 }
method = "supervised"
[[arms]]
name = "Twins + Louder"
method = "twins"
rule = "louder"
rule_options = { gain = 4 }
"""


def install(root: Path, monkeypatch: pytest.MonkeyPatch, entry_points: str, name: str = "toyplugin") -> None:
    """What ``pip install`` leaves behind."""
    (root / name).mkdir(parents=True)
    (root / name / "__init__.py").write_text(PLUGIN, encoding="utf-8")
    (root / f"{name}-0.1.dist-info").mkdir()
    (root / f"{name}-0.1.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (root / f"{name}-0.1.dist-info" / "entry_points.txt").write_text(entry_points)
    monkeypatch.syspath_prepend(root)


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What arrived in the toys of the package."""
    install(tmp_path / "site", monkeypatch, ENTRY_POINTS)
    monkeypatch.delitem(sys.modules, "toyplugin", raising=False)
    return import_module("toyplugin").SEEN


def test_train_grid_and_report(
    seen: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bright_folder(tmp_path / "squares")
    data = f"pairs:{tmp_path / 'squares'}"
    tiny = {
        "size": (32, 32),
        "features": (4, 8),
        "updates": 2,
        "labelled_batch": 2,
        "pretrain_epochs": 1,
        "quiet": True,
    }

    Segmenter.train(data, tmp_path / "runs/a", rule="louder", rule_options={"gain": 3}, method="supervised", **tiny)
    assert set(seen) == {(3.0, 0.1)}
    assert command(monkeypatch, "train", data, "-o", tmp_path / "runs/b", *TINY, "--method", "twins", "--init", "scaled",
                   "--set", "method_options.weight=2", "--set", "init_options.factor=0.25") == 0  # fmt: skip
    assert seen[-3:] == [("factor", 0.25), ("factor", 0.25), ("weight", 2.0)]
    Segmenter.train(data, tmp_path / "runs/c", init="random", method="supervised", **tiny)

    (tmp_path / "toys.toml").write_text(RECIPE)
    grid = ("grid", tmp_path / "toys.toml", "-o", tmp_path / "grid", "--data-root", tmp_path, "--jobs", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=":")
    assert command(monkeypatch, *grid) == 0
    (twins,) = [run for run in plan(load_recipe(tmp_path / "toys.toml"), [tmp_path]) if run.note["arm"] != "Supervised"]
    assert [fit.network for fit in twins.stage1] == [0, 1]
    described = json.loads((tmp_path / "grid" / "runs" / twins.id / "run.json").read_text(encoding="utf-8"))
    assert described["status"] == "done" and described["settings"]["rule_options"] == {"gain": 4}

    assert command(monkeypatch, "report", tmp_path / "runs", tmp_path / "grid", "-o", tmp_path / "report.html") == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for title in ("Supervised + Hebbian LOUDER (gain=3)", "Twin networks (weight=2) + Scaled weights (factor=0.25)"):
        assert title in page
    assert "Twins + Louder" in page and "pairs" in page
    capsys.readouterr()
    assert command(monkeypatch, "check", data, "--json") == 0
    assert json.loads(capsys.readouterr().out)["cases"] == 6
    assert command(monkeypatch, "train", "--method", "twins", "--help-method") == 0
    assert "weight=1  (number ≥ 0) of the difference" in capsys.readouterr().out


def test_wrong_names_and_options_are_explained(seen: list[Any], tmp_path: Path) -> None:
    with pytest.raises(HebbsegError, match=r"Unknown rule 'loud'. Did you mean 'louder'"):
        rule_class("loud")
    with pytest.raises(HebbsegError, match=r"Unknown method 'twin'. Did you mean 'twins'"):
        method_class("twin")
    with pytest.raises(HebbsegError, match=r"Unknown data source 'pair' .*Did you mean 'pairs'"):
        open_source(f"pair:{tmp_path}")
    with pytest.raises(HebbsegError, match=r"init='scale' is neither.*Did you mean 'scaled'"):
        check_init("scale")
    with pytest.raises(HebbsegError, match=r"Rule louder has no option 'gein'. Did you mean 'gain'"):
        make_rule(PretrainSettings(rule="louder", rule_options={"gein": 1}))
    with pytest.raises(HebbsegError, match=r"rule_options.temperature: the temperature is a setting itself"):
        make_rule(PretrainSettings(rule="louder", rule_options={"temperature": 1}))
    with pytest.raises(HebbsegError, match=r"Rule hpca has no option 'gain'"):
        make_rule(PretrainSettings(rule="hpca", rule_options={"gain": 1}))
    assert check_init("plain", {"factor": "2"}) == {"factor": 2.0}


def test_a_package_that_is_broken_is_named(seen: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        HebbsegError, match=r"Rule 'broken' of package toyplugin cannot be imported from toyplugin.nowhere:Rule"
    ):
        rule_class("broken")
    with pytest.raises(HebbsegError, match=r"Rule 'strange': .* is not a dataclass"):
        rule_class("strange")
    install(tmp_path / "again", monkeypatch, "[hebbseg.rules]\nlouder = other:Rule\n", name="other")
    with pytest.raises(HebbsegError, match=r"Packages other and toyplugin both add 'louder' to hebbseg.rules"):
        rule_class("louder")
    assert rule_class("swta").__name__ == "SoftWTA"


def test_a_built_in_name_stays_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "[hebbseg.methods]\nem = toyplugin:Twins\n")
    assert method_class("em").title == "EM"
    with pytest.raises(HebbsegError, match=r"Package toyplugin adds 'em' to hebbseg.methods, but this name is built in"):
        method_class("emm")
