"""The batches of the second stream, on Spark and Delta tables."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import streaming_app
from streaming_app.errors import OtherTopicError
from streaming_app.groups.group import READ_AGAIN
from streaming_app.stream import commits_writer
from streaming_app.stream.commits_writer import CommitsBatchWriter, type_changes
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.job_state import CommittedBatch
from streaming_app.tables.driver_limits import NEWEST
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.newest_tables import NAMES, NewestTables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.table_files import TableFiles
from streaming_app.tables.writer import TableWriter
from tests.stream.test_groups_writer import NoPositions
from tests.support.encode import encode
from tests.support.frames import Pair, limit_driver, offsets_batch, write_offset_log

START = datetime(2026, 11, 1, tzinfo=timezone.utc)


def commit(group: str, offset: int | None, partition: int = 0, record_type: int = 1) -> Pair:
    value = None if offset is None else {"offset": offset, "metadata": "é", "commit_timestamp": 1_764_000_000_000}
    return encode(record_type, {"group": group, "topic": "in", "partition": partition}, value)


def history() -> Iterator[Pair]:
    """Yield commits of groups, with older ones of the same keys, tombstones, conversions, and records that are bad."""
    for offset in range(3):
        for group in ("one", 'it\'s "two" \\ 🎉'):
            yield commit(group, offset)
    yield commit("one", 9, record_type=0)
    yield commit("expired", 1)
    yield encode(
        2, {"group": "app"}, {"protocol_type": "consumer", "generation": 1, "protocol": "stream", "members": []}
    )
    yield encode(2, {"group": "app"}, None)
    yield encode(17, {"group_id": "app"}, {"epoch": 2})
    yield encode(22, {"group_id": "app", "member_id": "m"}, None)  # of no use here
    yield encode(3, {"group_id": "plain"}, {"epoch": 2})
    yield encode(5, {"group_id": "plain", "member_id": "m"}, {"client_id": "c", "client_host": "h"})
    yield commit("expired", None)
    yield commit("bad", 1)[0], b"\x00\x09"
    yield b"\x00\x18\x00\x01g", b"\x00\x00"  # the other stream puts it into quarantine
    yield encode(17, {"group_id": "app"}, {"epoch": 3})
    key, value = commit("one", 10)
    assert value is not None
    yield key, value[:-1] + b"\x01\x09\x00"  # a tagged field that no release knows
    for members, protocol in ((2, "range"), (1, "stream"), (0, None), (0, None)):
        yield classic("short", members, protocol)


def classic(group: str, members: int, protocol: str | None) -> Pair:
    """Return a record of a classic group as brokers since 4.0 write it."""
    one = {"member_id": "m", "client_id": "stream", "client_host": "/h", "subscription": b"", "assignment": b""}
    value = {"protocol_type": "consumer", "generation": 1, "protocol": protocol, "members": [one] * members}
    return encode(2, {"group": group}, value, version=3)


def write(spark: SparkSession, path: Path, cuts: list[int], start: int = 0, **settings: Any) -> list[CommittedBatch]:
    """Write the history in batches that end at `cuts`, and the last of them twice."""
    writer = TableWriter(spark, str(path), "default")
    outcomes: list[CommittedBatch] = []
    tables = NewestTables(writer, "default", 30)
    options = FoldOptions("default", "topic")
    write_batch = CommitsBatchWriter(writer, tables, options, lambda _, outcome: outcomes.append(outcome), **settings)
    rows = [(n, START + timedelta(seconds=n), key, value) for n, (key, value) in enumerate(history())]
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True), start):
        write_batch(offsets_batch(spark, rows[begin:end]), number)
    write_batch(offsets_batch(spark, rows[begin:end]), number)  # as after a crash before the checkpoint
    return outcomes


def content(path: Path) -> dict[str, list[dict[str, Any]]]:
    opened = WarehouseReader(path)
    return {
        "offsets": opened.rows("SELECT * FROM offsets ORDER BY group_id, topic, partition"),
        "all_groups": opened.rows("SELECT * FROM all_groups ORDER BY group_id"),
        "group_events": opened.rows("SELECT * FROM group_events ORDER BY group_id"),
        "quarantine": opened.rows("SELECT * FROM quarantine"),
    }


@pytest.fixture(scope="module")
def _whole(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, create_warehouse: Callable[[Path], Path]
) -> Path:
    path = create_warehouse(tmp_path_factory.mktemp("commits"))
    useless = next(number for number, (key, _) in enumerate(history()) if key[1] == 22)
    cuts = [3, 9, useless, useless + 1, 15]
    write_offset_log(path / "_checkpoints" / "default~offsets", [*cuts, len(list(history()))])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commits_writer, "make_in_workers", lambda *_: pytest.fail("the batches are small"))
        limit_driver(patched, records=0)  # of the streams groups, whose records take much more
        write(spark, path, cuts)
    return path


@pytest.fixture
def written(_whole: Path, tmp_path: Path) -> Path:
    """A warehouse into which the history was written in batches that one job reads."""
    return Path(shutil.copytree(_whole, tmp_path / "written"))


@pytest.fixture(scope="module")
def expected(_whole: Path) -> dict[str, list[dict[str, Any]]]:
    """What the tables hold then."""
    return content(_whole)


def test_the_newest_record_of_each_key_is_in_the_tables(expected: dict[str, list[dict[str, Any]]]) -> None:
    offsets = [(row["group_id"], row["committed_offset"], row["last_offset"]) for row in expected["offsets"]]
    assert offsets == [('it\'s "two" \\ 🎉', 2, 5), ("one", 10, 18)]
    assert expected["offsets"][1]["metadata"] == "é"
    assert expected["offsets"][1]["recorded_at"] == START + timedelta(seconds=18)
    columns = ("group_id", "group_type", "member_count", "kafka_streams")
    assert [tuple(row[name] for name in columns) for row in expected["all_groups"]] == [
        ('it\'s "two" \\ 🎉', "classic", 0, False),
        ("one", "classic", 0, False),
        ("plain", "consumer", 1, False),
        ("short", "classic", 0, True),  # an application that began and ended while the job did not read
    ]
    (event,) = expected["group_events"]
    assert (event["kind"], event["old"], event["new"], event["offset"]) == ("group_type", "classic", "streams", 9)
    assert event["at"] == START + timedelta(seconds=9)
    (bad,) = expected["quarantine"]
    assert (bad["error_kind"], bad["offset"], bad["group_id"]) == ("UnknownValueVersion", 15, "bad")


def test_batches_that_workers_of_spark_decode_after_a_reset_give_the_same_tables(
    spark: SparkSession, expected: dict[str, list[dict[str, Any]]], written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_driver(monkeypatch, NEWEST, records=0)
    writer = TableWriter(spark, str(written), "default")
    NewestTables(writer, "default", 30).mark("true")
    standing = content(written)
    assert {name: len(standing[name]) for name in standing} == {name: len(rows) for name, rows in expected.items()}
    cuts = [9, 10, 18]  # events and quarantine are there already
    outcomes = write(spark, written, cuts, start=100)
    for name in NAMES:
        writer.table(name).delete(f"last_offset <= {READ_AGAIN}")
    assert content(written) == expected
    assert [outcome.drifted for outcome in outcomes] == [0] * len(cuts) + [1, 1]


@pytest.mark.parametrize("stop_before", [2, 4])
def test_a_batch_that_is_interrupted_anywhere_and_repeated_leaves_out_nothing_and_repeats_nothing(
    spark: SparkSession,
    expected: dict[str, list[dict[str, Any]]],
    empty_warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop_before: int,
) -> None:
    writes = 0

    def interrupted(method: Callable[..., None]) -> Callable[..., None]:
        def write_or_stop(*arguments: Any) -> None:
            nonlocal writes
            writes += 1
            if writes == stop_before:
                raise InterruptedError
            method(*arguments)

        return write_or_stop

    with monkeypatch.context() as patched:
        patched.setattr(NewestTables, "append", interrupted(NewestTables.append))
        with pytest.raises(InterruptedError):
            write(spark, empty_warehouse, [])
    write(spark, empty_warehouse, [])
    assert content(empty_warehouse) == expected
    commits = WarehouseReader(empty_warehouse).rows(
        "SELECT count(*) AS n, count(DISTINCT last_offset) AS d FROM offset_commits"
    )
    assert commits[0]["n"] == commits[0]["d"]


class OfAnother(NoPositions):
    """Finds that the records that were read may be of another topic."""

    def after_read(self, ends: Mapping[int, int] | None) -> bool:
        raise OtherTopicError(f"another one at {ends}")


@pytest.mark.parametrize("few_records", [100_000, 0], ids=["few", "many"])
def test_nothing_of_a_batch_is_written_if_the_topic_is_another_one_by_then(
    spark: SparkSession, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch, few_records: int
) -> None:
    limit_driver(monkeypatch, NEWEST, records=few_records)
    write_offset_log(empty_warehouse / "_checkpoints" / "default~offsets", [100])
    before = content(empty_warehouse)
    with pytest.raises(OtherTopicError):
        write(spark, empty_warehouse, [], positions=OfAnother())
    assert content(empty_warehouse) == before


def test_a_compaction_changes_nothing_but_the_number_of_rows(
    spark: SparkSession, expected: dict[str, list[dict[str, Any]]], written: Path
) -> None:
    writer = TableWriter(spark, str(written), "default")
    tables = NewestTables(writer, "default", 36_500)
    for name in NAMES:
        tables.compact(name, TableFiles(writer.table(name)))
        MaintainedTable(writer.table(name), compact=partial(tables.compact, name)).maintain()
    assert content(written) == expected
    assert {name: writer.table(name).count_rows() for name in NAMES} == {"offset_commits": 2, "group_records": 6}
    streaming_app.open_warehouse(spark, str(written))
    for view in ("offsets", "all_groups"):
        seen = spark.sql(f"SELECT * FROM {view} ORDER BY group_id").toArrow().to_pylist()
        assert seen == [{name: row[name] for name in seen[0]} for row in expected[view]]


CLASSIC, CONSUMER, SHARE, STREAMS = 2, 3, 11, 17


def records(*numbered: tuple[int, int]) -> list[dict[str, Any]]:
    """Return records by offset and type; a tombstone has a negative type."""
    return [
        {"last_offset": offset, "record_type": abs(kind), "deleted": kind < 0, "recorded_at": offset}
        for offset, kind in numbered
    ]


CHANGES: dict[str, tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, str, str]]]] = {
    "a new group": ([], [(1, STREAMS)], []),
    "the same type again": ([(1, STREAMS)], [(2, STREAMS)], []),
    "classic to streams": ([(1, CLASSIC)], [(2, -CLASSIC), (3, STREAMS)], [(2, "classic", "streams")]),
    "streams to classic": ([(1, STREAMS)], [(2, -STREAMS), (3, CLASSIC)], [(2, "streams", "classic")]),
    "classic to consumer": ([(1, CLASSIC)], [(2, -CLASSIC), (3, CONSUMER)], [(2, "classic", "consumer")]),
    "the batch ends between the two": ([(1, CLASSIC), (2, -CLASSIC)], [(3, STREAMS)], [(2, "classic", "streams")]),
    "only the last record of the new type is seen": ([], [(2, -CLASSIC), (900, STREAMS)], [(2, "classic", "streams")]),
    "an empty group that the coordinator dropped": ([(1, STREAMS)], [(2, CLASSIC)], [(2, "streams", "classic")]),
    "there and back": ([(1, CLASSIC)], [(4, -STREAMS), (5, CLASSIC)], [(4, "streams", "classic")]),
    "deleted": ([(1, SHARE)], [(2, -SHARE)], []),
    "a batch that is repeated": ([(1, CLASSIC), (3, STREAMS)], [(2, -CLASSIC), (3, STREAMS)], []),
}
"""Records that are known, and new ones, and the changes that these prove."""


@pytest.mark.parametrize(("known", "new", "expected"), CHANGES.values(), ids=CHANGES)
def test_changes_of_the_type(
    known: list[tuple[int, int]], new: list[tuple[int, int]], expected: list[tuple[int, str, str]]
) -> None:
    found = list(type_changes(records(*known), records(*new)))
    assert found == [{"offset": offset, "at": offset, "old": old, "new": now} for offset, old, now in expected]
