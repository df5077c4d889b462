"""Whole runs: what they leave behind, being killed, being refused, several processes."""

import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file

from hebbseg import Segmenter, methods
from hebbseg.config import make_settings
from hebbseg.data.progress import Quiet
from hebbseg.errors import HebbsegError
from hebbseg.runs import stages
from hebbseg.runs.context import RunContext
from hebbseg.runs.dataset import draw_split, list_cases, open_dataset
from hebbseg.runs.folder import RunFolder
from hebbseg.runs.train import pretrain_only

DATA = "phantom:glands?n=20&size=32"
TINY = {
    "labelled": "4",
    "size": (32, 32),
    "features": (4, 8),
    "updates": 12,
    "labelled_batch": 4,
    "pretrain_epochs": 2,
    "pretrain_batch": 4,
    "checkpoint_every_s": 0.0,
}

STATE = {"stage": "fit", "history": [], "state": {}}
SMALL = {name: TINY[name] for name in ("labelled", "size", "features", "checkpoint_every_s")}


def train(out: Path, **options) -> Segmenter:
    return Segmenter.train(DATA, out, quiet=True, **(TINY | options))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(out)
    return out


def test_a_run_folder_holds_what_the_design_says(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert names >= {
        "run.json", "split.json", "history.csv", "progress.png", "model.safetensors", "metrics.csv", "summary.json", "figures",
        "pretrain.json", "pretrained.safetensors",
    }  # fmt: skip
    assert not [name for name in names if name.startswith(".")], "no temporary file stays"
    run = json.loads((finished / "run.json").read_text(encoding="utf-8"))
    assert run["status"] == "done" and run["settings"]["features"] == [4, 8] and "torch" in run["versions"]
    summary = json.loads((finished / "summary.json").read_text(encoding="utf-8"))
    split = json.loads((finished / "split.json").read_text(encoding="utf-8"))
    assert run["split_hash"] == split["hash"]
    assert summary["n"] == len(split["test"])
    assert set(summary["dice"]) == {"mean", "ci90"} and 0 <= summary["dice_pooled"] <= 1 and summary["unit"] == "px"
    rows = (finished / "metrics.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + len(split["test"])


def same_result(a: Path, b: Path) -> None:
    ours, theirs = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name
    assert (a / "history.csv").read_text(encoding="utf-8") == (b / "history.csv").read_text(encoding="utf-8")
    assert (a / "metrics.csv").read_text(encoding="utf-8") == (b / "metrics.csv").read_text(encoding="utf-8")


def test_the_same_seed_gives_the_same_run(finished: Path, tmp_path: Path) -> None:
    train(tmp_path / "again")
    same_result(tmp_path / "again", finished)


def start(out: Path) -> multiprocessing.process.BaseProcess:
    """The run in a process of its own, which need not import everything again."""
    options = {"resume": (out / "run.json").exists(), "quiet": True, **TINY}
    process = multiprocessing.get_context("fork").Process(target=Segmenter.train, args=(DATA, out), kwargs=options)
    process.start()
    return process


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_in_the_same_weights(finished: Path, tmp_path: Path) -> None:
    """Three times here; `python -m tests.stress.kill` does ten on a longer run."""
    out, moments = tmp_path / "killed", random.Random(0)
    for _ in range(3):
        process = start(out)
        time.sleep(moments.uniform(0.2, 1.0))
        process.kill()
        process.join()
    last = start(out)
    last.join(timeout=120)
    assert last.exitcode == 0
    same_result(out, finished)


def test_a_finished_run_is_not_overwritten_and_resuming_it_just_loads(finished: Path) -> None:
    with pytest.raises(HebbsegError, match=r"already contains a run \(done\).*resume=True"):
        train(finished)
    assert isinstance(Segmenter.train(DATA, finished, resume=True, quiet=True, **TINY), Segmenter)


@pytest.mark.parametrize("change", [{"learning_rate": 0.5}, {"seed": 1}, {"features": (4, 6)}])
def test_changed_settings_refuse_to_resume_and_say_which(finished: Path, change: dict) -> None:
    name = next(iter(change))
    with pytest.raises(HebbsegError, match=f"other settings.*{name}: .* then, .* now"):
        Segmenter.train(DATA, finished, resume=True, quiet=True, **(TINY | change))


def test_changed_data_refuse_to_resume(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = json.loads((finished / "run.json").read_text(encoding="utf-8"))
    changed = run | {"split_hash": "0" * 64}
    (finished / "run.json").write_text(json.dumps(changed))
    try:
        with pytest.raises(HebbsegError, match="the data have changed since"):
            Segmenter.train(DATA, finished, resume=True, quiet=True, **TINY)
    finally:
        (finished / "run.json").write_text(json.dumps(run))


def test_what_the_initialisation_does_not_read_may_change(finished: Path, tmp_path: Path) -> None:
    """A default of stage 1 that moves between two versions must not strand a cut-off run from random weights."""
    train(tmp_path / "run", init="random")
    Segmenter.train(DATA, tmp_path / "run", resume=True, quiet=True, **(TINY | {"init": "random", "whiten": 3.0}))
    with pytest.raises(HebbsegError, match=r"whiten: 1\.0 then, 3\.0 now"):
        Segmenter.train(DATA, finished, resume=True, quiet=True, **(TINY | {"whiten": 3.0}))


def test_how_it_is_computed_may_change(finished: Path) -> None:
    Segmenter.train(DATA, finished, resume=True, quiet=True, **(TINY | {"checkpoint_every_s": 7.0}))


def test_a_folder_with_other_things_in_it_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(HebbsegError, match="not empty"):
        train(tmp_path)
    with pytest.raises(HebbsegError, match="no run to resume"):
        Segmenter.train(DATA, tmp_path, resume=True, quiet=True, **TINY)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("init", ["random", "random-rescaled"])
def test_other_initialisations(init: str, tmp_path: Path) -> None:
    train(tmp_path / "run", init=init, updates=2)
    assert not (tmp_path / "run" / "pretrain.json").exists()


def test_control_has_the_norms_of_hebbian_weights_but_random_directions(tmp_path: Path) -> None:
    train(tmp_path / "control", init="random-rescaled", updates=1)
    train(tmp_path / "hebbian", init="hebbian", updates=1)
    control, hebbian = (load_file(tmp_path / name / "pretrained.safetensors") for name in ("control", "hebbian"))
    for name in ("encoder.level1.conv1.weight", "encoder.level1.conv2.weight"):
        a, b = control[name].flatten(1), hebbian[name].flatten(1)
        torch.testing.assert_close(a.norm(dim=1), b.norm(dim=1))
        assert torch.nn.functional.cosine_similarity(a, b).abs().max() < 0.99


@pytest.mark.parametrize(
    "part, levels, learned",
    [("encoder", "0", {"encoder.level0"}), ("encoder", "1-", {"encoder.level1", "encoder.level2"}),
     ("all", "1-5", {"encoder.level1", "encoder.level2", "decoder.level1"}), ("decoder", 1, {"decoder.level1"}),
     ("decoder", "all", {"decoder.level0", "decoder.level1"})],
)  # fmt: skip
def test_some_levels_can_learn_in_stage_1(part: str, levels: object, learned: set[str], tmp_path: Path) -> None:
    options = TINY | {"features": (4, 8, 8), "part": part, "levels": levels, "pretrain_epochs": 1}
    pretrain_only(make_settings(DATA, options), tmp_path / "run")
    layers = json.loads((tmp_path / "run" / "pretrain.json").read_text(encoding="utf-8"))
    assert {".".join(name.split(".")[:2]) for name in layers} == learned


def test_levels_that_are_not_there_and_no_levels_at_all(tmp_path: Path) -> None:
    with pytest.raises(HebbsegError, match="levels='3': a network of 2 levels has none of these"):
        pretrain_only(make_settings(DATA, TINY | {"levels": "3"}), tmp_path / "run")
    with pytest.raises(HebbsegError, match=r"Option levels='deep' .*levels trained in stage 1"):
        make_settings(DATA, {"levels": "deep"})


def test_pretrained_weights_can_be_carried_over(tmp_path: Path) -> None:
    settings = make_settings(DATA, TINY | {"labelled": "0"})
    path = pretrain_only(settings, tmp_path / "stage1")
    made = path.stat().st_mtime_ns
    assert pretrain_only(settings, tmp_path / "stage1", resume=True) == path
    assert path.stat().st_mtime_ns == made, "a finished stage 1 is not done again"
    train(tmp_path / "carried", init=str(path), updates=1)
    train(tmp_path / "own", init="hebbian", updates=1)
    carried, own = (load_file(tmp_path / name / "pretrained.safetensors") for name in ("carried", "own"))
    assert torch.equal(carried["encoder.level0.conv1.weight"], load_file(path)["encoder.level0.conv1.weight"])
    assert own.keys() == carried.keys()
    with pytest.raises(HebbsegError, match="another network"):
        train(tmp_path / "other", init=str(path), features=(6, 8))


def test_paper_protocol_selects_on_validation(tmp_path: Path) -> None:
    train(tmp_path / "run", protocol="paper", folds=4, fold=1, validate_every=4)
    split = json.loads((tmp_path / "run" / "split.json").read_text(encoding="utf-8"))
    assert split["training"]["validation"] and not set(split["training"]["validation"]) & set(split["test"])
    assert "dice" in (tmp_path / "run" / "history.csv").read_text(encoding="utf-8").splitlines()[0].split(",")


def test_volumes(tmp_path: Path) -> None:
    segmenter = Segmenter.train(
        "phantom:atrium?n=6&size=32", tmp_path / "run", quiet=True, labelled="2", features=(4, 8), updates=2,
        patch=(16, 16, 16), labelled_batch=2, pretrain_batch=2, pretrain_epochs=1,
    )  # fmt: skip
    assert segmenter.window == (16, 16, 16)
    assert json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))["n"] >= 1


def test_pictures_at_their_own_size_in_patches(tmp_path: Path) -> None:
    segmenter = train(tmp_path / "run", size="native", patch="16", updates=2)  # one number stands for all axes
    assert segmenter.preprocessing.size is None and segmenter.window == (16, 16)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"inti": "hebbian"}, "Unknown option 'inti'. Did you mean 'init'"),
        ({"init": "hebian"}, "init='hebian'.*Did you mean 'hebbian'"),
        ({"method": "supervized"}, "method 'supervized'. Did you mean 'supervised'"),
        ({"method_options": {"weight": 3}}, "method_options.weight cannot be set with method=auto"),
        ({"temperature": -1}, "temperature=-1.*greater than 0"),
        ({"updates": 0}, "updates=0"),
        ({"test": "some"}, "test='some'.*auto, official"),
    ],
)
def test_bad_options_are_named_before_anything_is_written(options: dict, words: str, tmp_path: Path) -> None:
    with pytest.raises(HebbsegError, match=words):
        train(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "labelled, method, options",
    [("4", methods.WITH_UNLABELLED, dict(methods.AUTO_OPTIONS)), ("100%", "supervised", {})],
)
def test_the_default_method_learns_from_images_without_masks_where_there_are_some(
    labelled: str, method: str, options: dict, tmp_path: Path
) -> None:
    train(tmp_path / "auto", labelled=labelled, updates=3)
    train(tmp_path / "named", labelled=labelled, updates=3, method=method, method_options=options)
    settings = json.loads((tmp_path / "auto" / "run.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["method"], settings["method_options"]) == (method, options)
    results = [(tmp_path / name / "metrics.csv").read_text(encoding="utf-8") for name in ("auto", "named")]
    assert results[0] == results[1]


def test_a_run_goes_on_with_what_auto_was_when_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "run", labelled="4", updates=3)
    before = dict(methods.AUTO_OPTIONS)
    monkeypatch.setattr(methods, "AUTO_OPTIONS", {"weight": 3.0})
    train(tmp_path / "run", labelled="4", updates=3, resume=True)
    settings = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["settings"]
    assert settings["method_options"] == before


@pytest.mark.parametrize(
    "data, given, sizes",
    [
        ("phantom:glands?n=12&size=32", {}, (4, 4, 8)),
        ("phantom:atrium?n=12&size=32", {}, (2, 2, 2)),
        ("phantom:atrium?n=12&size=32", {"labelled_batch": "3", "unlabelled_batch": 0, "pretrain_batch": 4}, (3, 0, 4)),
    ],
)
def test_batches_suit_images_and_volumes_unless_told_otherwise(data: str, given: dict, sizes: tuple) -> None:
    settings = make_settings(data, given)
    dataset = open_dataset(settings.data, Quiet())
    training = draw_split(settings, dataset.source).training
    context = RunContext(settings, dataset, training, Fabric(accelerator="cpu"))
    batches = context.batches(unlabelled=True, augment="none", seed=0)
    assert (batches.labelled_batch, batches.unlabelled_batch, batches.image_batch) == sizes


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        make_settings("x", {}).seed = 3


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path: Path) -> None:
    """Without norm layers and dropout, two processes with half a batch each compute what one computes with all of it."""
    code = (
        "import sys, json, torch; torch.set_num_threads(1); from hebbseg import Segmenter; "
        "Segmenter.train(sys.argv[1], sys.argv[2], quiet=True, **json.loads(sys.argv[3]))"
    )
    script = tmp_path / "train.py"
    script.write_text(code)
    for devices in (1, 2):
        options = TINY | {"norm": "none", "dropout": 0.0, "devices": devices, "accelerator": "cpu", "augment": False}
        options |= {"updates": 3, "loss": "dice+ce", "optimizer": "sgd", "learning_rate": 0.01, "clip": None}
        command = [sys.executable, str(script), DATA, str(tmp_path / str(devices)), json.dumps(options)]
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        assert done.returncode == 0, done.stderr[-2000:]
    first, second = (load_file(tmp_path / n / "pretrained.safetensors") for n in ("1", "2"))
    for name, value in first.items():
        # Competition magnifies rounding: the same directions, not the same bits.
        alike = torch.nn.functional.cosine_similarity(value.flatten(), second[name].flatten(), dim=0)
        assert alike > 0.999 or not value.any(), name
    trained = load_file(tmp_path / "2" / "model.safetensors")
    assert all(value.isfinite().all() for value in trained.values())


def test_a_further_process_does_not_judge_the_folder(tmp_path: Path) -> None:
    """It may come after the first one has begun the run there, and load what the first one resumes from."""
    settings = make_settings(DATA, TINY)
    split = draw_split(settings, list_cases(settings.data))
    assert RunFolder(tmp_path / "run").begin(settings, split, resume=False) is None
    before = (tmp_path / "run" / "run.json").read_bytes()
    late = RunFolder(tmp_path / "run", writes=False)
    assert late.begin(settings, split, resume=False) is None
    RunFolder(tmp_path / "run").checkpoint(lambda: dict(STATE), every_s=0, now=True)
    assert late.begin(settings, split, resume=True) == STATE
    late.note(status="done")
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_seconds_are_those_of_all_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_settings(DATA, TINY)
    split = draw_split(settings, list_cases(settings.data))
    now = [100.0]
    monkeypatch.setattr("hebbseg.runs.folder.time.monotonic", lambda: now[0])
    for start in range(3):
        folder = RunFolder(tmp_path / "run")
        state = folder.begin(settings, split, resume=start > 0)
        assert state == (STATE if start else None)
        now[0] += 10
        folder.checkpoint(lambda: dict(STATE), every_s=0, now=True)
        now[0] += 2  # lost when it is cut
    assert folder.seconds == pytest.approx(10 + 10 + 12)


def test_a_run_killed_before_its_split_was_written_gets_it_when_resumed(tmp_path: Path) -> None:
    settings = make_settings(DATA, TINY)
    split = draw_split(settings, list_cases(settings.data))
    folder = RunFolder(tmp_path / "run")
    folder.begin(settings, split, resume=False)
    written = (folder / "split.json").read_bytes()
    (folder / "split.json").unlink()
    folder.begin(settings, split, resume=True)
    assert (folder / "split.json").read_bytes() == written


def test_what_is_wrong_is_found_before_further_processes_start(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fabric, "launch", lambda self: pytest.fail("launched"))
    two = {"devices": 2, "accelerator": "cpu"}
    with pytest.raises(HebbsegError, match="already contains a run"):
        train(finished, **two)
    with pytest.raises(HebbsegError, match="no training case has a usable mask"):
        train(tmp_path / "run", labelled="0", **two)


@pytest.mark.slow
def test_two_processes_end_together_and_say_why_once(tmp_path: Path) -> None:
    options = TINY | {"features": "4,8", "size": "32x32", "devices": 2, "accelerator": "cpu", "init": "random"}
    options |= {"norm": "none", "optimizer": "sgd", "learning_rate": 1e30, "clip": "none", "warm_up": 0}
    command = [sys.executable, "-m", "hebbseg", "train", DATA, "-o", str(tmp_path / "run")]
    command += [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=120, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 2, done.stderr[-2000:]
    assert done.stderr.count("The loss became") == 1 and "Traceback" not in done.stderr


def test_options_of_the_init_belong_to_the_run(tmp_path: Path) -> None:
    """They are used, and a run that was begun with others, or by a version without them, is treated accordingly."""
    train(tmp_path / "run", init="vae", init_options={"latent": 2, "beta": 0.5}, pretrain_epochs=1, updates=1)
    steps = [row.split(",")[1] for row in (tmp_path / "run" / "history.csv").read_text(encoding="utf-8").splitlines()[1:]]
    assert steps == ["1", "2", "3", "1"]
    with pytest.raises(HebbsegError, match=r"init_options: {'latent': 2, 'beta': 0.5} then, {'latent': 4} now"):
        train(tmp_path / "run", init="vae", init_options={"latent": 4}, pretrain_epochs=1, updates=1, resume=True)
    with pytest.raises(HebbsegError, match="Did you mean 'latent'"):
        train(tmp_path / "other", init="vae", init_options={"latnet": 4})
    assert not (tmp_path / "other").exists()


def test_a_run_of_a_version_without_a_setting_can_be_resumed(finished: Path) -> None:
    run = json.loads((finished / "run.json").read_text(encoding="utf-8"))
    older = run | {"settings": {name: value for name, value in run["settings"].items() if name != "init_options"}}
    (finished / "run.json").write_text(json.dumps(older))
    try:
        train(finished, resume=True)
        with pytest.raises(HebbsegError, match=r"init_options: {} then"):
            train(finished, resume=True, init="vae", init_options={"beta": 2.0})
    finally:
        (finished / "run.json").write_text(json.dumps(run))


def test_folds_have_different_weights_and_labelled_images(tmp_path: Path) -> None:
    paper = {"preset": "paper", "epochs": 1, "pretrain_epochs": 0, "folds": 4, "labelled": "10%"}
    first, labelled = [], set()
    for fold in range(4):
        Segmenter.train(DATA, tmp_path / str(fold), quiet=True, **(SMALL | paper | {"fold": fold, "init": "random"}))
        first.append(load_file(tmp_path / str(fold) / "pretrained.safetensors"))
        labelled.add(tuple(json.loads((tmp_path / str(fold) / "split.json").read_text())["training"]["labelled"]))
    assert len(labelled) == 4
    names = [name for name, value in first[0].items() if value.ndim > 1]
    for one in range(4):
        for other in range(one):
            assert not any(torch.equal(first[one][name], first[other][name]) for name in names)


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_the_network_that_is_tested_is_the_one_that_was_validated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ema: float
) -> None:
    seen: list[tuple[float, dict[str, torch.Tensor]]] = []
    make = stages._validator

    def recorded(context: RunContext):
        validate = make(context)

        def look(network: torch.nn.Module) -> float:
            dice = validate(network)
            seen.append((dice, {name: value.clone() for name, value in network.state_dict().items()}))
            return dice

        return look

    monkeypatch.setattr(stages, "_validator", recorded)
    paper = {"preset": "paper", "epochs": 6, "pretrain_epochs": 1, "folds": 4, "learning_rate": 0.05, "ema": ema}
    Segmenter.train(DATA, tmp_path / "run", quiet=True, **(SMALL | paper))
    best = max(seen, key=lambda look: look[0])[1]
    tested = load_file(tmp_path / "run" / "model.safetensors")
    assert any("running_mean" in name for name in tested)
    for name, value in tested.items():
        assert torch.equal(value, best[name]), name


def test_the_length_in_epochs_is_that_of_the_labelled_images(tmp_path: Path) -> None:
    run = {"preset": "paper", "epochs": 3, "pretrain_epochs": 0, "folds": 4, "labelled": "5"}
    Segmenter.train(DATA, tmp_path / "run", quiet=True, **(SMALL | run))
    rows = (tmp_path / "run" / "history.csv").read_text().splitlines()
    steps = [int(row.split(",")[rows[0].split(",").index("step")]) for row in rows[1:]]
    assert max(steps) == 9  # 3 epochs of 3 batches of 2
    Segmenter.train(DATA, tmp_path / "run", quiet=True, resume=True, **(SMALL | run))
