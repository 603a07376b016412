"""Loads the definitions of the tables and views from `schemas/tables/`. Only that: no Spark, no Arrow."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Bumped when a change of the tables needs more than new nullable columns.
WAREHOUSE_FORMAT = 1


@dataclass(frozen=True)
class Column:
    """One column: `type` is Spark SQL's spelling; nested tables are already written out as structs."""

    name: str
    type: str
    about: str


@dataclass(frozen=True)
class Table:
    """A Delta table, a view over a nested column of one (`view_of`), or a struct that is only nested (`nested`)."""

    name: str
    about: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    view_of: str | None
    nested: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def ddl(self) -> str:
        """The columns as Spark SQL's DDL: ``name type, ...``."""
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)

    @property
    def struct(self) -> str:
        """The columns as a struct type of Spark SQL."""
        return "struct<" + ",".join(f"{column.name}:{column.type}" for column in self.columns) + ">"


@cache
def table(name: str) -> Table:
    """The definition called `name`, of whatever kind. Raises FileNotFoundError for a name without one."""
    return _table(tomllib.loads((files("schemas") / "tables" / f"{name}.toml").read_text("utf-8")))


def _table(data: dict[str, Any]) -> Table:
    return Table(
        name=data["name"],
        about=data["about"],
        columns=tuple(Column(c["name"], _written_out(c["type"]), c["about"]) for c in data["columns"]),
        key=tuple(data.get("key", ())),
        view_of=data.get("view_of"),
        nested=data.get("nested", False),
    )


def _written_out(spelled: str) -> str:
    return re.sub(r"@(\w+)", lambda match: table(match[1]).struct, spelled)


@cache
def tables() -> tuple[Table, ...]:
    """The Delta tables, in the order in which people read about them."""
    return tuple(table(name) for name in ("groups", "group_events", "quarantine", "alerts"))


@cache
def views() -> tuple[Table, ...]:
    """The views over the nested columns of `groups`."""
    return tuple(table(name) for name in ("members", "assignments", "subtopologies", "topology_epochs"))


def view_sql(view: Table, explode: str) -> str:
    """The query of `view`; `explode` is the dialect's function (Spark: explode, DataFusion: unnest).

    A struct's field is written ``row['name']``, which both read.
    """
    fields = ", ".join(f"item['{column.name}'] AS {column.name}" for column in view.columns)
    nested = f"SELECT cluster, group_id, {explode}({view.name}) AS item FROM {view.view_of}"  # noqa: S608 - our own names
    return f"SELECT cluster, group_id, {fields} FROM ({nested}) AS nested"  # noqa: S608 - as above
