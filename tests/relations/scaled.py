"""Relation G: what is scaled costs at most in proportion, counted in instructions of Python, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_SLACK = 1.5
"""Texts and parts that some inputs lack cost a little more in larger ones."""


def instructions(work: Callable[[], object]) -> int:
    """Return how many instructions of Python `work` takes in this thread. Work in C counts as one."""
    found = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal found
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        found += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return found


def is_in_proportion(prepare: Callable[[int], Callable[[], object]], size: int = 20, times: int = 10) -> bool:
    """Whether what `prepare` makes of `times` as much input takes at most `times` as many instructions."""
    small, large = (instructions(prepare(one)) for one in (size, size * times))
    assert small > size, "this work does not look at its input"
    return large <= small * times * _SLACK
