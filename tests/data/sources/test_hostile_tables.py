"""Tables, lists, archives and names that are damaged or made to harm: an error about the file, or a reported problem."""

import csv
import io
import json
import os
import zipfile
from pathlib import Path

import nibabel
import numpy as np
import pytest

from hebbseg.atomic_files import write_json, write_text
from hebbseg.data.inspect import examine
from hebbseg.data.labels.label_map import parse_label_map
from hebbseg.data.sources import open_source
from hebbseg.data.splits.split import Split, make_split
from hebbseg.errors import HebbsegError
from hebbseg.experiments.recipe import load_recipe
from hebbseg.reporting.find_runs import find_runs
from hebbseg.runs.folder import RunFolder
from hebbseg.text_files import csv_text, read_json
from tests.data.trees import glas_tree, hmeps_tree, ph2_tree, picture, plain_folder, save

TEXTS = {
    "empty": b"", "binary": bytes(range(256)), "not UTF-8": b"name,patient ID\n\xff\xfe,1\n", "deep": b"[" * 100_000,
    "quotes": b'name,patient ID\n"a', "one column": b"name\ntrain_1\n", "other columns": b"a,b\n1,2\n",
    "short row": b"name,patient ID\ntrain_1\n", "huge cell": b"name,patient ID\n" + b"x" * 200_000 + b",1\n",
    "list": b"[1, 2]", "number": b"7", "huge number": b'{"labels": {"a": ' + b"9" * 5000 + b"}}", "object": b"{}",
    "labels list": b'{"labels": [1]}', "labels text": b'{"labels": "x"}', "nested": b'{"labels": {"a": {"b": [{}]}}}',
    "null": b'{"labels": {"a": null, "b": true}}', "regions": b'{"labels": {"a": [1, 2, {}]}}',
    "channels": b'{"labels": {"background": 0, "a": 1}, "channel_names": 5}', "floats": b'{"labels": {"a": 1e400}}',
    "surrogate": b'{"labels": {"\\ud800": 1}}', "toml": b"name = 5\n[data]\nx = 1\n", "toml deep": b"a = " + b"[" * 50_000,
    "arms": b'name = "a"\narms = 5\ndata = []\n', "axes": b'name = "a"\n[data.x]\nsource = "y"\n[axes]\nseed = 5\n[[arms]]\n',
}  # fmt: skip


def try_to_open(spec: str) -> None:
    """Read everything; only user errors may occur."""
    try:
        examine(open_source(spec))
    except HebbsegError as error:
        assert len(str(error)) < 3000


@pytest.mark.parametrize("content", TEXTS)
def test_texts_of_every_kind_are_read_or_refused(content: str, tmp_path: Path) -> None:
    text = TEXTS[content]
    (glas_tree_file := tmp_path / "glas").mkdir()
    (glas_tree(glas_tree_file) / "Grade.csv").write_bytes(text)
    try_to_open(f"glas:{glas_tree_file}")
    (hmeps_tree(tmp_path / "hmeps") / "annotation" / "annotations.csv").write_bytes(text)
    try_to_open(f"hmeps:{tmp_path / 'hmeps'}")
    for name in ("imagesTr/a_0000.nii.gz", "labelsTr/a.nii.gz"):
        (tmp_path / "nnunet" / name).parent.mkdir(parents=True)
        nibabel.save(nibabel.Nifti1Image(np.ones((4, 5, 6), np.uint8), np.eye(4)), tmp_path / "nnunet" / name)
    (tmp_path / "nnunet" / "dataset.json").write_bytes(text)
    try_to_open(str(tmp_path / "nnunet"))
    plain = plain_folder(tmp_path / "plain")
    (plain / "patients.csv").write_bytes(text)
    (plain / "a.json").write_bytes(text)
    for read in (
        lambda: open_source(plain, group="patients.csv:patient ID"),
        lambda: parse_label_map(plain / "a.json"),
        lambda: Split.load(plain / "a.json"),
        lambda: load_recipe(plain / "a.json"),
    ):
        try:
            read()
        except HebbsegError as error:
            assert len(str(error)) < 3000
    save(tmp_path / "la" / "x" / "nothing.png", picture(0, 4, 4))


def test_splits_with_wrong_types(tmp_path: Path) -> None:
    split = make_split(open_source(plain_folder(tmp_path / "data")))
    split.save(tmp_path / "split.json")
    good = json.loads((tmp_path / "split.json").read_text(encoding="utf-8"))
    for change in (
        {"test": 5},
        {"test": [1]},
        {"training": []},
        {"training": {"labelled": "abc"}},
        {"provenance": {"seed": []}},
    ):
        (tmp_path / "split.json").write_text(json.dumps(good | change))
        with pytest.raises(HebbsegError, match=r"split\.json: not a valid split"):
            Split.load(tmp_path / "split.json")


def zip_file(path: Path, names: list[str], content: bytes = b"x" * 1000) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


@pytest.mark.parametrize(
    "names", [["."], ["./"], ["a" * 300 + ".png"], ["a.png", "a.png/b.png"], ["a/b.png", "a"], ["con/" * 600]]
)
def test_archives_with_impossible_members(names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEBBSEG_CACHE", str(tmp_path / "cache"))
    with pytest.raises(HebbsegError):
        open_source(zip_file(tmp_path / "a.zip", names))
    assert not list((tmp_path / "cache").glob("zips/.*")), "no temporary folder stays"


def test_damaged_and_bomb_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEBBSEG_CACHE", str(tmp_path / "cache"))
    content = bytearray(zip_file(tmp_path / "a.zip", ["a.png"], np.random.default_rng(0).bytes(5000)).read_bytes())
    content[100:140] = b"\xff" * 40
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(HebbsegError, match=r"a\.zip: not a readable zip archive"):
        open_source(tmp_path / "a.zip")
    inner = zip_file(tmp_path / "b.zip", [f"{n}.png" for n in range(4)], bytes(2**24))
    monkeypatch.setattr("hebbseg.data.sources.archives.MOST_COMPRESSED", 500)
    with pytest.raises(HebbsegError, match=r"b\.zip: its members declare 67108864 bytes"):
        open_source(inner)


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\x1b[31mb", "a\u2028b"])
def test_control_characters_in_names_are_escaped(name: str, tmp_path: Path) -> None:
    root = plain_folder(tmp_path / "data", ["good", name])
    source = open_source(root)
    escaped = name.encode("unicode_escape").decode()
    assert sorted(case.id for case in source.cases) == sorted([escaped, "good"])
    assert all(case.has_mask for case in source.cases) and len(examine(source).usable) == 2
    save(root / "images" / f"{escaped}.png", picture(9, 24, 32, 3))
    found = open_source(root)
    assert [case.id for case in found.cases] == ["good"] and all(str(problem).isprintable() for problem in found.problems)
    tree = ph2_tree(tmp_path / "ph2") / "PH2Dataset" / "PH2 Dataset images"
    (tree / "IMD003").rename(tree / f"IMD003{name}")
    assert all(case.id.isprintable() for case in open_source(f"ph2:{tree}").cases)


def test_a_name_is_never_a_formula_in_a_table(tmp_path: Path) -> None:
    rows = [{"case": name, "dice": -0.5} for name in ("=1+2", "+x", "-x", "@x", "-1.5", "plain", "=cmd|' /C calc'!A0")]
    RunFolder(tmp_path).save_rows("metrics.csv", rows)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        cells = [row["case"] for row in csv.DictReader(file)]
    assert cells == ["'=1+2", "'+x", "'-x", "'@x", "-1.5", "plain", "'=cmd|' /C calc'!A0"]
    assert list(csv.reader(io.StringIO(csv_text([["a", None, 1.5, "b,c"]])))) == [["a", "", "1.5", "b,c"]]


RECIPE = 'name = "a"\n[data.x]\nsource = "phantom:glands?n=8"\n[[arms]]\nname = "r"\ninit = "random"\n'


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (f"{RECIPE}[axes]\nseed = {list(range(20_000))}\n", "seed has 20000 values; at most 10000"),
        (f"{RECIPE}[axes]\nseed = {list(range(900))}\nupdates = {list(range(1, 900))}\n", "809100 runs; at most 100000"),
        (f"{'a.' * 5000}b = 1", "nested too deeply"),
        (f"{RECIPE}#{'x' * 2**26}", "67108"),
    ],
)
def test_recipes_without_end_are_refused(content: str, finding: str, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(content)
    with pytest.raises(HebbsegError, match=rf"(?s)r\.toml.*{finding}"):
        load_recipe(tmp_path / "r.toml")


def test_a_report_is_not_stopped_by_the_recipe_of_a_grid(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    os.mkfifo(tmp_path / "recipe.toml")
    assert "no such file" in find_runs([tmp_path]).unreadable[tmp_path / "recipe.toml"]


def test_names_that_are_not_utf_8_can_be_written(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xff.png")
    write_text(tmp_path / "a.csv", csv_text([[name]]))
    assert (tmp_path / "a.csv").read_text("utf-8") == "a\ufffd.png\n"
    write_json(tmp_path / "a.json", {"data": name})
    assert read_json(tmp_path / "a.json", "")["data"] == name  # to open it again


def test_generated_data_sets_have_limits() -> None:
    for spec, finding in (("n=1000000000", "from 1 to 1000000"), ("n=2&size=1000000", "more pixels than")):
        with pytest.raises(HebbsegError, match=finding):
            open_source(f"phantom:glands?{spec}")
