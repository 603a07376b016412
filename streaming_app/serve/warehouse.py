"""Opens a warehouse with delta-rs and answers SQL (DataFusion's) over its tables and views, without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from schemas.table_definitions import WAREHOUSE_FORMAT, tables, view_sql, views
from streaming_app.serve.place import Place
from streaming_app.serve.stores import reason

FORMAT_PROPERTY = "streams_groups.format"


class WarehouseError(Exception):
    """The warehouse cannot answer. Its text is one clear line that says what to do."""


class Warehouse:
    """The tables and views of a warehouse as they are now."""

    def __init__(self, where: Place | Path) -> None:
        """Open every table. Raises WarehouseError if there is no warehouse, or it is of another format."""
        place = Place.of(where)
        self._builder = QueryBuilder()
        for definition in tables():
            self._builder.register(definition.name, opened_table(place / definition.name))
        try:
            for view in views():
                self._builder.execute(f"CREATE VIEW {view.name} AS {view_sql(view, 'unnest')}").read_all()
        except Exception:  # noqa: BLE001 - as in `query`
            raise WarehouseError(
                f"{place} was made by an older release, which knew fewer columns: start the job with this one first"
            ) from None

    def query(self, sql: str) -> pa.Table:
        """The answer to a query. Raises WarehouseError, with the engine's words, for one that cannot be answered."""
        try:
            return pa.table(self._builder.execute(sql).read_all())
        except Exception as error:  # noqa: BLE001 - delta-rs raises several kinds, of bases not in common
            raise WarehouseError(f"The query failed: {reason(error)}") from None

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The answer as dicts; maps are dicts, too."""
        return self.answer(sql)[1]

    def answer(self, sql: str) -> tuple[list[str], list[dict[str, Any]]]:
        """The names of the columns, and the rows. Of two columns of one name the last stays."""
        answer = self.query(sql)
        return list(dict.fromkeys(answer.schema.names)), [
            {name: plain(value, answer.schema.field(name).type) for name, value in row.items()}
            for row in answer.to_pylist()
        ]


def opened_table(place: Place) -> DeltaTable:
    """The table at a place. Raises WarehouseError if there is none, or it is of another format."""
    try:
        opened = place.delta_table()
    except TableNotFoundError:
        raise WarehouseError(
            f"No streams-groups warehouse at {place.parent} (no table {place.name} there): run `streams-groups run "
            "--warehouse ...` first, or name the right one with --warehouse or STREAMS_GROUPS_WAREHOUSE"
        ) from None
    except (DeltaError, OSError) as error:
        raise WarehouseError(f"Cannot read {place}: {reason(error)}") from None
    made = opened.metadata().configuration.get(FORMAT_PROPERTY)
    if made != str(WAREHOUSE_FORMAT):
        raise WarehouseError(
            f"{place} is of format {made}, this release reads {WAREHOUSE_FORMAT}: use the release that made it"
        )
    return opened


def plain(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - any Arrow value
    """An Arrow value with its maps as dicts, at any depth."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return [plain(item, kind.value_type) for item in value]
    return value


def quoted(text: str) -> str:
    """Text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
