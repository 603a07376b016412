"""Reads a warehouse with delta-rs, and runs SQL of DataFusion over its tables and views, without a JVM."""

import re
import shutil
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from streaming_app.errors import WarehouseError
from streaming_app.tables.arrow import to_arrow, to_rows
from streaming_app.tables.definitions import names, read_sql, table, view_sql
from streaming_app.tables.formats import BEFORE, THIS, is_older, why_refused
from streaming_app.tables.kept_table import newest_table
from streaming_app.tables.location import Location
from streaming_app.tables.log_damage import damaged_files
from streaming_app.tables.object_store import describe_error
from streaming_app.tables.table_copies import copy_tables
from streaming_app.threads import in_thread

Row = dict[str, Any]
"""A row of a query's result, by column."""
_SLICE_ROWS = 10_000
SORT_MEMORY = "256M"
_SORTED_ROWS = 1_000  # at a time: four files of `groups`
_FIRST_TABLE = "groups"  # every release has it
_WORDS = re.compile(r"\w+")  # in a query: a word that is no table costs only a lookup
_ONE_SELECT = "Only one SELECT is allowed: the tables are read-only"
_NO_QUERY = (
    "Expected: SELECT, VALUES, or a subquery in the query body",
    "not implemented yet",
    "a single SQL statement",
)
"""Parts of DataFusion's messages about a text that is not a query."""
_NO_FIELD = re.compile(r'No field named (?:[\w"]+\.)*"?(\w+)')
_NO_TABLE = re.compile(r"table '(?:\w+\.)*(\w+)' not found")
_LINE = re.compile(r"(?<= at Line: )\d+")  # in a syntax error
_GONE = {
    "incidents": "alerts, with one row for each alert of a group, and its cause",
    **{f"{one}_lag": f"lag_sums WHERE summed_by = '{one}'" for one in ("group", "topic", "task")},
}
"""View that went with this release -> what replaces it."""
_FIELD = re.compile(r"(\w+):")  # in the type of a column
_READ = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")  # in our own definitions


class WarehouseReader:
    """The tables and views of a warehouse, each at the version that was newest when a query first named it."""

    def __init__(
        self, warehouse: Location | Path, cluster: str | None = None, *, known_for: float = 0.0, copies: bool = False
    ) -> None:
        """Prepare to read the rows of one cluster, by default of all. A table is opened when a query first names it.

        `known_for` is as for `newest_table`; with `copies` small tables in a store are copied (see `table_copies`).
        """
        self._location, self._known_for = Location.of(warehouse), known_for
        self._own = "" if cluster is None else f" WHERE cluster = {quote(cluster)}"
        self._builder, self._known = QueryBuilder(), set[str]()
        self._opened: dict[str, DeltaTable] = {}
        self._versions: dict[str, tuple[str, int]] = {}
        self._ahead: dict[str, Future[DeltaTable]] = {}
        self._copies: Path | None = None
        if copies and not self._location.is_local:
            with suppress(OSError):  # there is no place for files
                self._copies = Path(mkdtemp(prefix="streams-groups-"))
                weakref.finalize(self, shutil.rmtree, self._copies, ignore_errors=True)
        self._opening = threading.Lock()

    def open_ahead(self, *names: str, without_rows: Collection[str] = ()) -> None:
        """Start to open in parallel the tables that will be read, or that these views read; of some no rows are read.

        In a store, each needs several requests in turn.
        """
        if not self._location.is_local:
            read = _stored({*names})
            new = (read | {*without_rows}) - self._opened.keys() - self._ahead.keys()
            copied = in_thread(partial(self._copy, new, new - read))
            self._ahead |= {name: in_thread(partial(self._open_stored, name, copied)) for name in new}

    def _copy(self, names: Collection[str], without_rows: Collection[str]) -> Mapping[str, DeltaTable]:
        return copy_tables(self._location, names, self._copies, without_rows) if self._copies and names else {}

    def _open_stored(self, name: str, copied: Future[Mapping[str, DeltaTable]]) -> DeltaTable:
        location, copy = self._location / name, copied.result().get(name)
        return _checked(location, copy) if copy else open_table(location, self._known_for)

    def query(self, sql: str) -> pa.Table:
        """Return the result of a query. Raises WarehouseError, with DataFusion's message, if the query fails.

        Also raises it if there is no warehouse, or the warehouse has another format.
        """
        self.open_named(sql)
        try:
            return to_arrow(self._builder.execute(sql))
        except Exception as error:  # noqa: BLE001 - delta-rs raises several types without a common base class
            raise self._describe(error) from None

    def versions(self, name: str) -> list[tuple[str, int]]:
        """Return the ids and versions of the tables that a table or view reads. Raises as `query`."""
        self.open_named(name)
        return [self._versions[one] for one in sorted(_stored({name}))]

    def check_is_query(self, sql: str) -> None:
        """Raise WarehouseError unless a user's text is one SELECT.

        DataFusion itself decides: it must accept the text as the query of a view, which it does for no other statement.
        COPY, CREATE, DROP, SET, SELECT INTO or EXPLAIN ANALYZE would write files, or change the next query's result.
        """
        self.open_named(sql)
        try:  # EXPLAIN plans the statement without running it
            plans = to_rows(to_arrow(self._builder.execute(f"EXPLAIN CREATE VIEW checked AS\n{sql}")))
        except Exception as error:  # noqa: BLE001 - as in `query`
            if any(words in str(error) for words in _NO_QUERY):
                raise WarehouseError(_ONE_SELECT) from None
            raise self._describe(error, -1) from None
        if any(line.lstrip().startswith("CreateMemoryTable") for line in plans[0]["plan"].splitlines()):
            raise WarehouseError(_ONE_SELECT)

    def limit_memory(self, size: int) -> None:
        """Limit the memory of queries to so many bytes; sorts and joins that need more use temporary files."""
        self._builder.execute(f"SET datafusion.runtime.memory_limit = '{size >> 20}M'").read_all()

    def slices(self, sql: str) -> Iterator[pa.Table]:
        """Yield the result in parts of some thousand rows; parts are read on demand, so a large result needs no memory.

        Raises as `query`.
        """
        self.open_named(sql)
        some, count = list[pa.RecordBatch](), 0
        try:
            batches = pa.RecordBatchReader.from_stream(self._builder.execute(sql))
            for batch in batches:
                some.append(batch)
                count += batch.num_rows
                if count >= _SLICE_ROWS:
                    yield pa.Table.from_batches(some)
                    some, count = [], 0
        except Exception as error:  # noqa: BLE001 - as above
            raise self._describe(error) from None
        if some:
            yield pa.Table.from_batches(some)

    def rows(self, sql: str) -> list[Row]:
        """Return the rows as dicts; maps become dicts, too."""
        return self.columns_and_rows(sql)[1]

    def columns_and_rows(self, sql: str) -> tuple[list[str], list[Row]]:
        """Return the column names, and the rows as dicts. If two columns have the same name, the last one counts."""
        result = self.query(sql)
        return list(dict.fromkeys(result.column_names)), to_rows(result)

    def open_named(self, sql: str) -> None:
        """Open the tables and views that a query names. Raises as `query`."""
        with self._opening:
            named = _named(_WORDS, sql) or {_FIRST_TABLE}
            self.open_ahead(*named)
            for name in named:
                self._open(name)

    def _describe(self, error: Exception, lines: int = 0) -> WarehouseError:
        """Return the error of a query, or of a view; `lines` is added to the line number in the message."""
        if self._lack_columns():
            return WarehouseError(_created_by_older_release(self._location, "columns"))
        text = _LINE.sub(lambda line: str(int(line[0]) + lines), describe_error(error))
        if (view := _NO_TABLE.search(text)) and view[1] in _GONE:
            return WarehouseError(f"The query failed: {view[1]} went with {THIS}: use {_GONE[view[1]]}")
        found = _NO_FIELD.search(text)
        column = found[1] if found else ""
        for name in sorted(self._known):
            if (instead := table(name).gone.get(column)) is not None:
                use = f": use {instead}" if instead else ""
                return WarehouseError(f"The query failed: the column {column} of {name} went with {THIS}{use}")
        return WarehouseError(f"The query failed: {text}")

    def _open(self, name: str) -> None:
        """Let queries read the table or view of this name, and the tables that the view reads."""
        if name in self._known:
            return
        definition = table(name)
        if definition.is_view:
            self._create_view(name, view_sql(definition, "unnest"))
        elif self._own or definition.computed:
            stored = f"{name}_of_all_clusters"
            self._register(stored, name)
            self._create_view(name, f"SELECT * FROM ({read_sql(definition, stored)}) AS one{self._own}")  # noqa: S608 - quoted
        else:
            self._register(name, name)
        self._known.add(name)

    def opened(self, name: str) -> DeltaTable:
        """Return a table, which is opened if it is not yet. Raises WarehouseError."""
        if name not in self._opened:
            ahead = self._ahead.pop(name, None)
            self._opened[name] = ahead.result() if ahead else open_table(self._location / name, self._known_for)
        return self._opened[name]

    def _register(self, stored: str, name: str) -> None:
        if name not in self._versions:
            opened = self.opened(name)
            self._versions[name] = str(opened.metadata().id), opened.version()  # before: others may update the handle
            self._builder.register(stored, opened)

    def _create_view(self, name: str, query: str) -> None:
        for read in _named(_READ, query):
            self._open(read)
        try:
            self._builder.execute(f"CREATE VIEW {name} AS {query}").read_all()
        except Exception as error:  # noqa: BLE001 - as in `query`
            raise self._describe(error) from None

    def _lack_columns(self) -> bool:
        """Return whether an opened table lacks columns of this release, or fields of their structs."""
        return any(
            f'"name":"{field}"' not in stored
            for name, one in list(self._opened.items())
            if (stored := one.schema().to_json())
            for column in table(name).columns
            for field in (column.name, *_FIELD.findall(column.type))
        )


def _named(pattern: re.Pattern[str], sql: str) -> set[str]:
    return {name for name in names() & set(pattern.findall(sql)) if not table(name).nested}


def _stored(named: set[str]) -> set[str]:
    """Return the tables among these names, and the tables that the definitions of the views among them read."""
    stored = {name for name in named if not table(name).is_view}
    views = [view_sql(table(name), "unnest") for name in named - stored]
    read = [*views, *(read_sql(table(name), "") for name in stored if table(name).computed)]
    return stored.union(*(_stored(_named(_READ, sql)) for sql in read))


def query_bounded(sql: str, **tables: DeltaTable) -> pa.RecordBatchReader:
    """Return the rows of a query of any size: what it sorts beyond `SORT_MEMORY` goes to temporary files.

    DataFusion gives memory to whoever asks first: of two sorts side by side, one found none to begin its file. And a
    row may have 100 kB. So there is one sort, and it has few rows at a time. Raises delta-rs' errors, also while rows
    are read.
    """
    builder = QueryBuilder()
    for name, opened in tables.items():
        builder.register(name, opened)
    for setting in (
        f"runtime.memory_limit = '{SORT_MEMORY}'",
        "execution.target_partitions = 1",
        f"execution.batch_size = {_SORTED_ROWS}",
    ):
        builder.execute(f"SET datafusion.{setting}").read_all()
    return pa.RecordBatchReader.from_stream(builder.execute(sql))


def open_table(location: Location, known_for: float = 0.0) -> DeltaTable:
    """Open the table at `location`, as `newest_table` does.

    Raises WarehouseError if there is none, or it is of another release.
    """
    try:
        opened = newest_table(location, known_for)
    except TableNotFoundError:
        if location.name != _FIRST_TABLE and _has_files(location.parent / _FIRST_TABLE / "_delta_log"):
            raise WarehouseError(_created_by_older_release(location.parent, f"the table {location.name}")) from None
        if _has_files(location.parent / "_jobs"):  # a job has begun to run here
            message = f"{location.parent} has no tables yet: the first job creates them when Spark has started"
            raise WarehouseError(message) from None
        raise WarehouseError(
            f"No streams-groups warehouse at {location.parent} (no table {location.name} there): run "
            "`streams-groups run --warehouse ...` first, or set the right one with --warehouse or "
            "STREAMS_GROUPS_WAREHOUSE"
        ) from None
    except (DeltaError, OSError) as error:
        if location.is_local and damaged_files(location):
            raise WarehouseError(
                f"The newest log file of {location} is incomplete: start the job, which moves it aside and reads the "
                "missing rows again"
            ) from None
        raise WarehouseError(f"Cannot read {location}: {describe_error(error)}") from None
    return _checked(location, opened)


def _checked(location: Location, opened: DeltaTable) -> DeltaTable:
    if reason := why_refused(location, opened):
        raise WarehouseError(reason)
    if is_older(opened):
        raise WarehouseError(f"{location.parent} is of {BEFORE}: start the job of this release first, to upgrade it")
    return opened


def _has_files(directory: Location) -> bool:
    with suppress(OSError):
        return bool(directory.names())
    return False


def _created_by_older_release(warehouse: Location, what: str) -> str:
    return f"{warehouse} was created by an older release and lacks {what}: start the job of this release first"


def time_literal(time: datetime) -> str:
    """Return an aware time as a literal of DataFusion's SQL, with the type of the time columns.

    delta-rs compares a condition with the statistics of files, and rejects other types, such as that of `now()`.
    """
    return f"arrow_cast('{time.isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')"


def quote(text: str) -> str:
    """Return `text` as a string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def of_group(cluster: str, group_id: str) -> str:
    """Return the SQL condition for the rows of a group."""
    return f"cluster = {quote(cluster)} AND group_id = {quote(group_id)}"


def of_groups(cluster: str, group_ids: Iterable[str] | None) -> str:
    """Return the SQL condition for the rows of these groups, which may be none; None: all groups of the cluster."""
    own = f"cluster = {quote(cluster)}"
    return own if group_ids is None else f"{own} AND group_id IN ({', '.join(map(quote, group_ids)) or 'NULL'})"
