"""The one decision which of Spark and delta-rs writes which rows: Spark large batches only, delta-rs all others.

A commit of delta-rs takes some hundredths of a second, one of Spark a second and more, whatever the size. Both are
atomic, note with the rows which batch they are of, and never overtake another commit without noticing. But delta-rs
writes rows that this process holds: as Arrow, a row of `groups` has 2.4 kB and often much more. So Spark writes what
its workers have folded, which is never in this process, and what would rewrite much.

Neither writes deletion vectors, which readers such as pandas, pyarrow and older engines refuse: a row is replaced by
rewriting the file that holds it. That a batch of a few groups rewrites little is a matter of the files. Those of
`groups` have 250 rows (42 kB) each, with a range of group ids of their own, so that a batch of 3, 8 or 50 groups
rewrites as many files at most, however many groups there are; see `group_files`. The other tables that Spark writes are
appended to; their rows are rewritten by a compaction, or when they expire.

Tables that only delta-rs writes (alerts, lag, task copies) are not asked about here.
"""

from __future__ import annotations

from typing import NamedTuple


class Most(NamedTuple):
    """The most that delta-rs writes of a batch."""

    records: int
    """Of the log, from which the rows are made."""
    size: int
    """Bytes of these records: this process holds them a few times over, and so does the JVM."""
    groups: int = 0
    """Whose rows are replaced, each by its name."""
    rewritten: int = 0
    """Bytes of the files that hold these rows: old files stay for hours."""
    rewritten_rows: int = 0
    """Rows in these files: Spark takes less time for more."""

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


def by_delta_rs(kind: str, **numbers: int) -> bool:
    """Return whether delta-rs writes the rows, as far as these numbers of `Most` tell; else Spark does."""
    most = MOST[kind]
    return all(number <= getattr(most, name) for name, number in numbers.items())
