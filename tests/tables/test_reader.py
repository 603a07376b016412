"""SQL over the tables without a JVM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.errors import WarehouseError
from streaming_app.tables.reader import WarehouseReader, quote
from tests.hostile import HOSTILE
from tests.warehouses import make_warehouse


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> WarehouseReader:
    return WarehouseReader(make_warehouse(tmp_path_factory.mktemp("w")))


@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.text(alphabet="'\\\"-;%${}\0\n"))
def test_any_text_is_one_literal_of_a_query(reader: WarehouseReader, text: str) -> None:
    assert reader.rows(f"SELECT {quote(text)} AS it, 1 AS rest") == [{"it": text, "rest": 1}]


@pytest.mark.parametrize("sql", ["SELECT", "SELECT nothing FROM groups", f"SELECT {HOSTILE!r} FROM"])
def test_a_query_that_fails_is_one_line(reader: WarehouseReader, sql: str) -> None:
    with pytest.raises(WarehouseError, match=r"^The query failed: [^\n]+$"):
        reader.rows(sql)
