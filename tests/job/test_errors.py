"""Errors of the job are one line on stderr; unusual topics and group ids are not errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from kafka import KafkaProducer

from streaming_app.cli.main import main
from streaming_app.errors import JobError
from streaming_app.job.lock import hold_job_lock
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.sandbox.process import reserve_port
from streaming_app.tables.reader import WarehouseReader, quote
from tests.support.job_runner import error_line, run_job, run_once, streams_groups
from tests.support.running_job import running_job
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_BROKER = "127.0.0.1:1"
ODD_IDS = (
    "two  spaces",
    'it\'s "quoted"',
    "back\\slash",
    "emoji 🎉",
    "line\nbreak",
    "per%cent",
    "-dash",
    "comma,dot.",
    "ümlaut",
)


@pytest.mark.slow
def test_a_warehouse_that_cannot_be_written_is_an_error_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = run_job(NO_BROKER, tmp_path / "file" / "warehouse")
    assert "Cannot write the warehouse: Not a directory" in error_line(ran)
    assert "Starting Spark" not in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("properties", "message"), [({}, "was not created by streams-groups"), ({"streams_groups.format": "9"}, "format 9")]
)
def test_tables_of_another_program_are_left_alone(tmp_path: Path, properties: dict[str, str], message: str) -> None:
    rows = pa.table({"x": [1]})
    write_deltalake(tmp_path / "groups", rows)
    DeltaTable(tmp_path / "groups").alter.set_table_properties(properties, raise_if_not_exists=False)
    assert message in error_line(run_job(NO_BROKER, tmp_path))


@pytest.mark.slow
def test_a_second_job_is_rejected_and_the_first_is_named(tmp_path: Path) -> None:
    with hold_job_lock(tmp_path / "_jobs", "default"):
        error = error_line(run_job(NO_BROKER, tmp_path))
    assert f"process {os.getpid()} on" in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bootstrap-server", "localhost"], "--bootstrap-server: must be HOST:PORT"),
        (["--bootstrap-server", NO_BROKER, "--trigger", "-1"], "--trigger"),
        (["--bootstrap-server", NO_BROKER, "--cluster", "a/b"], "--cluster: must be letters"),
        (["--bootstrap-server", NO_BROKER, "--conf", "novalue"], "--conf takes KEY=VALUE"),
        (["--bootstrap-server", NO_BROKER, "--dialect", "kip-1"], "--dialect: must be one of"),
        (["--bootstrap-server", NO_BROKER, "--nonsense"], "--nonsense"),
        ([], "--bootstrap-server"),
    ],
)
def test_wrong_usage_names_the_option_and_exits_2(options: list[str], message: str, tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, ["run", "--warehouse", str(tmp_path), *options])
    assert ran.exit_code == 2
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_command_config_that_does_not_exist_is_named_in_the_error(tmp_path: Path) -> None:
    assert "nowhere.properties" in error_line(
        run_job(NO_BROKER, tmp_path, "--command-config", tmp_path / "nowhere.properties")
    )


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


@pytest.mark.broker
def test_a_running_job_excludes_others_accepts_any_group_id_and_stops_on_sigterm(
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
) -> None:
    create_warehouse(tmp_path)
    source = unique("in")
    client.create_topic(source, 1)
    reads = topology(subtopology("0", source_topics=[source]))
    members = [SimulatedMember(client, group, reads) for group in ODD_IDS]
    members[0].join()  # brokers create the topic for the first group
    query = (
        "SELECT count(*) AS n FROM groups WHERE state = 'Stable' AND group_id IN ("
        + ", ".join(map(quote, ODD_IDS))
        + ")"
    )
    with running_job(broker.bootstrap_server, tmp_path) as job:
        assert job.says("reading from the beginning"), job.lines
        assert f"process {job.process.pid} on" in error_line(run_job(broker.bootstrap_server, tmp_path))
        for member in members[1:]:
            member.join()
        settle(members)
        assert wait_until(lambda: WarehouseReader(tmp_path).rows(query) == [{"n": len(ODD_IDS)}]), job.lines
        code, errors = job.end(signal.SIGTERM)
    assert (code, errors) == (0, "")
    assert job.lines[-1] == "Stopped.\n"

    listed = streams_groups("list", "--warehouse", tmp_path).stdout
    for group in ODD_IDS:
        options = ["--group", group, "--state", "--warehouse", str(tmp_path)]
        described = CliRunner().invoke(main, ["describe", *options])
        assert described.exit_code == 0, described.stderr
        lines = described.stdout.splitlines()  # a verdict comes first, once there is one
        header = next(number for number, line in enumerate(lines) if line.startswith("GROUP "))
        assert " Stable " in lines[header + 1]
        assert group.replace("\n", "\\n") in listed
