"""A few hundred mutated files through every reader: each is read or refused, in bounded time and memory."""

from pathlib import Path

from tests.stress.fuzz import Child, case, fuzz, kinds_in

CASES = 330


def test_mutated_files_are_read_or_refused_and_a_crash_is_seen() -> None:
    child = Child()
    try:
        counts, faults = fuzz(CASES, seed=20, child=child)
        assert not faults, "\n".join(faults)
        assert sum(found["clean"] for found in counts.values()) == CASES
        child.process.kill()
        assert child.ask("png", 0, 0).startswith("crash (SIGKILL"), "and the process is started again"
    finally:
        child.stop()


def test_a_case_can_be_replayed(tmp_path: Path) -> None:
    kinds = kinds_in(tmp_path)
    for kind in (kinds["mha"], kinds["run.json"]):
        assert case(kind, 3, 7) == case(kind, 3, 7) != case(kind, 3, 8)
        assert any(case(kind, 3, number) not in kind.contents for number in range(5))
