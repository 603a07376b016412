"""Relation E for whole batches, through Spark into real tables: an error at any call of a batch, once or each time.

Whatever is raised once, the tables hold in the end what a run without it writes. What is raised each time because of
one record sets the group of this record aside, and everything else is as without the record.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from importlib import import_module
from inspect import getattr_static
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from offsets_decoder import decode
from streaming_app.job.stream_query import StreamQuery
from streaming_app.stream import fold_stage, group_result, groups_writer, source
from streaming_app.stream.batch_rows import BatchRows
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.groups_writer import GroupsBatchWriter
from streaming_app.stream.slices import TRIES
from streaming_app.tables.driver_limits import GROUPS, MOST
from streaming_app.tables.location import Location
from tests.relations.test_e_fold import Once
from tests.stream.test_fold_stage import group
from tests.stream.test_groups_writer import batch_writer, content
from tests.support.encode import encode
from tests.support.encoded import metadata_record
from tests.support.frames import START, Row, batch, kafka_records, limit_driver, rows_of, write_offset_log
from tests.support.waiting import wait_until

REACHED = {
    "stream/batch_records.py:BatchRecords.read",
    "stream/fold_stage.py:_parts",
    "stream/fold_stage.py:sort_for_fold",
    "stream/group_result.py:decode",
    "stream/table_versions.py:TableVersions.write",
    "tables/group_rows.py:GroupRows.find",
    "tables/group_rows.py:GroupRows.replace",
    "tables/location.py:Location.write_text",
    "tables/rust_table.py:RustTable.append",
    "tables/rust_table.py:RustTable.delete_rows",
}
"""Where each of these batches reads, parses, asks, writes or renames: file:function.

A few of them: `tests/long/test_e_job.py` has each place of a job."""
OF_RECORDS = {"stream/fold_stage.py:_parts", "stream/batch_records.py:BatchRecords.read"}
CASES = [(site, OSError if n % 2 else MemoryError) for n, site in enumerate(sorted(REACHED))]
CASES += [(site, pa.ArrowInvalid) for site in sorted(OF_RECORDS)]
HOSTILE, MOST_FAILURES = 5_000, 3


def rows(count: int, first: int = 0) -> list[Row]:
    """Return records of some groups; a batch ends in the midst of operations, and some cannot be decoded."""
    pairs = [
        pair
        for epoch in range(2, count)
        for name in ("one", "two", "three")
        for pair in (*group(name, epoch, [f"m{epoch}"]), (b"\x00\x18\x00\x01g", b"\x00\x00"))
    ]
    return [(first + n, START + timedelta(seconds=(n + 4) // 9), *pair) for n, pair in enumerate(pairs[:count])]


def let_raise(site: str, once: Once, patched: pytest.MonkeyPatch) -> None:
    """Let a function raise when it begins, wherever its name was imported."""
    file, _, name = site.partition(":")
    owner: Any = import_module(f"streaming_app.{file.removesuffix('.py').replace('/', '.')}")
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    function = getattr_static(owner, last)
    if isinstance(function, (property, classmethod, staticmethod)):
        inner = function.fget if isinstance(function, property) else function.__func__
        raising: Any = type(function)(once.before(inner))  # type: ignore[arg-type]
    else:
        raising = once.before(function)
    modules = [one for name, one in sys.modules.items() if name.startswith("streaming_app.")]
    for holder in [owner] if outer else [one for one in modules if vars(one).get(last) is function]:
        patched.setattr(holder, last, raising)


def write_until_done(write: Callable[[], Callable[..., None]], records: Any, number: int) -> list[str]:
    """Write a batch until it succeeds, each time as a new start of the stream does; return the errors."""
    errors = list[str]()
    while error := failure_of(write, records, number):
        errors.append(type(error).__name__)
        if len(errors) > MOST_FAILURES:
            raise error
    return errors


def failure_of(write: Callable[[], Callable[..., None]], records: Any, number: int) -> Exception | None:
    try:
        write()(records, number)
    except Exception as error:  # noqa: BLE001 - as Spark does
        return error
    return None


def begun(path: Path, ends: Iterable[int], done: int) -> None:
    """Let the checkpoint say that batches have begun, and which is done."""
    write_offset_log(path / "_checkpoints" / "default", ends)
    (path / "_checkpoints" / "default" / "commits").mkdir(exist_ok=True)
    (path / "_checkpoints" / "default" / "commits" / str(done)).write_text("v1\n{}", "utf-8")


def test_an_error_that_comes_once_changes_nothing_wherever_it_comes(
    spark: SparkSession,
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size, most = 9, 3 * len(CASES)  # records of a batch; batches, as not each comes to every site
    ends = [size * (n + 1) for n in range(most)]
    records = rows(ends[-1])
    plain, disturbed = (create_warehouse(tmp_path / name) for name in ("plain", "disturbed"))
    frames = [batch(spark, records[end - size : end]) for end in ends]
    batch_writer(spark, disturbed)(frames[0], 0)
    number = 0
    for site, error in CASES:
        once = Once(error, 0)
        while not once.calls:
            number += 1
            begun(disturbed, ends[: number + 1], number - 1)
            with monkeypatch.context() as patched:
                let_raise(site, once, patched)
                errors = write_until_done(lambda: batch_writer(spark, disturbed), frames[number], number)
            assert len(errors) <= 1, (site, error, errors)
    write = batch_writer(spark, plain)
    write_offset_log(plain / "_checkpoints" / "default", ends)
    for done, frame in enumerate(frames[: number + 1]):
        write(frame, done)
    assert content(disturbed) == content(plain)


def fail_at(key: bytes, call: Callable[..., Any]) -> Callable[..., Any]:
    def failing(*args: Any, **named: Any) -> Any:
        if args[0] == key:
            raise MemoryError
        return call(*args, **named)

    return failing


def test_a_record_that_can_never_be_folded_is_found_among_twenty_thousand_and_its_group_is_set_aside(
    spark: SparkSession, tmp_path: Path, create_warehouse: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a megabyte. The batch fails once, since memory may have been short for another reason."""
    names = ["victim", *(f"g{number}" for number in range(1_000))]
    first = rows_of(pair for name in names for pair in group(name))
    many = [
        pair for epoch in range(3, 23) for name in names[1:] for pair in [metadata_record({"group_id": name}, epoch)]
    ]
    tags = [{"key": str(number), "value": "v" * 30_000} for number in range(36)]
    large = encode(19, {"group_id": "victim", "member_id": "n"}, {"client_tags": tags})
    second = rows_of([*many[:HOSTILE], large, *many[HOSTILE:-1]], len(first))
    assert len(second) == MOST[GROUPS].records
    ends = [len(first), len(first) + len(second)]
    plain, hostile = (create_warehouse(tmp_path / name) for name in ("plain", "hostile"))
    for path, pairs in ((plain, [one for one in second if one[2] != large[0]]), (hostile, second)):
        write_offset_log(path / "_checkpoints" / "default", ends)
        batch_writer(spark, path)(batch(spark, first), 0)
        frame = batch(spark, pairs)
        if path == plain:
            batch_writer(spark, path)(frame, 1)
    begun(hostile, ends, 0)
    monkeypatch.setattr(group_result, "decode", fail_at(large[0], decode))
    tries = list[int]()
    add = GroupsBatchWriter._write_part
    monkeypatch.setattr(
        GroupsBatchWriter, "_write_part", lambda *args: (tries.append(args[2].records.num_rows), add(*args))[1]
    )
    assert write_until_done(lambda: batch_writer(spark, hostile), frame, 1) == ["MemoryError"]
    assert tries.count(1) >= TRIES
    assert len(tries) < 60
    expected, found = content(plain), content(hostile)
    ((aside,), (before,)) = ([row for row in one["groups"] if row["group_id"] == "victim"] for one in (found, expected))
    size = len(large[0]) + len(large[1] or b"")
    place = f"offset {len(first) + HOSTILE} of partition 0, {size:,} bytes, cannot be folded alone: MemoryError"
    assert aside["set_aside_reason"] == f"UnfoldableRecord: {place}"
    marks = {name: None for name in before if name.startswith("set_aside")}
    assert {**aside, **marks} == before
    found["groups"] = [before if row is aside else row for row in found["groups"]]
    assert found == expected


@pytest.mark.parametrize("error", ["memory", "arrow", "killed"])
def test_a_part_whose_worker_fails_is_halved_until_the_driver_folds_it(
    spark: SparkSession,
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    error: str,
) -> None:
    """A worker that reads the record fails each time: after the rows of the groups before it, or at once."""
    records = rows(120)
    plain, disturbed = (create_warehouse(tmp_path / name) for name in ("plain", "disturbed"))
    batch_writer(spark, plain)(batch(spark, records), 0)
    limit_driver(monkeypatch, records=40)

    def fold_in_worker(batches: Iterable[pa.RecordBatch], options: FoldOptions) -> Iterator[BatchRows]:
        def reading() -> Iterator[pa.RecordBatch]:
            for one in batches:
                for start in range(one.num_rows):
                    if one["offset"][start].as_py() == 77:
                        if error == "killed":
                            os.kill(os.getpid(), signal.SIGKILL)
                        raise MemoryError if error == "memory" else pa.ArrowInvalid("offset overflow")
                    yield one.slice(start, 1)

        yield from fold_stage.fold_stream(reading(), options)

    monkeypatch.setattr(groups_writer, "fold_in_worker", fold_in_worker)
    write = batch_writer(spark, disturbed)
    write(batch(spark, records), 0)
    found, expected = content(disturbed), content(plain)
    for name in ("groups", "quarantine"):
        assert found[name] == expected[name]
    assert len(found["group_events"]) == len(expected["group_events"])


def test_each_start_of_the_stream_halves_what_ended_the_last_one_down_to_the_record(
    spark: SparkSession, tmp_path: Path, empty_warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the JVM ends for lack of memory. The query and its checkpoint are Spark's own; its id stays."""
    records, hostile = rows(40), 30
    kafka_records(spark, records).write.parquet(str(tmp_path / "topic"))
    topic = spark.read.parquet(str(tmp_path / "topic")).schema
    sizes, writers, fold = list[int](), set[str](), GroupsBatchWriter._write_few

    def write_few(self: GroupsBatchWriter, raw: pa.Table, part: Any) -> Any:
        writers.update(part.writers)
        if hostile in raw["offset"].to_pylist():
            sizes.append(raw.num_rows)
            raise ConnectionError("the JVM has ended")
        return fold(self, raw, part)

    monkeypatch.setattr(GroupsBatchWriter, "_write_few", write_few)

    def failure() -> Any:
        stream = source.wanted_records(spark.readStream.schema(topic).parquet(str(tmp_path / "topic")))
        query = StreamQuery(Location.of(empty_warehouse / "_checkpoints" / "default"), Event())
        running = query.start(stream, batch_writer(spark, empty_warehouse), None)
        assert wait_until(lambda: not running.isActive)
        return running.exception()

    failures = 0
    while failure() is not None:
        failures += 1
    assert sizes == [40, 20, 10, 5, 2, 1, 1]
    assert failures == len(sizes)
    assert len(writers) == 2
    (aside,) = [row for row in content(empty_warehouse)["groups"] if row["set_aside_reason"]]
    size = len(records[hostile][2] or b"") + len(records[hostile][3] or b"")
    place = f"offset {hostile} of partition 0, {size} bytes, cannot be folded alone: the job has ended each time"
    assert aside["set_aside_reason"] == f"UnfoldableRecord: {place}"
