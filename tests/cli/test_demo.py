"""The demo: equal terms, plain numbers, a page that needs nothing but itself."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student_t

from hebbseg.errors import HebbsegError
from hebbseg.experiments.demo import ARMS, DemoResult, conclusion, demo_settings, free_folder, run_demo, table_rows
from hebbseg.reporting.demo_page import write_report
from tests.tiny import command

SMALL = {"data": "phantom:glands?n=12&size=32", "size": "32x32", "features": "4,8", "updates": 4, "pretrain_epochs": 1}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> DemoResult:
    return run_demo(tmp_path_factory.mktemp("demo") / "demo", seeds=2, **SMALL)


def test_arms_differ_in_their_first_weights_alone(result: DemoResult):
    for seed in range(2):
        descriptions = [
            json.loads((result.run_folder(seed, arm) / "run.json").read_text(encoding="utf-8")) for arm in ARMS
        ]
        settings = [{k: v for k, v in d["settings"].items() if k != "init"} for d in descriptions]
        assert settings[0] == settings[1] == settings[2] and settings[0]["seed"] == seed
        assert len({d["split_hash"] for d in descriptions}) == 1
        assert [d["settings"]["init"] for d in descriptions] == list(ARMS)


def test_the_numbers_are_those_of_the_runs_and_paired(result: DemoResult):
    for arm in ARMS:
        summaries = [
            json.loads((result.run_folder(seed, arm) / "summary.json").read_text(encoding="utf-8")) for seed in range(2)
        ]
        assert result.dice[arm] == [summary["dice"]["mean"] for summary in summaries]
    differences = np.subtract(result.dice["hebbian"], result.dice["random"])
    found = result.difference("hebbian")
    assert found.mean == pytest.approx(differences.mean()) and found.n == 2
    assert found.ci90 == pytest.approx(student_t.ppf(0.95, 1) * differences.std(ddof=1) / np.sqrt(2))
    label, mean, shown, each = table_rows(result)[-1]
    assert "Hebbian" in label and mean == f"{100 * np.mean(result.dice['hebbian']):.1f}"
    assert "(n = 2)" in shown and len(each.split()) == 2


@pytest.mark.parametrize(
    ("hebbian", "words"),
    [
        ([0.70, 0.71, 0.72], "above 0"),
        ([0.50, 0.51, 0.52], "did harm"),
        ([0.5, 0.7, 0.6], "do not tell"),
        ([0.9], "no interval"),
    ],
)
def test_the_conclusion_follows_from_the_numbers(hebbian: list[float], words: str):
    dice = {"random": [0.6, 0.61, 0.62][: len(hebbian)], "random-rescaled": hebbian, "hebbian": hebbian}
    said = conclusion(DemoResult(folder=Path("demo"), dice=dice, test_cases=3, seconds=1.0))
    assert words in said and f"n = {len(hebbian)} is small" in said


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe")
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_in_itself(result: DemoResult):
    html = write_report(result).read_text(encoding="utf-8")
    page = _Page()
    page.feed(html)
    assert len(page.sources) == 3 and all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert not re.search(r"url\(|@import|https?://", re.sub(r"base64,[^\"]+", "", html))
    for label, mean, difference, _ in table_rows(result):
        assert label in page.text and mean in page.text and difference in page.text
    for words in ("encoder.level1.conv1", "n = 2 is small", "hebbseg train my_data/", "8 training images"):
        assert words in page.text


def test_an_earlier_demo_is_not_touched(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert free_folder("demo") == Path("demo")
    (tmp_path / "demo").mkdir()
    assert free_folder("demo") == Path("demo-2")
    (tmp_path / "demo-2").mkdir()
    assert free_folder("demo") == Path("demo-3")
    assert command(monkeypatch, "demo", "-o", "demo") == 2
    assert "exists already" in capsys.readouterr().err
    assert list((tmp_path / "demo").iterdir()) == []


def test_the_time_decides_how_many_seeds(tmp_path: Path, monkeypatch):
    seconds = iter(range(0, 10_000, 5))  # every look at the clock is five seconds later
    monkeypatch.setattr("hebbseg.experiments.demo.time.monotonic", lambda: float(next(seconds)))

    def pretend(settings, out, **_):
        out.mkdir(parents=True)
        (out / "summary.json").write_text(json.dumps({"n": 1, "dice": {"mean": 0.5}}))

    monkeypatch.setattr("hebbseg.experiments.demo.run", pretend)
    assert run_demo(tmp_path / "a", time_budget_s=1).seeds == 1
    assert run_demo(tmp_path / "b", time_budget_s=10_000).seeds == 8
    assert 1 < run_demo(tmp_path / "c", time_budget_s=25).seeds < 8
    assert run_demo(tmp_path / "d", time_budget_s=1, seeds=3).seeds == 3
    with pytest.raises(HebbsegError, match="at least 1"):
        run_demo(tmp_path / "e", seeds=0)


def test_the_command_prints_a_table_and_the_page(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hebbseg.experiments.demo.DATA", SMALL["data"])
    monkeypatch.setattr("hebbseg.experiments.demo.SETTINGS", {name: SMALL[name] for name in SMALL if name != "data"})
    assert command(monkeypatch, "demo", "--seeds", "1") == 0
    out = capsys.readouterr().out
    assert "Hebbian learning" in out and "(n = 1)" in out and "no interval" in out and "demo/report.html" in out
    assert (tmp_path / "demo" / "report.html").is_file()
    assert command(monkeypatch, "demo", "--time-budget", "long") == 2


def test_settings_of_the_demo_are_valid():
    assert demo_settings(3, "random").init == "random"
