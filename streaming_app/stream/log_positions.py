"""Stores up to where a stream has read, as leader epochs and offsets, and checks whether the log still has it.

Theory of operation
-------------------
If a partition has no replica in the ISR, an unclean election gives it a leader that lacks records. The other replicas
truncate their logs, and new records get the offsets of lost ones. The leader epoch of a record tells the two apart; the
offset alone does not. So the state of the stream has a chain for each partition: up to which offset records may be in
the tables, and their leader epochs. It is written before the first row of a batch. A leader epoch also rises at
every restart of a broker, so only the leader's answer to OffsetForLeaderEpoch tells whether the log still has the
records.

- Each start compares the chain of each partition with the log. The records from the point where they differ to the end
  of the chain are a `Cut`: `truncation` marks the rows made from them, and `start` reads the partition again from its
  start. A batch that was started but wrote nothing may end beyond the log; Spark could never read it. That is not a
  cut: the query then starts from the last committed batch.
- If the log has no record of an epoch of the chain, either compaction removed them all, or an old leader that did not
  know this epoch wrote other records at their offsets, and an unclean election kept those. The job reads the log at
  these offsets: after a compaction it has no record there.
- The job asks the leaders before and after it reads the records of a batch. If their epochs differ, the records may
  come from two logs, and the job reads them again. It writes only after that.
- Spark's executors keep records that they fetched ahead until the query ends. These may come from the old log, although
  nothing of it was written. So as long as the query runs, the end of the log after a read counts as read.
- If the log begins after the stream's position, records were deleted before the stream read them, by retention or by
  DeleteRecords, and Spark could never read on. That is also a `Cut`, but these records did exist: no history is void.
- If there are no chains, the log counts as read, unless it ends earlier.

With client properties that kafka-python does not support, the job works without these checks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from threading import RLock
from typing import NamedTuple, TypeVar

from kafka.errors import KafkaError, UnsupportedCodecError

from streaming_app.errors import StreamChangedError, UnreachableError
from streaming_app.kafka.log_records import LogReader
from streaming_app.kafka.offsets_topic import OffsetsTopic, OffsetsTopicClient
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.topic_reader import EpochEnd
from streaming_app.stream.epoch_chain import MAX_EPOCHS, Chain, EpochStart, epoch_at, find_parting, join, up_to
from streaming_app.stream.stream_state import StateFile, StreamState
from streaming_app.tables.checkpoint_offsets import BatchEnds

T = TypeVar("T")


@dataclass(frozen=True)
class Cut:
    """Records of a partition that the log no longer has: the offsets from `start` to `end`.

    The stream has read them, unless `unread` is set.
    """

    topic: str
    partition: int
    start: int
    end: int
    """The offset after the last lost record."""
    epoch: int | None
    """Leader epoch of the last lost record; None if not known."""
    new_epoch: int
    """Leader epoch when the cut was found."""
    found_at: str
    """The time in ISO-8601."""
    unread: bool = False
    """The records were deleted before the stream read them."""

    def __str__(self) -> str:
        last = self.end - 1
        offsets = f"offset {last}" if self.start == last else f"offsets {self.start} to {last}"
        unread = ", deleted before they were read" if self.unread else ""
        return f"partition {self.partition} of {self.topic}, {offsets}{unread}"


class LogCheck(NamedTuple):
    """The facts about the log that a start needs."""

    cuts: tuple[Cut, ...] = ()
    ends_early: bool = False
    """A started batch ends beyond the log."""
    committed: Mapping[int, int] = {}
    """By partition, the end of the last committed batch."""

    @property
    def is_whole(self) -> bool:
        """Whether the query can continue from its checkpoint."""
        return not (self.cuts or self.ends_early)


NO_CUT = LogCheck()


class TruncatedLogError(StreamChangedError):
    """The log was cut while the query ran: the query must start again. The text is one line."""


class LogPositions:
    """The positions of one stream. Batches and checks may run in different threads."""

    def __init__(
        self,
        leaders: OffsetsTopicClient,
        state: StateFile,
        report: Callable[[str], None],
        *,
        on_cut: Callable[[Cut], None] = lambda _: None,
    ) -> None:
        """Prepare; `on_cut` is called with each cut."""
        self._leaders, self._state = leaders, state
        self._report, self._on_cut = report, on_cut
        self._lock = RLock()
        self._topic = self._topic_id = ""
        self.chains: dict[int, Chain] = {}
        """By partition, the known epochs of its log. Changes with the log."""
        self._ends: dict[int, int] = {}
        self._seen: dict[int, EpochStart] = {}  # by partition: the leader's epoch, and the end of the log
        self._is_known = True

    def open(self, topic: OffsetsTopic, batches: BatchEnds) -> LogCheck:
        """Compare the stored positions with the log before the query starts; `batches` come from the checkpoint.

        Raises UnreachableError if a partition has no leader for half a minute, or cannot be read.
        """
        with self._lock:
            self._topic, self._topic_id = topic.name, topic.topic_id
            self._leaders.expect(topic.topic_id)
            try:
                found = self._compare(range(topic.partitions), batches)
            except SecurityError as error:
                if self._is_known:
                    self._report(f"Cannot check whether a log was cut: {error}")
                self._is_known = False
                found = LogCheck(committed=batches.committed)
            return self._with_unread(found, topic, batches)

    def _with_unread(self, found: LogCheck, topic: OffsetsTopic, batches: BatchEnds) -> LogCheck:
        """Add the records that were deleted after the last committed batch."""
        now, cut = datetime.now(timezone.utc).isoformat(), {one.partition for one in found.cuts}
        unread = [
            Cut(topic.name, one, batches.committed[one], start, None, self._last_epoch(one), now, unread=True)
            for one, start in topic.start_offsets.items()
            if start > batches.committed.get(one, start) and one not in cut
        ]
        for one in unread:
            self._on_cut(one)
        # The start of the first batch is not known.
        is_first_begun = bool(batches.begun) and not batches.committed and any(topic.start_offsets.values())
        return found._replace(cuts=(*found.cuts, *unread), ends_early=found.ends_early or is_first_begun)

    def started(self, cuts: Iterable[Cut]) -> None:
        """Store the positions once tables and checkpoint fit the log with these `cuts`.

        A partition that is read again keeps its earlier position: the tables have events of the records up to it, so a
        cut among them must be found even while they are read again.
        """
        with self._lock:
            for cut in cuts:
                if cut.unread:
                    self._ends.pop(cut.partition, None)
                else:
                    self._ends[cut.partition] = cut.start
            if self._is_known:
                self._write()

    def before_read(self) -> None:
        """Ask the leaders before a read. Raises TruncatedLogError, and UnreachableError as `open` does."""
        with self._lock:
            if self._is_known and self._seen:
                self._raise_if_cut()
                epochs = self._leaders.epochs(self._seen)
                new = {one: epoch for one, epoch in epochs.items() if epoch != self._seen[one].epoch}
                self._extend(new)  # what began since the last read continues the chain
                self._seen = {one: EpochStart(epochs[one], seen.start) for one, seen in self._seen.items()}

    def check(self, start_offsets: Mapping[int, int] | None = None) -> None:
        """Ask the leaders between two batches. Raises as `before_read`, which the next batch still calls.

        Also raises TruncatedLogError if the log begins (by `start_offsets`) after the stream's position.
        """
        with self._lock:
            for partition, start in (start_offsets or {}).items():
                if start > self._ends.get(partition, start):
                    raise TruncatedLogError(
                        f"The log of partition {partition} of {self._topic} begins at offset {start}"
                    )
            if self._is_known and self._seen:
                self._raise_if_cut()

    def after_read(self, ends: Mapping[int, int] | None) -> bool:
        """Ask the leaders after a read; False if there was an election: call `before_read`, and read again.

        `ends` are the end offsets of the batch; this method notes them as read. Raises as `before_read`, and
        OtherTopicError if another topic has the name by now.
        """
        with self._lock:
            if not (self._is_known and self._seen):
                return True
            self._leaders.forget_leaders()
            asked = {partition: one.epoch for partition, one in self._seen.items()}
            found = self._leaders.epoch_ends(asked)
            if self._leaders.epochs(asked) != asked:
                return False
            ends = {partition: end for partition, end in (ends or {}).items() if partition in found}
            if short := [partition for partition, end in ends.items() if found[partition].end < end]:
                raise TruncatedLogError(f"Partition {min(short)} of {self._topic} ends before offsets that were read")
            self._seen = {partition: EpochStart(*end) for partition, end in found.items()}
            if any(end > self._ends.get(partition, 0) for partition, end in ends.items()):
                self._ends |= {partition: max(end, self._ends.get(partition, 0)) for partition, end in ends.items()}
                self._write()
            return True

    def _compare(self, partitions: Sequence[int], batches: BatchEnds) -> LogCheck:
        """Set the positions, and return their differences from the log."""
        known = self._state.state if self._state.state.topic_id == self._topic_id else StreamState()
        epochs, log = dict[int, int](), dict[int, EpochEnd]()
        while not epochs or self._leaders.epochs(partitions) != epochs:  # both are as of one moment
            epochs = self._leaders.epochs(partitions)
            log = self._leaders.epoch_ends(epochs)
        self.chains, self._ends, cuts = {}, {}, []
        for partition in partitions:
            chain, end = known.epochs.get(partition, ()), known.ends.get(partition, 0)
            parting = self._find_parting(partition, chain, end) if chain else end
            if parting == end and batches.committed.get(partition, 0) > end:  # a release without chains committed it
                end = batches.committed[partition]
                parting = min(end, log[partition].end)
            if parting < end:
                now = datetime.now(timezone.utc).isoformat()
                last = epoch_at(chain, end - 1)
                cuts.append(Cut(self._topic, partition, parting, end, last, epochs[partition], now))
            self.chains[partition], self._ends[partition] = up_to(chain, parting), end
        self._extend(epochs)
        self._seen = {partition: EpochStart(epochs[partition], log[partition].end) for partition in partitions}
        for cut in cuts:
            self._on_cut(cut)
        begun = [partition for partition, end in batches.begun.items() if partition in log and end > log[partition].end]
        return LogCheck(tuple(cuts), bool(begun), batches.committed)

    def _raise_if_cut(self) -> None:
        """Raise TruncatedLogError if the log may lack records up to the positions: `open` then finds out."""
        if self._find_lost():
            self._leaders.forget_leaders()  # another topic may have the name by now
            if lost := self._find_lost():
                partition, what = min(lost.items())
                raise TruncatedLogError(f"The log of partition {partition} of {self._topic} {what}")

    def _find_lost(self) -> dict[int, str]:
        """Return how the log differs from the position, for partitions that may lack records."""
        lost, asked = {}, {partition: one.epoch for partition, one in self._seen.items()}
        for partition, (epoch, end) in self._leaders.epoch_ends(asked).items():
            seen = self._seen[partition].start
            newest = epoch_at(self.chains.get(partition, ()), seen - 1)
            if end < seen:
                lost[partition] = f"was cut at offset {end}"
            elif newest is not None and epoch < newest:
                lost[partition] = f"no longer has the records of leader epoch {newest}"
        return lost

    def _find_parting(self, partition: int, chain: Chain, end: int) -> int:
        def has_record(first: int, end: int) -> bool:
            try:
                begins = self._leaders.describe(to_read=False).start_offsets
                with LogReader(self._leaders.properties, self._topic) as log:
                    first = max(first, begins[partition])
                    return any(True for _ in log.read({partition: (first, end)}))
            except UnsupportedCodecError:
                return True  # of a record that kafka-python cannot decompress
            except KafkaError as error:
                raise UnreachableError(f"Cannot read partition {partition} of {self._topic}: {error}") from error

        ends = self._leaders.epoch_ends
        return find_parting(chain, end, lambda epoch: ends({partition: epoch})[partition], has_record)

    def _extend(self, newest: Mapping[int, int]) -> None:
        """Add the epochs that follow the known ones, up to `newest`, by partition."""
        found: dict[int, list[EpochStart]] = {partition: [] for partition in newest}
        upper = dict(newest)
        for _ in range(MAX_EPOCHS):
            upper = {one: epoch for one, epoch in upper.items() if epoch > self._last_epoch(one)}
            if not upper:
                break
            below = self._leaders.epoch_ends({one: max(0, epoch - 1) for one, epoch in upper.items()})
            for partition, (epoch, start) in below.items():
                begun, upper[partition] = EpochStart(upper[partition], start), -1
                if begun.epoch == 0:
                    found[partition].insert(0, EpochStart(0, 0))
                # If an epoch is older than the log, a leader returns the epoch of the request.
                elif start >= 0 and not (found[partition] and found[partition][0].start == start):
                    found[partition].insert(0, begun)
                    upper[partition] = epoch
        for partition, chain in found.items():
            self.chains[partition] = join(self.chains.get(partition, ()), chain)

    def _last_epoch(self, partition: int) -> int:
        chain = self.chains.get(partition)
        return chain[-1].epoch if chain else -1

    def _write(self) -> None:
        ends = {partition: end for partition, end in self._ends.items() if end}
        self._state.write(
            ends=ends, epochs={partition: up_to(self.chains.get(partition, ()), end) for partition, end in ends.items()}
        )


def read_whole(positions: LogPositions | None, read: Callable[[], T], ends: Mapping[int, int] | None) -> T:
    """Call `read` until no election happens during it, and return its result; `ends` are as in `after_read`.

    None as positions: it reads no log.
    """
    while positions:
        positions.before_read()
        found = read()
        if positions.after_read(ends):
            return found
    return read()
