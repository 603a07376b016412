"""Offsets that a tool set, that somebody deleted, or that expired: both queries over written records, without Spark."""

import base64
import struct
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming_app.groups.events import OF_COMMITS
from streaming_app.stream import offset_acts
from streaming_app.stream.batch_rows import APPENDED, BatchRows, join
from streaming_app.stream.commits_writer import CommitsBatchWriter
from streaming_app.stream.fold_stage import fold_stream, sort_for_fold, stored_as_records
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.newest_records import COLUMNS, make_rows
from streaming_app.tables.data_files import encode_file
from streaming_app.tables.newest_tables import NewestTables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import BatchId
from streaming_app.tables.writer import TableWriter
from tests.groups.records import CONFIGS, FIRST_JOIN, GROUP, M1, metadata
from tests.stream.test_fold_stage import RAW
from tests.support.encode import encode
from tests.support.offsets_log import RawRecord
from tests.support.warehouses import append

OPTIONS = FoldOptions("default", "topic")
LIVE = datetime(2100, 1, 1, tzinfo=timezone.utc)  # after the start of each run: it reads records as they are written
PAST = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY = 86_400
_KINDS = (pa.int32(), pa.int64(), pa.timestamp("us", "UTC"), pa.binary(), pa.binary())

Step = tuple[float, tuple[bytes, bytes | None]]
"""Seconds, and key and value of a record."""


def streams(time: int = 5) -> str:
    """Return the metadata of a commit of Kafka Streams."""
    return base64.b64encode(struct.pack(">bq", 2, time)).decode()


def commit(second: float, offset: int | None, partition: int = 0, *, text: str = "", group: str = "g") -> Step:
    value = {"offset": offset, "metadata": text, "commit_timestamp": round(1000 * (LIVE.timestamp() + second))}
    key = {"group": group, "topic": "in", "partition": partition}
    return second, encode(1, key, None if offset is None else value)


def joined(group: str = "g", second: float = 0) -> list[Step]:
    return [
        (second + (when - FIRST_JOIN[0][0]).total_seconds(), encode(kind, {**key, "group_id": group}, value))
        for when, kind, key, value in FIRST_JOIN
    ]


def left(group: str = "g", second: float = 20, epoch: int = 3) -> list[Step]:
    member = {**M1, "group_id": group}
    gone = [(second, encode(kind, member, None)) for kind in (22, 21, 19)]
    return [*gone, (second, encode(17, {"group_id": group}, metadata(epoch, configs=CONFIGS)))]


def deleted(second: float, group: str = "g") -> list[Step]:
    return [(second, encode(kind, {**GROUP, "group_id": group}, None)) for kind in (20, 17, 23)]


RAN = [*joined(), *(commit(10, 7 + one, one, text=streams()) for one in range(2)), *left()]
"""The application ran, and committed 7 and 8 in two partitions."""
RESET = [commit(60, 0, 0), commit(60, 3, 1)]
BACK = [*joined(second=80), commit(90, 2, 0, text=streams())]


class Topic:
    """A partition of the offsets topic, and both queries of one job that read it."""

    def __init__(self, warehouse: Path, steps: Iterable[Step], begin: datetime = LIVE) -> None:
        self.records = [
            {"partition": 0, "offset": n, "timestamp": begin + timedelta(seconds=second), "key": key, "value": value}
            for n, (second, (key, value)) in enumerate(steps)
        ]
        self.warehouse, self.batches, self.groups_until = warehouse, 0, 0
        self.start()

    def start(self) -> None:
        """Start the job."""
        self.writer = TableWriter(None, self.warehouse, "default")  # type: ignore[arg-type]
        tables = NewestTables(self.writer, "default", 30)
        self.commits = CommitsBatchWriter(
            self.writer, tables, OPTIONS, lambda *_: None, groups_are_read=lambda act: act["offset"] < self.groups_until
        )

    def add(self, raws: Iterable[RawRecord]) -> None:
        """Read these records of a real log as the next batch."""
        new = [
            {**raw._asdict(), "timestamp": datetime.fromtimestamp(raw.timestamp_ms / 1000, timezone.utc)}
            for raw in raws
        ]
        self.records += new
        self._read(new)

    def read(self, begin: int, end: int = 1_000, *, number: int | None = None, as_files: bool = False) -> None:
        """Read a batch: the query of the groups first."""
        self._read([row for row in self.records if begin <= row["offset"] < end], number, as_files=as_files)

    def _read(self, records: list[dict[str, Any]], number: int | None = None, *, as_files: bool = False) -> None:
        self.batches = self.batches + 1 if number is None else number
        self.read_groups(records)
        self.read_commits(records, as_files=as_files)

    def read_groups(self, records: list[dict[str, Any]]) -> None:
        """Read a batch with the query of the groups."""
        of_groups = [row for row in records if row["key"][1] in {2, *range(17, 24)}]
        of_groups = [{**row, "group_bytes": row["key"][4 : 4 + row["key"][3]]} for row in of_groups]
        ids = {row["group_bytes"] for row in of_groups}
        raw = pa.Table.from_pylist(of_groups, RAW)
        stored = stored_as_records(self.writer.groups.find("group_id", [one.decode() for one in ids]))
        folded = join(fold_stream(sort_for_fold(raw, stored).to_batches(), OPTIONS))
        for name in APPENDED:
            if name in folded.tables:
                self.writer.table(name).append(folded.tables[name])
        if (groups := folded.tables.get("groups")) is not None:
            self.writer.groups.replace(groups, groups["group_id"].to_pylist())
        self.groups_until = max([self.groups_until, *(row["offset"] + 1 for row in records)])

    def read_commits(self, records: list[dict[str, Any]], *, as_files: bool = False) -> None:
        """Read a batch with the query of the committed offsets."""
        of_commits = [
            row for row in records if row["key"][1] <= 17
        ]  # fields that a real record has besides are ignored
        newest = pa.Table.from_pylist(of_commits, pa.schema(zip(COLUMNS, _KINDS, strict=True)))
        rows = join(make_rows(newest.to_batches(), options=OPTIONS))
        if as_files:
            rows = BatchRows({name: [encode_file(one)] for name, one in rows.tables.items()}, rows.counts)
        self.commits.write_rows(rows, BatchId(("commits",), self.batches))

    def events(self) -> list[tuple[Any, ...]]:
        """Return the acts: second, kind, partition, old, new, cause."""
        kinds = ", ".join(f"'{one}'" for one in OF_COMMITS)
        query = f"SELECT * FROM group_events e WHERE kind IN ({kinds}) ORDER BY e.offset"
        rows = WarehouseReader(self.warehouse).rows(query)
        begin, names = self.records[0]["timestamp"], ("kind", "partition", "old", "new", "cause")
        return [(int((row["at"] - begin).total_seconds()), *(row[one] for one in names)) for row in rows]


EXPECTED = [(60, "offsets_reset", 0, "7", "0", "while_empty"), (60, "offsets_reset", 1, "8", "3", "while_empty")]


@pytest.mark.parametrize("as_files", [False, True], ids=["driver", "workers"])
@pytest.mark.parametrize("begin", [LIVE, PAST], ids=["live", "later"])
def test_a_reset_is_told_wherever_the_batches_end(empty_warehouse: Path, begin: datetime, *, as_files: bool) -> None:
    topic = Topic(empty_warehouse, [*RAN, *RESET, *BACK], begin)
    for number, cut in enumerate((len(RAN) - 5, len(RAN), len(RAN) + 1, len(RAN) + 5)):
        topic.start()
        for name in ("group_events", "offset_commits", "group_records", "groups"):
            topic.writer.table(name).delete("true")
        topic.read(0, cut, number=10 * number + 1, as_files=as_files)
        topic.read(cut, number=10 * number + 2, as_files=as_files)
        assert topic.events() == EXPECTED, cut


NO_METADATA = [*joined(), commit(10, 1), *left(), commit(60, 0), *joined(second=80), commit(95, 1)]
"""The members commit no metadata; a tool does, too, while the group is Empty."""
AHEAD: dict[str, tuple[Sequence[Step], list[tuple[Any, ...]]]] = {
    "of Kafka Streams": ([*RAN, *RESET, *BACK], EXPECTED),
    "of another library": (NO_METADATA, [(60, "offsets_reset", 0, "1", "0", "while_empty")]),
    "deleted": (
        [*RAN, commit(60, None), *deleted(60)],
        [(60, "offsets_deleted", 0, "7", None, "deleted_or_expired,while_empty")],
    ),
}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("case", AHEAD)
def test_an_act_waits_until_the_query_of_the_groups_has_read_up_to_it_and_is_told_once(
    empty_warehouse: Path, case: str, *, restarts: bool
) -> None:
    steps, expected = AHEAD[case]
    topic = Topic(empty_warehouse, steps)
    for number, record in enumerate(topic.records):  # each batch is repeated, as after a crash before Spark's commit
        topic.batches = number
        for _ in range(2):
            topic.read_commits([record])
            if restarts:
                topic.start()
    assert topic.events() == []
    told = next(n for n, row in enumerate(topic.records) if row["timestamp"] == LIVE + timedelta(seconds=60))
    topic.read_groups(topic.records[:told])
    topic.commits.tell_acts()
    assert topic.events() == []
    topic.read_groups(topic.records[told:])
    if restarts:  # the job is killed once the events are in the table
        stored = topic.commits._state.state.acts
        topic.commits.tell_acts()
        topic.commits._state.write(acts=stored)
        topic.start()
    topic.commits.tell_acts()
    assert topic.events() == expected
    topic.start()
    assert not topic.commits._state.state.acts


def test_of_very_many_acts_the_oldest_do_not_wait(empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_acts, "_MOST_WAITING", 1)
    topic = Topic(empty_warehouse, [*RAN, *RESET, *BACK])
    topic.read_commits(topic.records)
    assert topic.events() == [(*EXPECTED[0][:5], None)]
    topic.read_groups(topic.records)
    topic.commits.tell_acts()
    assert topic.events() == [(*EXPECTED[0][:5], None), EXPECTED[1]]


def test_a_commit_of_a_member_hides_no_later_reset_if_the_members_left_in_the_same_batch(empty_warehouse: Path) -> None:
    own = [*joined(), commit(10, 1), *left(), commit(60, 0)]
    topic = Topic(empty_warehouse, own)
    topic.read(0, len(own) - 1)
    topic.read(len(own) - 1)
    assert topic.events() == [(60, "offsets_reset", 0, "1", "0", "while_empty")]


def test_neither_a_repeated_batch_nor_a_new_reading_tells_an_act_twice(empty_warehouse: Path) -> None:
    topic = Topic(empty_warehouse, [*RAN, *RESET, *BACK])
    topic.read(0, len(RAN))
    for _ in range(2):
        topic.read(len(RAN), number=2)
    assert topic.events() == EXPECTED
    topic.start()
    NewestTables(topic.writer, "default", 30).mark("true")
    for end in range(0, len(topic.records), 4):
        topic.read(end, end + 4)
    assert topic.events() == EXPECTED


def test_what_the_cleaner_has_left_gives_no_offset_before(empty_warehouse: Path) -> None:
    topic = Topic(empty_warehouse, [*RAN, commit(30, 5, 2, text=streams()), *RESET], PAST)
    reset = {one[1][0] for one in RESET}
    topic.records = [row for row in topic.records[:-2] if row["key"] not in reset] + topic.records[-2:]
    topic.read(0)
    gone = [(60, "offsets_reset", 0, None, "0", "while_empty"), (60, "offsets_reset", 1, None, "3", "while_empty")]
    assert topic.events() == gone


def test_of_a_reset_while_the_job_was_away_the_offset_before_is_not_known(empty_warehouse: Path) -> None:
    topic = Topic(empty_warehouse, [*RAN, *RESET], PAST)
    topic.read(0, len(RAN))
    topic.start()
    topic.read(len(RAN))
    assert [event[3:] for event in topic.events()] == [(None, "0", "while_empty"), (None, "3", "while_empty")]


def test_a_second_reset_is_one_also_after_a_restart(empty_warehouse: Path) -> None:
    topic = Topic(empty_warehouse, [*RAN, *RESET, commit(70, 7)])
    topic.read(0, len(topic.records) - 1)
    topic.start()
    topic.read(len(topic.records) - 1)
    assert topic.events() == [*EXPECTED, (70, "offsets_reset", 0, "0", "7", "while_empty")]


def test_commits_of_plain_consumers_are_no_acts_also_if_they_take_over_the_id(empty_warehouse: Path) -> None:
    plain = {"protocol_type": "consumer", "generation": 1, "protocol": "range", "members": []}
    taken_over = [(40.0, encode(2, {"group": "g"}, plain)), commit(50, 1), commit(55, 2)]
    others = [commit(10, 1, group="c"), commit(11, 0, group="c")]
    topic = Topic(empty_warehouse, [*RAN, *deleted(30), *others, *taken_over])
    for n in range(len(topic.records)):
        topic.read(n, n + 1)
    assert [event for event in topic.events() if event[1] != "group_type"] == []


RETENTION = {"kind": "broker_config", "name": "offsets.retention.minutes", "observed_at": PAST}
GONE = [commit(60, None)]
WITH_GROUP = [commit(60, None), *deleted(60)]
LATE = [commit(8 * DAY, None)]
LATE_WITH_GROUP = [commit(8 * DAY, None), *deleted(8 * DAY)]
CAUSES: dict[str, tuple[Sequence[Step], Sequence[str], str]] = {
    "a young one": (GONE, ["10080"], "deleted"),
    "with its group": (WITH_GROUP, ["10080"], "group_deleted"),
    "older than the retention": (LATE, ["10080"], "expired"),
    "between the retentions of two brokers": (LATE, ["10080", "20160"], "deleted_or_expired"),
    "an old one with its group": (LATE_WITH_GROUP, ["10080"], "deleted_or_expired"),
    "no retention is known": (GONE, [], "deleted_or_expired"),
}


@pytest.mark.parametrize(("gone", "retention", "cause"), CAUSES.values(), ids=CAUSES)
def test_an_offset_that_is_gone_was_deleted_or_has_expired(
    empty_warehouse: Path, gone: Sequence[Step], retention: Sequence[str], cause: str
) -> None:
    rows = ({**RETENTION, "subject": str(n), "value": value} for n, value in enumerate(retention))
    append(empty_warehouse, "broker_facts", *rows)
    topic = Topic(empty_warehouse, [*RAN, *gone])
    topic.read(0, len(RAN))
    topic.read(len(RAN))
    (event,) = topic.events()
    assert event[1:] == ("offsets_deleted", 0, "7", None, f"{cause},while_empty")
