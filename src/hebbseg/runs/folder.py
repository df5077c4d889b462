"""The folder of a run: its files, and the checks before a run starts or resumes there."""

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
    """``run.json``, ``split.json``, ``history.csv``, ``checkpoint.pt`` and further files, all written atomically.

    Args:
        writes: True in the first process only.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path = path
        self.writes = writes
        self._started = self._last_checkpoint = time.monotonic()
        self._seconds_before = 0.0

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def check(self, *, resume: bool) -> None:
        """Raise if a run cannot start (or resume) here, as far as that is known before its data are read."""
        if not self.writes:
            return  # the first process may have just written its files here
        refuse_unwritable(self.path)
        if (self / "run.json").exists():
            if not resume:
                raise HebbsegError(
                    f"{self.path} already contains a run ({self.description().get('status', 'unknown')}). Continue it with "
                    "--resume, or choose another output folder. Nothing was overwritten."
                )
        elif self.path.exists() and any(self.path.iterdir()):
            if resume:
                raise HebbsegError(f"{self.path}: there is no run to resume here (no run.json). Omit --resume.")
            raise HebbsegError(f"{self.path} is not empty and contains no run. Choose another output folder.")

    def begin(self, settings: Settings, split: Split, *, resume: bool) -> dict[str, Any] | None:
        """Create the folder, or check that its run can be resumed; return the state to resume from, if any."""
        self.check(resume=resume)
        if not self.writes:
            return self._state() if resume else None
        if (self / "run.json").exists():
            self._refuse_changes(settings, split)
            if not (self / "split.json").exists():  # killed between the first file and the second
                split.save(self / "split.json")
            return self._state()
        write_json(self / "run.json", _describe(settings, split))
        split.save(self / "split.json")
        return None

    def description(self) -> dict[str, Any]:
        try:
            answer = json.loads((self / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise HebbsegError(f"{self / 'run.json'}: cannot be read ({error}). Restore it, or start a new run.") from error
        assert isinstance(answer, dict)
        return answer

    def begun_with(self) -> Settings | None:
        """Return the settings of the run in this folder, or None without a run."""
        return settings_of_run(self.description()["settings"]) if (self / "run.json").exists() else None

    def note(self, **values: Any) -> None:
        """Add values to ``run.json``."""
        if self.writes:
            write_json(self / "run.json", self.description() | values)

    @property
    def seconds(self) -> float:
        """Computing time of the run over all its sessions; of an interrupted one, up to its last checkpoint."""
        return self._seconds_before + time.monotonic() - self._started

    def _state(self) -> dict[str, Any] | None:
        if not (self / "checkpoint.pt").exists():
            return None
        state = load_checkpoint(self / "checkpoint.pt")
        self._seconds_before = float(state.pop("seconds", 0.0))
        return state

    def checkpoint(self, make: Callable[[], dict[str, Any]], *, every_s: float, now: bool) -> None:
        """Write a checkpoint ``now``, or if the last one is older than ``every_s``."""
        if self.writes and (now or time.monotonic() - self._last_checkpoint >= every_s):
            save_checkpoint(self / "checkpoint.pt", make() | {"seconds": self.seconds})
            self._last_checkpoint = time.monotonic()

    def save_rows(self, name: str, rows: list[Row]) -> None:
        """Write a CSV table whose columns are the union of the rows' keys."""
        if not self.writes:
            return
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self / name, text.getvalue())

    def _refuse_changes(self, settings: Settings, split: Split) -> None:
        stored = self.description()
        started_with = settings_of_run(stored["settings"])
        if started_with.identity() != settings.identity():
            old, new = started_with.flat(relevant=True), settings.flat(relevant=True)
            changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
            listed = ", ".join(f"{name}: {old.get(name)!r} then, {new.get(name)!r} now" for name in changed)
            raise HebbsegError(
                f"{self.path}: this run was started with other settings ({listed}), so resuming would mix two runs. "
                "Use the settings it was started with, or choose another output folder."
            )
        if stored["split_hash"] != split.hash:
            raise HebbsegError(
                f"{self.path}: this run was started with another split (hash {stored['split_hash'][:12]}… then, "
                f"{split.hash[:12]}… now): the data have changed since. Restore them, or choose another output folder."
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
