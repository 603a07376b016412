"""Bytes written by hand, field by field, and the fields they decode to; `test_oracle.py` has bytes of all types."""

from collections.abc import Callable
from typing import Any

import pytest

from offsets_decoder import Record, decode, reference_decode

Decoder = Callable[..., Record]
GROUP = "0001 67"  # "g"
MEMBER = "0001 6d"  # "m"

CASES = {
    "17 of a real 4.4.0 broker, a description being stored": (
        "0011 0007 672d7075736832",
        "0000 00000002 2152202a89c42935 03 00 04 00000003 01 19 02 156e756d2e7374616e6462792e7265706c69636173 0230 00"
        "02 04 fffffffe",
        {
            "epoch": 2,
            "metadata_hash": 0x2152202A89C42935,
            "validated_topology_epoch": 3,
            "last_assignment_configs": [{"key": "num.standby.replicas", "value": "0"}],
            "stored_description_topology_epoch": -2,
            "failed_description_topology_epoch": -1,
        },
    ),
    "19 of a static member with an endpoint and a tag": (
        f"0013 {GROUP} {MEMBER}",
        "0000 0269 0272 01 01 ffffffff 00000002 0270 01 0268 ffff 00 02 026b 03c3a9 00 00",
        {
            "instance_id": "i",
            "rack_id": "r",
            "client_id": "",
            "client_host": "",
            "rebalance_timeout_ms": -1,
            "topology_epoch": 2,
            "process_id": "p",
            "user_endpoint": {"host": "h", "port": 65535},
            "client_tags": [{"key": "k", "value": "é"}],
        },
    ),
    "22 of 4.2, with assignment epochs and a static member that left temporarily": (
        f"0016 {GROUP} {MEMBER}",
        "0000 fffffffe 00000002 7f 02 0230 03 00000000 00000001 01 00 09 03 00000003 00000004"
        "02 0231 02 00000005 01 00 01 00 01 01 01 01 00",
        {
            "member_epoch": -2,
            "previous_member_epoch": 2,
            "state": 127,
            "active_tasks": [{"subtopology_id": "0", "partitions": [0, 1], "assignment_epochs": [3, 4]}],
            "standby_tasks": [{"subtopology_id": "1", "partitions": [5], "assignment_epochs": None}],
            "warmup_tasks": [],
            "active_tasks_pending_revocation": [],
            "standby_tasks_pending_revocation": [],
            "warmup_tasks_pending_revocation": [],
        },
    ),
    "23": (
        f"0017 {GROUP}",
        "0000 00000001 02 0230 02 0261 02 0372 2a 02 0263 00000000 0001 02 026b 0276 00 00 02 0273"
        "02 0270 00000004 ffff 01 00 02 02 0000 01 02 0001 00 00 00",
        {
            "epoch": 1,
            "subtopologies": [
                {
                    "subtopology_id": "0",
                    "source_topics": ["a"],
                    "source_topic_regex": ["r*"],
                    "state_changelog_topics": [
                        {
                            "name": "c",
                            "partitions": 0,
                            "replication_factor": 1,
                            "topic_configs": [{"key": "k", "value": "v"}],
                        }
                    ],
                    "repartition_sink_topics": ["s"],
                    "repartition_source_topics": [
                        {"name": "p", "partitions": 4, "replication_factor": -1, "topic_configs": []}
                    ],
                    "copartition_groups": [
                        {"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": [1]}
                    ],
                }
            ],
        },
    ),
}


@pytest.mark.parametrize(("key", "value", "fields"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("decoder", [decode, reference_decode])
def test_hand_written_bytes_decode_to_their_fields(
    decoder: Decoder, key: str, value: str, fields: dict[str, Any]
) -> None:
    record = decoder(bytes.fromhex(key), bytes.fromhex(value))

    assert record.value == fields
    assert list(record.value) == list(fields)
    assert (record.unknown_tags, record.drift, record.layout) == ([], False, None)


def test_a_key_of_two_strings_and_a_number_is_decoded() -> None:
    record = decode(bytes.fromhex("0001 0002 6731 0003 c3a974 ffffffff"), None)

    assert (record.record_type, record.name) == (1, "OffsetCommit")
    assert record.key == {"group": "g1", "topic": "ét", "partition": -1}


@pytest.mark.parametrize("decoder", [decode, reference_decode])
def test_a_tombstone_has_only_a_key(decoder: Decoder) -> None:
    record = decoder(bytes.fromhex(f"0016 {GROUP} {MEMBER}"), None)

    assert record.key == {"group_id": "g", "member_id": "m"}
    assert (record.value, record.value_version, record.unknown_tags) == (None, None, [])
