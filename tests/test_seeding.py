import hashlib

from hebbseg.seeding import derive_seed, digest


def test_parts_are_hashed_with_slashes_between() -> None:
    expected = hashlib.sha256(b"3/update/12/0").digest()
    assert digest(3, "update", 12, 0) == expected
    assert derive_seed(3, "update", 12, 0) == int.from_bytes(expected[:8], "little") >> 1
    assert derive_seed(b"\x00\xff") == int.from_bytes(hashlib.sha256(b"\x00\xff").digest()[:8], "little") >> 1
