"""Kills, full disks, lost files, clock jumps and second processes; afterwards, results must be as without them.

    python -m tests.stress.faults --cases 200 --seed 0
    python -m tests.stress.faults --replay kill grid 17      # one case again, with its output

Each case runs a command in a child process, injects a fault at a random moment, runs the command again (with --resume where
it exists) until it ends, and compares every result file with those of an undisturbed run.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image

from tests.data.trees import picture

SMALL = ("--size", "32", "--features", "4,8", "--updates", "20", "--seed", "3", "--set", "checkpoint_every_s=0.05")
RECIPE = """name = "small"
baseline = "random"
[settings]
size = [32, 32]
features = [4, 8]
updates = 20
[data.glands]
source = "phantom:glands?n=16&size=32"
[axes]
seed = [0, 1]
[[arms]]
name = "random"
init = "random"
method = "supervised"
[[arms]]
name = "Hebbian"
init = "hebbian"
method = "supervised"
"""
VOLATILE = ("run.json", "log.txt", "pretrained.safetensors.json", "board.json")  # contain times
TRIES = 8
LIMIT_S = 300


@dataclass(frozen=True)
class Result:
    """How a child process ended."""

    code: int
    output: str


@dataclass(frozen=True)
class Scenario:
    """A command: its arguments for an output folder, those that continue it, and the files that must be equal."""

    arguments: Callable[[Path, Path], list[str]]
    resumed: Callable[[Path, Path], list[str]]
    compared: tuple[str, ...]
    phases: tuple[str, ...] = ()  # as its progress bars name them


def _train(data: Path, out: Path) -> list[str]:
    return ["train", str(data), "-o", str(out), "--labelled", "4", *SMALL]


def _pretrain(data: Path, out: Path) -> list[str]:
    return ["pretrain", str(data), "-o", str(out), "--size", "32", "--features", "4,8,16", "--set", "checkpoint_every_s=0.05"]


def _grid(data: Path, out: Path) -> list[str]:
    return ["grid", str(data / "recipe.toml"), "-o", str(out)]


def _predict(data: Path, out: Path) -> list[str]:
    return ["predict", str(data / "model.safetensors"), str(data / "images"), "-o", str(out), "--overwrite"]


def _evaluate(data: Path, out: Path) -> list[str]:
    return ["evaluate", str(data / "model.safetensors"), str(data), "-o", str(out), "--overwrite"]


def _next(data: Path, out: Path) -> list[str]:
    return ["next", str(data), "--masks", "none", "-n", "4", "-o", str(out / "next.csv"), "--sheet", str(out / "next.png")]


def _export(data: Path, out: Path) -> list[str]:
    return ["export", str(data / "model.safetensors"), "-o", str(out / "model.onnx"), "--overwrite"]


def _report(data: Path, out: Path) -> list[str]:
    return ["report", str(data.parent / "run"), "-o", str(out / "report.html")]


def _report_again(data: Path, out: Path) -> list[str]:
    return [*_report(data, out), "--force"]


def _resume(command: str) -> Callable[[Path, Path], list[str]]:
    return lambda data, out: [command, "--resume", "-o", str(out)]


SCENARIOS = {
    "train": Scenario(
        _train,
        _resume("train"),
        ("model.safetensors", "metrics.csv", "history.csv", "split.json"),
        ("stage 1", "stage 2", "test"),
    ),
    "pretrain": Scenario(_pretrain, _resume("pretrain"), ("pretrained.safetensors", "history.csv"), ("stage 1",)),
    "grid": Scenario(_grid, _grid, ("**/model.safetensors", "**/metrics.csv")),
    "predict": Scenario(_predict, _predict, ("**/*.png",), ("predict",)),
    "evaluate": Scenario(_evaluate, _evaluate, ("metrics.csv", "summary.json"), ("evaluate",)),
    "next": Scenario(_next, _next, ("next.csv",), ("features",)),
    "export": Scenario(_export, _export, ("model.onnx",)),
    "report": Scenario(_report, _report_again, ("report.html",)),
}
FAULTS = ("kill", "term", "phase", "disk", "clock", "lost", "twin")
READERS = ("train", "pretrain", "predict", "evaluate", "next")  # of images, one of which can be lost


def prepare(folder: Path) -> Path:
    """Write a data set with masks, a recipe, and a model trained on it."""
    data, rng = folder / "data", np.random.default_rng(0)
    for kind in ("images", "masks"):
        (data / kind).mkdir(parents=True)
    for number in range(12):
        image, mask = picture(number, 40, 36, 3) // 3, np.zeros((40, 36), np.uint8)
        top, left = rng.integers(2, 16, 2)
        mask[top : top + 14, left : left + 12] = 255
        image[mask > 0] += 150
        Image.fromarray(image).save(data / "images" / f"case{number:02}.png")
        Image.fromarray(mask).save(data / "masks" / f"case{number:02}.png")
    (data / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    ended = command(_train(data, folder / "run"))
    if ended.code != 0:
        raise SystemExit(f"the undisturbed training failed:\n{ended.output}")
    shutil.copy(folder / "run" / "model.safetensors", data / "model.safetensors")
    return data


def command(arguments: list[str], disturb: Callable[[], None] = lambda: None, kill: tuple[int, float] | None = None) -> Result:
    """Run the command line in a child process (forked, so that torch is imported once).

    Args:
        disturb: called in the child before the command.
        kill: signal and the seconds after which it is sent.
    """
    with tempfile.TemporaryFile() as output:
        return _ended(_forked(arguments, disturb, output), output, kill)


def together(arguments: list[str]) -> list[Result]:
    """Run the command line in two child processes at once."""
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
        children = [(_forked(arguments, lambda: None, output), output) for output in (one, other)]
        return [_ended(child, output, None) for child, output in children]


def _forked(arguments: list[str], disturb: Callable[[], None], output: IO[bytes]) -> int:
    child = os.fork()
    if child == 0:
        _child(arguments, disturb, output.fileno())
    return child


def _ended(child: int, output: IO[bytes], kill: tuple[int, float] | None) -> Result:
    started, sent = time.monotonic(), False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        waited = time.monotonic() - started
        if kill is not None and not sent and waited >= kill[1]:
            os.kill(child, kill[0])
            sent = True
        if waited > LIMIT_S:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Result(-999, "no answer in time")
        time.sleep(0.002)
    output.seek(0)
    return Result(os.waitstatus_to_exitcode(status), output.read().decode(errors="replace"))


def _child(arguments: list[str], disturb: Callable[[], None], output: int) -> None:
    code = 70
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        sys.argv = ["hebbseg", *arguments]
        disturb()
        from hebbseg.cli.app import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def full_disk(after: int) -> Callable[[], None]:
    """Let every atomic write fail after this many."""

    def disturb() -> None:
        from hebbseg import atomic_files

        count, sync = iter(range(10**9)), os.fsync

        def fsync(file: int) -> None:
            if next(count) >= after:
                raise OSError(28, "No space left on device")
            sync(file)

        atomic_files.os.fsync = fsync  # type: ignore[assignment]

    return disturb


def signal_in_phase(phase: str, step: int, sent: signal.Signals) -> Callable[[], None]:
    """Send a signal to the command at this step of a phase."""

    def disturb() -> None:
        from hebbseg.data import progress

        count, shown = iter(range(10**9)), progress.Lines.step

        def stepping(self: progress.Lines, stage: str, done: int, total: int, row: dict) -> None:
            if stage == phase and next(count) == step:
                os.kill(os.getpid(), sent)
            shown(self, stage, done, total, row)

        progress.Lines.step = stepping  # type: ignore[method-assign]

    return disturb


def jumping_clock(seed: int) -> Callable[[], None]:
    """Let the time of day jump by up to a day in both directions, and the monotonic clock forward (a suspended machine)."""

    def disturb() -> None:
        rng, real, steady, ahead = random.Random(seed), time.time, time.monotonic, [0.0]

        def monotonic() -> float:
            if rng.random() < 0.001:
                ahead[0] += rng.uniform(0, 86400)
            return steady() + ahead[0]

        time.time = lambda: real() + rng.uniform(-86400, 86400)
        time.monotonic = monotonic

    return disturb


def lost_file(data: Path, number: int) -> Callable[[], None]:
    """Delete an image when the command has decoded this many files."""

    def disturb() -> None:
        from PIL import ImageFile

        count, load = iter(range(10**9)), ImageFile.ImageFile.load

        def loading(self: ImageFile.ImageFile, *args: object) -> object:
            if next(count) == number:
                (data / "images" / "case07.png").unlink(missing_ok=True)
            return load(self, *args)

        ImageFile.ImageFile.load = loading  # type: ignore[method-assign]

    return disturb


def run_case(fault: str, name: str, number: int, data: Path, reference: Path, seconds: float) -> list[str]:
    """Inject one fault; return what is wrong afterwards, an empty list if nothing is."""
    scenario, rng = SCENARIOS[name], random.Random(f"{fault} {name} {number}")
    with tempfile.TemporaryDirectory() as folder:
        out, place = Path(folder) / "out", data
        os.environ["HEBBSEG_CACHE"] = str(Path(folder) / "cache")
        wrong: list[str] = []
        first = scenario.arguments(place, out)
        if fault in ("kill", "term"):
            sent = signal.SIGKILL if fault == "kill" else signal.SIGTERM
            ended = Result(0, "")
            for attempt in range(TRIES):
                again = attempt > 0 and (out / "run.json").exists()
                arguments = scenario.resumed(place, out) if again else first
                moment = seconds * rng.uniform(0.02, 1.0) if attempt < 3 else None
                ended = command(arguments, kill=None if moment is None else (sent, moment))
                wrong += _answer(ended, (0, -sent, 130, 143))
                if ended.code == 0:
                    break
            if ended.code != 0:
                wrong.append(f"never ended: exit code {ended.code}\n{ended.output}")
        elif fault == "phase":
            sent = rng.choice((signal.SIGKILL, signal.SIGTERM))
            phase, step = scenario.phases[number // 7 % len(scenario.phases)], rng.randrange(0, 10)
            ended = command(first, signal_in_phase(phase, step, sent))
            wrong += _answer(ended, (0, -sent, 130, 143))
            if step == 0 and ended.code == 0:
                wrong.append(f"the phase {phase} has no step")
            if ended.code != 0:
                wrong += _answer(command(scenario.resumed(place, out) if (out / "run.json").exists() else first), (0,))
        elif fault == "disk":
            ended = command(first, full_disk(rng.randrange(0, 12)))
            wrong += _answer(ended, (0, 1, 2))
            if ended.code == 2 and "disk is full" not in ended.output.replace("\n", " "):
                wrong.append(f"the error does not name the full disk\n{ended.output}")
            started = (out / "run.json").exists() or (out / "report.html").exists()
            ended = command(scenario.resumed(place, out) if started else first)
            wrong += _answer(ended, (0,))
        elif fault == "twin":
            both = together(first)
            # A run folder belongs to one process; a grid is shared, and its tasks are divided.
            allowed = (0,) if name == "grid" else (0, 2)
            wrong += [text for ended in both for text in _answer(ended, allowed)]
            if all(ended.code == 2 for ended in both):
                wrong.append(f"both refused\n{both[0].output}\n{both[1].output}")
        elif fault == "clock":
            wrong += _answer(command(first, jumping_clock(number)), (0,))
        else:
            place = Path(folder) / "data"
            shutil.copytree(data, place)
            ended = command(scenario.arguments(place, out), lost_file(place, rng.randrange(0, 24)))
            wrong += _answer(ended, (0, 1, 2))
            if ended.code == 2 and "case07" not in ended.output:
                wrong.append(f"the error does not name the lost file\n{ended.output}")
            return wrong
        for path in out.rglob(".writing-*"):
            if fault not in ("kill", "phase"):  # litter of killed processes goes when the folder is used again
                wrong.append(f"{path.name} is left")
        return wrong + differences(scenario, reference, out)


def _applies(fault: str, name: str) -> bool:
    return (fault != "phase" or bool(SCENARIOS[name].phases)) and (fault != "lost" or name in READERS)


def _answer(ended: Result, allowed: tuple[int, ...]) -> list[str]:
    if "Traceback" in ended.output or ended.code not in allowed:
        return [f"exit code {ended.code}\n{ended.output[-3000:]}"]
    return []


def differences(scenario: Scenario, reference: Path, out: Path) -> list[str]:
    """Return the compared files that differ from the undisturbed ones, and temporary files that were left."""
    wrong = []
    for pattern in scenario.compared:
        expected = {path.relative_to(reference): path for path in reference.glob(pattern)}
        assert expected, pattern
        for name, path in expected.items():
            if not (out / name).is_file() or (out / name).read_bytes() != path.read_bytes():
                wrong.append(f"{name} differs from that of an undisturbed command")
    return wrong


def references(data: Path, folder: Path, names: list[str]) -> dict[str, float]:
    """Run each command undisturbed; return its seconds."""
    seconds = {}
    for name in names:
        started = time.monotonic()
        os.environ["HEBBSEG_CACHE"] = str(folder / "cache" / name)
        ended = command(SCENARIOS[name].arguments(data, folder / name))
        if ended.code != 0:
            raise SystemExit(f"{name} failed undisturbed:\n{ended.output}")
        seconds[name] = time.monotonic() - started
    return seconds


def check(cases: int, seed: int, *, faults: tuple[str, ...] = FAULTS, names: tuple[str, ...] = tuple(SCENARIOS)) -> Counter:
    """Run this many cases; return the counts of (fault, command, outcome), and print what is wrong."""
    import hebbseg.cli.app
    import hebbseg.runs.train  # noqa: F401  (before the fork)

    counts: Counter = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = prepare(folder)
        seconds = references(data, folder / "undisturbed", list(names))
        pairs = [(fault, name) for name in names for fault in faults if _applies(fault, name)]
        for number in range(seed * 10**6, seed * 10**6 + cases):
            fault, name = pairs[number % len(pairs)]
            wrong = run_case(fault, name, number, data, folder / "undisturbed" / name, seconds[name])
            counts[fault, name, "wrong" if wrong else "as undisturbed"] += 1
            for text in wrong:
                print(f"--replay {fault} {name} {number}: {text}", flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", nargs=3, metavar=("FAULT", "COMMAND", "NUMBER"))
    given = parser.parse_args()
    if given.replay:
        fault, name, number = given.replay
        with tempfile.TemporaryDirectory() as temporary:
            data = prepare(Path(temporary))
            seconds = references(data, Path(temporary) / "undisturbed", [name])
            wrong = run_case(fault, name, int(number), data, Path(temporary) / "undisturbed" / name, seconds[name])
            print("\n".join(wrong) or "as undisturbed")
        return
    counts = check(given.cases, given.seed)
    print("| command | fault | cases | as undisturbed | wrong |\n|---|---|---:|---:|---:|")
    for name in SCENARIOS:
        for fault in (fault for fault in FAULTS if _applies(fault, name)):
            good, bad = counts[fault, name, "as undisturbed"], counts[fault, name, "wrong"]
            print(f"| {name} | {fault} | {good + bad} | {good} | {bad} |")
    sys.exit(any(outcome == "wrong" for _, _, outcome in counts))


if __name__ == "__main__":
    main()
