"""Whether a service that a check started is there yet."""

from __future__ import annotations

import urllib.request
from contextlib import suppress


def answers(url: str) -> bool:
    """Return whether the URL is answered with status 200."""
    with suppress(OSError), urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - http on loopback
        return bool(response.status == 200)
    return False
