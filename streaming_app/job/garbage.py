"""Python's garbage collection in the process of a job, which keeps objects of all groups for months.

A full collection looks at every object, and no thread runs meanwhile: 0.8 s with 100,000 groups, whatever has changed.
Nearly all that the job drops is freed by its count of references anyway. So objects that have survived a full
collection are left out of the later ones; but once an hour one looks at all.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ALL_SECONDS = 3_600.0


@contextmanager
def old_objects_left_out(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Collect so in this process until the end of the block."""
    all_at, oldest = clock(), len(gc.get_threshold()) - 1

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal all_at
        if info["generation"] == oldest and phase == "stop":
            gc.freeze()
        elif info["generation"] == oldest and clock() - all_at >= _ALL_SECONDS:
            gc.unfreeze()
            all_at = clock()

    gc.callbacks.append(on_collection)
    try:
        yield
    finally:
        gc.callbacks.remove(on_collection)
        gc.unfreeze()
