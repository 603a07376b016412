"""The one decision whether this process folds and writes a batch itself, or leaves the folding to Spark's workers.

What this process holds is folded and committed in some hundredths of a second; starting workers and a shuffle take a
second and more, whatever the size. But a row of `groups` has 2.4 kB as Arrow, and often much more. So workers fold
large batches, and return files, see `data_files`.

A row is replaced by rewriting the file that holds it. The files of `groups` have 250 rows (42 kB) each, with a range of
group ids of their own, so that a batch of 3, 8 or 50 groups rewrites as many files at most, however many groups there
are; see `group_files`. What would rewrite much is left to the workers, too. The other tables are appended to; their
rows are rewritten by a compaction, or when they expire.
"""

from __future__ import annotations

from typing import NamedTuple


class Most(NamedTuple):
    """The most that this process folds and writes of a batch."""

    records: int
    """Of the log, from which the rows are made."""
    size: int
    """Bytes of these records: this process holds them a few times over, and so does the JVM."""
    groups: int = 0
    """Whose rows are replaced, each by its name."""
    rewritten: int = 0
    """Bytes of the files that hold these rows: old files stay for hours."""
    rewritten_rows: int = 0
    """Rows in these files: workers take less time for more."""

    @property
    def read(self) -> int:
        """Records that this process reads, to see whether it can divide them into parts of few."""
        return 10 * self.records


GROUPS, NEWEST = "groups", "newest"
MOST = {
    GROUPS: Most(records=20_000, size=32 << 20, groups=2_000, rewritten=32 << 20, rewritten_rows=50_000),
    NEWEST: Most(records=100_000, size=32 << 20),  # 50,000 take this process less time than starting workers
}
"""By kind of batch: `groups` with its history, `offset_commits` with `group_records`."""


def fits_driver(kind: str, **numbers: int) -> bool:
    """Return whether this process folds and writes a batch, as far as these numbers of `Most` tell."""
    most = MOST[kind]
    return all(number <= getattr(most, name) for name, number in numbers.items())
