"""SQL over the tables without a JVM."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.errors import WarehouseError
from streaming_app.tables.definitions import tables, views
from streaming_app.tables.reader import WarehouseReader, quote
from tests.long.hostile import HOSTILE
from tests.support.warehouses import make_warehouse


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> WarehouseReader:
    return WarehouseReader(make_warehouse(tmp_path_factory.mktemp("w")))


@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.text(alphabet="'\\\"-;%${}\0\n"))
def test_any_text_is_one_literal_of_a_query(reader: WarehouseReader, text: str) -> None:
    assert reader.rows(f"SELECT {quote(text)} AS it, 1 AS rest") == [{"it": text, "rest": 1}]


@pytest.mark.parametrize(
    "sql", ["SELECT", f"SELECT {HOSTILE!r} FROM", "SELECT 1 / (value - 30000) FROM generate_series(1, 50000)"]
)
def test_a_query_that_fails_is_one_line_also_after_parts_of_the_result_were_read(
    reader: WarehouseReader, sql: str
) -> None:
    for read in (reader.rows, lambda query: list(reader.slices(query))):
        with pytest.raises(WarehouseError, match=r"^The query failed: [^\n]+$"):
            read(sql)


def test_a_view_that_fails_for_another_reason_is_not_of_an_older_release(tmp_path: Path) -> None:
    one = WarehouseReader(make_warehouse(tmp_path))
    one._builder.execute("CREATE VIEW members AS SELECT 1").read_all()
    with pytest.raises(WarehouseError, match=r"^The query failed: [^\n]*already exists[^\n]*$"):
        one.rows("SELECT * FROM members")


def test_a_large_result_is_read_in_parts_as_they_are_needed(reader: WarehouseReader) -> None:
    parts = list(reader.slices("SELECT value FROM generate_series(1, 50000) ORDER BY value"))
    assert [number for part in parts for number in part["value"].to_pylist()] == list(range(1, 50_001))
    assert len(parts) > 1 and all(part.num_rows < 20_000 for part in parts)  # noqa: PT018 - one statement on sizes
    assert list(reader.slices("SELECT group_id FROM groups WHERE false")) == []
    first = next(reader.slices("SELECT value FROM generate_series(1, 1000000000000)"))  # no machine holds all of them
    assert 0 < first.num_rows < 50_000


@pytest.mark.parametrize(
    ("query", "instead"),
    [
        ("SELECT * FROM incidents", "incidents went with 0.4: use alerts, with"),
        (
            "SELECT h.incident_id FROM group_health h",
            "the column incident_id of group_health went with 0.4: use alert_id",
        ),
    ],
)
def test_for_a_removed_view_or_column_the_one_that_replaces_it_is_named(
    query: str, instead: str, tmp_path: Path
) -> None:
    with pytest.raises(WarehouseError, match=f"^The query failed: {instead}"):
        WarehouseReader(make_warehouse(tmp_path)).check_is_query(query)


def test_every_table_and_view_can_be_the_first_that_a_query_names(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path)
    for one in (*tables(), *views()):
        for cluster in (None, "default"):
            found = WarehouseReader(warehouse, cluster).query(f"SELECT * FROM {one.name}")
            assert set(one.names) <= set(found.column_names)


def test_threads_may_ask_one_reader(tmp_path: Path) -> None:
    reader = WarehouseReader(make_warehouse(tmp_path))
    queries = [f"SELECT count(*) AS n FROM {one.name}" for one in (*tables(), *views())] * 3
    with ThreadPoolExecutor(8) as pool:
        assert all(rows == [{"n": 0}] for rows in pool.map(reader.rows, queries))


def test_times_are_read_without_pandas_also_those_that_no_log_has(reader: WarehouseReader) -> None:
    rows = reader.rows(
        "SELECT arrow_cast('1969-07-20T20:17:40Z', 'Timestamp(Microsecond, Some(\"UTC\"))') AS before, "
        "arrow_cast(NULL, 'Timestamp(Microsecond, Some(\"UTC\"))') AS never, "
        "arrow_cast(9223372036854775807, 'Timestamp(Microsecond, Some(\"UTC\"))') AS beyond"
    )
    assert rows == [{"before": datetime(1969, 7, 20, 20, 17, 40, tzinfo=timezone.utc), "never": None, "beyond": None}]
