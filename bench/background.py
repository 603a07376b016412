"""A call that is repeated while a benchmark measures something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(call: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call it, with so many seconds in between, while the block runs."""
    end = threading.Event()

    def repeat() -> None:
        while not end.wait(seconds):
            call()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
