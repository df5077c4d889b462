"""Several processes share one folder of results: no image is predicted twice, and none is lost when a process is killed."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from hebbseg.atomic_files import _HOST
from hebbseg.inference import files
from hebbseg.inference.claims import Claims
from hebbseg.inference.files import find_inputs, plan
from hebbseg.inference.shared import predict_shared
from tests.data.trees import picture, save
from tests.tiny import command, tiny_segmenter


def ended_process() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def images(folder: Path, count: int) -> Path:
    for n in range(count):
        save(folder / f"s{n % 2}" / f"{n}.png", picture(n, 12, 14, 3))
    return folder


def test_a_claim_is_given_once(tmp_path: Path):
    """Threads stand for processes: the claim is decided by the file system."""
    taken: list[str] = []
    start = threading.Barrier(8)

    def work() -> None:
        with Claims(tmp_path / "claims") as claims:
            start.wait()
            taken.extend(name for name in "abcdefgh" if claims.take(name))
            start.wait()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list("abcdefgh")
    assert not (tmp_path / "claims").exists(), "released and removed"


@pytest.mark.parametrize(
    ("writer", "age_s", "stale"),
    [
        (lambda: f"{_HOST}-{ended_process()}", 0, True),
        (lambda: f"{_HOST}-{os.getpid()}", 9999, False),
        (lambda: "elsewhere-1", 9999, True),
        (lambda: "elsewhere-1", 5, False),
    ],
)
def test_stale_claims_are_taken_over_by_one_process(tmp_path: Path, writer, age_s: int, stale: bool):
    with Claims(tmp_path) as first:
        assert first.take("a")
        (path,) = tmp_path.iterdir()
        path.write_text(writer(), encoding="utf-8")
        now = path.stat().st_mtime
        os.utime(path, (now - age_s, now - age_s))
        with Claims(tmp_path) as second, Claims(tmp_path) as third:
            assert second.take("a") is stale
            assert not third.take("a")
            second.release("a")
            assert list(tmp_path.iterdir()) == ([] if stale else [path])


def test_a_held_claim_is_renewed(tmp_path: Path):
    with Claims(tmp_path, beat_s=0.01) as claims:
        claims.take("a")
        (path,) = tmp_path.iterdir()
        os.utime(path, (1, 1))
        for _ in range(500):
            if path.stat().st_mtime > 1:
                break
            threading.Event().wait(0.01)
        assert path.stat().st_mtime > 1


def test_two_workers_predict_each_image_once(tmp_path: Path, monkeypatch):
    inputs, _ = find_inputs([str(images(tmp_path / "new", 9))])
    segmenter = tiny_segmenter()
    targets = plan([segmenter], inputs, tmp_path / "out", overlays=False, uncertainty_maps=False)
    written: list[str] = []
    write_mask = files.write_mask
    monkeypatch.setattr(files, "write_mask", lambda path, *rest: (written.append(path.name), write_mask(path, *rest)))
    results = []
    start = threading.Barrier(2)

    def work() -> None:
        start.wait()
        results.append(predict_shared([segmenter], inputs, targets, tmp_path / "out"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(written) == sorted(f"{n}.png" for n in range(9))
    assert sum(len(each.outcome.masks) for each in results) == 9
    assert not (tmp_path / "out" / ".claims").exists()


def test_continue_skips_masks_and_finishes_claims_of_killed_processes(tmp_path: Path, monkeypatch, capsys):
    tiny_segmenter().save(tmp_path / "m.safetensors")
    new, out = images(tmp_path / "new", 4), tmp_path / "out"
    (out / "s0").mkdir(parents=True)
    (out / "s0" / "0.png").write_text("drawn by hand in three hours")
    claims = Claims(out / ".claims")
    claims.folder.mkdir()
    for name in ("s1/1", "s1/3"):
        assert claims.take(name)
    killed, running = (path for held in claims._held.values() for path in held)
    killed.write_text(f"{_HOST}-{ended_process()}", encoding="utf-8")
    running.write_text("elsewhere-7", encoding="utf-8")
    assert command(monkeypatch, "predict", tmp_path / "m.safetensors", new, "-o", out, "--continue") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 in" in said and "1 image already had a mask" in said and "1 image is being predicted by another" in said
    assert (out / "s0" / "0.png").read_text(encoding="utf-8") == "drawn by hand in three hours"
    assert sorted(path.name for path in out.glob("s*/*.png")) == ["0.png", "1.png", "2.png"]
    running.unlink()
    assert command(monkeypatch, "predict", tmp_path / "m.safetensors", new, "-o", out, "--continue") == 0
    assert (out / "s1" / "3.png").exists() and not (out / ".claims").exists()
    capsys.readouterr()
    assert command(monkeypatch, "predict", tmp_path / "m.safetensors", new, "-o", out, "--continue") == 0
    assert "4 images already had a mask" in capsys.readouterr().out
    assert command(monkeypatch, "predict", tmp_path / "m.safetensors", new, "-o", out, "--continue", "--overwrite") == 2
    assert "Pass one of the two" in capsys.readouterr().err


def test_failures_of_a_shared_folder_are_reported(tmp_path: Path, monkeypatch, capsys):
    tiny_segmenter().save(tmp_path / "m.safetensors")
    images(tmp_path / "new", 2)
    (tmp_path / "new" / "s0" / "bad.png").write_bytes(b"no image")
    arguments = ("predict", tmp_path / "m.safetensors", tmp_path / "new", "-o", tmp_path / "out", "--continue")
    assert command(monkeypatch, *arguments) == 1
    assert "bad.png" in capsys.readouterr().err
    assert np.asarray(sorted(path.name for path in (tmp_path / "out").glob("s*/*.png"))).tolist() == ["0.png", "1.png"]
