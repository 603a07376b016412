"""For what takes a while and tells nobody when it is done."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Look until the condition holds or the time is up; whether it holds then."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()
