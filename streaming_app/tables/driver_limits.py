"""Decides whether the driver folds and writes a batch itself, or whether Spark's workers fold it.

The driver folds and commits a small batch in some hundredths of a second. Starting workers and a shuffle takes a second
or more, whatever the size of the batch. But a row of `groups` has 2.4 kB as Arrow, and often much more. So workers fold
large batches, and return files (see `data_files`).

To replace a row, the job rewrites its file. Each file of `groups` has 250 rows (42 kB) and its own range of group ids
(see `group_files`). So a batch of 3, 8 or 50 groups rewrites at most as many files, however many groups there are.
Workers also do the batches that would rewrite much. To the other tables the job appends; only compaction and expiry
rewrite their rows.
"""

from __future__ import annotations

from typing import NamedTuple


class Most(NamedTuple):
    """The limits up to which the driver folds and writes a batch."""

    records: int
    """Records of the log."""
    size: int
    """Bytes of these records: the driver and its JVM each hold several copies."""
    groups: int = 0
    """Groups whose rows the batch replaces."""
    rewritten: int = 0
    """Bytes of the files that hold these rows: old files stay for hours."""
    rewritten_rows: int = 0
    """Rows in these files: above this, workers are faster."""

    @property
    def read(self) -> int:
        """Number of records that the driver reads to find out whether it can divide them into small parts."""
        return 10 * self.records


GROUPS, NEWEST = "groups", "newest"
MOST = {
    GROUPS: Most(records=20_000, size=32 << 20, groups=2_000, rewritten=32 << 20, rewritten_rows=50_000),
    NEWEST: Most(records=100_000, size=32 << 20),  # folding 50,000 takes less time than starting workers
}
"""By kind of batch: `groups` with its history, and `offset_commits` with `group_records`."""


def fits_driver(kind: str, **numbers: int) -> bool:
    """Return whether the driver folds and writes a batch, by the limits of `Most` that `numbers` names."""
    most = MOST[kind]
    return all(number <= getattr(most, name) for name, number in numbers.items())
