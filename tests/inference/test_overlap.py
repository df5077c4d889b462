"""The next item is read and the previous one written while one is computed; order and errors are those of a plain loop."""

import threading
from typing import Any

import pytest

from hebbseg.inference.overlap import overlapped

PATIENCE_S = 20.0  # of waiting for another thread; never reached unless a test fails


def results(outcomes: Any) -> list[Any]:
    return [outcome.exception() or outcome.result() for outcome in outcomes]


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_come_in_order(count: int) -> None:
    found = overlapped(
        range(count), read=lambda i: i + 100, compute=lambda i, given: (i, given), write=lambda i, out: (*out, str(i))
    )
    assert results(found) == [(i, i + 100, str(i)) for i in range(count)]


def test_an_error_of_any_stage_belongs_to_its_item_and_the_others_go_on() -> None:
    def failing(stage: str, item: int) -> int:
        if (stage, item) in {("read", 0), ("compute", 2), ("write", 3), ("read", 6)}:
            raise ValueError(f"{stage} {item}")
        return item

    found = results(
        overlapped(
            range(7),
            read=lambda i: failing("read", i),
            compute=lambda i, given: failing("compute", given),
            write=lambda i, out: failing("write", out),
        )
    )
    assert [str(value) for value in found] == ["read 0", "1", "compute 2", "write 3", "4", "5", "read 6"]


def test_reading_and_writing_happen_during_computing() -> None:
    read, computing = [threading.Event() for _ in range(3)], [threading.Event() for _ in range(3)]
    met = []

    def compute(item: int, given: int) -> int:
        computing[item].set()
        met.append(item == 2 or read[item + 1].wait(PATIENCE_S))  # the next one is read before this one is computed
        return item

    def write(item: int, out: int) -> None:
        met.append(item == 2 or computing[item + 1].wait(PATIENCE_S))  # the next one is started before this one is written

    list(overlapped(range(3), read=lambda i: read[i].set() or i, compute=compute, write=write))
    assert met == [True] * 6


def test_at_most_one_input_and_one_output_wait() -> None:
    lock, read, computed, written = threading.Lock(), [], [], []
    ahead, behind = [], []

    def note(seen: list[int], item: int) -> int:
        with lock:
            seen.append(item)
            ahead.append(len(read) - len(computed))
            behind.append(len(computed) - len(written))
        return item

    found = overlapped(
        range(30), read=lambda i: note(read, i), compute=lambda i, _: note(computed, i), write=lambda i, _: note(written, i)
    )
    assert results(found) == list(range(30))
    assert max(ahead) <= 2 and max(behind) <= 2, "one waits, one is being worked on"


def test_an_interrupt_finishes_the_writing_begun_and_starts_nothing_more() -> None:
    started, interrupted = threading.Event(), threading.Event()
    read, written = [], []

    def compute(item: int, given: int) -> int:
        if item == 1:
            started.wait(PATIENCE_S)
            interrupted.set()
            raise KeyboardInterrupt
        return item

    def write(item: int, out: int) -> None:
        started.set()
        interrupted.wait(PATIENCE_S)
        written.append(item)

    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        list(overlapped(range(9), read=lambda i: read.append(i) or i, compute=compute, write=write))
    assert written == [0] and len(read) <= 3
    assert threading.active_count() == threads
