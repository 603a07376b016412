"""Relation G: what is scaled costs at most in proportion, counted in instructions and bytes, not in seconds."""

import gc
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import streaming_app

_SLACK = 1.5
"""Texts and parts that some inputs lack cost a little more in larger ones."""
_LEAST = 2_000
"""Instructions: a room that takes fewer of a small input is not looked at."""
_PRODUCT = str(Path(streaming_app.__file__).parent) + "/"


def by_module(work: Callable[[], object]) -> Counter[str]:
    """Return how many instructions `work` takes in each module of the product, in this thread and those it starts."""
    found = Counter[str]()

    def enter(frame: FrameType, _: str, _argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_PRODUCT):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        file = file.removeprefix(_PRODUCT)

        def count(_frame: FrameType, event: str, _argument: Any) -> Any:
            found[file] += event == "opcode"
            return count

        return count

    before = sys.gettrace()
    threading.settrace(enter)
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type] # None ends it
    return found


def out_of_proportion(prepare: Callable[[int], Callable[[], object]], size: int, times: int = 10) -> dict[str, float]:
    """Return the modules that take more than `times` as many instructions of `times` as much input, and how many.

    "bytes" is there if the most memory at a time is more than `times` as much.
    """
    small, large = (prepare(one) for one in (size, size * times))
    small(), large()  # what is read or made once
    few, many = by_module(small), by_module(large)
    assert sum(many.values()) > size, "this work does not look at its input"
    ratios = {file: many[file] / max(count, _LEAST) for file, count in few.items()}
    ratios["bytes"] = _bytes(large) / _bytes(small)
    return {file: round(ratio, 1) for file, ratio in ratios.items() if ratio > times * _SLACK}


def _bytes(work: Callable[[], object]) -> int:
    """Return the most memory at a time: the least of a few tries, as threads of other tests may allocate, too."""

    def once() -> int:
        gc.collect()
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return min(once() for _ in range(3))
