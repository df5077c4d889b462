"""One process at a time in a run folder."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from filelock import FileLock, Timeout

from hebbseg.config import Settings
from hebbseg.data.cache import cache_folder
from hebbseg.errors import HebbsegError

P = ParamSpec("P")
T = TypeVar("T")


def exclusive(work: Callable[Concatenate[Settings, Path, P], T]) -> Callable[Concatenate[Settings, Path, P], T]:
    """Return a function of settings and a run folder that runs in one process at a time per run folder."""

    @wraps(work)
    def locked(settings: Settings, out: Path, *args: P.args, **options: P.kwargs) -> T:
        with in_use(out):
            return work(settings, out, *args, **options)

    return locked


@contextmanager
def in_use(out: Path) -> Iterator[None]:
    """Raise if another process on this machine works in the run folder ``out``.

    The lock lies in the cache folder, so a killed process leaves nothing in the run folder. The operating system releases it
    when the process ends. Without a writable cache folder there is no lock. Of several processes of a run, the first locks.
    """
    name = hashlib.sha256(os.fsencode(out.absolute().resolve())).hexdigest()[:32]
    lock = FileLock(cache_folder() / "locks" / f"{name}.lock", timeout=0)
    if os.environ.get("LOCAL_RANK", "0") != "0":
        yield
        return
    try:
        Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise HebbsegError(
            f"{out}: another process is training in this run folder. Wait until it has ended, or choose another output folder."
        ) from None
    except OSError:  # the cache folder is not writable
        yield
        return
    try:
        yield
    finally:
        lock.release()
