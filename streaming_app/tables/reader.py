"""Reads a warehouse with delta-rs and runs SQL (DataFusion's) over its tables and views, without a JVM."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from streaming_app.errors import WarehouseError
from streaming_app.tables.arrow import to_arrow, to_python
from streaming_app.tables.definitions import FORMAT_PROPERTY, WAREHOUSE_FORMAT, read_sql, table, tables, view_sql, views
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import describe_error

_FIRST_TABLE = "groups"  # every release has it


class WarehouseReader:
    """The tables and views of a warehouse, each at the version that was the newest when it was opened."""

    def __init__(self, warehouse: Location | Path, cluster: str | None = None, *, only: str | None = None) -> None:
        """Open every table, with the rows of one cluster or of all; or `only` this one, and no view.

        Raises WarehouseError if there is no warehouse, or it has another format.
        """
        location = Location.of(warehouse)
        self._builder = QueryBuilder()
        selected = {}
        own = "" if cluster is None else f" WHERE cluster = {quote(cluster)}"
        wanted = tables() if only is None else [table(only)]
        for definition in sorted(wanted, key=lambda one: bool(one.computed)):
            is_selected = bool(own or definition.computed)
            name = f"{definition.name}_of_all_clusters" if is_selected else definition.name
            self._builder.register(name, open_table(location / definition.name))
            if is_selected:
                selected[definition.name] = f"SELECT * FROM ({read_sql(definition, name)}) AS one{own}"  # noqa: S608 - quoted
        try:
            own_views = {} if only else {view.name: view_sql(view, "unnest") for view in views()}
            for name, query in (selected | own_views).items():
                self._builder.execute(f"CREATE VIEW {name} AS {query}").read_all()
        except Exception:  # noqa: BLE001 - as in `query`
            raise WarehouseError(_created_by_older_release(location, "columns")) from None

    def query(self, sql: str) -> pa.Table:
        """Return the result of a query. Raises WarehouseError, with DataFusion's message, if the query fails."""
        try:
            return to_arrow(self._builder.execute(sql).read_all())
        except Exception as error:  # noqa: BLE001 - delta-rs raises several types without a common base class
            raise WarehouseError(f"The query failed: {describe_error(error)}") from None

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows as dicts; maps become dicts, too."""
        return self.columns_and_rows(sql)[1]

    def columns_and_rows(self, sql: str) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the column names, and the rows as dicts. Of two columns with one name the last is kept."""
        result = self.query(sql)
        types = {field.name: field.type for field in result.schema}
        rows = result.to_pylist()
        for name, arrow_type in types.items():
            if pa.types.is_nested(arrow_type):
                for row in rows:
                    row[name] = to_python(row[name], arrow_type)
        return list(types), rows


def query_table(location: Location, sql: str) -> pa.Table:
    """Return the result of a query of one table, which it names `t`. Raises delta-rs' errors."""
    builder = QueryBuilder().register("t", location.delta_table())
    return to_arrow(builder.execute(sql).read_all())


def open_table(location: Location) -> DeltaTable:
    """Open the table at `location`. Raises WarehouseError if there is none, or it has another format."""
    try:
        opened = location.delta_table()
    except TableNotFoundError:
        if location.name != _FIRST_TABLE and _is_table(location.parent / _FIRST_TABLE):
            raise WarehouseError(_created_by_older_release(location.parent, f"the table {location.name}")) from None
        if _has_job(location.parent):
            message = f"{location.parent} has no tables yet: its first job creates them once Spark runs"
            raise WarehouseError(message) from None
        raise WarehouseError(
            f"No streams-groups warehouse at {location.parent} (no table {location.name} there): run "
            "`streams-groups run --warehouse ...` first, or set the right one with --warehouse or "
            "STREAMS_GROUPS_WAREHOUSE"
        ) from None
    except (DeltaError, OSError) as error:
        raise WarehouseError(f"Cannot read {location}: {describe_error(error)}") from None
    table_format = opened.metadata().configuration.get(FORMAT_PROPERTY)
    if table_format != str(WAREHOUSE_FORMAT):
        raise WarehouseError(
            f"{location} has format {table_format}, this release reads format {WAREHOUSE_FORMAT}: use the release that "
            "created it"
        )
    return opened


def _is_table(location: Location) -> bool:
    try:
        return location.is_delta_table()
    except (DeltaError, OSError):
        return False


def _has_job(warehouse: Location) -> bool:
    """Return whether a job has begun to run here."""
    with suppress(OSError):
        return bool((warehouse / "_jobs").names())
    return False


def _created_by_older_release(warehouse: Location, what: str) -> str:
    return f"{warehouse} was created by an older release and lacks {what}: start the job of this release first"


def time_literal(time: datetime) -> str:
    """Return an aware time as a literal of DataFusion's SQL, of the type of the columns of tables.

    delta-rs compares a condition with the statistics of files, and rejects another type, such as that of `now()`.
    """
    return f"arrow_cast('{time.isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')"


def quote(text: str) -> str:
    """Return `text` as a string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
