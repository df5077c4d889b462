"""Every command and code block in README and docs runs, on small data; those that cannot say why, and are counted."""

import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import typer

from hebbseg.cli.app import app
from hebbseg.segmenter import Segmenter
from tests.data.trees import disc, picture, save
from tests.docs.pages import ROOT, blocks, calls, inline_calls, pages
from tests.tiny import bright_folder, command

TESTS = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py") if path.parent.name != "docs"}
RUN_ELSEWHERE = {
    page
    for page in pages()
    if page.startswith("docs/how-to/") and any(f'"{Path(page).name}"' in text for text in TESTS.values())
}
"""Pages that a test of their own runs: it names the file."""
NOT_RUN = {
    "README.md": 1,
    "docs/how-to/cluster.md": 5,
    "docs/how-to/experiments.md": 4,
    "docs/how-to/next.md": 1,
    "docs/reference/reliability.md": 3,
    "docs/results/index.md": 1,
}
"""Page → number of blocks that no test runs."""
COMPARED = {
    "docs/how-to/sparse-labels.md",
    *(f"docs/tutorials/{name}.md" for name in ("first-experiment", "first-model", "from-no-mask", "hebbian-layer")),
}
"""Pages with blocks of output that is the same on every machine."""
LANGUAGES = {"sh", "python", "toml", "text", "bash", "{toctree}", "{eval-rst}"}
SHORT = ("--set=pretrain_epochs=1",)
# Options that make a command quick. Each is left out where the page gives it.
QUICK = {
    "train": (
        "--updates=2",
        "--features=4,8",
        "--size=32x32",
        "--init=random",
        "--set=labelled_batch=2",
        "--set=pretrain_epochs=1",
    ),
    "plan": ("--features=4,8", "--no-timing"),
    "grid": (
        "--set=updates=2",
        "--set=features=4,8",
        "--set=pretrain_epochs=1",
        "--where=seed=0",
        "--where=labelled=20%",
        "--jobs=1",
    ),
}
SMALL = {"updates": 2, "features": "4,8", "size": "32x32", "init": "random", "labelled_batch": 2, "quiet": True}
NETWORK = """
from torch import nn


def make_net(spatial_dims, in_channels, out_channels, width):
    return nn.Sequential(nn.Conv2d(in_channels, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, out_channels, 1))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a page's reader has it: images with masks, new images, a trained model, a network."""
    monkeypatch.chdir(tmp_path)
    bright_folder(tmp_path / "my_data", "abcdefgh", masks="abcdef")
    shutil.copytree("my_data", "DATA")
    shutil.copytree("my_data", "other_data")
    shutil.copytree("my_data/images", "new_images")
    for source, target in (("a", "new"), ("a", "a"), ("b", "b")):
        shutil.copy(f"my_data/images/{source}.png", f"{target}.png")
    for name in "abcd":
        save(tmp_path / "DRIVE" / "images" / f"{name}.png", picture(ord(name), 32, 32, 3))
        for folder in ("1st_manual", "mask"):
            save(tmp_path / "DRIVE" / folder / f"{name}.png", disc(32, 32, 6 if folder == "mask" else 9) * 255)
    (tmp_path / "mypkg.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    train = Segmenter.train.__func__
    monkeypatch.setattr(Segmenter, "train", classmethod(lambda cls, *data, **given: train(cls, *data, **(SMALL | given))))
    return tmp_path


def without_masks(place: Path) -> None:
    """Images to choose from, as before the first annotation."""
    shutil.rmtree(place / "my_data" / "masks")
    for seed in range(24):
        save(place / "my_data" / "images" / f"n{seed}.png", picture(seed, 24, 32, 3))


def nothing(place: Path) -> None:
    """The page makes its own images."""
    shutil.rmtree(place / "my_data")


PREPARE: dict[str, Callable[[Path], None]] = {
    "docs/how-to/next.md": without_masks,
    "docs/tutorials/first-model.md": nothing,
    "docs/tutorials/from-no-mask.md": nothing,
}
WITH_CODE = [
    page
    for page in pages()
    if page not in RUN_ELSEWHERE and any(block.language in ("sh", "python") and block.reason is None for block in blocks(page))
]


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_page_runs(page: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    PREPARE.get(page, lambda _: None)(place)
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.reason is not None:
            continue
        if block.output:
            printed = iter(capsys.readouterr().out.splitlines())
            for line in block.text.splitlines():
                assert line in (shown.rstrip() for shown in printed), f"{page}: the output has no line {line!r} here"
            continue
        capsys.readouterr()
        if block.language == "python":
            exec(compile(block.text, page, "exec"), names)
        elif block.language == "toml" and 'name = "mine"' in block.text:
            (place / "mine.toml").write_text(block.text)
        elif block.language == "sh":
            for line in block.lines:
                run_line(line, page, place, monkeypatch)


def run_line(line: str, page: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = shlex.split(line, comments=True)
    if program == "make":
        assert f"\n{words[0]}:" in (ROOT / "Makefile").read_text(encoding="utf-8"), line
        return
    if program == "python":
        assert words[0] == "-m" and words[1].startswith("studies.")
        monkeypatch.setattr(sys, "argv", words[1:])
        monkeypatch.chdir(ROOT)
        import_module(words[1]).main()
        monkeypatch.chdir(place)
        return
    assert program == "hebbseg", line
    if "RUN" in words:  # a new folder for every run of a page
        words[words.index("RUN")] = f"RUN{sum(1 for _ in place.glob('RUN*'))}"
    if "--jobs" in words:  # each worker imports PyTorch
        words[words.index("--jobs") + 1] = "1"
    given = {word.partition("=")[0] for word in words}
    # A dry run starts nothing, and the number of runs that it prints is compared.
    options = () if "--dry-run" in given else QUICK.get(words[0], ())
    quick = [option for option in options if not is_given(option, given, words, page)]
    assert command(monkeypatch, *words, *quick) == 0, line
    if "--copy-to" in words:  # the annotator
        for image in Path(words[words.index("--copy-to") + 1]).iterdir():
            mask = disc(24, 32) * 255
            if not Path("answers").exists():
                save(place / "my_data" / "masks" / image.name, mask)


def is_given(option: str, given: set[str], words: list[str], page: str) -> bool:
    name = option.partition("=")[0]
    if "--resume" in given:
        return True
    if "--from" in given and (option in SHORT or name in ("--features", "--size", "--init")):
        return True
    if name == "--set":
        return False
    if name in ("--features", "--init") and page.endswith("networks.md"):
        return True
    if name == "--no-timing":
        return "--time-budget" in given
    return name in given and name != "--where"


def test_every_block_has_a_language() -> None:
    for page in pages():
        for block in blocks(page):
            assert block.language in LANGUAGES, f"{page}: {block.text[:60]}"


def test_pages_whose_output_is_compared() -> None:
    assert {block.page for page in pages() for block in blocks(page) if block.output} == COMPARED


def test_blocks_that_are_not_run_are_counted() -> None:
    found = Counter(block.page for page in pages() for block in blocks(page) if block.reason)
    assert dict(found) == NOT_RUN
    shown = sum(block.language in ("sh", "python", "bash") for page in pages() for block in blocks(page))
    assert shown - sum(NOT_RUN.values()) > 60


def test_pages_with_a_test_of_their_own() -> None:
    assert {f"docs/how-to/{name}.md" for name in ("export", "objects", "predict", "sparse-labels")} <= RUN_ELSEWHERE
    assert not RUN_ELSEWHERE & NOT_RUN.keys()


@pytest.mark.parametrize("page", pages())
def test_options_exist(page: str) -> None:
    """Commands of all blocks and of the text, also those that are not run, have only options that exist."""
    group = typer.main.get_command(app)
    for arguments in [
        *(call for block in blocks(page) if block.language in ("sh", "bash") for line in block.lines for call in calls(line)),
        *(call for block in blocks(page) if block.language == "text" for line in block.lines for call in shown_call(line)),
        *inline_calls(page),
    ]:
        name, *rest = arguments
        if name in group.commands:
            commanded = group.commands[name]
            known = {flag for param in commanded.get_params(commanded.make_context(name, [], resilient_parsing=True))
                     for flag in (*param.opts, *param.secondary_opts)}  # fmt: skip
            used = {word.partition("=")[0] for word in rest if word.startswith("--")}
            assert used <= known | {"--help", "--debug"}, f"{page}: hebbseg {shlex.join(arguments)}"
        else:
            assert name in ("--version", "COMMAND", "--help"), f"{page}: hebbseg {shlex.join(arguments)}"


def shown_call(line: str) -> list[list[str]]:
    return list(calls(line)) if line.startswith("hebbseg ") and "[OPTIONS]" not in line else []
