"""Mutates files of every kind and counts how each reader ends: clean, traceback, crash, hang or over memory.

python -m tests.stress.fuzz [--cases N] [--seed S] [--kinds mha,nrrd]      all kinds, N cases in total
python -m tests.stress.fuzz --replay KIND NUMBER [--seed S]                one case again, with its traceback

Case NUMBER of a kind depends on the seed alone. Readers run in a child process, so that a crash of a native library is
counted and the rest goes on.
"""

import argparse
import collections
import contextlib
import os
import random
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from hebbseg.errors import HebbsegError
from tests.stress.corpus import corpus, model_kinds
from tests.stress.kinds import Kind

SECONDS = 20  # of one case
MEGABYTES = 700  # of one case, above the process before it
OUTCOMES = ("clean", "traceback", "crash", "hang", "memory")
NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"3",
    b"255",
    b"65536",
    b"4294967296",
    b"99999999999999999999",
    b"1e30",
    b"1e-300",
    b"nan",
    b"inf",
    b"",
)
WORDS = (
    b"\0",
    b"\n",
    b"\r",
    b"=1+2",
    b"../../etc/passwd",
    b"[" * 5000,
    b"{}",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'"',
    b",",
    b"\xf0\x9f\xa7\xa0",
)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Return the content with one to four mutations."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = draw.choice(MUTATIONS)(bytearray(content), draw)
    return content


def _flip(content: bytearray, draw: random.Random) -> bytes:
    for _ in range(draw.choice((1, 1, 4, 32))):
        if content:
            content[_place(content, draw)] ^= 1 << draw.randrange(8)
    return bytes(content)


def _overwrite(content: bytearray, draw: random.Random) -> bytes:
    at, width = _place(content, draw), draw.choice((1, 2, 4, 8))
    value = draw.choice((0, 1, 2**7, 2**15, 2**31 - 1, 2**31, 2**63, 2**64 - 1)) % 2 ** (8 * width)
    content[at : at + width] = value.to_bytes(width, draw.choice(("little", "big")))
    return bytes(content)


def _truncate(content: bytearray, draw: random.Random) -> bytes:
    return bytes(content[: _place(content, draw)])


def _cut(content: bytearray, draw: random.Random) -> bytes:
    at = _place(content, draw)
    del content[at : at + draw.choice((1, 4, 64, 1000))]
    return bytes(content)


def _repeat(content: bytearray, draw: random.Random) -> bytes:
    at = _place(content, draw)
    return bytes(content[:at] + content[at : at + draw.choice((1, 16, 200))] * draw.choice((2, 50)) + content[at:])


def _insert(content: bytearray, draw: random.Random) -> bytes:
    at = _place(content, draw)
    return bytes(content[:at] + draw.choice(WORDS + NUMBERS) + content[at:])


def _number(content: bytearray, draw: random.Random) -> bytes:
    """Replace a number or word of a text header."""
    found = list(re.finditer(rb"[-+.\w]+", bytes(content[:4000])))
    if not found:
        return bytes(content)
    match = draw.choice(found)
    return bytes(content[: match.start()] + draw.choice(NUMBERS + WORDS) + content[match.end() :])


def _place(content: bytearray, draw: random.Random) -> int:
    """Return a position, more often in the first 400 bytes, where headers are."""
    return draw.randrange(max(1, min(len(content), 400) if draw.random() < 0.6 else len(content)))


MUTATIONS = (_flip, _overwrite, _truncate, _cut, _repeat, _insert, _number, _number)


def case(kind: Kind, seed: int, number: int) -> bytes:
    draw = random.Random(f"{seed} {kind.name} {number}")
    return mutated(draw.choice(kind.contents), draw)


def outcome(kind: Kind, seed: int, number: int, folder: Path) -> str:
    """Read one case in this process: "clean", "traceback NAME" or "memory N"."""
    path = folder / f"case{kind.suffix}"
    path.write_bytes(case(kind, seed, number))
    before = _peak_reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.read(path)
    except HebbsegError as error:
        if not str(error).strip() or len(str(error)) > 5000:
            return "traceback (an error without text, or of more than 5,000 characters)"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"traceback {type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
    grown = (_peak() - before) // 1024
    return f"memory {grown} MB" if grown > MEGABYTES else "clean"


def _peak_reset() -> int:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0


def kinds_in(folder: Path) -> dict[str, Kind]:
    os.environ["HEBBSEG_CACHE"] = str(folder / "cache")
    return {kind.name: kind for kind in [*corpus(folder), *model_kinds(folder)]}


def work() -> None:
    """The child: reads "KIND SEED NUMBER" lines and answers each with its outcome."""
    with tempfile.TemporaryDirectory() as folder:
        kinds, scratch = kinds_in(Path(folder)), Path(folder) / "scratch"
        scratch.mkdir()
        answer = os.fdopen(os.dup(1), "w")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries print
        print("ready", ",".join(kinds), file=answer, flush=True)
        for line in sys.stdin:
            name, seed, number = line.split()
            print(outcome(kinds[name], int(seed), int(number), scratch), file=answer, flush=True)


class Child:
    """A process that reads cases; restarted after a crash or a hang."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.stress.fuzz", "--work"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
        )
        self.kinds = self._line(300).removeprefix("ready ").split(",")

    def ask(self, name: str, seed: int, number: int) -> str:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{name} {seed} {number}\n")
            self.process.stdin.flush()
        answer = self._line(SECONDS)
        if answer:
            return answer
        alive = self.process.poll() is None and not self._ended(2)
        self.stop()
        self.start()
        return f"hang ({SECONDS} s)" if alive else f"crash ({self.last})"

    def _ended(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode is not None

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        self.last = signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _line(self, seconds: float) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            return self.process.stdout.readline().strip() if selector.select(seconds) else ""


def fuzz(
    cases: int, seed: int, names: list[str] | None = None, child: Child | None = None
) -> tuple[dict[str, collections.Counter[str]], list[str]]:
    """Return the counts of outcomes by kind, and the cases that are not clean."""
    counts: dict[str, collections.Counter[str]] = {}
    faults: list[str] = []
    own = child is None
    child = child or Child()
    chosen = names or child.kinds
    try:
        for place, name in enumerate(chosen):
            counts[name] = collections.Counter()
            for number in range(cases // len(chosen) + (place < cases % len(chosen))):
                found = child.ask(name, seed, number)
                counts[name][found.split()[0]] += 1
                if found != "clean":
                    faults.append(f"{name} {number}: {found}")
    finally:
        if own:
            child.stop()
    return counts, faults


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default="")
    parser.add_argument("--replay", nargs=2)
    parser.add_argument("--work", action="store_true")
    given = parser.parse_args()
    if given.work:
        work()
        return 0
    if given.replay:
        with tempfile.TemporaryDirectory() as folder:
            kind = kinds_in(Path(folder))[given.replay[0]]
            path = Path(folder) / f"case{kind.suffix}"
            path.write_bytes(case(kind, given.seed, int(given.replay[1])))
            kind.read(path)
        return 0
    start = time.monotonic()
    counts, faults = fuzz(given.cases, given.seed, given.kinds.split(",") if given.kinds else None)
    print(f"| kind | cases | {' | '.join(OUTCOMES)} |\n|---|{'---:|' * (len(OUTCOMES) + 1)}")
    for name, found in [*counts.items(), ("all", sum(counts.values(), collections.Counter()))]:
        print(f"| {name} | {found.total()} | {' | '.join(str(found[each]) for each in OUTCOMES)} |")
    print("\n".join(faults[:100]))
    print(f"seed {given.seed}, {time.monotonic() - start:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
