"""Queries that people type: SQL of DataFusion, and the statements that list what can be queried."""

from __future__ import annotations

import re
from typing import Any

from streaming_app.tables.definitions import tables, views
from streaming_app.tables.reader import WarehouseReader

_SHOW_TABLES = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)


def run_sql(reader: WarehouseReader, query: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the column names and the rows of a query. Raises WarehouseError if the query fails."""
    if _SHOW_TABLES.fullmatch(query):  # which DataFusion answers only with its information schema
        kinds = {"table": tables(), "view": views()}
        rows = [{"name": one.name, "type": kind, "about": one.about} for kind, all_ in kinds.items() for one in all_]
        return ["name", "type", "about"], rows
    return reader.columns_and_rows(query)
