"""Tables that delta-rs creates and writes, for tests that need a warehouse but no Spark; `rows` has their rows."""

import atexit
import shutil
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from streaming_app.stream.batch_rows import schema_of
from streaming_app.tables.definitions import FORMAT_PROPERTY, WAREHOUSE_FORMAT, tables
from streaming_app.tables.location import Location
from streaming_app.tables.table_creation import create, job_properties

arrow_schema = schema_of


def make_warehouse(path: Path, *, as_the_job: bool = False) -> Path:
    """Make empty tables of the current format below `path`, and return it. All copies have the same table ids.

    `as_the_job`: with the job's properties, files have statistics of few columns only, and each table has one version.
    """
    return copy_warehouse(_created_once(as_the_job=as_the_job), path)


def copy_warehouse(warehouse: Path, path: Path) -> Path:
    """Copy a warehouse to `path`, and return that; its files look as if they had just been written."""
    return Path(shutil.copytree(warehouse, path, dirs_exist_ok=True, copy_function=shutil.copyfile))


def create_tables(path: Path, *, as_the_job: bool = False) -> Path:
    """Create empty tables below `path`, and return it: takes twenty times as long as a copy."""
    for definition in tables():
        place, form = Location.of(path / definition.name), {FORMAT_PROPERTY: str(WAREHOUSE_FORMAT)}
        create(place, definition, job_properties(definition) if as_the_job else {})
        if not as_the_job:
            place.delta_table().alter.set_table_properties(form, raise_if_not_exists=False)
    return path


@cache
def _created_once(*, as_the_job: bool) -> Path:
    """Return the warehouse that `make_warehouse` copies in this process."""
    directory = mkdtemp()
    atexit.register(shutil.rmtree, directory)
    return create_tables(Path(directory, "warehouse"), as_the_job=as_the_job)


def append(warehouse: Path, name: str, *rows: Mapping[str, Any]) -> None:
    """Append rows to a table; the default of `cluster` is `default`; missing columns are null."""
    write_deltalake(str(warehouse / name), _arrow_table(name, rows), mode="append")


def replace_rows(warehouse: Path, name: str, *rows: Mapping[str, Any], where: str | None = None) -> None:
    """Replace all rows of a table, or those that match an SQL condition; `rows` are as in `append`."""
    table_of_rows = _arrow_table(name, rows)
    write_deltalake(DeltaTable(str(warehouse / name)), table_of_rows, mode="overwrite", predicate=where)


def _arrow_table(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{"cluster": "default", **row} for row in rows], arrow_schema(name))
