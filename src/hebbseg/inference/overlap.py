"""Reading, computing and writing of consecutive items at the same time."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Input = TypeVar("Input")
Output = TypeVar("Output")
Result = TypeVar("Result")


def overlapped(
    items: Sequence[Item],
    *,
    read: Callable[[Item], Input],
    compute: Callable[[Item, Input], Output],
    write: Callable[[Item, Output], Result],
) -> Generator["Future[Result]", None, None]:
    """Yield the outcome of each item, in order: ``write(item, compute(item, read(item)))``, or the exception of any of them.

    One thread reads the next item and one writes the previous item while this thread computes. So at most one input waits to
    be computed and one output waits to be written. When the caller stops early, the item being written is finished.
    """
    behind: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(1, "read") as reader, ThreadPoolExecutor(1, "write") as writer:
        try:
            coming = reader.submit(read, items[0]) if items else None
            for number, item in enumerate(items):
                assert coming is not None
                reading, coming = coming, None
                try:
                    given = reading.result()
                    del reading
                    if number + 1 < len(items):
                        coming = reader.submit(read, items[number + 1])
                    behind.append(writer.submit(write, item, compute(item, given)))
                    del given
                except Exception as error:
                    failed: Future[Result] = Future()
                    failed.set_exception(error)
                    behind.append(failed)
                    if coming is None and number + 1 < len(items):
                        coming = reader.submit(read, items[number + 1])
                if len(behind) > 1:
                    behind[0].exception()  # wait
                    yield behind.popleft()
            yield from behind
        finally:
            reader.shutdown(wait=False, cancel_futures=True)
            writer.shutdown(wait=False, cancel_futures=True)
