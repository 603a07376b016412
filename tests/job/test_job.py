"""The job as a user runs it, on a real broker, against what the broker itself says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaProducer

from offsets_decoder import encode
from streaming_app.local.container import Broker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.member import Member, settle
from streaming_app.protocol.topology import subtopology, topology
from streaming_app.serve.warehouse import Warehouse, quoted
from tests.job.running import refusal, run_job

pytestmark = pytest.mark.broker


def test_tables_agree_with_the_broker_and_a_second_run_doubles_nothing(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], run: Callable[..., str], tmp_path: Path
) -> None:
    topic, stable, unready, emptied = unique("in"), unique("stable"), unique("unready"), unique('odd "id" 🎉')
    client.create_topic(topic, 2)
    reads = topology(subtopology("0", source_topics=[topic]))
    members = [Member(client, group, reads) for group in (stable, stable, emptied)]
    for member in members:
        member.join()
    settle(members)
    members[0].push_description()
    members[0].push_description()
    members[2].leave()
    missing = unique("missing")
    Member(client, unready, topology(subtopology("0", source_topics=[missing]))).join()

    first = run_job(broker.bootstrap_server, tmp_path)
    assert first.returncode == 0, first.stderr
    assert "batch 0:" in first.stdout
    before = {row["group_id"]: row for row in Warehouse(tmp_path).rows("SELECT * FROM groups")}
    for told in client.describe([stable, unready, emptied]):
        row = before[told["group_id"]]
        assert (row["state"], row["group_epoch"], row["assignment_epoch"], row["member_count"]) == (
            told["group_state"],
            told["group_epoch"],
            told["assignment_epoch"],
            len(told["members"]),
        )
        assert {member["member_id"] for member in row["members"]} == {member["member_id"] for member in told["members"]}
    assert (before[stable]["description_status"], before[stable]["unsolicited_pushes"]) == ("CURRENT", 1)

    assert before[unready]["not_ready_reason"] == f"MISSING_SOURCE_TOPICS: Source topics {missing} are missing."
    assert before[stable]["not_ready_reason"] is None

    events = f"SELECT count(*) AS n FROM group_events WHERE group_id = {quoted(stable)}"
    told_once = Warehouse(tmp_path).rows(events)
    members[1].leave()
    settle(members[:1])
    assert "resuming from the checkpoint" in run("__consumer_offsets")
    created = "SELECT count(*) AS n FROM group_events WHERE kind = 'created' AND group_id = " + quoted(stable)
    assert Warehouse(tmp_path).rows(created) == [{"n": 1}]
    assert Warehouse(tmp_path).rows(events)[0]["n"] > told_once[0]["n"]
    doubled = 'SELECT count(*) AS n FROM group_events GROUP BY group_id, "offset", kind, member_id HAVING count(*) > 1'
    assert Warehouse(tmp_path).rows(doubled) == []


def test_what_cannot_be_decoded_is_kept_whole_and_the_job_goes_on(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], run: Callable[..., str], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 1)
    key, value = encode(20, {"group_id": "g"}, {"assignment_epoch": 7, "assignment_timestamp": 0})
    assert value is not None
    bad: dict[str, tuple[bytes | None, bytes | None]] = {
        "unknown type": (b"\x00\x18\x00\x01g", b"\x00\x00"),
        "far type": (b"\x03\xe7\x00\x01g", b"x"),
        "garbage value": (key, b"\xff\xff\xff"),
        "value version 9": (key, b"\x00\x09" + value[2:]),
        "trailing bytes": (key, value + b"\x00"),
        "one byte": (b"\x00", b"x"),
        "no byte": (b"", b"x"),
        "null key": (None, b"x"),
        "no text": (b"\x00\x14\x00\x02\xff\xfe", value),
        "large": (key, b"\x00\x00" + bytes(900_000)),
    }
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server, max_request_size=2 << 20)
    for bad_key, bad_value in [*bad.values(), (key, value)]:
        producer.send(topic, key=bad_key, value=bad_value).get(30)
    producer.close()

    run(topic)
    opened = Warehouse(tmp_path)
    kept = opened.rows('SELECT key, value, error_kind FROM quarantine ORDER BY "offset"')
    assert [(row["key"], row["value"]) for row in kept] == list(bad.values())
    assert [row["error_kind"] for row in kept[:4]] == ["UnknownRecordType"] * 2 + ["UnknownValueVersion"] * 2
    assert {row["error_kind"] for row in kept[4:]} == {"MalformedRecord"}
    assert opened.rows("SELECT group_id, assignment_epoch FROM groups") == [{"group_id": "g", "assignment_epoch": 7}]


def test_a_topic_that_is_not_there_is_told_in_one_line(broker: Broker, tmp_path: Path) -> None:
    said = refusal(run_job(broker.bootstrap_server, tmp_path, "--topic", "no-such-topic"))
    assert "has no topic no-such-topic" in said
