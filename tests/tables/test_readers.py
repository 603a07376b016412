"""Every reader gets the same value in every column of every table, whichever way the job wrote the row."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession

import streaming_app
from streaming_app.errors import WarehouseError
from streaming_app.tables import spark_views
from streaming_app.tables.data_files import EncodedFile, encode_file
from streaming_app.tables.definitions import tables
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.location import Location
from streaming_app.tables.rust_table import RustTable
from tests.support.s3_server import s3_server
from tests.support.warehouses import arrow_schema, make_warehouse

CLUSTERS = ("default", "007", "null", "1.0", "2026-01-01", "true", "._-A")
"""Names that a reader could take for a number, a date or nothing, if it takes them from a path."""
NAMES = [one.name for one in tables()]
WAYS = ("rows", "file", "rows", "file", "both", "groups", "rows")
Read = Callable[[str, dict[str, str]], pa.Table]


def value(kind: pa.DataType, number: int) -> Any:
    """Return a value of this type; each number gives another one."""
    if pa.types.is_struct(kind):
        return {field.name: value(field.type, number + place) for place, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return [(value(kind.key_type, number), value(kind.item_type, number + 1))]
    if pa.types.is_list(kind):
        return [value(kind.value_type, number), value(kind.value_type, number + 1)]
    if pa.types.is_timestamp(kind):
        return datetime(2026, 3, 14, tzinfo=timezone.utc) + timedelta(microseconds=number * 1_000_003)
    values = {pa.bool_(): number % 2 == 0, pa.binary(): bytes([0, number, 255]), pa.string(): f"ä\n{number}'"}
    return values.get(kind, number)


def written_rows(name: str) -> pa.Table:
    """Return a row with a value in each column for each cluster, and one that is null but for the id and cluster."""
    schema, rows = arrow_schema(name), list[dict[str, Any]]()
    for place, cluster in enumerate(CLUSTERS):
        rows += [
            {field.name: value(field.type, 20 * place + number) for number, field in enumerate(schema)}
            | {"cluster": cluster},
            {field.name: None for field in schema}
            | {"cluster": cluster}
            | ({"group_id": f"null-{place}"} if "group_id" in schema.names else {}),
        ]
    return pa.Table.from_pylist(rows, schema)


def write(table: Location, rows: pa.Table) -> None:
    """Write the rows of each cluster in one of the ways in which the job writes."""
    for cluster, way in zip(CLUSTERS, WAYS, strict=True):
        own, target = rows.filter(pc.equal(rows["cluster"], cluster)), RustTable(table, cluster)
        if way == "groups" and table.name == "groups":
            GroupRows(target).replace(own, own["group_id"].to_pylist())
        elif way == "rows":
            target.append(own)
        elif way == "file":
            target.append([encode_file(own)])
        else:
            target.append(own.slice(0, 1))
            target.append([encode_file(own.slice(1))])


def dataset(place: str, options: dict[str, str]) -> Any:
    return DeltaTable(place, storage_options=options).to_pyarrow_dataset()


def by_pandas(place: str, options: dict[str, str]) -> pa.Table:
    frame = DeltaTable(place, storage_options=options).to_pandas(types_mapper=pd.ArrowDtype)
    return pa.Table.from_pandas(frame, preserve_index=False)


def by_query(place: str, _: dict[str, str]) -> pa.Table:
    warehouse, _, name = place.rpartition("/")
    return streaming_app.query(warehouse, f"SELECT * FROM {name}")


def by_duckdb(place: str, options: dict[str, str]) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("rows", dataset(place, options))
        return connection.sql("SELECT * FROM rows").to_arrow_table()


READERS: dict[str, Read] = {
    "query": by_query,
    "delta-rs": lambda place, options: dataset(place, options).to_table(),
    "pandas": by_pandas,
    "DuckDB": by_duckdb,
    "polars read_delta": lambda place, options: pl.read_delta(place, storage_options=options).to_arrow(),
    "polars scan_delta": lambda place, options: pl.scan_delta(place, storage_options=options).collect().to_arrow(),
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("read"), as_the_job=True)
    for name in NAMES:
        write(Location.of(path / name), written_rows(name))
    return path


def as_values(rows: pa.Table, name: str) -> list[dict[str, Any]]:
    found = rows.select(arrow_schema(name).names).cast(arrow_schema(name)).to_pylist()
    return sorted(found, key=lambda row: (row["cluster"] or "", repr(row)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_gets_each_value_of_each_column(warehouse: Path, reader: str, name: str) -> None:
    assert as_values(READERS[reader](str(warehouse / name), {}), name) == as_values(written_rows(name), name)


def test_spark_gets_each_value_of_each_column(warehouse: Path, spark: SparkSession) -> None:
    streaming_app.open_warehouse(spark, str(warehouse))
    for name in NAMES:
        assert as_values(spark.sql(f"SELECT * FROM {name}").toArrow(), name) == as_values(written_rows(name), name)


@pytest.mark.slow
def test_a_reader_of_a_store_gets_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(tmp_path, monkeypatch.setenv) as server:
        make_warehouse(server.root / "w", as_the_job=True)
        for name in ("groups", "group_events"):
            write(Location.of(server.uri(f"w/{name}")), written_rows(name))
            for read in READERS.values():
                found = read(server.uri(f"w/{name}"), server.environment)
                assert as_values(found, name) == as_values(written_rows(name), name)


def write_as_0_3_0(table: Location, file: EncodedFile, cluster: str = "default") -> None:
    """Add a file in the root of the table."""
    (table / "old.parquet").write_bytes(file.content)
    target, size = table.delta_table(), len(file.content)
    add = AddAction("old.parquet", size, {"cluster": cluster}, 0, data_change=True, stats=file.stats)
    target.create_write_transaction([add], "append", target.schema(), ["cluster"])


def test_what_can_be_no_warehouse_is_one_line() -> None:
    with pytest.raises(WarehouseError, match=r"must be a directory[^\n]*$"):
        streaming_app.query("ftp://host/x", "SELECT 1")


@pytest.mark.parametrize("missing", [1, 2])
def test_a_session_without_delta_is_told_what_it_lacks(missing: int) -> None:
    settings = (spark_views._EXTENSIONS, spark_views._CATALOG)
    session = SimpleNamespace(conf=dict(settings[:-missing]))
    with pytest.raises(WarehouseError) as raised:
        streaming_app.open_warehouse(cast("Any", session), "anywhere")
    line = str(raised.value)
    assert "\n" not in line
    assert [one for one in settings if " = ".join(one) in line] == [*settings[-missing:]]
