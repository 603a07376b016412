"""The first start reads the topic once for both streams, and both write what they would write after two readings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.stream import first_reading
from streaming_app.stream.first_reading import FirstReading
from streaming_app.stream.log_positions import LogPositions
from streaming_app.tables.definitions import history_tables, table
from streaming_app.tables.reader import WarehouseReader
from tests.stream.test_commits_batch import commit, history
from tests.support.encoded import FIRST_EPOCH, group_records
from tests.support.job_runner import run_once
from tests.support.offsets_topic import UNDECODABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.broker

_OFFSETS: dict[str, Any] = {"offsets": {"enabled": True}}
_ROUNDS = 12  # so that most records are before those that are read first
Run = Callable[..., str]
Written = Callable[[], dict[str, list[str]]]


@pytest.fixture(scope="module")
def topic(client: StreamsGroupClient, broker: Broker) -> str:
    """A topic with records of every kind in three partitions, many of them of the same keys."""
    name = "first-reading"
    client.create_topic(name, 3)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server, linger_ms=5)
    for number in range(_ROUNDS):
        for key, value in history():
            producer.send(name, key=key, value=value, partition=0)
        for group in ("first", "second"):
            for key, value in group_records(group, FIRST_EPOCH + number):
                producer.send(name, key=key, value=value, partition=1)
        key, value = commit("old", number) if number < 3 else commit("new", number, number % 2)
        producer.send(name, key=key, value=value, partition=2)
        for key, value in (UNDECODABLE, (None, b"no key")):
            producer.send(name, key=key, value=value, partition=2)
    producer.close()
    return name


def content(warehouse: Path) -> dict[str, list[str]]:
    reader = WarehouseReader(warehouse)
    columns = {one.name: ", ".join(f'"{name}"' for name in one.names) for one in (table("groups"), *history_tables())}
    columns |= {"offsets": "*", "all_groups": "*"}
    return {name: sorted(map(str, reader.rows(f"SELECT {which} FROM {name}"))) for name, which in columns.items()}


@pytest.fixture(scope="module")
def expected(
    topic: str,
    broker: Broker,
    spark: SparkSession,
    create_warehouse: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, list[str]]:
    """The tables after both streams have read the topic on their own, as they do if it is small."""
    warehouse = create_warehouse(tmp_path_factory.mktemp("expected"))
    run_once(spark, broker.bootstrap_server, warehouse, topic=topic, **_OFFSETS)
    return content(warehouse)


@pytest.fixture
def written(topic: str, run: Run, tmp_path: Path) -> Written:
    """Lets both streams read the topic, and returns the tables."""

    def read() -> dict[str, list[str]]:
        run(topic, **_OFFSETS)
        return content(tmp_path)

    return read


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each of the attempts to read for both succeeded, however little there is to read."""
    made: list[bool] = []
    read = FirstReading.read

    def observed(*arguments: Any) -> DataFrame | None:
        found = read(*arguments)
        made.append(found is not None)
        return found

    monkeypatch.setattr(FirstReading, "read", observed)
    monkeypatch.setattr(first_reading, "MIN_OFFSETS", 1)
    monkeypatch.setattr(first_reading, "_WAIT_SECONDS", 300.0)
    return made


def test_what_is_read_once_gives_what_two_readings_give_and_the_job_goes_on_behind_it(
    topic: str, run: Run, written: Written, expected: dict[str, list[str]], reads: list[bool]
) -> None:
    assert written() == expected
    assert reads == [True, True]
    assert all(expected[name] for name in ("groups", "offsets", "all_groups", "quarantine", "group_events"))
    assert "resuming from the checkpoint" in run(topic, **_OFFSETS)
    assert written() == expected
    assert reads == [True, True]


def failing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(first_reading, "read_range", lambda *_: 1 / 0)


def two_keys_of_one_hash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(first_reading, "_IS_ONE", "count(*) < 3")


def an_election_while_it_is_read(patch: pytest.MonkeyPatch) -> None:
    after_read, calls = LogPositions.after_read, list[None]()

    def elected(*arguments: Any) -> bool:
        calls.append(None)
        return after_read(*arguments) and len(calls) > 2

    patch.setattr(LogPositions, "after_read", elected)


def more_in_each_batch_than_in_the_other(patch: pytest.MonkeyPatch) -> None:
    """And fewer keys may be known than there are."""
    patch.setattr(first_reading, "_MOST_KNOWN", 3)
    join = FirstReading._join
    patch.setattr(
        FirstReading, "_join", lambda self, ends: join(self, {one: max(0, end - 7) for one, end in ends.items()})
    )


@pytest.mark.parametrize(
    ("happens", "is_read_once"),
    [
        (failing, False),
        (two_keys_of_one_hash, False),
        (an_election_while_it_is_read, True),
        (more_in_each_batch_than_in_the_other, True),
    ],
)
def test_each_stream_reads_for_itself_what_cannot_be_read_once(
    written: Written,
    expected: dict[str, list[str]],
    reads: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[pytest.MonkeyPatch], None],
    *,
    is_read_once: bool,
) -> None:
    happens(monkeypatch)
    assert written() == expected
    assert reads == [is_read_once] * 2


@pytest.mark.parametrize("ends", ["with the job", "after a while"])
def test_a_stream_that_comes_alone_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    stop = threading.Event()
    monkeypatch.setattr(first_reading, "_WAIT_SECONDS", 600.0 if ends == "with the job" else 0.1)
    reading = FirstReading({}, lambda _: None, stop)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(reading.read(None, None, {0: 10_000_000})))  # type: ignore[arg-type]
    waiting.start()
    if ends == "with the job":
        assert waiting.is_alive()
        stop.set()
    waiting.join()
    assert found == [None]
