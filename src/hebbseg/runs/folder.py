"""The folder of a run: its files, and the checks before a run starts or resumes there."""

import platform
import reprlib
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hebbseg import __version__
from hebbseg.atomic_files import is_empty, refuse_unwritable, remove_litter, write_json, write_text
from hebbseg.config import Settings, settings_of_run
from hebbseg.data.splits.split import Split
from hebbseg.errors import FileError, HebbsegError, explaining
from hebbseg.planning.plan import Plan
from hebbseg.runs.checkpoint import check_stage, load_checkpoint, save_checkpoint
from hebbseg.text_files import csv_text, read_json

Row = dict[str, Any]
LOOK_EVERY_S = 1.0  # whether the folder still exists


class RunFolder:
    """``run.json``, ``split.json``, ``history.csv``, ``checkpoint.pt`` and further files, all written atomically.

    Args:
        writes: True in the first process only.
        started: when the command started (`time.monotonic`); default: now.
    """

    def __init__(self, path: Path, *, writes: bool = True, started: float | None = None) -> None:
        self.path = path
        self.writes = writes
        self._started = self._last_checkpoint = self._last_look = time.monotonic()
        if started is not None:
            self._started = started
        self._begun = False
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
                status: Any = "unknown"
                with suppress(HebbsegError):
                    status = read_json(self / "run.json", "").get("status")
                raise HebbsegError(
                    f"{self.path} already contains a run ({str(status)[:20]}). Continue it with --resume, or choose another "
                    "output folder. Nothing was overwritten."
                )
        elif self.path.exists() and not is_empty(self.path):
            if resume:
                raise HebbsegError(f"{self.path}: there is no run to resume here (no run.json). Omit --resume.")
            raise HebbsegError(f"{self.path} is not empty and contains no run. Choose another output folder.")

    def begin(self, settings: Settings, split: Split, *, resume: bool, plan: Plan | None = None) -> dict[str, Any] | None:
        """Create the folder, or check that its run can be resumed; return the state to resume from, if any."""
        self.check(resume=resume)
        if not self.writes:
            return self._state() if resume else None
        for folder in (self.path, self / "figures", self / "figures" / "cases"):
            remove_litter(folder)
        self._begun = True
        if (self / "run.json").exists():
            self._refuse_changes(settings, split)
            if not (self / "split.json").exists():  # killed between the first file and the second
                split.save(self / "split.json")
            self._check_split()
            return self._state()
        planned = {} if plan is None else {"plan": plan.model_dump(mode="json")}
        write_json(self / "run.json", _describe(settings, split) | planned)
        split.save(self / "split.json")
        return None

    def description(self) -> dict[str, Any]:
        """Return run.json; raises unless it has settings, the hash of the split and a status."""
        path = self / "run.json"
        answer = read_json(path, self._rescue())
        for name, kind in (("settings", dict), ("split_hash", str), ("status", str)):
            if not isinstance(answer.get(name), kind):
                raise FileError(path, f"{name!r} is {reprlib.repr(answer.get(name))}, not a {kind.__name__}", self._rescue())
        return answer

    def begun_with(self) -> Settings | None:
        """Return the settings of the run in this folder, or None without a run."""
        if not (self / "run.json").exists():
            return None
        stored = self.description()["settings"]
        with explaining(self / "run.json", "its settings are damaged", self._rescue()):
            try:
                return settings_of_run(stored)
            except HebbsegError as error:
                raise FileError(self / "run.json", f"its settings are damaged ({error})", self._rescue()) from error

    @property
    def has_run(self) -> bool:
        return (self / "run.json").exists()

    def plan(self) -> Plan | None:
        """Return the plan of the run in this folder; None if a version without plans started it."""
        stored = self.description().get("plan")
        with explaining(self / "run.json", "its plan is damaged", self._rescue()):
            return None if stored is None else Plan.model_validate(stored)

    def still_there(self) -> None:
        """Raise if the folder was deleted or moved since the run started here."""
        if self._begun and not (self / "run.json").exists():
            raise FileError(
                self.path, "the run folder was deleted or moved during the run", "Start the run again, or move the folder back."
            )

    def _rescue(self) -> str:
        """Return what can be done without run.json."""
        uses = {"model.safetensors": "hebbseg predict", "pretrained.safetensors": "hebbseg train --init"}
        kept = [f"{name} (for {use})" for name, use in uses.items() if (self / name).is_file()]
        rescue = f" Usable files in the folder: {', '.join(kept)}." if kept else ""
        return f"Restore it from a backup, or start a new run in another folder.{rescue}"

    def _check_split(self) -> None:
        """Raise if split.json is damaged or not the split of this run."""
        path = self / "split.json"
        remedy = "Delete it: --resume draws the split again from the data and compares it with the hash in run.json."
        try:
            found = Split.load(path)
        except HebbsegError as error:
            raise HebbsegError(f"{error} {remedy}") from error
        if found.hash != self.description()["split_hash"]:
            raise FileError(path, f"another split (hash {found.hash[:12]}…) than in run.json", remedy)

    def note(self, **values: Any) -> None:
        """Add values to ``run.json``."""
        if self.writes:
            self.still_there()
            write_json(self / "run.json", self.description() | values)

    @property
    def seconds(self) -> float:
        """Computing time of the run over all its sessions; of an interrupted one, up to its last checkpoint."""
        return self._seconds_before + time.monotonic() - self._started

    def _state(self) -> dict[str, Any] | None:
        if not (self / "checkpoint.pt").exists():
            return None
        state = load_checkpoint(self / "checkpoint.pt")
        check_stage(self / "checkpoint.pt", state)
        self._seconds_before = float(state.pop("seconds", 0.0))
        return state

    def checkpoint(self, make: Callable[[], dict[str, Any]], *, every_s: float, now: bool) -> None:
        """Write a checkpoint ``now``, or if the last one is older than ``every_s``."""
        due = now or time.monotonic() - self._last_checkpoint >= every_s
        if self.writes and (due or time.monotonic() - self._last_look >= LOOK_EVERY_S):
            self.still_there()
            self._last_look = time.monotonic()
        if self.writes and due:
            save_checkpoint(self / "checkpoint.pt", make() | {"seconds": self.seconds})
            self._last_checkpoint = time.monotonic()

    def save_rows(self, name: str, rows: list[Row]) -> None:
        """Write a CSV table whose columns are the union of the rows' keys."""
        if not self.writes:
            return
        columns = list(dict.fromkeys(key for row in rows for key in row))
        write_text(self / name, csv_text([columns, *([row.get(column, "") for column in columns] for row in rows)]))

    def _refuse_changes(self, settings: Settings, split: Split) -> None:
        stored, started_with = self.description(), self.begun_with()
        assert started_with is not None
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
