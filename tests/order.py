"""The order in which `make test` runs the tests, derived from what each test needs.

With `--dist worksteal` each of n processes gets an n-th of the tests, in their order, and a process that has nothing
left takes tests from the end of another one's. So the parts of the first two begin with tests that are slow, and end
with tests that are fast and need nothing: these are what is taken first. All tests that use the Spark session are in
the first part: a second session takes half a minute of processor time until its JVM is warm. Other parts are fast
tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

_T = TypeVar("_T")
_OWN_PROCESSES = ("broker", "spark", "java", "browser")


def order_items(items: list[pytest.Item], processes: int) -> None:
    """Order marked tests for this number of test processes, in place. Tests of a module stay in their order."""
    session, slow, fast = [], [], []
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            session.append(item)
        elif any(map(item.get_closest_marker, _OWN_PROCESSES)):
            slow.append(item)
        else:
            fast.append(item)
    items[:] = merge(session, slow, fast, processes)


def merge(session: Sequence[_T], slow: Sequence[_T], fast: Sequence[_T], processes: int) -> list[_T]:
    """Return all tests: `session` is where the first process begins, `slow` where the second one does."""
    total = len(session) + len(slow) + len(fast)
    between = max(0, total // processes - len(session)) if processes > 1 else 0
    return [*session, *fast[:between], *slow, *fast[between:]]
