"""The folder of a run: what is in it, and whether a run may begin or go on there."""

import csv
import io
import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hebbseg import __version__
from hebbseg.atomic_files import refuse_unwritable, write_json, write_text
from hebbseg.config import Settings, settings_of_run
from hebbseg.data.splits.split import Split
from hebbseg.errors import HebbsegError
from hebbseg.runs.checkpoint import load_checkpoint, save_checkpoint

Row = dict[str, Any]


class RunFolder:
    """``run.json``, ``split.json``, ``history.csv``, ``checkpoint.pt`` and the rest, each written whole or not at all."""

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path = path
        self.writes = writes
        """Off in all processes but the first."""
        self._begun = self._last_checkpoint = time.monotonic()
        self._seconds_before = 0.0

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def check(self, *, resume: bool) -> None:
        """Raises if no run may begin here (or go on, to ``resume``), as far as that can be told without its data."""
        if not self.writes:
            return  # What stands there may be what the first process has just written; it alone judges.
        refuse_unwritable(self.path)
        if (self / "run.json").exists():
            if not resume:
                raise HebbsegError(
                    f"{self.path} holds a run already ({self.description().get('status', 'unknown')}). Go on with it by "
                    "--resume, or choose another output folder; nothing was overwritten."
                )
        elif self.path.exists() and any(self.path.iterdir()):
            if resume:
                raise HebbsegError(f"{self.path}: there is no run to resume here (no run.json). Leave --resume out.")
            raise HebbsegError(f"{self.path} is not empty and holds no run. Choose another output folder.")

    def begin(self, settings: Settings, split: Split, *, resume: bool) -> dict[str, Any] | None:
        """Makes the folder, or checks that its run may go on; gives the state to go on from, if there is one."""
        self.check(resume=resume)
        if not self.writes:
            return self._state() if resume else None
        described = _describe(settings, split)
        if (self / "run.json").exists():
            self._refuse_changes(settings, split)
            if not (self / "split.json").exists():  # killed between the first file and the second
                split.save(self / "split.json")
            return self._state()
        write_json(self / "run.json", described)
        split.save(self / "split.json")
        return None

    def description(self) -> dict[str, Any]:
        try:
            answer = json.loads((self / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise HebbsegError(f"{self / 'run.json'}: not readable ({error}). Restore it or start afresh.") from error
        assert isinstance(answer, dict)
        return answer

    def begun_with(self) -> Settings | None:
        """The settings of the run that is here; None if there is none yet."""
        return settings_of_run(self.description()["settings"]) if (self / "run.json").exists() else None

    def note(self, **values: Any) -> None:
        """Adds to ``run.json``."""
        if self.writes:
            write_json(self / "run.json", self.description() | values)

    @property
    def seconds(self) -> float:
        """At work on this run, in all its starts; of one that was cut, up to its last checkpoint."""
        return self._seconds_before + time.monotonic() - self._begun

    def _state(self) -> dict[str, Any] | None:
        if not (self / "checkpoint.pt").exists():
            return None
        state = load_checkpoint(self / "checkpoint.pt")
        self._seconds_before = float(state.pop("seconds", 0.0))
        return state

    def checkpoint(self, make: Callable[[], dict[str, Any]], *, every_s: float, now: bool) -> None:
        """Writes a checkpoint if it is time for one."""
        if self.writes and (now or time.monotonic() - self._last_checkpoint >= every_s):
            save_checkpoint(self / "checkpoint.pt", make() | {"seconds": self.seconds})
            self._last_checkpoint = time.monotonic()

    def save_rows(self, name: str, rows: list[Row]) -> None:
        """A table with every column that some row has."""
        if not self.writes:
            return
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self / name, text.getvalue())

    def _refuse_changes(self, settings: Settings, split: Split) -> None:
        before, begun = self.description(), self.begun_with()
        assert begun is not None
        if begun.identity() != settings.identity():
            old, new = begun.flat(relevant=True), settings.flat(relevant=True)
            changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
            listed = ", ".join(f"{name}: {old.get(name)!r} then, {new.get(name)!r} now" for name in changed)
            raise HebbsegError(
                f"{self.path}: this run was started with other settings ({listed}), so resuming would mix two runs. "
                "Repeat the settings it was started with, or choose another output folder."
            )
        if before["split_hash"] != split.hash:
            raise HebbsegError(
                f"{self.path}: the split is not the one this run was started with (hash {before['split_hash'][:12]}… then, "
                f"{split.hash[:12]}… now): the data have changed since. Restore them, or choose another folder."
            )


def _describe(settings: Settings, split: Split) -> dict[str, Any]:
    return {
        "status": "running",
        "settings": settings.flat(),
        "seed": settings.seed,
        "split_hash": split.hash,
        "split_notes": list(split.provenance.notes),
        "versions": {
            "hebbseg": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "monai", "numpy")},
        },
        "command": " ".join(["hebbseg", *sys.argv[1:]]) if Path(sys.argv[0]).name == "hebbseg" else "python",
    }
