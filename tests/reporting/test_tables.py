"""Tables from made-up runs with known answers; the three forms of one table."""

import csv
import io
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from hebbseg.errors import HebbsegError
from hebbseg.methods import AUTO_OPTIONS, WITH_UNLABELLED
from hebbseg.reporting.arm_names import arm_of, dataset_of
from hebbseg.reporting.charts import Picture, learning_curves, variant_bars
from hebbseg.reporting.comparison import Comparison, comparisons
from hebbseg.reporting.gain_figure import GAIN, LOSS, gain_figure
from hebbseg.reporting.references import References
from hebbseg.reporting.results import RunResult, read_results
from hebbseg.reporting.sections import headlines
from hebbseg.reporting.tables.ablations import (
    diagnostics_table,
    probe_difference_table,
    probe_table,
    temperature_table,
)
from hebbseg.reporting.tables.comparisons import (
    efficiency_table,
    gain_table,
    metric_table,
    paired_table,
    rank_table,
    regime_heading,
)
from hebbseg.reporting.tables.table import (
    Cell,
    Row,
    Table,
    as_csv,
    as_latex,
    file_name,
    latex_text,
    marked,
    shown_number,
)
from tests.reporting.runs import described, make_ablation, make_sota, summary, write


def run(arm: str, labelled: str, seed: int, dice: float, **more: object) -> RunResult:
    facts = {"dataset": "glas", "recipe": "r", "fold": None, "percent": float(labelled.rstrip("%"))} | more
    metrics = {"dice": dice, "jaccard": dice / 2, "hd95": 10 * (1 - dice), "asd": 1 - dice, "dice_pooled": dice}
    metrics["jaccard_pooled"] = dice / (2 - dice)
    return RunResult(folder=Path("x"), arm=arm, labelled=labelled, seed=seed, metrics=metrics, **facts)


def small() -> Comparison:
    values = {
        ("Supervised", "1%"): [0.50, 0.52, 0.54],
        ("Supervised", "10%"): [0.70, 0.72, 0.74],
        ("EM", "1%"): [0.50, 0.52, 0.54],
        ("EM + Hebbian", "1%"): [0.60, 0.62, 0.64],
        ("EM + Hebbian", "10%"): [0.66, 0.68, 0.76],
    }
    tied = {"EM + Hebbian": {"gain_over": "EM"}}
    return Comparison(
        [
            run(arm, labelled, seed, dice, **tied.get(arm, {}))
            for (arm, labelled), all_dice in values.items()
            for seed, dice in enumerate(all_dice)
        ]
    )


def shown(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in table.rows if not row.published]


def test_metric_table_has_means_intervals_and_marks() -> None:
    table = metric_table(small(), "dice")
    assert table.columns == ("arm", "1 %", "10 %")
    assert shown(table) == [["Supervised", "52.0", "72.0"], ["EM", "52.0", "–"], ["EM + Hebbian", "62.0", "70.0"]]
    # t(0.95, 2) = 2.919986; the sample standard deviation is 0.02.
    assert table.rows[0].cells[1].detail == f"± {2.919986 * 2 / math.sqrt(3):.1f}, n = 3"
    marks = [[cell.mark for cell in row.cells[1:]] for row in table.rows[:3]]
    assert marks == [["second", "best"], ["second", ""], ["best", "second"]]
    lower = metric_table(small(), "hd95")
    assert [row.cells[1].mark for row in lower.rows[:3]] == ["second", "second", "best"]


def test_differences_are_paired_with_the_baseline() -> None:
    rows = shown(paired_table(small()))
    assert rows[0][:3] == ["EM", "1 %", "0.0"]
    assert rows[1] == ["EM + Hebbian", "1 %", "+10.0", "+10.0", "+10.0", "0.250", "3", rows[1][-1]]
    assert "the smallest possible p is 0.25" in rows[1][-1]
    assert rows[2][:3] == ["EM + Hebbian", "10 %", "−2.0"]


def test_gain_has_an_arrow_only_where_the_interval_is_clear() -> None:
    assert shown(gain_table(small())) == [["EM + Hebbian over EM", "↑ +10.0", "–"]]
    worse = [replace(r, metrics=dict(r.metrics) | {"dice": 0.4 + 0.02 * r.seed}) if "+" in r.arm else r for r in small().runs]
    assert shown(gain_table(Comparison(worse)))[0][1] == "↓ −10.0"
    mixed = [replace(r, metrics=dict(r.metrics) | {"dice": 0.54 - 0.02 * r.seed}) if "+" in r.arm else r for r in small().runs]
    assert shown(gain_table(Comparison(mixed)))[0][1] == "→ 0.0"


def drawn_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they are drawn from now on, before they become pictures."""
    drawn: list[Figure] = []

    def look(figure: Figure, *, alt: str, caption: str) -> Picture:
        drawn.append(figure)
        return Picture(uri="", alt=alt, caption=caption)

    for module in ("charts", "gain_figure"):
        monkeypatch.setattr(f"hebbseg.reporting.{module}.picture", look)
    return drawn


def test_bars_of_the_gain_figure_can_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two initializations of the same method, and a run without a partner, which moves neither end of an arrow."""
    dice = {"EM": 0.5, "EM + Hebbian": 0.6, "EM + VAE": 0.45}
    runs = [
        run(arm, "1%", seed, value, gain_over=None if arm == "EM" else "EM") for arm, value in dice.items() for seed in range(3)
    ]
    figures = drawn_figures(monkeypatch)
    drawn = gain_figure([Comparison([*runs, run("EM", "1%", 7, 0.1)])])
    axis = figures[0].axes[0]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["EM + Hebbian", "EM + VAE"]
    assert [bar.get_height() for bar in axis.patches[:2]] == pytest.approx([50, 50])
    labels = {text.get_text(): text.get_color() for text in axis.texts if text.get_text()}
    assert labels == {"+10.0": GAIN, "−5.0": LOSS}
    assert drawn is not None and "EM to EM + Hebbian 50.0 to 60.0, EM to EM + VAE 50.0 to 45.0" in drawn.alt


def test_gain_figure_has_a_panel_per_data_set_and_regime(monkeypatch: pytest.MonkeyPatch) -> None:
    group = [
        Comparison([run(arm, regime, 0, 0.5, dataset=name, gain_over=over)
                    for arm, over in (("EM", None), ("EM + Hebbian", "EM")) for regime in regimes])
        for name, regimes in (("glas", ("10%", "2%")), ("ph2", ("2%",)))
    ]  # fmt: skip
    figures = drawn_figures(monkeypatch)
    gain_figure(group)
    titles = [axis.get_title() for axis in figures[0].axes if axis.get_visible()]
    assert titles == ["glas, 2 %", "glas, 10 %", "ph2, 2 %"]
    assert [text.get_text() for text in figures[0].axes[0].get_xticklabels()] == ["EM"]  # alone: by the name of its bar
    assert gain_figure([Comparison([run("EM", "1%", 0, 0.5)])]) is None


def test_every_bar_is_in_the_legend(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = drawn_figures(monkeypatch)
    variant_bars(Comparison([run("A", "1%", 0, 0.5), run("A", "10%", 0, 0.6), run("B", "10%", 0, 0.7)]))
    legend = figures[0].axes[0].get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == ["A", "B"]


def test_efficiency_reads_the_baseline_backwards() -> None:
    table = efficiency_table(small())
    found = {(row[0], row[1]): row[2:] for row in shown(table)}
    # 62 lies half-way from 52 (1 %) to 72 (10 %): √10 %.
    assert found["EM + Hebbian", "1 %"] == ["62.0", "3.16 %", "3.16 ×", "3"]
    assert found["EM", "1 %"][1:3] == ["1 %", "1 ×"]
    assert "not reliable" not in table.note


def test_efficiency_warns_where_labels_do_not_help_the_baseline() -> None:
    values = {"1%": [0.60, 0.62, 0.64], "10%": [0.63, 0.61, 0.65]}
    runs = [run("Supervised", regime, seed, dice) for regime, all_dice in values.items() for seed, dice in enumerate(all_dice)]
    table = efficiency_table(Comparison([*runs, *(run("EM", "1%", seed, 0.7) for seed in range(3))]))
    # Differences 3, −1 and 1 points: 1 ± 2.92 · 2 / √3.
    assert "From 1 % to 10 % of the labels, Supervised gains +1.0 ± 3.4 points (n = 3)" in table.note
    assert table.note.endswith("Factors are not reliable here.")


def test_learning_curves_are_of_the_regime_that_most_arms_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hebbseg.reporting.charts._loss", lambda folder: (np.arange(3), np.arange(3.0)))
    runs = [run("Supervised", regime, 0, 0.5) for regime in ("5%", "20%", "100%")]
    drawn = learning_curves(Comparison([*runs, run("EM", "5%", 0, 0.5)]))
    assert drawn is not None and "EM ends at 2" in drawn.alt


def test_ranks_leave_out_who_is_not_everywhere() -> None:
    table = rank_table([small()], "all")
    assert shown(table) == [["EM + Hebbian", "1.33"], ["Supervised", "1.67"]]
    assert "over 6 blocks" in table.note and "not ranked, as they lack runs: EM." in table.note


def test_ranks_are_over_what_all_ranked_arms_share() -> None:
    """All masks for the baseline alone, and one arm without a run: the others are ranked where all of them are."""
    runs = [run(arm, regime, seed, dice + seed / 100) for arm, dice in (("Supervised", 0.5), ("EM", 0.6), ("CPS", 0.7))
            for regime in ("1%", "10%") for seed in range(2)]  # fmt: skip
    alone = [run("Supervised", "100%", seed, 0.9) for seed in range(2)]
    table = rank_table([Comparison([*runs, *alone])], "all")
    assert shown(table) == [["CPS", "1.00"], ["EM", "2.00"], ["Supervised", "3.00"]]
    assert "over 4 blocks" in table.note and "excluded, as ranked arms lack runs: glas 100 %." in table.note
    assert "not ranked" not in table.note and "Incomplete" not in table.note
    lost = [each for each in runs if (each.arm, each.labelled, each.seed) != ("EM", "1%", 1)]
    table = rank_table([Comparison([*lost, *alone])], "all")
    assert "over 3 blocks" in table.note and "Incomplete blocks excluded: 1." in table.note
    assert rank_table([Comparison(alone)], "all").rows == ()


def test_arm_with_an_axis_pairs_with_a_baseline_without(tmp_path: Path) -> None:
    (comparison,) = comparisons(read_results([make_ablation(tmp_path, "temperature")]).runs)
    table = temperature_table(comparison)
    assert table.columns == ("t", "K = 1/t", "20 %", "20 %: difference", "20 %: pooled", "20 %: published")
    rows = {row.cells[0].text: row.cells for row in table.rows}
    assert list(rows) == ["0.01", "0.0133", "0.02", "0.05", "0.1", "0.2", "1"]
    assert rows["0.1"][3].text == f"+{100 * 0.004 * math.log(10):.1f}"
    assert rows["0.1"][5].text == "83.0" and rows["0.0133"][5].text == "84.2"
    assert float(rows["0.1"][4].text) == pytest.approx(float(rows["0.1"][2].text) + 1)


def test_arm_without_an_axis_pairs_only_where_that_leaves_no_choice() -> None:
    arm = [run("EM", "1%", seed, 0.6) for seed in range(2)]
    baseline = [run("Supervised", "1%", seed, 0.5, axes={"updates": 300}) for seed in range(2)]
    assert shown(paired_table(Comparison([*arm, *baseline])))[0][2] == "+10.0"
    another = [run("Supervised", "1%", seed, 0.4, axes={"updates": 1000}) for seed in range(2)]
    assert shown(paired_table(Comparison([*arm, *baseline, *another]))) == []


def test_variants_and_probe(tmp_path: Path) -> None:
    made = [make_ablation(tmp_path / kind, kind) for kind in ("variants", "probe")]
    variants, probe = (comparisons(read_results([root]).runs)[0] for root in made)
    table = metric_table(variants, "dice_pooled", references=References(variants, "variants"))
    names = [row.cells[0].text for row in table.rows]
    assert names[:3] == ["Supervised", "HPCA-S", "HPCA-S (published)"] and names[-1] == "SWTA-TSA (published)"
    assert [cell.text for row in table.rows[1:3] for cell in row.cells[1:]] == ["74.0", "84.0", "75.2", "83.2"]
    table = probe_table(probe)
    levels = ("encoder.level0", "encoder.level1", "encoder.level2", "decoder.level0", "decoder.level0, pooled")
    assert table.columns == ("arm", *levels)
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["Random", "51.0", "53.0", "55.0", "61.0", "62.0"],
        ["Hebbian SWTA-TSA", "53.0", "55.0", "57.0", "65.0", "66.0"],
        ["SWTA-TSA (published)", "–", "–", "–", "–", "59.4"],
        ["VAE", "52.0", "54.0", "56.0", "63.0", "64.0"],
        ["VAE (published)", "–", "–", "–", "–", "57.5"],
    ]
    paired = probe_difference_table(probe)
    assert shown(paired) == [
        ["Hebbian SWTA-TSA", "+2.0", "+2.0", "+2.0", "+4.0"],
        ["VAE", "+1.0", "+1.0", "+1.0", "+2.0"],
    ]
    assert all(cell.detail.startswith("± 0.0") for cell in paired.rows[0].cells[1:])  # the seeds' spread cancels


def test_headlines_are_of_the_arms_that_the_recipe_names() -> None:
    assert len(headlines([small()])) == 1 and "to reach the Dice of EM + Hebbian with 1 %: 3.16 %" in headlines([small()])[0]
    unnamed = [replace(run, gain_over=None) for run in small().runs]
    assert [" of EM with " in said for said in headlines([Comparison(unnamed)])] == [True, False]


def test_diagnostics(tmp_path: Path) -> None:
    layer = {"units": 16, "moved": 1.05, "effective_units": None, "cosine": 0.1, "rank": 12.3, "norm": 1.41}
    (tmp_path / "pretrain.json").write_text(json.dumps({"encoder.level0.conv1": layer}))
    assert shown(diagnostics_table(tmp_path, "x")) == [["encoder.level0.conv1", "16", "105", "–", "0.10", "12.3", "1.41"]]


def test_csv_has_the_numbers_apart() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(metric_table(small(), "dice")))))
    assert rows[0]["arm"] == "Supervised" and rows[0]["published"] == "no"
    assert float(rows[0]["1 %"]) == pytest.approx(52) and rows[0]["1 % n"] == "3"
    assert float(rows[0]["1 % ci90"]) == pytest.approx(2.919986 * 2 / math.sqrt(3), rel=1e-4)
    assert rows[1]["10 %"] == ""


def test_latex_escapes_and_marks() -> None:
    text = as_latex(metric_table(small(), "dice"))
    assert r"\textcolor{red}{\textbf{62.0}}" in text and r"\textcolor{blue}{\underline{70.0}}" in text and r"10 \%" in text
    assert text.count(r"\midrule") == 1 and text.isascii()
    assert latex_text(r"a_b & 50% \x ^ ~ {#} $") == (
        r"a\_b \& 50\% \textbackslash{}x \textasciicircum{} \textasciitilde{} \{\#\} \$"
    )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    comparison = small()
    nasty = Table(name="nasty", title="50 % & #_^~", note=r"{\}", columns=("<a>", "$b$"),
                  rows=(Row(cells=(Cell(text="|x| ± ½ …"), Cell(text="−1 × 2", detail="↑↓→"))),))  # fmt: skip
    tables = [metric_table(comparison, "dice"), gain_table(comparison), efficiency_table(comparison), nasty]
    body = "\n".join(as_latex(table) for table in tables)
    document = f"\\documentclass{{article}}\\usepackage{{booktabs,xcolor}}\\begin{{document}}\n{body}\n\\end{{document}}"
    (tmp_path / "t.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_marks_go_to_equal_values_alike_and_not_to_a_single_one() -> None:
    rows = [Row(cells=(Cell(text=str(v), sort=v),)) for v in (3.0, 3.0, 2.0, 1.0)]
    assert [row.cells[0].mark for row in marked(rows, [0], higher_is_better=True)] == ["best", "best", "second", ""]
    assert [row.cells[0].mark for row in marked(rows[:1], [0], higher_is_better=True)] == [""]


def test_words() -> None:
    assert (shown_number(-0.04, 1, sign=True), shown_number(-1.26, 1)) == ("0.0", "−1.3")
    assert [regime_heading(regime) for regime in ("10%", "8", "0.1")] == ["10 %", "8 masks", "0.1"]
    assert file_name("GlaS small", "", "95HD (px)") == "glas-small-95hd-px"
    with pytest.raises(ValueError, match="2 columns, but a row with 1 cells"):
        Table(name="t", title="", note="", columns=("a", "b"), rows=(Row(cells=(Cell(text="x"),)),))


def test_names_of_runs_without_a_recipe() -> None:
    names = [dataset_of(data) for data in ("glas:/d/x", "phantom:glands?n=3", "my/lab data/", "nnunet:/d/Dataset01")]
    assert names == ["glas", "phantom glands", "lab data", "Dataset01"]
    settings = described("d", {})["settings"]
    assert arm_of(settings) == ("Supervised + Hebbian SWTA", None)
    assert arm_of(settings | {"part": "all", "transpose": "s"}) == ("Supervised + Hebbian SWTA-S", None)
    assert arm_of(settings | {"init": "random"}) == ("Supervised", None)
    assert arm_of(settings | {"init": "auto"}) == arm_of(settings | {"init": "hebbian"})
    assert arm_of(settings | {"method": "cps"}) == ("CPS + Hebbian SWTA", "CPS")
    assert arm_of(settings | {"init": "vae", "init_options": {"latent": 8}}) == ("Supervised + VAE (latent=8)", None)
    assert arm_of(settings | {"init": "w/first.safetensors"}) == ("Supervised + weights from first.safetensors", None)
    assert arm_of(settings | {"init": "random", "method": "mean-teacher"}) == ("Mean Teacher", None)
    assert arm_of(settings | {"init": "elsewhere", "method": "unknown"}) == ("unknown + elsewhere", "unknown")
    gated = settings | {"method": WITH_UNLABELLED, "method_options": dict(AUTO_OPTIONS)}
    assert arm_of(gated) == ("Default (FixMatch with teacher)", "FixMatch with teacher")
    assert arm_of(gated | {"rule": "hpca"}) == ("FixMatch with teacher + Hebbian HPCA", "FixMatch with teacher")
    assert arm_of(settings | {"init": "random", "method": "unimatch"}) == ("UniMatch", None)


def test_runs_without_a_recipe_differ_by_their_settings(tmp_path: Path) -> None:
    """300 and 1000 updates are two columns; a temperature that only Hebbian learning reads leaves its baseline alone."""
    for updates in (300, 1000):
        write(tmp_path / f"b{updates}", described("d", {"init": "random", "updates": updates}), summary(0.5))
        for t in (0.1, 0.05):
            settings = {"updates": updates, "temperature": t}
            write(tmp_path / f"h{updates}-{t}", described("d", settings), summary(0.5 + t + updates / 1e5))
    (comparison,) = comparisons(read_results([tmp_path]).runs)
    assert comparison.labels[0] == "Supervised (updates 300)"
    rows = {row[0]: row[2] for row in shown(paired_table(comparison))}
    assert rows["Supervised + Hebbian SWTA (temperature 0.05, updates 1000)"] == "+6.0"
    assert len(rows) == 4


def test_options_of_a_method_are_part_of_its_name_and_keep_no_run_from_its_baseline(tmp_path: Path) -> None:
    write(tmp_path / "supervised", described("d", {"init": "random"}), summary(0.5))
    default = {"method": WITH_UNLABELLED, "method_options": dict(AUTO_OPTIONS)}
    write(tmp_path / "default", described("d", default), summary(0.6))
    (comparison,) = comparisons(read_results([tmp_path]).runs)
    rows = {row[0]: row[2] for row in shown(paired_table(comparison))}
    assert rows == {"Default (FixMatch with teacher)": "+10.0"}


def test_a_run_of_an_earlier_version_has_the_options_of_today(tmp_path: Path) -> None:
    run = described("d", {"method": "unimatch", "method_options": {"pseudo_loss": "dice", "dice_gated": True}})
    run["settings"]["method_options"] = {"pseudo_loss": "dice", "earned": True}
    write(tmp_path / "old", run, summary(0.6))
    arm = "UniMatch (pseudo_loss=dice dice_gated=true)"
    assert [run.arm for run in read_results([tmp_path]).runs] == [f"{arm} + Hebbian SWTA"]


def test_the_same_run_counts_once(tmp_path: Path) -> None:
    for place in ("a", "b"):
        make_sota(tmp_path / place, arms=("EM",), regimes=("1%",), seeds=2)
    results = read_results([tmp_path])
    assert len(results.runs) == 2
    assert [each.reason.startswith("duplicate of") for each in results.unread] == [True, True]


def test_the_same_place_with_other_settings_is_said_to_be_that(tmp_path: Path) -> None:
    note = {"recipe": "r", "dataset": "d", "arm": "EM", "axes": {"seed": 0}}
    for updates in (300, 500):
        write(tmp_path / f"{updates}", described("d", {"updates": updates}, note), summary(0.5))
    (left_out,) = read_results([tmp_path]).unread
    assert left_out.reason.startswith("same table cell as") and "different settings: updates" in left_out.reason


def test_a_setting_that_an_older_run_lacks_has_its_default(tmp_path: Path) -> None:
    old = described("d", {"seed": 1})
    del old["settings"]["ema"]
    write(tmp_path / "a", old, summary(0.5))
    for ema in (0.9, 0.99):
        write(tmp_path / f"b{ema}", described("d", {"ema": ema}), summary(0.5))
    results = read_results([tmp_path])
    assert len(results.runs) == 3 and not results.unread
    assert [run.axes.get("ema") for run in results.runs] == [0.99, 0.9, 0.99]


def test_what_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    good = described("d", {})
    write(tmp_path / "good", good, summary(0.5))
    write(tmp_path / "running", good | {"status": "running"}, None)
    write(tmp_path / "unmeasured", good, None)
    write(tmp_path / "nan", good, summary(float("nan")))
    write(tmp_path / "no-dice", good, {"n": 3})
    write(tmp_path / "no-end", good, summary(0.5) | {"n": float("inf")})
    write(tmp_path / "no-time", good | {"seconds": "long"}, summary(0.5))
    (write(tmp_path / "half", good, summary(0.5)) / "summary.json").write_text('{"n": 8')
    (write(tmp_path / "list", good, summary(0.5)) / "run.json").write_text("[]")
    (write(tmp_path / "bytes", good, summary(0.5)) / "run.json").write_bytes(b"\xff\x00")
    results = read_results([tmp_path])
    assert [r.folder.name for r in results.runs] == ["good"]
    reasons = {each.folder.name: each.reason for each in results.unread}
    patterns = {
        "running": "not finished", "unmeasured": "no summary.json", "nan": "dice is nan", "no-dice": "KeyError: 'dice'",
        "no-end": "OverflowError", "no-time": "could not convert string to float",
        "half": "summary.json is not readable", "list": "contains a list", "bytes": "run.json is not readable",
    }  # fmt: skip
    assert reasons.keys() == patterns.keys()
    assert all(re.search(pattern, reasons[name]) for name, pattern in patterns.items()), reasons


def test_roots_must_be_there_and_hold_runs(tmp_path: Path) -> None:
    with pytest.raises(HebbsegError, match="folder not found"):
        read_results([tmp_path / "nowhere"])
    with pytest.raises(HebbsegError, match="no run folder found"):
        read_results([tmp_path])
