"""A few hundred mutated files through every reader: each is read or refused, in bounded time and memory."""

from pathlib import Path

from tests.stress.fuzz import OUTCOMES, Child, case, fuzz, kinds_in

CASES = 330


def test_mutated_files_are_read_or_refused() -> None:
    counts, faults = fuzz(CASES, seed=20)
    assert not faults, "\n".join(faults)
    assert sum(found["clean"] for found in counts.values()) == CASES and set(OUTCOMES) >= {"clean", "crash"}


def test_a_case_can_be_replayed(tmp_path: Path) -> None:
    kinds = kinds_in(tmp_path)
    for kind in (kinds["mha"], kinds["run.json"]):
        assert case(kind, 3, 7) == case(kind, 3, 7) != case(kind, 3, 8)
        kind_before = kind.contents[0]
        assert any(case(kind, 3, number) != kind_before for number in range(5))


def test_a_crash_is_seen_and_the_rest_goes_on() -> None:
    child = Child()
    try:
        child.process.kill()
        assert child.ask("png", 0, 0).startswith("crash (SIGKILL")
        assert child.ask("png", 0, 0) == "clean"
    finally:
        child.stop()
