"""Folds the records of one group within a batch, and keeps a record that cannot be folded from stopping the others.

Theory of operation
-------------------
A record can decode and still not be foldable, such as a time beyond the year 9999. The fold may then be half changed.
So the records since a snapshot are kept; when one fails, the fold is restored, the records before it are folded again,
and the failed one is reported. The snapshot is at first the stored row; a group with many records in one batch gets a
new one every `_SNAPSHOT_EVERY` records, which bounds memory.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.groups.fold import Fold
from streaming_app.groups.group import LogRecord

_SNAPSHOT_EVERY = 2_000


LogRow = tuple[bytes | None, int, int | None, datetime | None, bytes | None, bytes | None, dict[str, Any] | None]
"""Group bytes, offset, partition, timestamp, key and value of a record in the log; or a group's stored row, the last.

A plain tuple: those are kept of many groups at once, and are no work for Python's garbage collector.
"""


class Raw(NamedTuple):
    """A record as it is in the log, and as decoded."""

    partition: int
    row: LogRow
    record: LogRecord


Refuse = Callable[[LogRow, Exception], None]
"""Called with each record that cannot be folded, and the reason."""


class GroupFold:
    """The fold of one group. `restore` makes the fold as it was before the batch."""

    def __init__(self, restore: Callable[[], Fold], refuse: Refuse) -> None:
        self._restore, self._refuse = restore, refuse
        self.fold = restore()
        self.kept: list[Raw] = []
        """The records since the snapshot, for a caller that cannot use the result."""

    def add(self, raw: Raw) -> None:
        """Fold one record, or refuse it."""
        if len(self.kept) >= _SNAPSHOT_EVERY:
            snapshot = deepcopy(self.fold)
            self._restore = lambda: deepcopy(snapshot)
            self.kept = []
        try:
            self.fold.add([raw.record])
        except Exception as error:  # noqa: BLE001 - whatever one record causes, the others go on
            self._refuse(raw.row, error)
            self._fold_again()
        else:
            self.kept.append(raw)

    def close_operation(self) -> None:
        """End the open operation, as at the end of a batch. Records whose events cannot be made are refused."""
        while not self._is_closed():
            self._fold_again()

    def _is_closed(self) -> bool:
        try:
            self.fold.close()
        except Exception as error:
            if not self.kept:
                raise
            self._refuse(self.kept.pop().row, error)
            return False
        return True

    def _fold_again(self) -> None:
        self.fold = self._restore()
        self.fold.add(raw.record for raw in self.kept)
