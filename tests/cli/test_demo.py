"""The demo: its recipe, its report and its conclusion."""

import json
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hebbseg.cli import demo
from hebbseg.experiments.grid import plan
from hebbseg.experiments.recipe import load_recipe
from hebbseg.reporting.statistics import mean_interval
from tests.experiments.tinygrid import ROOT, InThisProcess
from tests.tiny import command

SMALL = {
    "n=96&size=64": "n=12&size=32",
    "[64, 64]": "[32, 32]",
    "[8, 16, 32, 64]": "[4, 8]",
    "updates = 150": "updates = 4\npretrain_epochs = 1",
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder to run the demo in, with few updates on tiny images and no worker processes."""
    text = demo.RECIPE.read_text(encoding="utf-8")
    for old, new in SMALL.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    recipe = tmp_path / "recipe" / "demo.toml"
    recipe.parent.mkdir()
    recipe.write_text(text, encoding="utf-8")
    monkeypatch.setattr(demo, "RECIPE", recipe)
    monkeypatch.setattr("hebbseg.experiments.executors.local.LocalExecutor", lambda **options: InThisProcess())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_arms_differ_in_their_initialization_alone() -> None:
    recipe = load_recipe(demo.RECIPE)
    assert recipe.axes["seed"] == list(range(demo.MOST_SEEDS))
    assert [(arm.name, arm.settings) for arm in recipe.arms] == [
        (recipe.baseline, {"init": "random"}),
        ("Random weights, rescaled", {"init": "random-rescaled"}),
        (demo.OURS, {"init": "hebbian"}),
    ]
    assert len(plan(recipe, ROOT)) == 3 * demo.MOST_SEEDS


@pytest.mark.parametrize(
    ("differences", "words"),
    [
        ([0.10, 0.11, 0.12], "above 0"),
        ([-0.10, -0.11, -0.12], "lowers the Dice"),
        ([-0.1, 0.1, 0.0], "includes 0"),
        ([0.3], "no interval"),
        ([0.3, 0.4], "no interval"),
    ],
)
def test_the_conclusion_follows_from_the_numbers(differences: list[float], words: str) -> None:
    text = demo.conclusion(mean_interval(differences))
    assert words in text and f"n = {len(differences)} is small" in text


def test_the_time_decides_how_many_seeds() -> None:
    assert demo.seeds_within(120, 0, 0) == 1, "at least one"
    assert demo.seeds_within(1, 30, 1) <= 1
    assert demo.seeds_within(120, 30, 1) == 3
    assert demo.seeds_within(120, 60, 3) == 5
    assert demo.seeds_within(10_000, 30, 1) == demo.MOST_SEEDS


def test_an_earlier_demo_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert demo.free_folder("demo") == Path("demo")
    (tmp_path / "demo").mkdir()
    assert demo.free_folder("demo") == Path("demo-2")
    (tmp_path / "demo-2").mkdir()
    assert demo.free_folder("demo") == Path("demo-3")
    assert command(monkeypatch, "demo", "-o", "demo") == 2
    assert "exists already" in capsys.readouterr().err
    assert list((tmp_path / "demo").iterdir()) == []
    assert command(monkeypatch, "demo", "--time-budget", "long") == 2
    assert command(monkeypatch, "demo", "--seeds", "0") == 2


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.pictures: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.sources += [named[name] for name in ("src", "href", "srcset") if name in named]
        self.pictures += [named["alt"]] if tag == "img" else []


def test_the_command_prints_a_table_and_writes_the_report(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "demo", "--seeds", "2") == 0
    out = capsys.readouterr().out
    assert demo.OURS in out and "n = 2 is small" in out and "demo/report.html" in out
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in small.glob("demo/runs/*/run.json")]
    assert len(runs) == 6 and len({run["split_hash"] for run in runs}) == 2
    assert tomllib.loads((small / "demo" / "recipe.toml").read_text(encoding="utf-8"))["name"] == "demo"
    html = (small / "demo" / "report.html").read_text(encoding="utf-8")
    page = _Page()
    page.feed(html)
    assert all(source.startswith(("data:image/", "#")) for source in page.sources), "self-contained"
    assert not re.search(r"url\(|@import|https?://", re.sub(r"base64,[^\"]+", "", html))
    for words in ("test cases of glands", "filters of encoder.level1.conv1", "Loss of stage 2"):
        assert any(words in picture for picture in page.pictures), words


def test_a_failed_run_ends_the_demo_with_its_log(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo.RECIPE.write_text(demo.RECIPE.read_text(encoding="utf-8").replace('labelled = "4"', 'labelled = "400"'))
    assert command(monkeypatch, "demo", "--seeds", "1") == 2
    assert "failed: " in (shown := capsys.readouterr().err) and ".log" in shown
