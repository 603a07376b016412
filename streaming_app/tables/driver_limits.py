"""Decides whether the driver folds and writes a batch itself, or whether Spark's workers fold it.

The driver folds and commits a small batch in some hundredths of a second. Starting workers and a shuffle takes a second
or more, whatever the size of the batch. But a row of `groups` has 2.4 kB as Arrow, and often much more. So workers fold
large batches, and return files, see `data_files`. This process writes the rows of every batch.
"""

from typing import NamedTuple


class Most(NamedTuple):
    """The limits up to which the driver folds and writes a batch."""

    records: int
    size: int
    """Bytes of these records: the driver and its JVM each hold several copies."""
    groups: int = 0
    """Groups whose rows are read, and replaced."""

    @property
    def read(self) -> int:
        """Number of records that the driver reads to find out whether it can divide them into small parts."""
        return 10 * self.records


GROUPS, NEWEST = "groups", "newest"
MOST = {
    GROUPS: Most(records=20_000, size=32 << 20, groups=2_000),
    NEWEST: Most(records=100_000, size=32 << 20),  # folding 50,000 takes less time than starting workers
}
"""By kind of batch: `groups` with its history, and `offset_commits` with `group_records`."""


def fits_driver(kind: str, **numbers: int) -> bool:
    """Return whether the driver folds and writes a batch, by the limits of `Most` that `numbers` names."""
    most = MOST[kind]
    return all(number <= getattr(most, name) for name, number in numbers.items())
