"""The views `offsets` and `all_groups`, over rows as the job writes them."""

from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from deltalake import write_deltalake

from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.newest_records import to_rows
from streaming_app.tables.arrow import to_table
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.reader import WarehouseReader
from tests.support.encode import encode
from tests.support.warehouses import append, arrow_schema, make_warehouse

Pair = tuple[bytes, bytes | None]
MICROSECONDS = 1_764_000_000_000_000


def at(offset: int) -> datetime:
    return datetime.fromtimestamp(MICROSECONDS / 1e6 + offset, timezone.utc)


def write(path: Path, pairs: Iterable[Pair], start: int = 0, cluster: str = "c") -> None:
    """Write records as one batch; those of offset n have the time `at(n)`."""
    raws = [
        {"partition": 0, "offset": n, "timestamp": MICROSECONDS + n * 1_000_000, "key": key, "value": value}
        for n, (key, value) in enumerate(pairs, start)
    ]
    rows = to_rows(raws, FoldOptions(cluster, "topic"))
    assert not rows.quarantine
    for name in ("offset_commits", "group_records"):
        write_deltalake(path / name, to_table(getattr(rows, name), arrow_schema(name)), mode="append")


def commit(group: str, offset: int | None, partition: int = 0) -> Pair:
    value = None if offset is None else {"offset": offset, "metadata": "", "commit_timestamp": 1}
    return encode(1, {"group": group, "topic": "in", "partition": partition}, value)


def classic(group: str, *, members: int, protocol: str | None = "range", protocol_type: str = "consumer") -> Pair:
    listed = [
        {"member_id": str(n), "client_id": "c", "client_host": "h", "subscription": b"", "assignment": b""}
        for n in range(members)
    ]
    value = {"protocol_type": protocol_type, "generation": 3, "protocol": protocol, "members": listed}
    return encode(2, {"group": group}, value)


def consumer(group: str, *, epoch: int, assignment: int | None, members: Iterable[tuple[int, int]]) -> list[Pair]:
    """Return the records of a consumer group; a member is its epoch and its state."""
    pairs = [encode(3, {"group_id": group}, {"epoch": epoch})]
    if assignment is not None:
        pairs.append(encode(6, {"group_id": group}, {"assignment_epoch": assignment}))
    for number, (member_epoch, state) in enumerate(members):
        key = {"group_id": group, "member_id": str(number)}
        pairs.append((encode(5, key, None)[0], b""))
        pairs.append(encode(8, key, {"member_epoch": member_epoch, "state": state}))
    return pairs


def rows(path: Path, columns: str, view: str = "all_groups") -> list[tuple[Any, ...]]:
    found = WarehouseReader(path).rows(f"SELECT {columns} FROM {view} ORDER BY {columns}")
    return [tuple(row.values()) for row in found]


def test_offsets_has_the_newest_commit_of_each_key_in_whatever_order_batches_come(tmp_path: Path) -> None:
    make_warehouse(tmp_path)
    write(tmp_path, [commit("g", 5), commit("g", 6, partition=1), commit("h", 1)], start=10)
    write(tmp_path, [commit("g", 9)], start=20)
    write(tmp_path, [commit("g", 4), commit("h", None)], start=12)  # an older batch again, and a tombstone
    write(tmp_path, [commit("i", 5), commit("i", None), commit("i", 0)], start=30)  # a commit after one
    write(tmp_path, [commit("g", 100)], cluster="other")
    assert rows(tmp_path, "cluster, group_id, partition, committed_offset, last_offset", "offsets") == [
        ("c", "g", 0, 9, 20),
        ("c", "g", 1, 6, 11),
        ("c", "i", 0, 0, 32),
        ("other", "g", 0, 100, 0),
    ]


STATES = {
    "no members": ({"epoch": 3, "assignment": 3, "members": []}, "Empty"),
    "no assignment yet": ({"epoch": 2, "assignment": None, "members": [(0, 0)]}, "Assigning"),
    "a newer epoch": ({"epoch": 4, "assignment": 3, "members": [(3, 0)]}, "Assigning"),
    "a member that must revoke": ({"epoch": 4, "assignment": 4, "members": [(4, 0), (4, 1)]}, "Reconciling"),
    "a member of an older epoch": ({"epoch": 4, "assignment": 4, "members": [(4, 0), (3, 0)]}, "Reconciling"),
    "all have their assignments": ({"epoch": 4, "assignment": 4, "members": [(4, 0), (4, 0)]}, "Stable"),
}


def test_the_state_of_a_consumer_group_is_that_of_its_records(tmp_path: Path) -> None:
    make_warehouse(tmp_path)
    write(tmp_path, [pair for name, (records, _) in STATES.items() for pair in consumer(name, **records)])
    expected = sorted((name, "consumer", "consumer", state) for name, (_, state) in STATES.items())
    assert rows(tmp_path, "group_id, group_type, protocol_type, state") == expected


def test_every_type_of_group_is_listed_with_what_the_log_proves(tmp_path: Path) -> None:
    make_warehouse(tmp_path)
    share = encode(11, {"group_id": "share"}, {"epoch": 2, "metadata_hash": 0})
    member = (encode(10, {"group_id": "share", "member_id": "m"}, None)[0], b"")
    write(
        tmp_path,
        [
            classic("classic", members=2),
            classic("app", members=1, protocol="stream"),
            classic("connect", members=0, protocol=None, protocol_type="connect"),
            *consumer("consumer", epoch=4, assignment=4, members=[(4, 0)]),
            share,
            member,
            commit("only offsets", 5),
            commit("classic", 7),
            commit("classic", 7, partition=1),
        ],
    )
    columns = (
        "group_id, group_type, protocol_type, protocol, state, member_count, group_epoch, offset_count, kafka_streams"
    )
    assert rows(tmp_path, columns) == [
        ("app", "classic", "consumer", "stream", None, 1, 3, 0, True),
        ("classic", "classic", "consumer", "range", None, 2, 3, 2, False),
        ("connect", "classic", "connect", None, "Empty", 0, 3, 0, False),
        ("consumer", "consumer", "consumer", None, "Stable", 1, 4, 0, False),
        ("only offsets", "classic", "", None, "Empty", 0, None, 1, False),
        ("share", "share", "share", None, "Stable", 1, 2, 0, False),
    ]
    assert rows(tmp_path, "updated_at, group_id")[-1] == (at(11), "classic")


def test_a_classic_application_of_kafka_streams_is_known_as_one_after_its_last_member_left(tmp_path: Path) -> None:
    make_warehouse(tmp_path)
    columns = "group_id, state, protocol, kafka_streams"
    stopped = [classic("app", members=0, protocol=None), classic("other", members=0, protocol=None)]
    write(tmp_path, [classic("app", members=2, protocol="stream"), classic("other", members=2)])
    write(tmp_path, stopped, start=10)
    assert rows(tmp_path, columns) == [("app", "Empty", None, True), ("other", "Empty", None, False)]
    write(tmp_path, [classic("app", members=1), classic("app", members=0, protocol=None)], start=20)
    assert rows(tmp_path, columns)[0] == ("app", "Empty", None, False)  # another program uses its id
    write(tmp_path, [classic("app", members=1, protocol="stream")], start=30)
    write(tmp_path, [encode(2, {"group": "app"}, None), classic("app", members=0, protocol=None)], start=40)
    assert rows(tmp_path, columns)[0] == ("app", "Empty", None, False)


def test_a_group_that_was_converted_has_its_new_type_only_and_one_that_was_deleted_is_not_listed(
    tmp_path: Path,
) -> None:
    make_warehouse(tmp_path)
    write(tmp_path, [classic("to consumer", members=0), *consumer("to classic", epoch=2, assignment=2, members=[])])
    new = consumer("to consumer", epoch=1, assignment=1, members=[(1, 0)])
    write(tmp_path, [encode(2, {"group": "to consumer"}, None), *new], start=50)
    # An empty consumer group may be dropped without tombstones, too.
    write(tmp_path, [classic("to classic", members=1)], start=70)
    members = [*consumer("g", epoch=4, assignment=4, members=[]), commit("g", 1), classic("h", members=0)]
    write(tmp_path, members, start=80)
    gone = [encode(3, {"group_id": "g"}, None), encode(6, {"group_id": "g"}, None), commit("g", None)]
    write(tmp_path, [*gone, encode(2, {"group": "h"}, None)], start=90)
    assert rows(tmp_path, "group_id, group_type, member_count") == [
        ("to classic", "classic", 1),
        ("to consumer", "consumer", 1),
    ]


def test_streams_groups_come_from_the_table_groups_even_while_the_other_query_is_behind(tmp_path: Path) -> None:
    make_warehouse(tmp_path)
    write(tmp_path, [classic("app", members=1, protocol="stream"), commit("app", 3)])
    row = {"cluster": "c", "group_id": "app", "group_type": "streams", "state": "Stable", "member_count": 1}
    row |= {"group_epoch": 7, "updated_at": at(90), "last_offset": 90, "source_partition": 0}
    gone = {**row, "group_id": "gone", "state": "Dead", "deleted_at": at(91)}
    append(tmp_path, "groups", row, gone)
    assert rows(tmp_path, "group_id, group_type, state, group_epoch, offset_count, kafka_streams, updated_at") == [
        ("app", "streams", "Stable", 7, 1, True, at(90))
    ]


def test_a_pass_over_the_lag_counts_the_groups_of_each_type_and_says_which_of_other_types_have_members(
    tmp_path: Path,
) -> None:
    make_warehouse(tmp_path)
    write(
        tmp_path, [*consumer("c", epoch=3, assignment=3, members=[(3, 0)]), classic("old", members=0), commit("x", 5)]
    )
    append(tmp_path, "groups", {"cluster": "c", "group_id": "s", "group_type": "streams", "state": "Stable"})
    store = LagTables(tmp_path, "c")
    others, types = store.other_groups(store.reader())
    assert {group_id: one.has_members for group_id, one in others.items()} == {"c": True, "old": False}
    assert types == {"classic": 2, "consumer": 1, "streams": 1}
