"""Values kept up to a limit of memory."""

from hebbseg.data.sources.kept import Kept


def test_values_are_kept_once_and_within_the_limit() -> None:
    kept: Kept[str, bytes] = Kept(limit=10)
    for key, value in (("a", b"123456"), ("a", b"123456"), ("b", b"12345"), ("c", b"1234")):
        kept.keep(key, value, len(value))
    assert (len(kept), kept.bytes) == (2, 10), "b exceeds the limit, and a counts once"
    assert kept.take("b") is None and kept.take("a") == b"123456" and kept.take("a") is None
    assert kept.bytes == 4
    kept.keep("b", b"12345", 5)
    assert kept.take("b") == b"12345" and kept.take("c") == b"1234" and kept.bytes == 0
