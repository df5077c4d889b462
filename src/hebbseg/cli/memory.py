"""Settings of the memory allocator."""

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGEST_KEPT = 32 * 2**20  # bytes; glibc takes no larger threshold


def keep_freed_memory() -> bool:
    """Make glibc reuse freed blocks of up to `LARGEST_KEPT` bytes instead of returning them to the system.

    Training allocates and frees the same megabytes many times per second; the system would clear every page anew.

    Returns:
        Whether the setting was changed: not without glibc, nor if the user has set ``MALLOC_…`` variables.
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
