from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.stream import newest_records
from streaming_app.stream.batch_rows import join
from streaming_app.stream.epoch_chain import EpochStart
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.newest_records import COLUMNS, Rows, make_rows, to_rows
from streaming_app.tables.arrow import to_table
from tests.support.encode import encode
from tests.support.odd_group_ids import ODD
from tests.support.warehouses import arrow_schema

OPTIONS = FoldOptions("c", "topic", chains={0: (EpochStart(4, 0), EpochStart(6, 9))})
AT = 1_764_000_000_000_000
TOPIC_ID = "9QzJcRrXS2uSnzlC6FqG3w"
KEY = {"group": "g", "topic": "in", "partition": 3}
VALUE = {"offset": 7, "leader_epoch": 2, "metadata": "m", "commit_timestamp": 1_764_000_000_001, "topic_id": TOPIC_ID}


def raw(pair: tuple[bytes, bytes | None], offset: int = 5, partition: int = 0) -> dict[str, Any]:
    return {"partition": partition, "offset": offset, "timestamp": AT, "key": pair[0], "value": pair[1]}


def rows_of(*pairs: tuple[bytes, bytes | None]) -> Rows:
    return to_rows([raw(pair, number) for number, pair in enumerate(pairs)], OPTIONS)


def test_a_commit_becomes_a_row_with_all_that_the_record_holds() -> None:
    (row,) = rows_of(encode(1, KEY, VALUE)).offset_commits
    assert row == {
        "cluster": "c",
        "group_id": "g",
        "topic": "in",
        "partition": 3,
        "topic_id": TOPIC_ID,
        "committed_offset": 7,
        "leader_epoch": 2,
        "metadata": "m",
        "partition_time": None,
        "committed_at": 1_764_000_000_001_000,
        "expire_at": None,
        "recorded_at": AT,
        "source_partition": 0,
        "last_offset": 0,
        "log_epoch": 4,
    }


@pytest.mark.parametrize("time", [-(1 << 63), -1, 253_402_300_800_000, (1 << 63) - 1])
def test_a_time_that_cannot_be_shown_is_null(time: int) -> None:
    rows = rows_of(encode(1, KEY, VALUE | {"commit_timestamp": time})).offset_commits
    assert rows[0]["committed_at"] is None
    assert to_table(rows, arrow_schema("offset_commits")).num_rows == 1


def test_the_time_of_the_input_is_decoded_from_what_kafka_streams_commits() -> None:
    (row,) = rows_of(encode(1, KEY, VALUE | {"metadata": "AgAAAaIX6JFf"})).offset_commits
    (stored,) = to_table([row], arrow_schema("offset_commits")).to_pylist()
    assert row["partition_time"] == 0x01A217E8915F * 1_000
    assert stored["partition_time"].timestamp() == 0x01A217E8915F / 1_000


def test_names_and_metadata_that_others_chose_are_kept_as_they_are_and_a_tombstone_has_no_offset() -> None:
    pairs = [encode(1, KEY | {"group": text}, VALUE | {"metadata": text}) for text in ODD.values()]
    found = rows_of(*pairs, encode(1, KEY, None)).offset_commits
    *stored, gone = to_table(found, arrow_schema("offset_commits")).to_pylist()
    assert [(row["group_id"], row["metadata"]) for row in stored] == [(text, text) for text in ODD.values()]
    columns = ("topic", "partition", "committed_offset", "last_offset")
    assert [gone[name] for name in columns] == ["in", 3, None, len(ODD)]


def test_records_of_groups_give_what_their_types_and_states_are_made_of() -> None:
    member = {"group_id": "g", "member_id": "m"}
    state = {"member_epoch": 4, "previous_member_epoch": 3, "state": 1, "assigned_partitions": []}
    found = rows_of(
        encode(2, {"group": "g"}, {"protocol_type": "consumer", "generation": 9, "protocol": "stream", "members": []}),
        encode(3, {"group_id": "g"}, {"epoch": 5}),
        (encode(5, member, None)[0], b""),  # the value stays in the JVM
        encode(6, {"group_id": "g"}, {"assignment_epoch": 4}),
        encode(8, member, state | {"partitions_pending_revocation": []}),
        encode(11, {"group_id": "g"}, {"epoch": 6, "metadata_hash": 0}),
        encode(17, {"group_id": "g"}, None),
    ).group_records
    columns = ("record_type", "member_id", "deleted", "protocol", "epoch", "member_state", "member_count")
    assert [tuple(row.get(name) for name in columns) for row in found] == [
        (2, "", False, "stream", 9, None, 0),
        (-2, "", False, "stream", 9, None, 0),
        (3, "", False, None, 5, None, None),
        (5, "m", False, None, None, None, None),
        (6, "", False, None, 4, None, None),
        (8, "m", False, None, 4, 1, None),
        (11, "", False, None, 6, None, None),
        (17, "", True, None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("pair", "kind"),
    [
        ((encode(1, KEY, VALUE)[0], b""), "MalformedRecord"),
        ((encode(1, KEY, VALUE)[0], b"\x00\x09"), "UnknownValueVersion"),
        ((encode(1, KEY, VALUE)[0][:-1], None), "MalformedRecord"),
        ((b"\x00\x01\x00\x02\xff\xfe\x00\x01t\x00\x00\x00\x00", None), "MalformedRecord"),
    ],
)
def test_what_cannot_be_decoded_goes_to_quarantine_whole_and_the_rest_goes_on(
    pair: tuple[bytes, bytes | None], kind: str
) -> None:
    found = rows_of(pair, encode(1, KEY, VALUE))
    assert len(found.offset_commits) == 1
    (bad,) = found.quarantine
    assert (bad["error_kind"], bad["key"], bad["value"], bad["offset"], bad["partition"]) == (kind, *pair, 0, 0)
    assert bad["message"]


def test_a_commit_in_a_partition_that_no_longer_holds_its_group_is_left_out() -> None:
    grown = FoldOptions("c", "topic", partitions=50, partitions_grew=True)
    commits = [raw(encode(1, KEY, VALUE), partition=number) for number in range(50)]
    assert len(to_rows(commits, grown).offset_commits) == 1
    assert len(to_rows(commits, OPTIONS).offset_commits) == 50


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.booleans()), max_size=40), st.integers(1, 9))
def test_the_newest_record_of_each_key_gives_a_row_wherever_the_batches_of_a_worker_end(
    records: list[tuple[int, str, bool]], held: int
) -> None:
    pairs = [encode(1, {"group": group, "topic": "in", "partition": 0}, {"offset": 7}) for _, group, _ in records]
    rows = [
        {"partition": partition, "offset": n, "timestamp": AT, "key": key, "value": None if is_deleted else value}
        for n, ((partition, _, is_deleted), (key, value)) in enumerate(zip(records, pairs, strict=True))
    ]
    kinds = (pa.int32(), pa.int64(), pa.timestamp("us", "UTC"), pa.binary(), pa.binary())
    table = pa.Table.from_pylist(rows, pa.schema(zip(COLUMNS, kinds, strict=True)))
    newest = {(partition, group): n for n, (partition, group, _) in enumerate(records)}
    with pytest.MonkeyPatch.context() as patched:
        for held_at_most in (1_000, held):
            patched.setattr(newest_records, "_HELD", held_at_most)
            found = (
                join(make_rows(table.to_batches(3), options=OPTIONS)).tables.get("offset_commits", table).to_pylist()
            )
            last = {(row["source_partition"], row["group_id"]): row["last_offset"] for row in found if records}
            assert last == newest
            assert len(found) == len(newest) or held_at_most == held
