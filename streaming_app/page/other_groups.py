"""The groups of other types than streams groups, read in the background.

They are found in the newest records of every consumer, share and classic group and in the committed offsets, of which a
cluster may have millions. So a page does not wait for them, and they are read for a small part of the time only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from streaming_app.errors import WarehouseError
from streaming_app.page.group_summary import GroupSummary

_REREAD_AFTER = 10.0  # times as long as a reading took


class OtherGroups:
    """The newest of them that were read. Safe to use from several threads."""

    def __init__(self, read: Callable[[], tuple[GroupSummary, ...]]) -> None:
        """`read` is called in a thread of its own, one call at a time."""
        self._read = read
        self._lock = threading.Lock()
        self._wanted: object = None
        self._read_for: object = None
        self._groups: tuple[GroupSummary, ...] = ()
        self._number = 0
        self._thread: threading.Thread | None = None
        self._rest_until = 0.0

    def newest(self, versions: object, wait: float = 0.0) -> tuple[tuple[GroupSummary, ...], int]:
        """Return the groups, and a number that changes with them; they are read again if the versions have changed.

        Waits for a reading that is under way, but not longer than so many seconds.
        """
        with self._lock:
            self._wanted = versions
            is_due = versions != self._read_for and time.monotonic() >= self._rest_until
            if is_due and self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(versions,), name="other groups", daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None and wait:
            thread.join(wait)
        with self._lock:
            return self._groups, self._number

    def _run(self, versions: object) -> None:
        begin = time.monotonic()
        groups: tuple[GroupSummary, ...] | None = None
        try:
            groups = self._read()
        except WarehouseError:  # what the page shows of streams groups says the same, or these are read again soon
            pass
        finally:
            with self._lock:
                if groups is not None:
                    self._number += groups != self._groups
                    self._groups, self._read_for = groups, versions
                self._rest_until = time.monotonic() + _REREAD_AFTER * (time.monotonic() - begin)
                self._thread = None
