import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from streaming_app.errors import JobError, WarehouseError
from streaming_app.tables import table_creation
from streaming_app.tables.definitions import Table, tables
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.writer import TableWriter
from tests.support.rows import group_row, member_row
from tests.support.warehouses import append, make_warehouse

AT = datetime(2026, 11, 1, tzinfo=timezone.utc)


def as_of_older_release(definition: Table) -> Table:
    """Return the table as of a release without not_ready_reason, topology_hash, the members' joined_at, deliveries."""
    added = {"not_ready_reason", "topology_hash", "deliveries"}
    kept = [column for column in definition.columns if column.name not in added]
    return replace(definition, columns=tuple(replace(c, type=c.type.replace(",joined_at:timestamp", "")) for c in kept))


def prepare(path: Path) -> set[str]:
    return TableWriter(cast("Any", None), path, "default").prepare()


def test_tables_of_an_older_release_get_the_missing_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        older = [as_of_older_release(definition) for definition in tables() if definition.name != "topologies"]
        before.setattr(table_creation, "tables", lambda: tuple(older))
        prepare(tmp_path)
    groups = RustTable(Location.of(tmp_path / "groups"), "default")
    groups.append(groups.to_table([group_row("old", members=[member_row("m")])]))
    for query in ("SELECT not_ready_reason FROM groups", "SELECT joined_at FROM members"):
        with pytest.raises(WarehouseError, match="created by an older release and lacks columns"):
            WarehouseReader(tmp_path).rows(query)
    assert WarehouseReader(tmp_path).rows("SELECT group_id FROM groups") == [{"group_id": "old"}]
    assert prepare(tmp_path) == {"topologies"}
    append(tmp_path, "groups", group_row("new", not_ready_reason="why", members=[member_row("n", joined_at=AT)]))
    rows = WarehouseReader(tmp_path).rows("SELECT group_id, not_ready_reason FROM groups ORDER BY group_id")
    assert [tuple(row.values()) for row in rows] == [("new", "why"), ("old", None)]
    joined = WarehouseReader(tmp_path).rows("SELECT joined_at FROM members ORDER BY group_id")
    assert joined == [{"joined_at": AT}, {"joined_at": None}]
    assert WarehouseReader(tmp_path).rows("SELECT deliveries FROM alerts") == []


def test_a_warehouse_of_an_older_release_lacks_a_table_and_none_is_no_warehouse(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match=r"No streams-groups warehouse at .* run `streams-groups run"):
        WarehouseReader(tmp_path).rows("SELECT 1 AS one")
    shutil.rmtree(make_warehouse(tmp_path) / "topologies")
    with pytest.raises(WarehouseError, match=r"created by an older release and lacks the table topologies: start the"):
        WarehouseReader(tmp_path).rows("SELECT * FROM topologies")


def test_tables_of_a_newer_release_are_rejected_and_the_column_is_named(tmp_path: Path) -> None:
    DeltaTable(make_warehouse(tmp_path) / "groups").alter.add_columns(Field("hat_size", PrimitiveType("string")))
    with pytest.raises(JobError, match=r"has a column hat_size that this release does not know"):
        prepare(tmp_path)
