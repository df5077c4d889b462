"""The code blocks of README and docs, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n|(?P<output><!-- output -->\n))?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block; ``reason`` says why no test runs it, if so; ``output``: lines that the block before prints."""

    page: str
    language: str
    text: str
    reason: str | None
    output: bool

    @property
    def lines(self) -> list[str]:
        """Command lines, without comments and empty lines; a line that ends in a backslash continues."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]


def pages() -> list[str]:
    """README and every page of docs, relative to the repository."""
    return ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    return [
        Block(page=page, language=match["language"], text=match["text"], reason=match["reason"], output=bool(match["output"]))
        for match in BLOCK.finditer(text_of(page))
    ]


def calls(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each hebbseg call in a command line."""
    words = shlex.split(line, comments=True)
    starts = [number for number, word in enumerate(words) if word == "hebbseg"]
    for start, end in pairwise([*starts, len(words)]):
        if arguments := [word for word in words[start + 1 : end] if word not in ("|", "&&")]:
            yield arguments


def inline_calls(page: str) -> Iterator[list[str]]:
    """Yield the arguments of each hebbseg call in the running text that names a command and something more."""
    prose = BLOCK.sub("", text_of(page))
    for text in re.findall(r"`(hebbseg [a-z]+ [^`]+)`", prose):
        yield shlex.split(text)[1:]
