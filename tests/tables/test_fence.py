"""A job that another one has replaced commits nothing: in whichever way it writes, and wherever it was paused."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming_app.errors import OtherOwnerError
from streaming_app.groups.task_copies import TaskCopy
from streaming_app.lag.ends import EndSamples
from streaming_app.stream.log_positions import Cut
from streaming_app.stream.truncation import add_truncation_events, delete_topologies, void_history
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.data_files import encode_file
from streaming_app.tables.definitions import table
from streaming_app.tables.expiry import delete_expired
from streaming_app.tables.fence import Fence
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.lag_tables import KnownUntil, LagTables
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.newest_tables import COMMITS, NewestTables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import BatchId, RustTable
from streaming_app.tables.table_files import TableFiles
from streaming_app.tables.task_copies_table import TaskCopiesTable
from streaming_app.tables.writer import TableWriter
from tests.alerts.examples import make_alert
from tests.support.fencing import CLUSTER, NEW, OLD, assert_fenced, claim, claimed, terms
from tests.support.lag_harness import row
from tests.support.rows import group_row
from tests.support.warehouses import append, arrow_schema, copy_warehouse, make_warehouse

AT = datetime(2020, 11, 1, tzinfo=timezone.utc)
CUT = Cut("offsets", 0, 0, 100, None, 9, AT.isoformat())
EVENT = {"cluster": CLUSTER, "group_id": "g", "at": AT, "kind": "state", "offset": 5, "source_partition": 0}
COMMIT = {"cluster": CLUSTER, "group_id": "g", "topic": "t", "partition": 0, "committed_offset": 1, "last_offset": 7}

Write = Callable[[Path, Fence], object]


def events(*rows: Mapping[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows or [EVENT]), arrow_schema("group_events"))


def groups(warehouse: Path, fence: Fence) -> GroupRows:
    return GroupRows(own("groups")(warehouse, fence))


def own(name: str) -> Callable[[Path, Fence], RustTable]:
    return lambda warehouse, fence: RustTable(Location.of(warehouse / name), CLUSTER, fence)


def without_spark(warehouse: Path, fence: Fence) -> TableWriter:
    return TableWriter(Mock(), warehouse, CLUSTER, fence)


def compact(writer: TableWriter) -> None:
    NewestTables(writer, CLUSTER, 30).compact(COMMITS, TableFiles(writer.table(COMMITS)))


def expire(writer: TableWriter, name: str) -> None:
    own = writer.table(name)
    delete_expired(own, TableFiles(own), writer.table("groups"), 1)


ALERT = make_alert(cluster=CLUSTER)
COPY = TaskCopy("g", "m", "p", "10.0.0.1", "standby", "0", 3, True, 40, 100, 60, 10_000, AT)  # noqa: FBT003 - a tuple
WRITES: Mapping[str, Write] = {
    "append": lambda path, fence: own("group_events")(path, fence).append(events(), BatchId(["b"], 1)),
    "replace": lambda path, fence: own("group_events")(path, fence).replace(events(), "kind = 'state'"),
    "delete": lambda path, fence: own("group_events")(path, fence).delete("kind = 'state'"),
    "delete_rows": lambda path, fence: own("group_events")(path, fence).delete_rows(
        events(), table("group_events").key
    ),
    "groups": lambda path, fence: groups(path, fence).replace(
        pa.Table.from_pylist([group_row("g")], arrow_schema("groups")), ["g"]
    ),
    "alerts": lambda path, fence: AlertsTable(path, CLUSTER, fence).save([ALERT]),
    "lag": lambda path, fence: LagTables(path, CLUSTER, fence).replace_lag([row()]),
    "lag_history": lambda path, fence: LagTables(path, CLUSTER, fence).append_history([row()]),
    "inputs": lambda path, fence: LagTables(path, CLUSTER, fence).replace_inputs(KnownUntil(1.0, {}, {})),
    "log_ends": lambda path, fence: LagTables(path, CLUSTER, fence).replace_samples({("t", 0): EndSamples()}),
    "task_copies": lambda path, fence: TaskCopiesTable(path, CLUSTER, fence).replace([COPY]),
    "void": lambda path, fence: void_history(
        without_spark(path, fence), [CUT], {"group_events": "true", "quarantine": "true"}
    ),
    "truncated": lambda path, fence: add_truncation_events(without_spark(path, fence), CUT, ["g"]),
    "topologies": lambda path, fence: delete_topologies(without_spark(path, fence), [CUT]),
    "maintenance": lambda path, fence: MaintainedTable(own("group_events")(path, fence), 1).maintain(),
    "files": lambda path, fence: own("group_events")(path, fence).append([encode_file(events())], BatchId(["b"], 1)),
    "newest": lambda path, fence: compact(without_spark(path, fence)),
    "expired events": lambda path, fence: expire(without_spark(path, fence), "group_events"),
    "expired records": lambda path, fence: expire(without_spark(path, fence), "quarantine"),
}


def fill(warehouse: Path) -> None:
    """Give each way of writing something to change."""
    append(warehouse, "group_events", EVENT)
    append(warehouse, "topologies", {"group_id": "g", "topology_epoch": 0, "source_partition": 0, "offset": 5})
    append(warehouse, COMMITS, COMMIT, {**COMMIT, "committed_offset": 2, "last_offset": 8})
    append(warehouse, "quarantine", {"topic": "t", "partition": 0, "offset": 1, "timestamp": AT})
    append(warehouse, "groups", group_row("h"))


def pause(monkeypatch: pytest.MonkeyPatch, warehouse: Path, opening: int) -> list[DeltaTable]:
    """Let a newer job start when a table was opened so many times; return what is opened."""
    opened: list[DeltaTable] = []
    open_table = Location.delta_table

    def overtake(self: Location) -> DeltaTable:
        table = open_table(self)
        opened.append(table)
        if len(opened) == opening:
            claimed(warehouse, NEW)
        return table

    monkeypatch.setattr(Location, "delta_table", overtake)
    return opened


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Fence]:
    """What each way of writing begins with a copy of: a warehouse that is filled, and claimed by the older job."""
    fill(warehouse := make_warehouse(tmp_path_factory.mktemp("begun")))
    return warehouse, claimed(warehouse, OLD)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_of_an_earlier_term_is_refused_wherever_it_was_paused(
    name: str, begun: tuple[Path, Fence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, openings = 0, count(1)
    filled, of_old = begun
    while True:
        warehouse = copy_warehouse(filled, tmp_path / str(opening := next(openings)))
        with monkeypatch.context() as context:
            opened = pause(context, warehouse, opening)
            try:
                WRITES[name](warehouse, deepcopy(of_old))
            except OtherOwnerError:
                refused += 1
        if is_done := len(opened) < opening:  # before it was paused
            claimed(warehouse, NEW)
        assert_fenced(warehouse)
        if is_done:
            break
    assert refused


def test_jobs_of_other_clusters_write_on(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path)
    other = RustTable(Location.of(warehouse / "group_events"), "other", Fence("other", OLD))
    new = own("group_events")(warehouse, claimed(warehouse, NEW))
    other.append(events({**EVENT, "cluster": "other"}))
    new.append(events())
    other.append(events({**EVENT, "cluster": "other", "offset": 6}))
    found = WarehouseReader(warehouse).rows("SELECT cluster FROM group_events ORDER BY cluster")
    assert [one["cluster"] for one in found] == [CLUSTER, "other", "other"]


def test_an_earlier_job_claims_no_table_and_knows_that_it_is_replaced(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path)
    claimed(warehouse, NEW)
    old = Fence(CLUSTER, OLD)
    old.check_owner()  # nothing is known yet
    with pytest.raises(OtherOwnerError, match=r"Another job has taken over cluster 'default'; .* writes no more"):
        claim(warehouse, old)
    with pytest.raises(OtherOwnerError):
        old.check_owner()


def test_a_table_of_a_newer_job_is_not_compacted(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path)
    old = own("group_events")(warehouse, claimed(warehouse, OLD))
    for offset in range(3):
        append(warehouse, "group_events", {**EVENT, "offset": offset})
    claimed(warehouse, NEW)
    with pytest.raises(OtherOwnerError):
        MaintainedTable(old).merge_files(TableFiles(old))
    assert terms(warehouse, "group_events") == [OLD, None, None, None, NEW]


def test_what_is_appended_is_there_once_whichever_job_repeats_it_as_files_or_as_rows(tmp_path: Path) -> None:
    warehouse, batch = make_warehouse(tmp_path), BatchId(["b-group_events"], 1)
    for term in (OLD, NEW):
        writer = without_spark(warehouse, claimed(warehouse, term))
        for rows in ([encode_file(events())], events()):
            writer.table("group_events").append(rows, batch)
    assert writer.last_append("group_events", ["b"]) == 1
    assert WarehouseReader(warehouse).query("SELECT * FROM group_events").num_rows == 1
