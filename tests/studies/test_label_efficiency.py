"""The study of label efficiency: order of its runs, and what it tells of a table."""

from pathlib import Path

import pytest

from studies import anytime, label_efficiency

TABLE = """dataset,labelled_percent,budget_s,seed,arm,updates,seconds,size,dice,dice_pooled
glas,10,150.0,{seed},scratch,1000,150,128x192,{a},0
glas,40,150.0,{seed},scratch,1000,150,128x192,{b},0
glas,10,150.0,{seed},default,700,150,128x192,{c},0
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    header, *_ = TABLE.splitlines(keepends=True)
    rows = [TABLE.format(seed=s, a=80 + s, b=84 + s, c=82 + s).removeprefix(header) for s in range(3)]
    path.write_text(header + "".join(rows), encoding="utf-8")
    return path


def test_paired_differences_and_the_factor(table: Path) -> None:
    found = list(label_efficiency.lines(label_efficiency.cells(label_efficiency.read_rows(table))))
    default, scratch, _ = found
    assert scratch.split() == ["glas", "scratch", "10", "%", "81.0", "±", "1.7", "(n", "=", "3)"]
    # Halfway between 80 and 84 on a logarithmic axis from 10 to 40 %.
    assert "− scratch +2.0 ± 0.0 (n = 3)   scratch needs 20 %, 2 ×" in default


def test_runs_to_compare_follow_each_other_and_each_is_planned_once() -> None:
    runs = list(label_efficiency.planned(["main", "parts", "next"]))
    assert runs[:3] == [("scratch", "2%"), ("default", "2%"), ("default+next", "2%")]
    assert runs[-1] == ("scratch", "100%")
    assert len(runs) == len(set(runs)) == 15
    assert {arm for arm, _ in runs} <= set(anytime.ARMS)


def test_runs_in_the_table_are_skipped(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_efficiency, "count_cpu_time", lambda: None)
    monkeypatch.setattr(label_efficiency, "REGIMES", {"main": {"scratch": ("10%", "20%"), "default": ("10%",)}})
    asked = []

    def measure(data: str, arm: str, seed: int, seconds: float, labelled: str, *, protocol: str) -> dict[str, object]:
        asked.append((arm, labelled, seed, protocol))
        row = {"dataset": data, "labelled_percent": labelled[:-1], "budget_s": seconds, "seed": seed, "arm": arm}
        return dict.fromkeys(anytime.FIELDS, 0) | row

    monkeypatch.setattr(label_efficiency, "measure", measure)
    label_efficiency.add_rows(table, "glas", ["main"], [0, 1], 150.0)
    assert asked == [("scratch", "20%", 0, "few-label"), ("scratch", "20%", 1, "few-label")]
    label_efficiency.add_rows(table, "glas", ["main"], [0, 1], 150.0)
    assert len(asked) == 2


def test_rows_for_the_results_page(table: Path) -> None:
    rows = label_efficiency.read_rows(table)
    assert list(label_efficiency.markdown(label_efficiency.cells(rows), "glas")) == [
        "| 10 % (9) | 3 | 81.0 ± 1.7 | +2.0 ± 0.0 | 2 × |"
    ]
    two = [row for row in rows if row["seed"] != "2"]
    (row,) = label_efficiency.markdown(label_efficiency.cells(two), "glas")
    assert row.startswith("| 10 % (9) | 2 | 80.5 | +2.0, +2.0 |")  # no interval of two seeds


@pytest.mark.parametrize(("seeds", "bars"), [("01", 0), ("012", 3)])
def test_a_mean_of_two_seeds_has_no_bar(
    seeds: str, bars: int, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = label_efficiency.cells([row for row in label_efficiency.read_rows(table) if row["seed"] in seeds])
    figures = []
    monkeypatch.setattr(label_efficiency, "save_figure", lambda figure, path: figures.append(figure))
    label_efficiency.draw(found, tmp_path / "figure.png")
    (axis,) = figures[0].axes
    drawn = [bar for container in axis.containers for bar in container.lines[2][0].get_segments() if len(bar) == 2]
    assert len(drawn) == bars
    assert f"training from scratch (n = {len(seeds)} seeds)" in axis.get_legend_handles_labels()[1]


def test_the_figure_is_drawn(table: Path, tmp_path: Path) -> None:
    label_efficiency.draw(label_efficiency.cells(label_efficiency.read_rows(table)), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_an_arm_in_words() -> None:
    name, settings = anytime.parsed_arm("early: method=fixmatch method_options.start=0.25 method_options.decay=0.9")
    assert name == "early"
    assert settings == {"method": "fixmatch", "method_options": {"start": "0.25", "decay": "0.9"}}
