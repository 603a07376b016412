"""What a cut log does to the tables, to rows of lost records and to no others."""

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from deltalake import DeltaTable

from streaming_app.stream.log_positions import Cut
from streaming_app.stream.truncation import add_truncation_events, affected_groups, delete_topologies, void_history
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.writer import TableWriter
from tests.support.warehouses import append, make_warehouse

AT = datetime(2026, 11, 1, tzinfo=timezone.utc)
CUT = Cut("offsets", 3, 100, 200, 7, 9, AT.isoformat())
OWN = {"group_events": "kind <> 'group_type'", "quarantine": "true"}


def event(group_id: str, offset: int, log_epoch: int | None, partition: int = 3, **columns: Any) -> dict[str, Any]:
    named = {"group_id": group_id, "offset": offset, "log_epoch": log_epoch, "source_partition": partition}
    return {"at": AT, "kind": "state", **named, **columns}


EVENTS = (
    event("before", 99, 7),
    event("lost", 100, 7),
    event("lost-too", 199, 6, void=False),
    event("of-an-older-release", 150, None),
    event("after", 200, 7),
    event("again", 150, 9),
    event("elsewhere", 150, 7, partition=2),
    event("of-the-other-stream", 150, 7, kind="group_type"),
    event("of-another-cluster", 150, 7, cluster="other"),
)
LOST = ["lost", "lost-too", "of-an-older-release"]


def test_history_and_quarantine_of_lost_records_are_void_and_no_others(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path)
    append(warehouse, "group_events", *EVENTS)
    for group_id, offset, log_epoch in (("lost", 150, 7), ("again", 150, 9), ("before", 99, 7)):
        kept = {"group_id": group_id, "partition": 3, "offset": offset, "log_epoch": log_epoch}
        append(warehouse, "quarantine", kept)
    versions = []
    for _ in range(2):
        void_history(TableWriter(Mock(), warehouse, "default"), [CUT], OWN)
        for name, lost in (("group_events", LOST), ("quarantine", ["lost"])):
            found = WarehouseReader(warehouse).rows(f"SELECT group_id FROM {name} WHERE void ORDER BY group_id")
            assert [row["group_id"] for row in found] == lost
        versions.append([DeltaTable(str(warehouse / name)).version() for name in OWN])
    assert versions[0] == versions[1]


def test_topologies_that_only_lost_records_told_of_are_deleted(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path)
    for offset, log_epoch in ((99, 7), (150, 7), (150, 9)):
        append(warehouse, "topologies", {"source_partition": 3, "offset": offset, "log_epoch": log_epoch})
    delete_topologies(TableWriter(Mock(), warehouse, "default"), [CUT])
    left = WarehouseReader(warehouse).rows("SELECT t.offset, log_epoch FROM topologies t ORDER BY 1")
    assert left == [{"offset": 99, "log_epoch": 7}, {"offset": 150, "log_epoch": 9}]


def test_each_group_is_told_once_of_a_cut_and_again_of_the_next_one(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path)
    writer = TableWriter(Mock(), warehouse, "default")
    for group_id, offset, known in (("kept", 99, None), ("b", 150, None), ("a", 100, None), ("half-read", 99, "{}")):
        row = {"group_id": group_id, "source_partition": 3, "last_offset": offset, "log_epoch": 7}
        append(warehouse, "groups", {**row, "known_before": known})
    assert affected_groups(writer, ("groups",), CUT) == {"a", "b", "half-read"}
    add_truncation_events(writer, CUT, ["a"])
    add_truncation_events(writer, replace(CUT, new_epoch=10), ["a", "b"])  # the start was not completed
    add_truncation_events(writer, replace(CUT, epoch=11, new_epoch=12), ["b"])
    told = WarehouseReader(warehouse).rows(
        "SELECT group_id, log_epoch, old, new, e.offset, void FROM group_events e ORDER BY log_epoch"
    )
    assert [(row["group_id"], row["log_epoch"]) for row in told] == [("a", 9), ("b", 10), ("b", 12)]
    assert told[0] | {"old": "offsets-3 up to offset 199", "new": "offsets-3 up to offset 99", "void": False} == told[0]
