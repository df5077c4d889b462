"""Every value of the paper's preset against a table typed from the paper's appendix."""

import csv
from pathlib import Path
from typing import Any

import pytest

from hebbseg.config import FLAT_NAMES, Settings, make_settings, settings_of_run
from hebbseg.errors import HebbsegError
from hebbseg.methods import check_method

TWO_D, LA = ("glas", "ph2", "hmeps"), ("la",)

# setting, value, data sets it holds for, where it is from
PAPER = [
    ("optimizer", "sgd", TWO_D + LA, "appendix: SGD"),
    ("learning_rate", 0.5, TWO_D, "appendix: initial learning rate 0.5"),
    ("learning_rate", 0.1, LA, "appendix: 0.1 for LA"),
    ("schedule", "step", TWO_D + LA, "appendix: divided by 10 every 50 epochs"),
    ("epochs", 200, TWO_D + LA, "appendix: 200 epochs"),
    ("patience", None, TWO_D + LA, "appendix: the best model of all epochs, no early stopping"),
    ("ema", 0.0, TWO_D + LA, "appendix: no average of weights"),
    ("warm_up", 0.0, TWO_D + LA, "appendix: no warm-up"),
    ("clip", None, TWO_D + LA, "appendix: no clipping"),
    ("augment", "flips-rotations", TWO_D + LA, "appendix: flips and rotations"),
    ("pretrain_augment", "flips-rotations", TWO_D + LA, "appendix: flips and rotations"),
    ("size", (128, 128), TWO_D, "appendix: 128 x 128"),
    ("patch", "none", TWO_D, "appendix: whole images"),
    ("patch", (96, 96, 80), LA, "appendix: 96 x 96 x 80"),
    ("patch_foreground", 0.0, LA, "appendix: random patches"),
    ("window_blend", "constant", LA, "appendix: sliding window with an overlap of 0.5, no blending"),
    ("protocol", "paper", TWO_D + LA, "appendix: validation split"),
    ("folds", 10, TWO_D, "appendix: 10-fold cross-validation"),
    ("folds", 5, LA, "appendix: 5-fold cross-validation for LA"),
    ("folds_by", "images", TWO_D + LA, "no word of patients"),
    ("init", "hebbian", TWO_D + LA, "method"),
    ("rule", "swta", TWO_D + LA, "ablation of the variants: SWTA-TSA"),
    ("transpose", "tsa", TWO_D + LA, "ablation of the variants: SWTA-TSA"),
    ("part", "all", TWO_D + LA, "method: all layers"),
    ("levels", "all", TWO_D + LA, "method: all layers"),
    ("layerwise", False, TWO_D + LA, "method: all layers at once"),
    ("temperature", 1 / 100, ("glas",), "ablation of the temperature: K = 100"),
    ("temperature", 1 / 20, ("ph2", "hmeps"), "ablation of the temperature: K = 20"),
    ("unit_norm", False, TWO_D + LA, "equation 2 has no conditioning"),
    ("center", False, TWO_D + LA, "equation 2 has no conditioning"),
    ("standardize", False, TWO_D + LA, "equation 2 has no conditioning"),
    ("whiten", None, TWO_D + LA, "equation 2 has no conditioning"),
    ("restore_norms", False, TWO_D + LA, "appendix: the last snapshot"),
    ("settle", 0.0, TWO_D + LA, "appendix: the last of 200 epochs"),
    ("pretrain_epochs", 200, TWO_D + LA, "appendix: 200 epochs"),
    ("pretrain_step", "absolute", TWO_D + LA, "equation 2"),
    ("pretrain_optimizer", "sgd", TWO_D + LA, "appendix: SGD"),
    ("pretrain_rate", 0.5, TWO_D, "appendix: initial learning rate 0.5"),
    ("pretrain_rate", 0.1, LA, "appendix: 0.1 for LA"),
    ("pretrain_schedule", "step", TWO_D + LA, "appendix: divided by 10 every 50 epochs"),
    ("pretrain_max_batches", None, TWO_D + LA, "appendix: epochs"),
    ("method", "supervised", TWO_D + LA, "method: supervised fine-tuning"),
    ("tta", "none", TWO_D + LA, "no test-time augmentation"),
    ("metrics_grid", "training", TWO_D + LA, "appendix: 128 x 128; volumes are not resized"),
    # the authors' scripts, where the paper is silent
    ("labelled_batch", 2, TWO_D + LA, "scripts: batch size 2"),
    ("unlabelled_batch", 2, TWO_D + LA, "scripts: batch size 2"),
    ("pretrain_batch", 2, TWO_D + LA, "scripts: batch size 2"),
    ("norm", "batch", TWO_D + LA, "scripts: batch norm"),
    ("loss", "dice", TWO_D + LA, "scripts: Dice loss"),
    ("momentum", 0.9, TWO_D + LA, "scripts: momentum 0.9"),
    ("weight_decay", 5e-5, TWO_D + LA, "scripts: 5e-5"),
    ("validate_every", 2, TWO_D + LA, "scripts: every second epoch"),
    ("unlabelled_pool", "unlabelled", TWO_D + LA, "scripts: the images without masks"),
]


def value_of(settings: Settings, name: str) -> Any:
    section, key, _ = FLAT_NAMES[name]
    return getattr(getattr(settings, section) if section else settings, key)


@pytest.mark.parametrize(("name", "value", "data", "source"), PAPER)
def test_the_preset_has_the_papers_value(name: str, value: Any, data: tuple[str, ...], source: str) -> None:
    for each in data:
        assert value_of(make_settings(f"{each}:data", {"preset": "paper"}), name) == value, (each, source)


@pytest.mark.parametrize(("data", "rate"), [("glas", 1e-3), ("hmeps", 1e-3), ("la", 1e-4)])
@pytest.mark.parametrize("init", ["vae", "superpix"])
def test_pretext_tasks_have_their_own_rate(init: str, data: str, rate: float) -> None:
    settings = make_settings(f"{data}:data", {"preset": "paper", "init": init})
    assert settings.pretrain.rate == rate
    assert settings.pretrain.epochs == 200


@pytest.mark.parametrize("method", ["em", "mean-teacher", "uamt", "cct", "cps", "urpc", "dtc"])
def test_lambda_rises_linearly_to_five(method: str) -> None:
    settings = make_settings("glas:data", {"preset": "paper", "method": method})
    assert settings.finetune.method_options == {"weight": 5.0, "ramp": "linear", "ramp_share": 1.0}
    check_method(method, settings.finetune.method_options)


def test_a_single_option_of_a_method_changes_no_other() -> None:
    settings = make_settings("glas:data", {"preset": "paper", "method": "em", "method_options": {"weight": 1}})
    assert settings.finetune.method_options == {"weight": 1, "ramp": "linear", "ramp_share": 1.0}


def test_given_values_precede_the_preset() -> None:
    settings = make_settings("glas:data", {"preset": "paper", "updates": 70, "temperature": 0.5, "folds": 3})
    assert (settings.finetune.updates, settings.finetune.epochs) == (70, None)
    assert (settings.pretrain.temperature, settings.data.folds) == (0.5, 3)
    official = make_settings("glas:data", {"preset": "paper", "test": "official"})
    assert (official.data.folds, official.data.test) == (None, "official")


def test_a_stored_run_has_the_values_it_was_started_with() -> None:
    for options in ({"preset": "paper", "method": "em"}, {"preset": "paper", "updates": 7}, {}):
        settings = make_settings("glas:data", options)
        assert settings_of_run(settings.flat()) == settings


def test_generated_images_have_the_values_of_the_data_set_they_resemble() -> None:
    assert make_settings("phantom:glands?n=4", {"preset": "paper"}).pretrain.temperature == 0.01
    assert make_settings("phantom:atrium?n=4", {"preset": "paper"}).finetune.learning_rate == 0.1


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(HebbsegError, match="'hebbseg' or 'paper'"):
        make_settings("data", {"preset": "papers"})


def test_epochs_become_updates() -> None:
    finetune = make_settings("data", {"epochs": 200, "validate_every": 2}).finetune
    resolved = finetune.in_updates(labelled=7, batch=2)
    assert (resolved.updates, resolved.validate_every) == (800, 8)
    assert make_settings("data", {"updates": 9}).finetune.in_updates(labelled=7, batch=2).updates == 9


def test_folds_may_be_a_word() -> None:
    assert make_settings("data", {"folds": "images"}).data.folds_by == "images"
    assert make_settings("data", {"folds": "grouped"}).data.folds is None


@pytest.mark.parametrize(("given", "name"), [(True, "full"), (False, "none"), ("false", "none"), ("flips-rotations",) * 2])
def test_augmentation_by_name_or_as_in_version_0_1(given: Any, name: str) -> None:
    assert make_settings("data", {"augment": given}).finetune.augment == name


def test_hebbian_learning_runs_until_filters_settle() -> None:
    assert make_settings("data", {}).pretrain.of_hebbian().epochs == 2
    assert make_settings("data", {"rule": "hpca"}).pretrain.of_hebbian().epochs == 50
    assert make_settings("data", {"rule": "hpca", "pretrain_epochs": 3}).pretrain.of_hebbian().epochs == 3


@pytest.mark.parametrize(("rule", "transpose", "rate"), [("hpca", "tsa", 0.002), ("hpca", "s", 5e-5), ("swta", "s", 0.0005)])
def test_rates_that_diverge_are_replaced_by_the_largest_stable_ones(rule: str, transpose: str, rate: float) -> None:
    options = {"preset": "paper", "rule": rule, "transpose": transpose}
    assert make_settings("glas:data", options).pretrain.rate == rate
    assert make_settings("glas:data", options | {"pretrain_rate": 0.5}).pretrain.rate == 0.5
    with (Path(__file__).parents[2] / "studies" / "results" / "stable-rates.csv").open() as file:
        tried = [row for row in csv.DictReader(file) if (row["rule"], row["transpose"]) == (rule, transpose)]
    assert [float(row["rate"]) for row in tried if row["outcome"] == "stable"] == [rate]
    assert (float(tried[0]["rate"]), tried[0]["outcome"]) == (0.5, "overflows")
