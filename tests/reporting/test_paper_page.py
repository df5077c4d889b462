"""The paper's page: all metrics by regime, published results only beside the same, folds named, no interval for n = 2."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hebbseg.config import make_settings
from hebbseg.data.sources import open_source
from hebbseg.data.splits.split import make_split
from hebbseg.evaluation.evaluate import describe_summary
from hebbseg.evaluation.metrics import summarize
from hebbseg.reporting.comparison import Comparison, comparisons
from hebbseg.reporting.html import write_report
from hebbseg.reporting.published import algorithm, pretraining, published
from hebbseg.reporting.references import References
from hebbseg.reporting.results import RunResult, read_results
from hebbseg.reporting.splits_used import folds_text
from hebbseg.reporting.tables.ablations import probe_table, temperature_table
from hebbseg.reporting.tables.comparisons import gain_table, metric_table, paired_table
from hebbseg.reporting.tables.datasets import datasets_table
from hebbseg.reporting.tables.paper import regime_table, regime_tables
from hebbseg.reporting.tables.table import Table, as_csv
from tests.reporting.runs import PAPER_STAGE_1, described, make_ablation, make_sota, split, summary, write

ARMS = ("Supervised", "VAE", "EM", "Hebbian SWTA", "Ours")


def compared(root: Path, **options: Any) -> Comparison:
    make_sota(root, **{"arms": ARMS, "regimes": ("10%",), "seeds": 3} | options)
    (comparison,) = comparisons(read_results([root]).runs)
    return comparison


def names(table: Table) -> list[str]:
    return [row.cells[0].text for row in table.rows]


def only_table(comparison: Comparison) -> Table:
    (table,) = regime_tables(comparison)
    return table


def changed(comparison: Comparison, arm: str = "", **values: Any) -> Comparison:
    """The same runs with other settings, those of one arm or of all."""
    runs = [replace(run, settings={**run.settings, **values}) if run.arm == arm or not arm else run for run in comparison.runs]
    return Comparison(runs)


def test_one_table_per_regime_with_the_four_metrics_side_by_side(tmp_path: Path) -> None:
    comparison = compared(tmp_path, regimes=("10%", "1%"))
    tables = regime_tables(comparison)
    assert [table.title for table in tables] == ["glas, 1 % labelled", "glas, 10 % labelled"]
    assert tables[0].columns == (
        "method", "DC (%) ↑", "JI (%) ↑", "95HD (px) ↓", "ASD (px) ↓", "pooled DC (%) ↑", "pooled JI (%) ↑", "n",
    )  # fmt: skip
    estimate = comparison.estimate("EM", "1%", "jaccard_pooled")
    dice = comparison.values("EM", "1%", "dice_pooled")
    assert estimate is not None and estimate.mean == pytest.approx(sum(d / (2 - d) for d in dice.values()) / 3)


def test_rows_have_the_order_of_the_recipe_and_ours_is_last(tmp_path: Path) -> None:
    comparison = compared(tmp_path, arms=("VAE", "Ours", "Supervised", "EM"))
    ours_last = ["VAE", "Supervised", "EM", "Ours"]
    assert comparison.labels == ours_last and comparison.proposed == "Ours"
    table = only_table(comparison)
    assert [row.cells[0].text for row in table.rows if not row.published] == ours_last
    assert [row.cells[0].text for row in table.rows if row.proposed] == ["Ours"]


def test_the_proposed_method_does_not_depend_on_results(tmp_path: Path) -> None:
    named = compared(tmp_path / "a", arms=("Supervised", "Ours", "EM + Hebbian"))
    assert named.proposed == "Ours" and named.best_first()[0] == "EM + Hebbian"
    variants = comparisons(read_results([make_ablation(tmp_path / "b", "variants")]).runs)[0]
    assert variants.proposed == "SWTA-TSA" and variants.best_first()[0] == "HPCA-TSA"
    assert compared(tmp_path / "c", arms=("Supervised", "EM + Hebbian", "CPS + Hebbian", "CPS")).proposed == "CPS + Hebbian"
    assert compared(tmp_path / "d", arms=("Supervised", "EM", "CPS")).proposed == "CPS"
    assert compared(tmp_path / "e", arms=("Supervised",)).proposed is None


def test_published_rows_are_below_the_same_algorithm(tmp_path: Path) -> None:
    table = only_table(compared(tmp_path))
    assert names(table) == [
        "Supervised", "VAE", "VAE (published)", "EM", "EM (published)", "Hebbian SWTA", "Ours", "Ours (published)",
    ]  # fmt: skip
    theirs = table.rows[-1]
    # 80.77, 67.77, 17.64 and 3.87 in the paper; overlap is pooled there.
    assert [cell.text for cell in theirs.cells[1:]] == ["–", "–", "17.64", "3.87", "80.77", "67.77", "–"]
    assert theirs.published and all(cell.mark == "" for row in table.rows if row.published for cell in row.cells)
    assert "The protocol differs" in table.note


def test_fully_supervised_is_published_with_all_labels_only(tmp_path: Path) -> None:
    comparison = compared(tmp_path, arms=("Supervised",), regimes=("20%", "100%"))
    assert [names(table) for table in regime_tables(comparison)] == [["Supervised"], ["Supervised", "Fully Sup. (published)"]]


@pytest.mark.parametrize(
    ("arm", "settings"),
    [
        ("Ours", {"whiten": 1.0}), ("Ours", {"levels": "1-3"}), ("Ours", {"part": "encoder"}), ("Ours", {"layerwise": True}),
        ("Ours", {"rule_options": {"gain": 2}}), ("Ours", {"transpose": "tsa-literal"}), ("Ours", {"method": "em"}),
        ("Ours", {"rule": "hpca"}), ("VAE", {"init_options": {"latent": 8}}), ("VAE", {"network": "other.net"}),
        ("EM", {"init": "vae"}), ("EM", {"method_options": {"normalized": False}}),
    ],
)  # fmt: skip
def test_another_algorithm_under_the_same_name_has_no_published_row(arm: str, settings: dict[str, Any], tmp_path: Path) -> None:
    comparison = compared(tmp_path)
    assert f"{arm} (published)" in names(only_table(comparison))
    assert f"{arm} (published)" not in names(only_table(changed(comparison, arm, **settings)))


def test_the_algorithm_is_told_by_settings() -> None:
    def of(**options: Any) -> str | None:
        return algorithm(make_settings("glas:x", {"method": "supervised"} | options).flat(relevant=True))

    assert of(**PAPER_STAGE_1) == "SWTA-TSA" and of(**PAPER_STAGE_1, rule="hpca", transpose="s") == "HPCA-S"
    assert of() is None and of(init="superpix") == "SuperpixSSL" and of(init="random-rescaled") is None
    assert of(init="random", method="cps", method_options={"weight": 5.0}) == "CPS"
    assert of(init="random", method="unimatch") is None
    assert pretraining({"init": "vae", "method": "cps"}) == "VAE" and algorithm({"init": "vae", "method": "cps"}) is None


def test_data_of_another_name_source_or_number_are_not_the_published_ones(tmp_path: Path) -> None:
    assert len(published("sota", "glas")) == 41 and len(published("sota", "LA")) == 21
    assert published("sota", "la_half") == published("sota", "pupil") == []
    comparison = compared(tmp_path / "a", images=165)
    assert "Ours (published)" in names(only_table(comparison))
    other = only_table(changed(comparison, data="folder:glas"))
    assert not any(row.published for row in other.rows) and "the source of the data is not glas:PATH" in other.note
    fewer = only_table(compared(tmp_path / "b", images=85))
    assert not any(row.published for row in fewer.rows) and "85 images are used, 165 in the paper" in fewer.note


def test_distances_are_converted_to_the_pixels_of_the_paper(tmp_path: Path) -> None:
    same, small = (compared(tmp_path / str(size), size=size) for size in (128, 64))
    found = [float(only_table(comparison).rows[0].cells[3].text) for comparison in (same, small)]
    assert found[1] == pytest.approx(2 * found[0], abs=0.011)
    assert "multiplied by 2, to pixels at 128 × 128" in only_table(small).note and "multiplied" not in only_table(same).note
    assert only_table(small).rows[-1].cells[3].text == "17.64"


def test_a_planned_size_is_not_that_of_the_paper(tmp_path: Path) -> None:
    runs = [replace(run, settings={**run.settings, "size": "auto"}) for run in compared(tmp_path).runs]
    assert References(Comparison(runs), "sota").distance_scale == 1, "of versions without plans"
    assert References(Comparison([replace(run, planned=True) for run in runs]), "sota").distance_scale is None


@pytest.mark.parametrize(("size", "unit"), [([128, 96], "px"), ("native", "px"), ([128, 128], "mm")])
def test_distances_in_another_unit_are_left_out_with_the_reason(size: Any, unit: str, tmp_path: Path) -> None:
    comparison = compared(tmp_path)
    other = Comparison([replace(run, unit=unit, settings={**run.settings, "size": size}) for run in comparison.runs])
    table = only_table(other)
    assert [cell.text for cell in table.rows[-1].cells[3:7]] == ["–", "–", "80.77", "67.77"]
    assert "Published distances are left out: they are in pixels at 128 × 128" in table.note
    assert table.columns[3] == f"95HD ({unit}) ↓"


def test_results_in_original_pixels_stand_beside_no_published_distance(tmp_path: Path) -> None:
    comparison = compared(tmp_path)
    assert {run.grid for run in comparison.runs} == {"training"}, "runs of version 0.2, whose summary.json has no grid"
    table = only_table(Comparison([replace(run, grid="original") for run in comparison.runs]))
    assert [cell.text for cell in table.rows[-1].cells[3:7]] == ["–", "–", "80.77", "67.77"]
    assert "they are in pixels at 128 × 128, these in original pixels" in table.note
    assert "Overlap is computed in the original pixels here, and at 128 × 128 in the paper" in table.note
    assert "original pixels" not in only_table(comparison).note


def test_runs_measured_in_other_pixels_are_other_arms(tmp_path: Path) -> None:
    make_sota(tmp_path, arms=("Supervised",), regimes=("10%",), seeds=2, images=165)
    for folder in tmp_path.glob("runs/*"):
        run = json.loads((folder / "run.json").read_text())
        run.pop("grid")
        (folder / "run.json").write_text(json.dumps(run))
        if run["seed"] == 1:
            summary = json.loads((folder / "summary.json").read_text())
            (folder / "summary.json").write_text(json.dumps(summary | {"grid": "original"}))
    found = {run.seed: run for run in read_results([tmp_path]).runs}
    assert (found[0].grid, found[1].grid) == ("training", "original")
    assert found[0].axes["metrics_grid"] == "training" and found[1].axes["metrics_grid"] == "original"


def test_distances_of_volumes_are_in_voxels(tmp_path: Path) -> None:
    runs = [replace(run, settings={**run.settings, "size": "auto"}) for run in compared(tmp_path, dataset="la").runs]
    assert References(Comparison(runs), "sota").distance_scale == 1
    resized = [replace(run, settings={**run.settings, "size": [32, 32, 24]}) for run in runs]
    assert References(Comparison(resized), "sota").distance_scale is None
    assert References(Comparison([replace(run, grid="original") for run in resized]), "sota").distance_scale == 1
    in_mm = Comparison([replace(run, unit="mm") for run in runs])
    assert References(in_mm, "sota").distance_scale is None
    assert "they are in voxels, these in mm" in only_table(in_mm).note


def test_per_image_dice_has_no_published_row(tmp_path: Path) -> None:
    comparison = compared(tmp_path)
    assert not any(row.published for row in metric_table(comparison, "dice").rows)
    theirs = [row for row in metric_table(comparison, "dice", references=References(comparison, "sota")).rows if row.published]
    assert theirs and all(cell.text == "–" for row in theirs for cell in row.cells[1:])


def test_ablations_follow_the_same_rules(tmp_path: Path) -> None:
    temperature, probe = (comparisons(read_results([make_ablation(tmp_path / k, k)]).runs)[0] for k in ("temperature", "probe"))
    assert "20 %: published" in temperature_table(temperature).columns
    whitened = temperature_table(changed(temperature, "Hebbian", whiten=1.0))
    assert whitened.columns == ("t", "K = 1/t", "20 %", "20 %: difference")
    assert any(row.published for row in probe_table(probe).rows)
    unpooled = Comparison([replace(run, pooled_levels={}) for run in probe.runs])
    assert not any(row.published for row in probe_table(unpooled).rows)


def test_best_and_second_are_told_by_color_and_by_form(tmp_path: Path) -> None:
    compared(tmp_path)
    done = write_report([tmp_path], tmp_path / "r.html", tables=tmp_path / "t", pictures=False)
    page = done.page.read_text(encoding="utf-8")
    assert ".best { color: #c00000; font-weight: 700; }" in page
    assert ".second { color: #0033cc; text-decoration: underline;" in page
    assert '<span class="best">' in page and '<span class="second">' in page
    assert '<tr class="published">' in page and '<tr class="proposed">' in page
    latex = (tmp_path / "t" / "glas-small-glas-labelled-10.tex").read_text(encoding="utf-8")
    assert r"\textcolor{red}{\textbf{" in latex and r"\textcolor{blue}{\underline{" in latex
    assert r"\textbf{Ours} &" in latex and r"\textcolor{gray}{\textit{Ours (published)}} &" in latex
    lines = latex.splitlines()
    ours = next(number for number, line in enumerate(lines) if r"\textbf{Ours}" in line)
    assert "Ours (published)" in lines[ours + 1]
    assert "booktabs,xcolor" in latex and "xcolor" in (tmp_path / "t" / "all.tex").read_text(encoding="utf-8")


def test_csv_names_published_rows(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(only_table(compared(tmp_path))))))
    named = [row["method"] for row in rows if row["published"] == "yes"]
    assert named == ["VAE (published)", "EM (published)", "Ours (published)"]
    assert (rows[-1]["95HD (px) ↓"], rows[-1]["95HD (px) ↓ ci90"], rows[-1]["DC (%) ↑"]) == ("17.64", "0.82", "")


@pytest.mark.parametrize(
    ("grouped", "folds_by", "notes", "said"),
    [
        (False, "images", "", "10-fold cross-validation, folds by images (patients may be in the training and the test set)."),
        (True, "grouped", "", "10-fold cross-validation, patients kept together (no patient in more than one set)."),
        (True, None, "No groups (patients) are known: …", "10-fold cross-validation, folds by images (patients not known)."),
    ],
)
def test_the_page_names_the_kind_of_folds(grouped: bool, folds_by: str | None, notes: str, said: str, tmp_path: Path) -> None:
    split(write(tmp_path / "run", described("d", {}), summary(0.5)), test=16, total=165, grouped=grouped, folds=10, notes=notes)
    (run,) = read_results([tmp_path]).runs
    assert folds_text([replace(run, settings={**run.settings, "folds_by": folds_by})]) == said
    assert said in write_report([tmp_path], tmp_path / "r.html", pictures=False).page.read_text(encoding="utf-8")


def test_a_test_set_without_folds_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", described("d", {}), summary(0.5))
    (run,) = read_results([tmp_path]).runs
    assert folds_text([run]) == "One test set; whether patients are kept together is not recorded."
    split(folder, test=80, total=165, grouped=False, folds=None)
    assert folds_text([run]) == "Published test set, patients may be in the training and the test set."
    source = open_source("phantom:glands?n=12&size=32")
    make_split(source).save(folder / "split.json")
    known = any(case.group is not None for case in source.cases)
    assert folds_text([run]).endswith("(no patient in more than one set)." if known else "patients not known.")


def test_data_set_table(tmp_path: Path) -> None:
    comparison = compared(tmp_path, folds=2, seeds=1, images=165)
    (row,) = datasets_table([comparison], lambda run: (16, "430–522 × 574–775")).rows
    texts = [cell.text for cell in row.cells]
    assert texts[:6] == ["glas", "165", "16", "430–522 × 574–775", "128 × 128", "1"]
    assert texts[6] == "75 / 8 / 82" and texts[7].startswith("2-fold cross-validation, patients kept together")
    (unknown,) = datasets_table([comparison], lambda run: (None, "")).rows
    assert [cell.text for cell in unknown.cells[2:4]] == ["–", "–"]


def test_two_values_have_no_interval(tmp_path: Path) -> None:
    comparison = compared(tmp_path, arms=("Supervised", "Ours"), seeds=2)
    table = regime_table(comparison, "10%", References(comparison, "sota"))
    assert [cell.detail for cell in table.rows[0].cells] == [""] * 8 and table.rows[0].cells[-1].text == "2"
    assert "No interval for n < 3." in table.note
    assert metric_table(comparison, "dice").rows[0].cells[1].detail == "n = 2"
    assert [cell.text for cell in paired_table(comparison).rows[0].cells[3:5]] == ["–", "–"]
    assert not gain_table(comparison).rows[0].cells[1].text.startswith(("↑", "↓", "→"))


def test_two_test_cases_have_no_interval() -> None:
    rows: list[dict[str, Any]] = [
        {"case": case, "class": 1, "dice": dice, "jaccard": dice, "hd95": 1.0, "hd95_max": 1.0, "asd": 1.0,
         "n_intersection": 1, "n_prediction": 2, "n_target": 2}
        for case, dice in (("a", 0.1), ("b", 0.9), ("c", 0.5))
    ]  # fmt: skip
    assert summarize(rows[:2], "px")["dice"]["ci90"] is None and summarize(rows, "px")["dice"]["ci90"] > 0
    assert describe_summary(summarize(rows[:2], "px")).startswith("Dice 50.0 %, Jaccard 50.0 %")


def test_a_run_counts_once_per_class_in_pooled_jaccard(tmp_path: Path) -> None:
    result = summary(0.5) | {"classes": {"1": {"dice_pooled": 1.0}, "2": {"dice_pooled": 0.5}}}
    write(tmp_path / "run", described("d", {}), result)
    (run,) = read_results([tmp_path]).runs
    assert isinstance(run, RunResult) and run.classes == 2
    assert run.metrics["jaccard_pooled"] == pytest.approx((1 + 1 / 3) / 2)
