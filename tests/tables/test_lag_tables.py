"""What a pass over the lag reads of the streams groups, from tables without Spark."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from streaming_app.job.lag_pass import LagPass
from streaming_app.lag.model import Owner
from streaming_app.lag.tracker import LagTracker
from streaming_app.stream.stream_state import StateFile
from streaming_app.stream.table_versions import TableVersions
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.location import Location
from streaming_app.tables.writer import TableWriter
from tests.support.rows import subtopology_row
from tests.support.sample_groups import replace_group
from tests.support.warehouses import append, make_warehouse

SINCE = datetime(2026, 11, 1, tzinfo=timezone.utc)
MEMBER = {"member_id": "m", "process_id": "p", "client_host": "/10.0.0.1", "client_id": "not read"}
TASK = {"member_id": "m", "role": "active", "subtopology_id": "0", "partition": 1, "current": True, "target": True}


def stored(group_id: str, offset: int = 1, **columns: Any) -> dict[str, Any]:
    common = {"cluster": "default", "group_type": "streams", "state": "Stable", "state_since": SINCE, "member_count": 1}
    return {**common, "group_id": group_id, "last_offset": offset, "updated_at": SINCE, **columns}


def part(*topics: str, pattern: str | None = None) -> dict[str, Any]:
    return subtopology_row(source_topics=list(topics), source_topic_regex=[pattern] if pattern else [])


def test_only_groups_that_have_changed_are_read_and_only_what_tells_who_has_a_task(tmp_path: Path) -> None:
    path = make_warehouse(tmp_path / "w")
    rows = [stored(f"g{number:03}", members=[MEMBER], assignments=[TASK]) for number in range(300)]
    rows += [stored("null"), stored("empty", members=[], assignments=[])]
    append(path, "groups", *rows)
    store = LagTables(path, "default")
    read = {row["group_id"]: row for row in store.groups(store.reader(), {row["group_id"] for row in rows})}
    assert read.keys() == {row["group_id"] for row in rows}
    member = {"member_id": "m", "process_id": "p", "client_host": "/10.0.0.1", "joined_at": None}
    assert read["g299"]["members"] == [member]
    assert read["g299"]["assignments"] == [{name: TASK[name] for name in TASK if name != "target"}]
    assert read["null"]["members"] == read["empty"]["assignments"] == []
    assert [row["group_id"] for row in store.groups(store.reader(), {"empty", "unknown"})] == ["empty"]
    assert list(store.groups(store.reader(), set())) == []


def test_tasks_follow_the_rows_of_the_groups_and_the_topics_that_exist(tmp_path: Path) -> None:
    path = make_warehouse(tmp_path / "w")
    rows = stored("named", subtopologies=[part("orders")]), stored("matching", subtopologies=[part(pattern="click.*")])
    append(path, "groups", *rows)
    store = LagTables(path, "default")
    one = LagPass(store, LagTracker())

    def topics(*committed: str) -> dict[str, Any]:
        one._read_groups(store.reader())
        return {name: dict(tasks.subtopology_of) for name, tasks in one._groups(set(committed)).items()}

    assert topics("orders") == {"named": {"orders": "0"}, "matching": {}}
    assert topics("orders", "clicks") == {"named": {"orders": "0"}, "matching": {"clicks": "0"}}
    replace_group(path, stored("named", 2, subtopologies=[part("payments")]))
    replace_group(path, stored("matching", 2, deleted_at=SINCE))
    assert topics("orders", "clicks") == {"named": {"payments": "0"}}


def test_who_has_the_partitions_of_classic_and_consumer_groups_is_read_where_it_has_changed(tmp_path: Path) -> None:
    path = make_warehouse(tmp_path / "w")
    store = LagTables(path, "default")

    def add(group_id: str, offset: int, kind: int = 2, *members: dict[str, Any], **columns: Any) -> None:
        of_kind = {"protocol_type": "consumer", "protocol": "range", "member_count": len(members)} if kind == 2 else {}
        row = {"group_id": group_id, "record_type": kind, "member_id": "", "deleted": False, "last_offset": offset}
        append(path, "group_records", row | of_kind | {"group_members": list(members)} | columns)

    def owners() -> dict[str, Any]:
        return {name: dict(one.owners) for name, one in store.other_groups(store.reader())[0].items()}

    def has(*partitions: int, topic: str | None = "orders", **columns: Any) -> dict[str, Any]:
        return {"assignment": [{"topic": topic, "partitions": [*partitions], **columns}]}

    host = {"client_host": "/10.0.0.1"}
    add("old", 1, 2, {"member_id": "a", **host, **has(0, 2)}, {"member_id": "b", **host, **has(1)})
    add("new", 2, 3, epoch=1)
    add("new", 3, 5, host, member_id="c")
    add("new", 4, 8, has(0, topic=None, topic_id="ID"), member_id="c")
    first = owners()
    assert first == {
        "old": {("orders", 0): Owner("a", None, "10.0.0.1"), ("orders", 2): Owner("a", None, "10.0.0.1")}
        | {("orders", 1): Owner("b", None, "10.0.0.1")},
        "new": {("ID", 0): Owner("c", None, "10.0.0.1")},
    }
    add("old", 5, 2, {"member_id": "b", **host, **has(0, 1, 2)})
    add("new", 6, 8, member_id="c", deleted=True)
    assert {one.member_id for one in owners()["old"].values()} == {"b"}
    assert owners()["new"] == {}


def test_a_pass_that_fails_reads_the_groups_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_warehouse(tmp_path / "w")
    append(path, "groups", stored("g", subtopologies=[part("orders")]))
    store = LagTables(path, "default")
    one = LagPass(store, LagTracker())
    with monkeypatch.context() as failing:
        failing.setattr(store, "groups", lambda *_: (_ for _ in ()).throw(OSError("away")))
        with pytest.raises(OSError, match="away"):
            one._read_groups(store.reader())
    one._read_groups(store.reader())
    assert one._groups(set())["g"].subtopology_of == {"orders": "0"}


def test_events_of_topics_do_not_look_to_the_streams_as_if_somebody_had_set_their_table_back(tmp_path: Path) -> None:
    path, checkpoint = make_warehouse(tmp_path / "w", as_the_job=True), Location.of(tmp_path / "checkpoint")
    writer, store, state = TableWriter(Mock(), path, "default"), LagTables(path, "default"), StateFile(checkpoint)
    events = writer.table("group_events")
    versions = TableVersions(writer, checkpoint, state)
    versions.remember()
    versions.write()
    about = {
        "group_id": "g",
        "kind": "topic_grown",
        "topic": "t",
        "source_partition": 0,
        "at": datetime.now(timezone.utc),
    }
    for count in range(2, 5):
        store.append_events([{**about, "old": str(count - 1), "new": str(count)}])
        versions.check()
        events.append(events.to_table([{**about, "kind": "state", "offset": count}]))
        versions.write()
    store.append_events([{**about, "old": "4", "new": "5"}])
    again = TableWriter(Mock(), path, "default")  # after a crash
    assert TableVersions(again, checkpoint, state.read()).restored() == []
    assert events.count_rows() == 7
