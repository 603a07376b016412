"""Errors of the job are one line on stderr; topics without records of groups are not errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from kafka import KafkaProducer

from streaming_app.cli.main import main
from streaming_app.errors import JobError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.process import reserve_port
from streaming_app.tables.reader import WarehouseReader
from tests.support.job_runner import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_BROKER = "127.0.0.1:1"


def in_the_way(warehouse: Path) -> None:
    warehouse.parent.touch()


def of_another_program(warehouse: Path, properties: Mapping[str, str] = MappingProxyType({})) -> None:
    write_deltalake(warehouse / "groups", pa.table({"x": [1]}))
    DeltaTable(warehouse / "groups").alter.set_table_properties(dict(properties), raise_if_not_exists=False)


def of_a_later_release(warehouse: Path) -> None:
    of_another_program(warehouse, {"streams_groups.format": "9"})


@pytest.mark.parametrize(
    ("prepare", "options", "message"),
    [
        (in_the_way, [], "Cannot write the warehouse: Not a directory"),
        (of_another_program, [], "was not created by streams-groups"),
        (of_a_later_release, [], "format 9"),
        (lambda _: None, ["--command-config", "/nowhere.properties"], "/nowhere.properties"),
    ],
    ids=["not a directory", "another program", "a later release", "no client properties"],
)
def test_what_is_wrong_with_files_is_one_line_before_spark_starts(
    tmp_path: Path, prepare: Callable[[Path], None], options: list[str], message: str
) -> None:
    warehouse = tmp_path / "directory" / "warehouse"
    prepare(warehouse)
    ran = CliRunner().invoke(main, ["run", "--bootstrap-server", NO_BROKER, "--warehouse", str(warehouse), *options])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("Error: ")
    assert (message in ran.stderr, ran.stderr.count("\n")) == (True, 1), ran.stderr


def test_a_broker_that_does_not_answer_is_named_in_the_error(spark: SparkSession, empty_warehouse: Path) -> None:
    with reserve_port() as closed, pytest.raises(JobError, match=r"No Kafka broker answers at 127.0.0.1:.*\Z"):
        run_once(spark, f"127.0.0.1:{closed.getsockname()[1]}", empty_warehouse)


@pytest.mark.broker
def test_an_empty_topic_and_a_topic_with_other_records_are_not_errors(
    broker: Broker,
    client: StreamsGroupClient,
    spark: SparkSession,
    unique: Callable[[str], str],
    empty_warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, warehouse = unique("else"), empty_warehouse
    client.create_topic(topic, 2)
    monkeypatch.chdir(warehouse.parent)
    empty = run_once(spark, broker.bootstrap_server, Path(warehouse.name), topic=topic)
    assert empty[-1] == "Done: all available records are processed."
    assert WarehouseReader(warehouse).rows("SELECT * FROM groups") == []

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server)
    for number in range(3):
        producer.send(topic, key=f"order-{number}".encode(), value=b'{"json": true}').get(300)
    producer.close()
    first, *others = run_once(spark, broker.bootstrap_server, warehouse.as_uri(), topic=topic)
    assert "resuming" in first
    assert any("3 quarantined" in line for line in others)
    assert others[-1] == "Done: all available records are processed."
    kept = WarehouseReader(warehouse).rows("SELECT key, error_kind FROM quarantine ORDER BY key")
    assert kept == [{"key": f"order-{n}".encode(), "error_kind": "UnknownRecordType"} for n in range(3)]
