"""Tables of 0.2.0, which have deletion vectors, are rewritten at the first start: then every reader takes them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming_app.stream.stream_state import StateFile
from streaming_app.stream.table_versions import TableVersions
from streaming_app.tables import table_upgrade
from streaming_app.tables.checkpoint_offsets import checkpoint_location, commits_checkpoint_location
from streaming_app.tables.definitions import tables
from streaming_app.tables.location import Location
from streaming_app.tables.newest_tables import NAMES
from streaming_app.tables.reader import query_table
from streaming_app.tables.writer import TableWriter
from tests.support.warehouses import copy_warehouse
from tests.upgrade.record import archive_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITH_VECTORS = {"groups", "group_events", "quarantine", "topologies"}


def extract(directory: Path) -> Path:
    with tarfile.open(archive_of("0.2.0")) as archive:
        archive.extractall(directory / "warehouse", filter="data")
    return directory / "warehouse"


def names(warehouse: Path) -> list[str]:
    return [one.name for one in tables() if (warehouse / one.name).exists()]


def rows(warehouse: Path, found: Iterable[str]) -> dict[str, list[str]]:
    """Return the rows of each table, in an order that does not depend on files, without columns that are null."""
    read = {name: query_table(Location.of(warehouse / name), "SELECT * FROM t") for name in found}
    return {name: sorted(repr(_known(row)) for row in table.to_pylist()) for name, table in read.items()}


def _known(value: Any) -> Any:
    """Return a value without the nulls of structs: this release has more columns."""
    if isinstance(value, dict):
        return {name: _known(one) for name, one in value.items() if one is not None}
    return [_known(one) for one in value] if isinstance(value, list) else value


def identity(table: DeltaTable) -> Any:
    metadata = table.metadata()
    properties = {key: value for key, value in metadata.configuration.items() if "eletionVectors" not in key}
    return metadata.id, metadata.description, metadata.partition_columns, properties


def columns(table: DeltaTable) -> dict[str, str]:
    """Return each column, and each field of a nested one, by its path, with its type and its comment."""
    return dict(_columns(json.loads(table.schema().to_json()), ""))


def _columns(kind: Any, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(kind, dict):
        return
    for name in ("elementType", "keyType", "valueType"):
        yield from _columns(kind.get(name), f"{path}.{name}")
    for field in kind.get("fields", ()):
        own, of_type = f"{path}.{field['name']}", field["type"]
        name = of_type if isinstance(of_type, str) else of_type["type"]
        yield own, repr((name, field["nullable"], field["metadata"]))
        yield from _columns(of_type, own)


def vectors(warehouse: Path) -> set[str]:
    opened = {name: DeltaTable(warehouse / name).protocol() for name in names(warehouse)}
    return {name for name, protocol in opened.items() if "deletionVectors" in (protocol.reader_features or ())}


def upgrade(spark: SparkSession, warehouse: Path) -> list[str]:
    lines: list[str] = []
    TableWriter(spark, warehouse, "default").prepare(lines.append)
    return lines


def check_is_upgraded(warehouse: Path, expected: dict[str, list[str]]) -> None:
    assert vectors(warehouse) == set()
    assert rows(warehouse, expected) == expected


class Upgraded(NamedTuple):
    """An upgraded warehouse, and what it was before."""

    warehouse: Path
    stored: dict[str, list[str]]
    identities: dict[str, Any]
    columns: dict[str, dict[str, str]]
    state: Any
    lines: list[str]
    """What the upgrade said, as if it had taken long."""


@pytest.fixture(scope="module")
def upgraded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Upgraded:
    """One whole upgrade; tests only read the tables."""
    warehouse = extract(tmp_path_factory.mktemp("upgraded"))
    before = [name for name in names(warehouse) if name != "alerts"]  # see `test_alerts_upgrade`
    assert vectors(warehouse) == WITH_VECTORS
    assert any(pa.table(DeltaTable(warehouse / name).deletion_vectors()).num_rows for name in WITH_VECTORS)
    stored, state = rows(warehouse, before), state_of(spark, warehouse)
    identities = {name: identity(DeltaTable(warehouse / name)) for name in before}
    known = {name: columns(DeltaTable(warehouse / name)) for name in before}
    return Upgraded(warehouse, stored, identities, known, state, upgrade(spark, warehouse))


def state_of(spark: SparkSession, warehouse: Path) -> Any:
    """Return what the checkpoints of the streams know of the tables."""
    writer = TableWriter(spark, warehouse, "default")
    places = (of(writer.location, "default") for of in (checkpoint_location, commits_checkpoint_location))
    shared = ("group_events", "quarantine")
    own, second = (
        TableVersions(writer, place, StateFile(place).read(), names, shared=shared if names else ())
        for place, names in zip(places, (None, NAMES), strict=True)
    )
    query = json.loads((warehouse / "_checkpoints" / "default" / "metadata").read_text("utf-8"))["id"]
    appended = {name: writer.last_append(name, [f"default-{query}"]) for name in WITH_VECTORS}
    return own.restored(), own.beyond(), second.restored(), second.beyond(), appended, writer.identity("groups")


def test_readers_without_deletion_vectors_read_the_upgraded_tables(spark: SparkSession, upgraded: Upgraded) -> None:
    warehouse, stored = upgraded.warehouse, upgraded.stored
    check_is_upgraded(warehouse, stored)
    assert {name: identity(DeltaTable(warehouse / name)) for name in stored} == upgraded.identities
    for name, of_old in upgraded.columns.items():  # this release may have more, also within a column
        now = columns(DeltaTable(warehouse / name))
        assert {path: now.get(path) for path in of_old} == of_old, name
    for name in WITH_VECTORS:
        assert DeltaTable(warehouse / name).metadata().configuration["delta.enableDeletionVectors"] == "false"
    for definition in tables():  # of new tables, too
        protocol = DeltaTable(warehouse / definition.name).protocol()
        assert (protocol.min_reader_version, protocol.reader_features) == (1, None), definition.name
    spark_rows = spark.newSession().read.format("delta").load(str(warehouse / "groups")).count()
    assert spark_rows == len(stored["groups"])


def test_the_checkpoints_of_an_upgraded_warehouse_are_valid(spark: SparkSession, upgraded: Upgraded) -> None:
    assert upgraded.state[:4] == ([], [], [], [])
    assert upgraded.state[4]["group_events"] >= 0
    assert state_of(spark, upgraded.warehouse) == upgraded.state


def test_the_upgrade_is_done_once(spark: SparkSession, upgraded: Upgraded) -> None:
    warehouse = upgraded.warehouse
    versions = {name: DeltaTable(warehouse / name).version() for name in names(warehouse)}
    assert upgrade(spark, warehouse) == []
    assert {name: DeltaTable(warehouse / name).version() for name in versions} == versions


@pytest.fixture(scope="module")
def with_vectors_only(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of which only the deletion vectors are left to upgrade."""
    path = extract(tmp_path_factory.mktemp("vectors"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table_upgrade, "remove_deletion_vectors", lambda *_: [])
        upgrade(spark, path)
    assert vectors(path) == WITH_VECTORS
    return path


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(("step", "table"), [(step, number % 2) for number, step in enumerate(table_upgrade.STEPS)])
def test_an_upgrade_that_was_killed_goes_on_at_the_next_start(
    spark: SparkSession,
    with_vectors_only: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: Callable[..., Any],
    table: int,
) -> None:
    """After each of the steps: of the first table, and of the second one."""
    warehouse = copy_warehouse(with_vectors_only, tmp_path / "warehouse")
    stored, calls = rows(warehouse, names(warehouse)), []

    def killed(*arguments: Any) -> None:
        calls.append(arguments)
        step(*arguments)
        if len(calls) > table:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(table_upgrade, "STEPS", [killed if one is step else one for one in table_upgrade.STEPS])
        with pytest.raises(Killed):
            upgrade(spark, warehouse)
    assert rows(warehouse, stored) == stored
    upgrade(spark, warehouse)
    check_is_upgraded(warehouse, stored)


def test_an_upgrade_says_what_it_does(upgraded: Upgraded) -> None:
    lines = upgraded.lines
    assert lines[0] == "Upgrading the warehouse, once: 4 tables are rewritten without deletion vectors"
    assert len(lines) == 5
    assert lines[-1].endswith(" is rewritten, 4 of 4 tables")
