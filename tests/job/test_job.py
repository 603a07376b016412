"""The job as a user runs it, on a real broker, compared with what the broker describes."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from streaming_app.cli.main import main
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.tables.reader import WarehouseReader, quote
from tests.support.container import Broker
from tests.support.encode import encode
from tests.support.job_runner import run_once

pytestmark = pytest.mark.broker

ODD_IDS = ('it\'s  "quoted" \\ 🎉', "line\nbreak", "-dash, 100% ümlaut.")


def test_tables_agree_with_the_broker_about_groups_of_any_id_and_a_second_run_duplicates_nothing(
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    spark: SparkSession,
    run: Callable[..., str],
    empty_warehouse: Path,
) -> None:
    topic, stable, unready, emptied = map(unique, ("in", "stable", "unready", "emptied"))
    client.create_topic(topic, 2)
    reads = topology(subtopology("0", source_topics=[topic]))
    members = [SimulatedMember(client, group, reads) for group in (stable, stable, emptied, *ODD_IDS)]
    for member in members:
        member.join()
    settle(members)
    members[0].push_description()
    members[0].push_description()
    members[2].leave()
    missing = unique("missing")
    SimulatedMember(client, unready, topology(subtopology("0", source_topics=[missing]))).join()

    lines = run_once(spark, broker.bootstrap_server, empty_warehouse)
    assert any(re.fullmatch(r"batch 0: .*, [0-9.]+ s, 0 behind", line) for line in lines), lines
    before = {row["group_id"]: row for row in WarehouseReader(empty_warehouse).rows("SELECT * FROM groups")}
    for described in client.describe([stable, unready, emptied, *ODD_IDS]):
        row = before[described["group_id"]]
        assert (row["state"], row["group_epoch"], row["assignment_epoch"], row["member_count"]) == (
            described["group_state"],
            described["group_epoch"],
            described["assignment_epoch"],
            len(described["members"]),
        )
        member_ids = {member["member_id"] for member in described["members"]}
        assert {member["member_id"] for member in row["members"]} == member_ids
    assert (before[stable]["description_status"], before[stable]["unsolicited_pushes"]) == ("CURRENT", 1)

    assert before[unready]["not_ready_reason"] == f"MISSING_SOURCE_TOPICS: Source topics {missing} are missing."
    assert before[stable]["not_ready_reason"] is None

    listed = CliRunner().invoke(main, ["list", "--warehouse", str(empty_warehouse)]).stdout
    for group in ODD_IDS:
        options = ["--group", group, "--state", "--warehouse", str(empty_warehouse)]
        lines = CliRunner().invoke(main, ["describe", *options]).stdout.splitlines()  # a verdict may come first
        header = next(number for number, line in enumerate(lines) if line.startswith("GROUP "))
        assert " Stable " in lines[header + 1]
        assert group.replace("\n", "\\n") in listed

    events = f"SELECT count(*) AS n FROM group_events WHERE group_id = {quote(stable)}"
    first_count = WarehouseReader(empty_warehouse).rows(events)
    members[1].leave()
    settle(members[:1])
    assert "resuming from the checkpoint" in run("__consumer_offsets", warehouse=empty_warehouse)
    created = "SELECT count(*) AS n FROM group_events WHERE kind = 'created' AND group_id = " + quote(stable)
    assert WarehouseReader(empty_warehouse).rows(created) == [{"n": 1}]
    assert WarehouseReader(empty_warehouse).rows(events)[0]["n"] > first_count[0]["n"]
    duplicates = (
        'SELECT count(*) AS n FROM group_events GROUP BY group_id, "offset", kind, member_id HAVING count(*) > 1'
    )
    assert WarehouseReader(empty_warehouse).rows(duplicates) == []


def test_a_record_that_cannot_be_decoded_is_quarantined_and_the_job_continues(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], run: Callable[..., str], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 1)
    key, value = encode(20, {"group_id": "g"}, {"assignment_epoch": 7, "assignment_timestamp": 0})
    assert value is not None
    bad: dict[str, tuple[bytes | None, bytes | None]] = {
        "unknown type": (b"\x00\x18\x00\x01g", b"\x00\x00"),
        "large type": (b"\x03\xe7\x00\x01g", b"x"),
        "garbage value": (key, b"\xff\xff\xff"),
        "value version 9": (key, b"\x00\x09" + value[2:]),
        "trailing bytes": (key, value + b"\x00"),
        "one byte": (b"\x00", b"x"),
        "empty key": (b"", b"x"),
        "null key": (None, b"x"),
        "invalid UTF-8": (b"\x00\x14\x00\x02\xff\xfe", value),
        "large": (key, b"\x00\x00" + bytes(900_000)),
    }
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server, max_request_size=2 << 20)
    for bad_key, bad_value in [*bad.values(), (key, value)]:
        producer.send(topic, key=bad_key, value=bad_value).get(300)
    producer.close()

    run(topic)
    opened = WarehouseReader(tmp_path)
    kept = opened.rows('SELECT key, value, error_kind FROM quarantine ORDER BY "offset"')
    assert [(row["key"], row["value"]) for row in kept] == list(bad.values())
    assert [row["error_kind"] for row in kept[:4]] == ["UnknownRecordType"] * 2 + ["UnknownValueVersion"] * 2
    assert {row["error_kind"] for row in kept[4:]} == {"MalformedRecord"}
    assert opened.rows("SELECT group_id, assignment_epoch FROM groups") == [{"group_id": "g", "assignment_epoch": 7}]
