"""hebbseg next: the ranking, its files, and what it refuses."""

import csv
from pathlib import Path

import pytest
from PIL import Image as Pillow

from hebbseg.data.cases import Case
from hebbseg.data.labels import classes
from hebbseg.data.progress import Quiet
from hebbseg.data.sources import files
from hebbseg.data.splits.split import Provenance, Split, TrainingCases
from hebbseg.runs.next_images import find_candidates, next_images
from tests.data.arrays_source import ArraysSource, listed
from tests.data.trees import picture, save
from tests.tiny import TINY, bright_folder, command

FAST = ("--descriptors", "color")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Eight images of patients p0, p1, p2; a and d have masks."""
    folder = bright_folder(tmp_path / "data", "abcdefgh", masks="ad")
    rows = "".join(f"{name},p{number % 3}\n" for number, name in enumerate("abcdefgh"))
    (folder / "patients.csv").write_text("case,patient\n" + rows)
    return folder


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_ranking_table_sheet_and_copies(data: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    out = [tmp_path / name for name in ("next.csv", "next.png", "copied")]
    options = ("-n", "4", "--group", "patients.csv:patient", "-o", out[0], "--sheet", out[1], "--copy-to", out[2])
    assert command(monkeypatch, "next", data, *options) == 0
    shown = capsys.readouterr().out
    rows = rows_of(out[0])
    assert [row["rank"] for row in rows] == list("1234")
    assert not {row["case"] for row in rows} & {"a", "d"}, "labelled"
    # a and d are of p0: p1 and p2 come first, twice each
    assert sorted(row["group"] for row in rows) == ["p1", "p1", "p2", "p2"]
    assert all(row["reason"] and float(row["score"]) >= 0 and row["image"].endswith(f"{row['case']}.png") for row in rows)
    assert {path.name for path in out[2].iterdir()} == {f"{row['case']}.png" for row in rows}
    for row in rows:
        assert (out[2] / f"{row['case']}.png").read_bytes() == Path(row["image"]).read_bytes()
    assert Pillow.open(out[1]).size[0] > 500
    assert "4 of 6 unlabelled images by" in shown and "typical" in shown
    assert command(monkeypatch, "next", data, "-n", "2", *options[2:6]) == 0
    assert rows_of(out[0]) == rows[:2], "nested"


def test_copies_never_overwrite(data: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    folder = tmp_path / "copied"
    save(folder / "b.png", picture(0, 8, 8))
    before = (folder / "b.png").read_bytes()
    assert command(monkeypatch, "next", data, "-n", "6", *FAST, "--copy-to", folder) == 2
    assert "b.png already exists there (1 of 6 files)" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["b.png"] and (folder / "b.png").read_bytes() == before


def test_masks_and_published_test_images_are_never_opened(tmp_path: Path, monkeypatch) -> None:
    for side, names in (("train", "abcdef"), ("test", "uvw")):
        bright_folder(tmp_path / "data" / side, names, masks="ab" if side == "train" else names)
    opened = []
    for module, name in ((files, "read_image"), (files, "read_labels"), (classes, "read_labels")):
        read = getattr(module, name)
        monkeypatch.setattr(module, name, lambda path, *level, read=read: (opened.append(Path(path)), read(path, *level))[1])
    assert command(monkeypatch, "next", tmp_path / "data", "-n", "4", *FAST, "-o", tmp_path / "next.csv") == 0
    assert {row["case"][-1] for row in rows_of(tmp_path / "next.csv")} == set("cdef")
    assert {path.parent.name for path in opened} == {"images"}
    assert {path.stem for path in opened} == set("abcdef")


@pytest.mark.parametrize("descriptors", ["hebbian", "random", "color"])
def test_generated_images_outside_the_test_side_alone_are_read(descriptors: str) -> None:
    source: ArraysSource = listed(12, subsets=["train"] * 9 + ["test"] * 3, unmasked=set(range(2, 9)))
    for i, case in enumerate(source.cases):
        source.images[case.id] = picture(i, 1, 16, 16)
    candidates = find_candidates(source)
    found = next_images(source, candidates, 3, criterion="coverage", descriptors=descriptors, seed=0, reporter=Quiet())
    assert {what for what, _ in source.reads} == {"image"}
    assert {name for _, name in source.reads} == {f"c{i:03d}" for i in range(9)}
    assert all(each.case.mask is None for each in found)


def test_an_unreadable_image_is_reported_and_left_out(data: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    path = data / "images" / "c.png"
    path.write_bytes(path.read_bytes()[:200])
    assert command(monkeypatch, "next", data, "-n", "5", *FAST, "-o", tmp_path / "next.csv") == 0
    said = capsys.readouterr()
    assert "left out" in said.err and "5 of 5 unlabelled images" in said.out
    assert {row["case"] for row in rows_of(tmp_path / "next.csv")} == set("befgh")
    assert command(monkeypatch, "next", data, "-n", "6", *FAST) == 2
    assert "only 5 unlabelled images" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-n", "7"), "has only 6 unlabelled images. Request at most -n 6"),
        (("-n", "0"), "-n 0: allowed are numbers from 1 to 6"),
        (("--criterion", "typcal"), "Did you mean 'typical'"),
        (("--criterion", "uncertainty"), "Give a run folder instead of DATA"),
        (("--descriptors", "hebian"), "Did you mean 'hebbian'"),
        (("--descriptors", "model"), "Give a run folder instead of DATA"),
    ],
)
def test_errors_name_the_option_and_the_remedy(data: Path, monkeypatch, capsys, options, words: str) -> None:
    assert command(monkeypatch, "next", data, *options) == 2
    assert words in capsys.readouterr().err


def test_nothing_to_annotate_and_nothing_to_copy(tmp_path: Path, monkeypatch, capsys) -> None:
    assert command(monkeypatch, "next", bright_folder(tmp_path / "full", "abc"), "-n", "1") == 2
    assert "all 3 images outside the test set are labelled" in capsys.readouterr().err


def test_with_a_run_uncertain_images_far_from_labelled_ones_come_first(tmp_path: Path, monkeypatch, capsys) -> None:
    data, run, out = bright_folder(tmp_path / "data", "abcdefghij"), tmp_path / "run", tmp_path / "next.csv"
    arguments = ("--labelled", "2", "--init", "random", "--method", "supervised", *TINY)
    assert command(monkeypatch, "train", data, "-o", run, *arguments) == 0
    split = Split.load(run / "split.json")
    save(data / "images" / "new.png", picture(99, 24, 32, 3))
    (data / "masks" / f"{split.training.unlabelled[0]}.png").unlink()
    opened = []
    read = files.read_image
    monkeypatch.setattr(files, "read_image", lambda path, *level: (opened.append(Path(path).stem), read(path, *level))[1])
    monkeypatch.setattr(files, "read_labels", lambda path, *level: pytest.fail("a mask was opened"))
    assert command(monkeypatch, "next", run, "-n", "3", "-o", out) == 0
    rows = rows_of(out)
    allowed = {*split.training.unlabelled, "new"}
    assert {row["case"] for row in rows} <= allowed and all("uncertainty " in row["reason"] for row in rows)
    assert set(opened) == allowed | set(split.training.labelled), "no test image"
    assert "have masks that the run did not use" in capsys.readouterr().err
    assert command(monkeypatch, "next", run, "-n", "3", "--criterion", "coverage", *FAST, "-o", out) == 0
    said = capsys.readouterr().out
    assert f"hebbseg train {data} -o NEW_RUN --from {run}" in said
    assert f"ranked  3 of {len(allowed)}" in said
    (data / "images" / "broken.png").write_bytes(b"no image")
    assert command(monkeypatch, "next", run, *FAST, "--criterion", "random") == 0
    assert f"ranked  {len(allowed)} of " in capsys.readouterr().out
    assert command(monkeypatch, "next", run, "-n", str(len(allowed) + 1)) == 2
    assert f"only {len(allowed)} unlabelled images" in capsys.readouterr().err


def test_masks_added_after_a_run_with_all_masks_count_as_labelled() -> None:
    cases = [Case(id=name, mask=() if name in "abt" else None) for name in "abcdt"]
    source = ArraysSource(cases)
    training = TrainingCases(labelled=("a",), unlabelled=("b", "c", "d"))
    provenance = Provenance(
        source="x", protocol="few-label", seed=0, labelled="100%", test="0.2", folds=None, fold=None, grouped=True
    )
    split = Split(training=training, test=("t",), provenance=provenance)
    for hidden, labelled, unlabelled in ((False, "ab", "cd"), (True, "a", "bcd")):
        found = find_candidates(source, split, hidden=hidden)
        assert "".join(case.id for case in found.labelled) == labelled
        assert "".join(case.id for case in found.unlabelled) == unlabelled
