"""Random seeds derived by hashing, independent of the machine and of library versions."""

import hashlib


def digest(*parts: str | int | bytes) -> bytes:
    """Return the sha256 of ``part/part/…``; numbers and text are encoded as UTF-8."""
    return hashlib.sha256(b"/".join(p if isinstance(p, bytes) else str(p).encode() for p in parts)).digest()


def derive_seed(*parts: str | int | bytes) -> int:
    """Return a 63-bit seed that depends only on the parts.

    >>> derive_seed(0, "batch", 7)
    6790798840944659594
    """
    return int.from_bytes(digest(*parts)[:8], "little") >> 1
