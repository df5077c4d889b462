"""How memory is taken from the system and given back."""

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGEST_KEPT = 32 * 2**20  # bytes; glibc takes no larger threshold


def keep_freed_memory() -> bool:
    """Asks glibc to keep blocks that a program frees, up to `LARGEST_KEPT` each, for when it wants them again.

    A network frees and takes the same megabytes many times a second. Left alone, glibc hands them back to the system,
    which clears every page before it gives it out again. Tells whether it was done: there is nothing to do without
    glibc, or where the user has chosen (``MALLOC_…_`` variables).
    """
    chosen = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if chosen or not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    done = bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1)) and bool(mallopt(_MMAP_THRESHOLD, LARGEST_KEPT))
    if done:  # for the processes that a grid or several devices start
        os.environ |= {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_THRESHOLD_": str(LARGEST_KEPT)}
    return done
