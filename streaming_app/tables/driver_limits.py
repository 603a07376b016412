"""Decides whether this process folds and writes a batch itself, or leaves the folding to Spark's workers.

This process folds and commits a small batch in some hundredths of a second. Starting workers and a shuffle takes a
second and more, whatever the size. But a row of `groups` has 2.4 kB as Arrow, and often much more. So workers fold
large batches, and return files, see `data_files`. This process writes the rows of every batch.
"""

from __future__ import annotations

from typing import NamedTuple


class Most(NamedTuple):
    """The most that this process folds and writes of a batch."""

    records: int
    """Records of the log."""
    size: int
    """Bytes of these records: this process and the JVM each hold several copies of them."""
    groups: int = 0
    """Groups whose rows are read, and replaced."""

    @property
    def read(self) -> int:
        """Number of records that this process reads, to see whether it can divide them into small parts."""
        return 10 * self.records


GROUPS, NEWEST = "groups", "newest"
MOST = {
    GROUPS: Most(records=20_000, size=32 << 20, groups=2_000),
    NEWEST: Most(records=100_000, size=32 << 20),  # 50,000 take this process less time than starting workers
}
"""By kind of batch: `groups` with its history, `offset_commits` with `group_records`."""


def fits_driver(kind: str, **numbers: int) -> bool:
    """Return whether this process folds and writes a batch, as far as these numbers of `Most` tell."""
    most = MOST[kind]
    return all(number <= getattr(most, name) for name, number in numbers.items())
