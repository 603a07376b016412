"""Python's garbage collection in the process of a job, which keeps objects of all groups for months.

A full collection looks at every object, and no thread runs meanwhile: 0.8 s with 100,000 groups, whatever has changed.
Nearly all that the job drops is freed by its count of references anyway. So objects that have survived a full
collection are left out of the later ones; but once an hour one looks at all.
"""

import gc
import time
from collections.abc import Callable

_ALL_SECONDS = 3_600.0


def leave_out_old_objects(clock: Callable[[], float] = time.monotonic) -> Callable[[str, dict[str, int]], None]:
    """Set this for the process; return what was added to `gc.callbacks`."""
    all_at = clock()

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal all_at
        if info["generation"] != len(gc.get_threshold()) - 1:
            return
        if phase == "stop":
            gc.freeze()
        elif clock() - all_at >= _ALL_SECONDS:
            gc.unfreeze()
            all_at = clock()

    gc.callbacks.append(on_collection)
    return on_collection
