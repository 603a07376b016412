"""Runs functions in daemon threads: the process can end while one waits for a store or a broker that does not answer.

Python waits at its exit for the threads of a `ThreadPoolExecutor`, whatever they do, and only then calls functions that
`atexit` registered. Nothing waits for these threads.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_thread(do: Callable[[], R], name: str | None = None) -> Future[R]:
    """Run a function in its own thread; return a future for its end. Nobody can cancel it."""
    result: Future[R] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(do())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the future raises it
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


def in_parallel(do: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    """Call a function with each item, in at most so many threads at a time; return the results in order.

    After an error no further call begins. Raises the error of the first item that has one, when no call runs any more.
    """
    waiting = deque(enumerate(items))
    results: list[R | None] = [None] * len(waiting)
    errors: dict[int, BaseException] = {}

    def work() -> None:
        while not errors:
            try:
                number, item = waiting.popleft()
            except IndexError:
                return
            try:
                results[number] = do(item)
            except BaseException as error:  # noqa: BLE001 - raised below
                errors[number] = error

    wait([in_thread(work) for _ in range(min(threads, len(waiting)))])
    if errors:
        raise errors[min(errors)]
    return results  # type: ignore[return-value] # each has its result
