"""The records of a batch of groups. If it is small, this process has them; else it has an index, and Spark has them.

One Spark job reads a small batch into the driver, with the bytes of all records. If the batch may have many offsets, or
one of its records is large, Spark reads the records once, or once more, and keeps them on disk. The driver then has
only the `MEASURES` of all records, by which the batch is divided, and the records that it folds at the moment.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.stream.slices import LARGE_RECORD, SLICE_BYTES, Part
from streaming_app.stream.source import MEASURES, RAW
from streaming_app.tables.driver_limits import GROUPS, MOST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BYTES = {"group_bytes", "key", "value"}
_TASK_BYTES = 192 << 10
_TASKS = 2  # that read a small batch: one for each partition, as by default, costs more than the records
_NUMBER_IN_TASK = f"(monotonically_increasing_id() & {(1 << 33) - 1})"  # from 0
Checked = Callable[[Callable[[], pa.Table]], pa.Table]
"""Calls a function that reads records, and returns its result; checks that all are from one log of one topic."""


class BatchRecords(AbstractContextManager["BatchRecords"]):
    """The records of one batch; at the end of the context Spark releases its copy of them."""

    def __init__(self, records: DataFrame, checked: Checked, free_heap: Callable[[], None] = lambda: None) -> None:
        """Take `RAW` with the `MEASURES`; `free_heap` is called when Spark has released its copy."""
        self._records, self._checked, self._free_heap = records, checked, free_heap
        self._kept: DataFrame | None = None

    def read(self, most: int | None) -> pa.Table:
        """Return the `MEASURES` of all records, and also `RAW` if no record is large.

        `most` is the maximum number of records. None: there may be very many, so Spark keeps them.
        """
        if most is not None:
            found = self._checked(partial(read_small, self._records, most, GROUPS))
            if is_whole(found):
                return found
        return self._keep()

    def raw(self, part: Part) -> pa.Table:
        """Return `RAW` of the records of a part."""
        if RAW[0] in part.records.column_names:
            return part.records.select(list(RAW))
        return self.of_spark(part).select(*RAW).toArrow()

    def of_spark(self, part: Part) -> DataFrame:
        """Return the records of a part from Spark's copy."""
        if self._kept is None:
            self._keep()
        return (self._kept or self._records).where(part.condition)

    def __exit__(self, *_: object) -> None:
        if self._kept is not None:
            self._kept.unpersist()
            self._free_heap()

    def _keep(self) -> pa.Table:
        """Let Spark read the records once, from one log, and keep them; return their `MEASURES`."""
        from pyspark import StorageLevel  # noqa: PLC0415 - Spark is loaded by those who need it

        disk = StorageLevel.DISK_ONLY  # in memory it would fill the heap
        kept = self._kept = self._records.persist(disk)
        return self._checked(lambda: kept.unpersist(blocking=True).persist(disk).select(*MEASURES).toArrow())


def read_small(records: DataFrame, most: int, kind: str) -> pa.Table:
    """Read at most `most` records of a kind in `driver_limits`, without the bytes of the large ones.

    Bytes of a record leave the JVM in three cases: `most` records of its size fit into a slice; or the record is no
    `LARGE_RECORD`, and `most` records of its size fit into the driver; or as many of its size as its task has read so
    far fit into `_TASK_BYTES`, since most offsets may be of other records. The JVM holds five times what it sends at
    once.
    """
    largest = max(SLICE_BYTES // max(1, most), min(MOST[kind].size // max(1, most), LARGE_RECORD))
    largest = 1 << largest.bit_length() - 1  # a power of two, since Spark compiles an expression for each value
    limit = largest if largest >= _TASK_BYTES else f"greatest({largest}, {_TASK_BYTES} div (1 + {_NUMBER_IN_TASK}))"
    columns = [f"if(size <= {limit}, {one}, NULL) AS {one}" if one in _BYTES else one for one in records.columns]
    return records.coalesce(_TASKS).selectExpr(*columns).toArrow()


def is_whole(records: pa.Table) -> bool:
    """Return whether `read_small` has read the bytes of all records."""
    has_bytes = pc.or_(pc.is_valid(records["key"]), pc.is_valid(records["value"]))
    return bool(pc.all(pc.or_(has_bytes, pc.equal(records["size"], 0)), min_count=0).as_py())
