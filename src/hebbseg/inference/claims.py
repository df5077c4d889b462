"""Claims on files, so that processes on several machines can share the work in one output folder."""

import hashlib
import os
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from hebbseg.atomic_files import is_running, owner

STALE_S = 600.0  # without a sign of life
BEAT_S = 30.0


class Claims:
    """Files ``DIGEST.GENERATION`` in a folder; creating one is atomic (O_EXCL), also on network file systems.

    The time of a claim is renewed every `BEAT_S` seconds. A claim is stale if its process on this machine has ended, or after
    ``stale_s`` seconds without renewal. It is taken over by creating the next generation, which again only one process can.

    Args:
        folder: is created, and removed when it is empty.
    """

    def __init__(self, folder: Path, *, stale_s: float = STALE_S, beat_s: float = BEAT_S) -> None:
        self.folder, self.stale_s, self.beat_s = folder, stale_s, beat_s
        self._held: dict[str, list[Path]] = {}
        self._ended = threading.Event()
        self._beats = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._beats.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._ended.set()
        for name in list(self._held):
            self.release(name)
        with suppress(OSError):  # claims of other processes
            self.folder.rmdir()

    def take(self, name: str) -> bool:
        """Claim a name; False if another process has it. The caller must then check whether the work is still to be done."""
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        stale: list[Path] = []
        for generation in count():
            path = self.folder / f"{digest}.{generation}"
            try:
                self.folder.mkdir(parents=True, exist_ok=True)  # another process may have removed the empty folder
                with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY), "w") as file:
                    file.write(owner())
            except FileExistsError:
                if not self._is_stale(path):
                    return False
                stale.append(path)
                continue
            self._held[name] = [*stale, path]
            return True
        raise AssertionError("count() is endless")

    def release(self, name: str) -> None:
        for path in self._held.pop(name, []):
            path.unlink(missing_ok=True)

    def _is_stale(self, path: Path) -> bool:
        try:
            running = is_running(path.read_text(encoding="utf-8", errors="replace"))
            if running is not None:
                return not running
            return self._time() - path.stat().st_mtime > self.stale_s
        except OSError:  # just released
            return False

    def _time(self) -> float:
        """Return the time of the file system, which other machines share."""
        probe = self.folder / f"{owner()}.time"
        probe.touch()
        time = probe.stat().st_mtime
        probe.unlink(missing_ok=True)
        return time

    def _renew(self) -> None:
        while not self._ended.wait(self.beat_s):
            for paths in list(self._held.values()):
                with suppress(OSError):
                    os.utime(paths[-1])
