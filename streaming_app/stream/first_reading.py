"""The first batches of both streams, for which the topic is read once: later ones are small, and each reads its own.

Theory of operation
-------------------
The stream of the groups needs every record of streams groups, that of the commits the newest of each key. So this keeps
the newest commit of each key, and every other record that either needs. That is little of most topics, and each stream
finds in it what it would find in the whole.

To find the newest of millions, Spark sorts them. So the ends of the partitions are read first: groups that are active
have committed all that they read lately. Of what is before, a commit of a key that is known by then is left out by a
hash join, in a part of the time that a sort takes.

The streams plan their first batches a moment apart. Each says where its batch ends, the last to come reads up to where
both are, and each adds the rest of its own. If only one of them begins at the start of the topic, if there is little to
read, or if the reading fails, each reads its batch itself. A batch that is repeated is never read here: what fails for
its size is tried in slices then, see `slices`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from streaming_app.errors import java_error_message
from streaming_app.stream.newest_records import COLUMNS, COMMITS, ENTITY, WANTED
from streaming_app.stream.source import EARLIEST, WANTED_RECORDS, read_range, type_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streaming_app.kafka.offsets_topic import OffsetsTopic

MIN_OFFSETS = 500_000
"""In the batch. Fewer are read twice in less time than a join takes."""
_STREAMS = 2
_WAIT_SECONDS = 15.0  # for the other stream: both are started at the same time
_POLL_SECONDS = 0.2
_MAX_CAUSE = 500  # characters of a line
_TAIL = 10  # one in so many offsets of a partition is in the part that is read first
_MOST_KNOWN, _LONGEST_KNOWN = 100_000, 400  # keys that are left out of the rest, and their bytes: all are in memory
_WANTED = f"({WANTED}) OR ({WANTED_RECORDS})"
_IS_COMMIT = f"coalesce({type_condition(COMMITS)}, false)"
# Of a commit its key, of any other record its place: it is the newest of its own.
_ID = f"IF({_IS_COMMIT}, {ENTITY}, encode(concat(partition, ' ', offset), 'UTF-8'))"
_NEWEST = f"max_by(struct({', '.join(COLUMNS)}), offset) AS newest"
_IS_ONE = "min(partition) = max(partition) AND min(id) = max(id)"  # or two have the same hash
Ends = Mapping[int, int]
"""By partition, the offset after the last one."""


class SharedRecords(NamedTuple):
    """What both streams need of their first batches. Spark keeps it until both have released it."""

    parts: tuple[DataFrame, DataFrame]
    ends: Ends


class FirstReading:
    """Joins the first batches of two streams, once. They call it from threads of their own."""

    def __init__(self, properties: Mapping[str, str], report: Callable[[str], None], stop: threading.Event) -> None:
        """Prepare; `report` gets a line if the reading fails, and no call waits once `stop` is set."""
        self._properties, self._report, self._stop = properties, report, stop
        self._condition = threading.Condition()
        self._joined: list[Ends] = []
        self._is_over = False
        self._shared: Future[SharedRecords | None] = Future()
        self._held = _STREAMS

    def leave(self) -> None:
        """Note that a stream reads its first batch itself: the other one need not wait for it."""
        with self._condition:
            self._is_over = True
            self._condition.notify_all()

    def read(
        self, spark: SparkSession, topic: OffsetsTopic, ends: Ends, before_read: Callable[[], None] = lambda: None
    ) -> DataFrame | None:
        """Return what a stream needs of the topic up to `ends`, with `newest_records.COLUMNS`; each calls this once.

        None if it has to read that itself. Otherwise it calls `release` once it has written what came of them. Waits
        for the other stream, and calls `before_read` before anything is read.
        """
        if self._is_over or sum(ends.values()) < MIN_OFFSETS:
            self.leave()
            return None
        before_read()
        number = self._join(ends)
        if number is None:
            return None
        if number == _STREAMS:
            self._shared.set_result(self._read(spark, topic))
        while not self._shared.done() and not self._stop.wait(_POLL_SECONDS):
            pass
        shared = self._shared.result() if self._shared.done() else None
        if shared is None:
            return None
        first, second = (part.select(*COLUMNS) for part in shared.parts)
        rest = read_range(spark, self._properties, topic, shared.ends, ends).where(_WANTED).select(*COLUMNS)
        return first.unionByName(second).unionByName(rest)

    def release(self) -> None:
        """Note that a stream needs no more of what `read` returned."""
        with self._condition:
            self._held -= 1
            is_last = not self._held
        shared = self._shared.result() if is_last and self._shared.done() else None
        _unpersist(shared.parts if shared else ())

    def _join(self, ends: Ends) -> int | None:
        """Return whether this is the first or the last of both streams, once both are there; None if they are not."""
        deadline = time.monotonic() + _WAIT_SECONDS
        with self._condition:
            if self._is_over:
                return None
            self._joined.append(ends)
            number = len(self._joined)
            self._is_over = number == _STREAMS
            self._condition.notify_all()
            while len(self._joined) < _STREAMS and not self._is_over:
                if self._stop.is_set() or time.monotonic() > deadline:
                    self._is_over = True
                self._condition.wait(_POLL_SECONDS)
            return number if len(self._joined) == _STREAMS else None

    def _read(self, spark: SparkSession, topic: OffsetsTopic) -> SharedRecords | None:
        first, second = self._joined
        if first.keys() != second.keys():  # the topic was given partitions
            return None
        ends = {partition: min(end, second[partition]) for partition, end in first.items()}
        try:
            return self._read_to(spark, topic, ends)
        except Exception as error:  # noqa: BLE001 - whatever it is, the batches can do without
            cause = java_error_message(error)[:_MAX_CAUSE]
            self._report(f"The topic could not be read once for both streams, so each reads it: {cause}")
            return None

    def _read_to(self, spark: SparkSession, topic: OffsetsTopic, ends: Ends) -> SharedRecords | None:
        """Return None if there is nothing, or, as is unlikely, two keys have the same hash."""
        from pyspark import StorageLevel  # noqa: PLC0415 - Spark is loaded by those who need it
        from pyspark.sql.functions import broadcast  # noqa: PLC0415

        read = partial(read_range, spark, self._properties, topic)
        starts = {one: topic.start_offsets.get(one, 0) for one in ends}
        middle = {one: max(starts[one], end - (end - starts[one]) // _TAIL) for one, end in ends.items()}
        newest = _find_newest(_with_ids(read(middle, ends))).persist(StorageLevel.DISK_ONLY)
        parts = [newest]
        try:
            is_valid, records = _keep(newest)
            known = newest.where(f"{_IS_COMMIT} AND length(id) <= {_LONGEST_KNOWN}").select("hash", "id")
            rest = _with_ids(read(dict.fromkeys(ends, EARLIEST), middle))
            rest = rest.join(broadcast(known.limit(_MOST_KNOWN)), ["hash", "id"], "left_anti")
            parts.append(_find_newest(rest).persist(StorageLevel.DISK_ONLY))
            is_rest_valid, more = _keep(parts[1])
            if is_valid and is_rest_valid and records + more:
                return SharedRecords((parts[0], parts[1]), ends)
        except Exception:
            _unpersist(parts)
            raise
        _unpersist(parts)
        return None


def _with_ids(records: DataFrame) -> DataFrame:
    wanted = records.where(_WANTED).selectExpr(*COLUMNS, f"{_ID} AS id")
    return wanted.selectExpr("*", "xxhash64(partition, id) AS hash")


def _find_newest(records: DataFrame) -> DataFrame:
    """Return the newest record of each id, found by its hash: see `newest_records` for the reason."""
    from pyspark.sql.functions import expr  # noqa: PLC0415

    found = records.groupBy("hash").agg(expr(_NEWEST), expr(f"{_IS_ONE} AS is_one"), expr("min(id) AS id"))
    return found.selectExpr("newest.*", "hash", "id", "is_one")


def _keep(newest: DataFrame) -> tuple[bool, int]:
    """Read the records, which keeps them; return whether each hash is of one id, and how many there are."""
    (row,) = newest.selectExpr("coalesce(every(is_one), true) AS is_valid", "count(*) AS records").collect()
    return row["is_valid"], row["records"]


def _unpersist(parts: Iterable[DataFrame]) -> None:
    for part in parts:
        part.unpersist()
