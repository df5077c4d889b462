"""Random seeds derived from what they are for, the same on every machine and in every version of a library."""

import hashlib


def digest(*parts: str | int | bytes) -> bytes:
    """sha256 of ``part/part/…``; numbers and text as UTF-8."""
    return hashlib.sha256(b"/".join(p if isinstance(p, bytes) else str(p).encode() for p in parts)).digest()


def derive_seed(*parts: str | int | bytes) -> int:
    """A seed of 63 bits, which follows from its parts alone.

    >>> derive_seed(0, "batch", 7)
    6790798840944659594
    """
    return int.from_bytes(digest(*parts)[:8], "little") >> 1
