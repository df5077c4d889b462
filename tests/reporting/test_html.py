"""The whole report: from run folders, made up and really trained, to a page and files."""

import base64
import csv
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from hebbseg.reporting.html import write_report
from hebbseg.reporting.pages import sort_key
from hebbseg.reporting.qualitative import evenly_spaced
from hebbseg.reporting.surfaces3d import surface
from tests.reporting.runs import described, make_ablation, make_sota, summary, write
from tests.tiny import command

TINY = {"features": (4, 8), "updates": 3, "labelled_batch": 2, "pretrain_epochs": 1, "method": "supervised"}


class Outline(HTMLParser):
    """Headings, images and what the page would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.loaded: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "img":
            self.images.append(given)
        self.loaded += [str(given[key]) for key in ("src", "href") if key in given]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_page_holds_everything_and_loads_nothing(tmp_path: Path) -> None:
    make_sota(tmp_path / "a", seeds=3)
    make_sota(tmp_path / "b", dataset="ph2", recipe="ph2-small", seeds=2, arms=("Supervised", "EM"))
    for table in ("temperature", "variants", "probe"):
        make_ablation(tmp_path / table, table)
    (tmp_path / "a" / "runs" / "EM-1%-0-0" / "summary.json").write_text("{")
    done = write_report([tmp_path], tmp_path / "r.html", tables=tmp_path / "t")
    outline = Outline(done.page.read_text(encoding="utf-8"))
    text = " ".join(" ".join(outline.text).split())
    for said in (
        "Mean rank by Dice over glas, ph2",
        "Label efficiency on glas",
        "Gain from stage 1 on glas",
        "by softmax temperature t",
        "Linear probe on glas",
        "Paired difference to Supervised",
        "1 folder excluded",
        "summary.json is not readable",
        "Predictions not shown: nowhere",
        "hebbseg 0.1.0, python 3.11.2, torch 2.13.0",
    ):
        assert said in text, said
    assert len(outline.images) == 7  # two curves of labels, one of gains, two of learning, K, bars
    assert all(image["alt"] and len(image["alt"]) > 30 for image in outline.images)
    assert all(link.startswith(("data:", "#")) for link in outline.loaded)
    for name in ("glas-small-glas-dice", "all-rank", "temperature-small-glas-temperature", "probe-small-glas-probe"):
        assert {f"{name}.csv", f"{name}.tex"} <= {path.name for path in done.tables}
    inputs = re.findall(r"\\input\{(.*?)\}", (tmp_path / "t" / "all.tex").read_text(encoding="utf-8"))
    assert all((tmp_path / "t" / name).is_file() for name in inputs) and len(inputs) > 10


def test_every_run_is_a_row_of_plain_numbers(tmp_path: Path) -> None:
    make_sota(tmp_path / "a", seeds=2, arms=("Supervised", "EM"), regimes=("1%", "10%"))
    make_ablation(tmp_path / "temperature", "temperature")
    make_ablation(tmp_path / "probe", "probe")
    done = write_report([tmp_path], tmp_path / "r.html", tables=tmp_path / "t")
    with (tmp_path / "t" / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(done.results.runs)
    by_name = {row["run"]: row for row in rows}
    for run in done.results.runs:
        row = by_name[run.folder.name]
        assert (row["dataset"], row["labelled_percent"] + "%", int(row["seed"]), row["arm"]) == (
            run.dataset, run.labelled, run.seed, run.arm,
        )  # fmt: skip
        for name, value in run.metrics.items():
            scale = 1 if name in ("hd95", "asd") else 100
            assert float(row[name]) == pytest.approx(scale * value, abs=1e-3), name
        assert {name: float(row[f"probe.{name}"]) for name in run.levels} == pytest.approx(
            {name: 100 * value for name, value in run.levels.items()}, abs=1e-3
        )
        assert all(row[name] == str(value) for name, value in run.axes.items())
    assert str(tmp_path) not in (tmp_path / "t" / "runs.csv").read_text(encoding="utf-8"), "no path of this machine"


def test_a_number_of_masks_is_no_percentage(tmp_path: Path) -> None:
    note = {"recipe": "r", "dataset": "d", "arm": "EM", "axes": {"labelled": "8"}}
    folder = write(tmp_path / "runs" / "a", described("d", {"labelled": "8"}, note), summary(0.5))
    training = {"labelled": list("abcdefgh"), "unlabelled": [str(n) for n in range(8)]}
    (folder / "split.json").write_text(json.dumps({"training": training}))
    write_report([tmp_path], tmp_path / "r.html", tables=tmp_path / "t", pictures=False)
    with (tmp_path / "t" / "runs.csv").open(encoding="utf-8", newline="") as file:
        assert [row["labelled_percent"] for row in csv.DictReader(file)] == ["50"]


def test_same_runs_same_page(tmp_path: Path) -> None:
    make_sota(tmp_path / "a", seeds=2, arms=("Supervised", "EM"), regimes=("1%", "10%"))
    pages = [write_report([tmp_path / "a"], tmp_path / f"{n}.html", pictures=False).page.read_bytes() for n in "ab"]
    assert pages[0] == pages[1]


def test_names_are_text_never_markup(tmp_path: Path) -> None:
    folder = make_sota(tmp_path / "a", seeds=1, arms=("EM",), regimes=("1%",)) / "runs" / "EM-1%-0-0"
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    run["grid"] |= {"arm": "<script>alert(1)</script>", "title": '"><img src=x onerror=alert(1)>'}
    (folder / "run.json").write_text(json.dumps(run))
    page = write_report([tmp_path / "a"], tmp_path / "r.html", pictures=False).page.read_text(encoding="utf-8")
    assert "<script>alert" not in page and "<img src=x" not in page and "&lt;script&gt;alert" in page


def test_nothing_readable_still_makes_a_page(tmp_path: Path) -> None:
    folder = make_sota(tmp_path / "a", seeds=1, arms=("EM",), regimes=("1%",)) / "runs" / "EM-1%-0-0"
    (folder / "summary.json").write_text(json.dumps(summary(float("inf"))))
    done = write_report([tmp_path / "a"], tmp_path / "r.html", tables=tmp_path / "t")
    assert "dice is inf" in done.page.read_text(encoding="utf-8") and done.results.runs == ()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Really trained, if for three updates only: images at two regimes and from two starts, volumes once."""
    from hebbseg import Segmenter

    root = tmp_path_factory.mktemp("trained")
    for init, labelled in (("random", "20%"), ("hebbian", "20%"), ("hebbian", "100%")):
        out = root / f"glands-{init}-{labelled}"
        options = {"size": (32, 32), "init": init, "labelled": labelled, **TINY}
        Segmenter.train("phantom:glands?n=8&size=32", out, quiet=True, **options)
    Segmenter.train("phantom:atrium?n=4&size=32", root / "atrium", quiet=True, patch=(16, 16, 16), **TINY)
    return root


def test_pictures_of_real_runs(trained: Path, tmp_path: Path) -> None:
    page = write_report([trained], tmp_path / "r.html").page.read_text(encoding="utf-8")
    outline = Outline(page)
    alts = " ".join(str(image["alt"]) for image in outline.images)
    for said in (
        "test cases of phantom glands with ground truth and predictions of Supervised, label regimes: 20 %",
        "predictions of Supervised + Hebbian SWTA, label regimes: 20 %, 100 %",
        "Three slices of atrium",
        "Sample in 3D, and surfaces of ground truth and predictions of atrium",
        "filters of encoder.level1.conv1, the first layer trained in stage 1, before and after",
    ):
        assert said in alts, said
    assert "Stage-1 diagnostics by layer" in page and "encoder.level1.conv1" in page
    for image in outline.images:
        kind, _, data = str(image["src"]).partition(";base64,")
        start = {"data:image/png": b"\x89PNG", "data:image/svg+xml": b"<?xml"}[kind]
        assert base64.b64decode(data).startswith(start)


def test_cases_shown_are_all_different() -> None:
    for n in range(1, 12):
        for count in range(1, min(n, 3) + 1):
            assert len(set(evenly_spaced([str(k) for k in range(n)], count))) == count
    assert evenly_spaced("abcde", 1) == ["c"]


def test_report_survives_lost_models(trained: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(trained / "glands-hebbian-20%", tmp_path / "run")
    (copy / "model.safetensors").write_bytes(b"not a model")
    (copy / "pretrained.safetensors").unlink()
    (copy / "pretrain.json").write_text("[1]")
    (copy / "history.csv").write_text("")
    page = write_report([copy], tmp_path / "r.html").page.read_text(encoding="utf-8")
    for said in ("Predictions not shown: ", "Filters not shown: ", "Stage-1 diagnostics not shown: "):
        assert said in page


def test_command_and_its_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    make_sota(tmp_path / "a", seeds=1, arms=("Supervised",), regimes=("1%",))
    page, tables = tmp_path / "r.html", tmp_path / "t"
    line = ("report", tmp_path / "a", "-o", page, "--tables", tables, "--no-pictures")
    assert command(monkeypatch, *line) == 0
    assert re.search(r"runs +1\n", capsys.readouterr().out)
    before = page.read_bytes()
    assert command(monkeypatch, *line) == 2
    assert "already exists" in capsys.readouterr().err and page.read_bytes() == before
    assert command(monkeypatch, *line, "--force") == 0
    assert command(monkeypatch, "report", tmp_path / "a", "-o", tmp_path / "new.html", "--tables", tables) == 2
    assert "not empty" in capsys.readouterr().err and not (tmp_path / "new.html").exists()
    assert command(monkeypatch, "report", tmp_path / "a", "-o", tmp_path) == 2
    assert "is a folder" in capsys.readouterr().err
    assert command(monkeypatch, "report", tmp_path / "none", "-o", tmp_path / "new.html") == 2
    assert "folder not found" in capsys.readouterr().err


def test_help_needs_neither_torch_nor_matplotlib() -> None:
    code = "import sys, hebbseg.cli.app; assert not {'torch', 'matplotlib', 'jinja2'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_surface_of_a_ball_is_where_the_ball_is() -> None:
    z, y, x = np.ogrid[:24, :24, :24]
    corners, faces = surface((z - 12) ** 2 + (y - 12) ** 2 + (x - 12) ** 2 <= 64, spacing=(2.0, 1.0, 1.0))
    assert len(faces) > 100
    assert corners.mean(axis=0) == pytest.approx([24, 12, 12], abs=0.3)
    radius = np.linalg.norm((corners - [24, 12, 12]) / [2, 1, 1], axis=1)
    assert radius.min() > 7 and radius.max() < 9
    assert [len(part) for part in surface(np.zeros((8, 8, 8)))] == [0, 0]
    edge = np.ones((8, 8, 8))
    assert len(surface(edge)[1]) > 0  # closed where it touches the volume's edge
    large = np.zeros((160, 8, 8))
    large[40:120] = 1
    corners, _ = surface(large)
    assert corners[:, 0].min() == pytest.approx(40, abs=3) and corners[:, 0].max() == pytest.approx(120, abs=3)


def test_numbers_as_javascript_reads_them() -> None:
    assert [sort_key(value) for value in (1.5, float("inf"), float("-inf"), None)] == [
        "1.5",
        "Infinity",
        "-Infinity",
        "",
    ]
