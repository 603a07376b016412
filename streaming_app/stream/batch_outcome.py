"""What a batch gives to the rest of the job: its counts, and the groups that changed. Only data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class BatchOutcome:
    """The counts of a batch of streams groups."""

    decoded: int = 0
    groups: int = 0
    quarantined: int = 0
    drifted: int = 0
    by_type: Mapping[int, int] = field(default_factory=dict)
    """Records that left the JVM, by record type; -1 for those without a key."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By phase, see `batch_times`."""

    def texts(self) -> list[str]:
        """Return the counts as the line of the batch has them."""
        return [
            f"{self.decoded:,} decoded",
            f"{self.groups:,} groups",
            f"{self.quarantined:,} quarantined",
            *([f"{self.drifted:,} with unknown tags"] if self.drifted else []),
        ]


@dataclass(frozen=True)
class CommitsOutcome:
    """The counts of a batch of committed offsets."""

    commits: int = 0
    """Keys of offset commits."""
    group_records: int = 0
    """Keys of records of groups."""
    quarantined: int = 0
    drifted: int = 0
    """Records with unknown tagged fields among the newest of each key."""
    by_type: Mapping[int, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def texts(self) -> list[str]:
        """Return the counts as the line of the batch has them."""
        return [
            f"{self.commits:,} committed offsets",
            f"{self.group_records:,} group records",
            f"{self.quarantined:,} quarantined",
            *([f"{self.drifted:,} with unknown tags"] if self.drifted else []),
        ]


class GroupListener(Protocol):
    """Receives the groups that changed, once they are in the tables."""

    def on_rows(self, folded: pa.Table) -> None:
        """Receive the rows that were written, with the columns of `FOLDED_DDL`."""

    def on_bulk_change(self) -> None:
        """Learn that many rows were written: reading them from the table is cheaper than passing them here."""
