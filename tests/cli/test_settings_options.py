"""Options made from settings: each description and default is that of `hebbseg.config`."""

import re

import pytest

from hebbseg.cli.settings_options import FLAG_OF, FLAGS
from hebbseg.config import FLAT_NAMES
from tests.tiny import command


@pytest.mark.parametrize("columns", ["80", "120"])
def test_train_help_shows_every_option_with_its_description_and_default(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert command(monkeypatch, "train", "--help") == 0
    shown = capsys.readouterr().out
    words = " ".join(re.sub(r"[│╭╮╰╯─]", " ", shown).split())
    for panel in {panel for panel, _ in FLAGS.values()}:
        assert f"─ {panel} ─" in shown
    for name in FLAGS:
        assert f"--{FLAG_OF.get(name, name.removesuffix('_s').replace('_', '-'))} " in shown
    assert f"{FLAT_NAMES['updates'][2].description}. [2000]".lower() in words.lower()
    assert "in seconds" not in words and "<bool>" not in words


def test_flags_of_reading_reach_check_and_evaluate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("check", "evaluate"):
        assert command(monkeypatch, name, "--help") == 0
        shown = capsys.readouterr().out
        assert "Reading your data" in shown and "--no-instances" in shown and "--label-map" in shown
