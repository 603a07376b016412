"""Loads the definitions of the tables and views from `schemas/tables/`. Needs neither Spark nor Arrow.

A new table is a new file there; no code lists the tables by name.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from offsets_decoder.definitions import load_toml, schemas

# Increased when a change of the tables needs more than new nullable columns: see `formats`.
WAREHOUSE_FORMAT = 2
FORMAT_PROPERTY = "streams_groups.format"


@dataclass(frozen=True)
class Column:
    """One column; `type` is a Spark SQL type, with nested tables expanded to structs."""

    name: str
    type: str
    about: str
    source: str | None = None
    """In an overview: the query in `joins` that has it."""
    sql: str | None = None
    """In an overview: the expression, if it is not a column of that query."""


@dataclass(frozen=True)
class Sums:
    """Sums over the rows of a table that match `where`: the expressions, and the columns of the result."""

    columns: tuple[Column, ...]
    select: str
    where: str


@dataclass(frozen=True)
class Overview:
    """A view with one row per group, of which many readers need only some columns, and some kinds of groups."""

    rows: Mapping[str, str]
    """Kind of groups -> the query of its rows."""
    joins: Mapping[str, str]
    """Name -> a query with one row per group at most, for columns that the rows do not have."""
    columns: tuple[Column, ...]

    def select(self, names: Collection[str], kinds: Collection[str] = ()) -> str:
        """Return the query of these columns, for groups of these kinds, by default all."""
        shown = [column for column in self.columns if column.name in names]
        selected = ", ".join(f"{one.sql or f'{one.source or _ROWS}.{one.name}'} AS {one.name}" for one in shown)
        rows = {kind: query for kind, query in self.rows.items() if not kinds or kind in kinds}
        if "others" in rows and "deleted" in rows:
            taken = f"LEFT ANTI JOIN all_groups a ON {_same('a', 'd')}"
            rows["deleted"] = f"SELECT d.* FROM ({rows['deleted']}) d {taken}"  # noqa: S608 - our own names
        joined = dict.fromkeys(column.source for column in shown if column.source)
        joins = "".join(f" LEFT JOIN ({self.joins[one]}) {one} ON {_same(one, _ROWS)}" for one in joined)
        return f"SELECT {selected} FROM ({' UNION ALL '.join(rows.values())}) {_ROWS}{joins}"  # noqa: S608 - our own names


_ROWS = "e"


def _same(one: str, other: str) -> str:
    return f"{one}.cluster = {other}.cluster AND {one}.group_id = {other}.group_id"


@dataclass(frozen=True)
class Table:
    """A Delta table, a view, or a struct that is only nested in tables (`nested`).

    A view is over a nested column of a table (`view_of`), or it is a query over tables and earlier views (`sql`), for
    example one that sums up a table by its key (`sums_of` in its file).
    """

    name: str
    about: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    view_of: str | None = None
    nested: bool = False
    also: tuple[str, ...] = ()
    """For a view over a nested column: the further columns that it takes from its table."""
    older: Mapping[str, str] = field(default_factory=dict)
    """Of these columns, the text that they have where a row of an older release has null."""
    order: int = 0
    """The position in the documentation."""
    expires_by: str | None = None
    """The time column from which the retention counts; None: rows of this table do not expire."""
    partition_column: str | None = None
    """For an append-only table: the column with the partition of the offsets topic."""
    sql: str | None = None
    """For a view: its query, valid in Spark and in DataFusion."""
    computed: tuple[Column, ...] = ()
    """Columns that are computed at reading: they change with time, and storing them would rewrite the table."""
    read_as: str | None = None
    """The query that computes them, valid in both dialects, from `{stored}` and tables without such columns."""
    sums: Sums | None = None
    overview: Overview | None = None
    """For such a view: how its columns are computed."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Column that went with this release -> the column that replaces it; empty: none."""

    @property
    def is_view(self) -> bool:
        """Whether it is a view."""
        return bool(self.view_of or self.sql)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def struct(self) -> str:
        """The columns as a struct type of Spark SQL."""
        return "struct<" + ",".join(f"{column.name}:{column.type}" for column in self.columns) + ">"


@cache
def table(name: str) -> Table:
    """Return the definition called `name`. Raises FileNotFoundError if there is none."""
    data: dict[str, Any] = load_toml(schemas("tables") / f"{name}.toml")
    columns, sql = _columns(data.pop("columns")), data.pop("query", None)
    if summed := data.pop("sums_of", None):
        sql = _all_sums(summed, columns, data.pop("by"), data.pop("where"))
        columns += _sums_of(summed).columns
    if joins := data.pop("joins", None):
        queries = {one: sums_sql("lag", _KEY) if query == _LAG_SUMS else query for one, query in joins.items()}
        data["overview"] = overview = Overview(data.pop("rows"), queries, columns)
        sql = overview.select([column.name for column in columns])
    if "sums" in data:
        data["sums"] = Sums(_columns(data.pop("summed")), data["sums"].strip(), data.pop("sums_where"))
    data |= {field: tuple(data[field]) for field in ("key", "also") if field in data}
    return Table(columns=columns, sql=sql, computed=_columns(data.pop("computed", ())), **data)


_KEY, _LAG_SUMS = ("cluster", "group_id"), "sums of lag"


def _all_sums(name: str, columns: Iterable[Column], by: Mapping[str, Collection[str]], where: Mapping[str, str]) -> str:
    """Return the query that sums up a table in each of these ways; a column that one of them does not have is null."""
    return " UNION ALL ".join(
        sums_sql(name, ["cluster", *keys], where.get(way), [_key(column, way, keys) for column in columns])
        for way, keys in by.items()
    )


def _key(column: Column, way: str, keys: Collection[str]) -> str:
    if column.name == "cluster" or column.name in keys:
        return column.name
    value = f"'{way}'" if column.name == "summed_by" else f"CAST(NULL AS {column.type})"
    return f"{value} AS {column.name}"


def sums_sql(
    name: str, keys: Collection[str], where: str | None = None, shown: Iterable[str] = (), rows: str | None = None
) -> str:
    """Return the query that sums up a table by these keys, in both dialects.

    `shown` is instead of the keys; `rows` is a query of rows like those of the table, instead of its rows.
    """
    sums, by = _sums_of(name), ", ".join(keys)
    condition = " AND ".join(filter(None, (sums.where, where)))
    names, source = ", ".join(shown) or by, f"({rows}) AS summed" if rows else name
    return f"SELECT {names}, {sums.select} FROM {source} WHERE {condition} GROUP BY {by}"  # noqa: S608 - our own names


def overview() -> Overview:
    """Return how the columns of `group_overview` are computed."""
    found = table("group_overview").overview
    if found is None:
        raise ValueError("group_overview has no joins")
    return found


def _sums_of(name: str) -> Sums:
    sums = table(name).sums
    if sums is None:
        raise ValueError(f"No sums are defined for {name}")
    return sums


def _columns(data: Sequence[dict[str, str]]) -> tuple[Column, ...]:
    types = (re.sub(r"@(\w+)", lambda nested: table(nested[1]).struct, one["type"]) for one in data)
    return tuple(
        Column(one["name"], kind, one["about"], one.get("from"), one.get("sql"))
        for one, kind in zip(data, types, strict=True)
    )


@cache
def tables() -> tuple[Table, ...]:
    """Return the Delta tables, in the order of the documentation."""
    return tuple(one for one in _all() if not one.is_view and not one.nested)


@cache
def views() -> tuple[Table, ...]:
    """Return the views, each after the views that it reads."""
    return tuple(one for one in _all() if one.is_view)


@cache
def history_tables() -> tuple[Table, ...]:
    """Return the append-only tables. They keep the rows of earlier runs of the job."""
    return tuple(one for one in tables() if one.partition_column)


@cache
def names() -> frozenset[str]:
    """Return the names of all definitions: tables, views, and structs that are only nested."""
    return frozenset(file.name.removesuffix(".toml") for file in schemas("tables").iterdir())


@cache
def _all() -> tuple[Table, ...]:
    return tuple(sorted(map(table, names()), key=lambda one: (one.order, one.name)))


def read_sql(definition: Table, stored: str) -> str:
    """Return the query for all columns of a table, including computed ones; `stored` names the stored rows."""
    return (definition.read_as or "SELECT * FROM {stored}").replace("{stored}", stored)


def view_sql(view: Table, explode: str) -> str:
    """Return the query of `view`; `explode` is the dialect's function (Spark: explode, DataFusion: unnest).

    A field of a struct is written ``row['name']``, which both dialects accept.
    """
    if view.sql:
        return view.sql
    names = ("cluster", "group_id", *view.also)
    older, kept = view.older, ", ".join(names)
    shown = ", ".join(f"coalesce({name}, '{older[name]}') AS {name}" if name in older else name for name in names)
    fields = ", ".join(f"item['{column.name}'] AS {column.name}" for column in view.columns)
    nested = f"SELECT {kept}, {explode}({view.name}) AS item FROM {view.view_of}"  # noqa: S608 - our own names
    return f"SELECT {shown}, {fields} FROM ({nested}) AS nested"  # noqa: S608 - as above
