"""make docs: write the generated pages and notebooks, and run the examples in the docstrings."""

import doctest
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

import hebbseg
from docs.command_line import command_line_page
from docs.notebooks import write_notebooks
from hebbseg.config import FLAT_NAMES

HERE = Path(__file__).parent


def run_examples() -> tuple[int, int]:
    """Run the doctests of all modules and return (failed, tried)."""
    failed = tried = 0
    for info in pkgutil.walk_packages(hebbseg.__path__, "hebbseg."):
        result = doctest.testmod(import_module(info.name))
        failed, tried = failed + result.failed, tried + result.attempted
    return failed, tried


def options_page() -> str:
    """Return the page of all settings, from `hebbseg.config`."""
    lines = [
        "# Settings",
        "",
        "Every setting of a run: a keyword of `Segmenter.train`, and `--set name=value` of `hebbseg train`. "
        "Made by `make docs` from `hebbseg.config`.",
        "",
        "| option | default | meaning |",
        "|---|---|---|",
    ]
    for name, (_, _, field) in FLAT_NAMES.items():
        default = "required" if field.is_required() else repr(field.get_default(call_default_factory=True))
        lines.append(f"| `{name}` | `{default}` | {field.description or ''} |")
    return "\n".join(lines) + "\n"


GENERATED = {"options.md": options_page, "command-line.md": command_line_page}
"""Page in docs/reference → the function that returns its text."""


def main() -> int:
    for name, page in GENERATED.items():
        (HERE / "reference" / name).write_text(page(), encoding="utf-8")
    names = write_notebooks()
    failed, tried = run_examples()
    print(f"{tried} examples, {failed} failed; written: {', '.join([*GENERATED, *names])}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
