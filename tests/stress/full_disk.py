"""A full disk at every single write of a command, one after another; afterwards, results must be as without it.

    python -m tests.stress.full_disk                  # every write of every command
    python -m tests.stress.full_disk evaluate 5       # one write again, with the output of the command

A write is the creation of a folder or file, a file opened for writing, or a flush (fsync). Each fails once, with the error
of a full disk. The command must end as if nothing had happened (a picture or cache entry is missing at most), or with a user
error that names the full disk; then it is run again (with --resume where it exists) and its results are compared.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.stress.faults import SCENARIOS, command, differences, prepare, references

COMMANDS = ("train", "predict", "evaluate", "next", "export", "report", "grid")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def failing_write(place: Path, wanted: int, log: Path | None = None) -> Callable[[], None]:
    """Let the write of this number fail in a child process; count only those below ``place``, and write each to ``log``."""

    def disturb() -> None:
        inside, main, count, fsync = str(place.resolve()), os.getpid(), iter(range(10**9)), os.fsync
        names = open(log, "a") if log is not None else None  # noqa: PTH123, SIM115 - before the hook

        def write(what: str) -> None:
            number = next(count)
            if names is not None:
                print(number, what, file=names, flush=True)
            if number == wanted:
                raise OSError(28, "No space left on device", what)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in ("open", "os.mkdir") or not isinstance(arguments[0], str) or os.getpid() != main:
                return
            writes = event == "os.mkdir" or (isinstance(arguments[2], int) and arguments[2] & WRITING)
            if writes and os.path.realpath(arguments[0]).startswith(inside):
                write(f"{event} {arguments[0]}")

        def flush(file: int) -> None:
            write("fsync")
            fsync(file)

        sys.addaudithook(hook)
        os.fsync = flush

    return disturb


def writes_of(name: str, data: Path, folder: Path) -> list[str]:
    """Run a command undisturbed; return its writes."""
    os.environ["HEBBSEG_CACHE"] = str(folder / "cache")
    folder.mkdir()
    ended = command(SCENARIOS[name].arguments(data, folder / "out"), failing_write(folder, -1, folder.parent / f"{name}.log"))
    if ended.code != 0:
        raise SystemExit(f"{name} failed undisturbed:\n{ended.output}")
    return (folder.parent / f"{name}.log").read_text().splitlines()


def run_case(name: str, number: int, data: Path, reference: Path) -> tuple[str, list[str]]:
    """Let one write fail; return "error" or "went on", and what is wrong afterwards."""
    scenario, wrong = SCENARIOS[name], []
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = Path(temporary), Path(temporary) / "out"
        os.environ["HEBBSEG_CACHE"] = str(folder / "cache")
        ended = command(scenario.arguments(data, out), failing_write(folder, number))
        if "Traceback" in ended.output or ended.code not in (0, 1, 2):
            wrong.append(f"exit code {ended.code}\n{ended.output[-3000:]}")
        if ended.code != 0:
            if "disk is full" not in " ".join(ended.output.split()):
                wrong.append(f"the error does not name the full disk\n{ended.output[-2000:]}")
            again = command(scenario.resumed(data, out) if (out / "run.json").exists() else scenario.arguments(data, out))
            if again.code != 0:
                wrong.append(f"the second start: exit code {again.code}\n{again.output[-2000:]}")
        wrong += differences(scenario, reference, out)
        wrong += [f"{path.name} is left" for path in out.rglob(".writing-*")]
    return ("went on" if ended.code == 0 else "error"), wrong


def check(names: tuple[str, ...] = COMMANDS, every: int = 1) -> Counter:
    """Let every write (or every n-th) of these commands fail; return counts of (command, outcome), print what is wrong."""
    import hebbseg.cli.app
    import hebbseg.reporting.html
    import hebbseg.runs.train  # noqa: F401  (before the fork)

    counts: Counter = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = prepare(folder)
        references(data, folder / "undisturbed", list(names))
        for name in names:
            for number, write in list(enumerate(writes_of(name, data, folder / f"counted-{name}")))[::every]:
                outcome, wrong = run_case(name, number, data, folder / "undisturbed" / name)
                counts[name, outcome] += 1
                counts[name, "wrong"] += bool(wrong)
                for text in wrong:
                    print(f"{name} {number} ({write}): {text}", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=COMMANDS)
    parser.add_argument("number", nargs="?", type=int)
    given = parser.parse_args()
    if given.number is not None:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            data = prepare(folder)
            references(data, folder / "undisturbed", [given.command])
            print(*run_case(given.command, given.number, data, folder / "undisturbed" / given.command), sep="\n")
        return 0
    names = (given.command,) if given.command else COMMANDS
    counts = check(names)
    print("| command | writes that failed | user error, then as undisturbed | went on | wrong |\n|---|---:|---:|---:|---:|")
    for name in names:
        error, went_on = counts[name, "error"], counts[name, "went on"]
        print(f"| {name} | {error + went_on} | {error} | {went_on} | {counts[name, 'wrong']} |")
    return int(any(counts[name, "wrong"] for name in names))


if __name__ == "__main__":
    sys.exit(main())
