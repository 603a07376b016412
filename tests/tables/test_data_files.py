"""Files that workers encode and the job commits: no row is lost, and no filter skips a file that has a row."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote as quote_in_path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_app.tables.data_files import encode_file
from streaming_app.tables.location import Location
from streaming_app.tables.reader import quote
from streaming_app.tables.rust_table import RustTable
from streaming_app.text import is_name
from tests.support.warehouses import arrow_schema, make_warehouse

CLUSTER = "default"
IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


def rows(group_ids: list[str]) -> pa.Table:
    values = [{"cluster": CLUSTER, "group_id": one, "last_offset": place} for place, one in enumerate(group_ids)]
    return pa.Table.from_pylist(values, arrow_schema("groups"))


@given(st.lists(IDS, min_size=1, max_size=30))
def test_a_file_has_all_rows_in_their_order_and_the_bounds_of_their_ids(ids: list[str]) -> None:
    file = encode_file(rows(ids))
    stored = pq.read_table(pa.BufferReader(file.content))
    assert stored["group_id"].to_pylist() == ids
    assert "cluster" not in stored.column_names
    stats, own = json.loads(file.stats), [text.encode() for text in ids]
    assert stats["numRecords"] == len(ids)
    bounds = stats["minValues"]["group_id"].encode(), stats["maxValues"]["group_id"].encode()
    assert bounds == (min(own), max(own))


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(IDS, min_size=1, max_size=8, unique=True))
def test_a_query_for_a_group_finds_its_row_in_whichever_file_it_is(ids: list[str]) -> None:
    with TemporaryDirectory() as directory:
        place = Location.of(make_warehouse(Path(directory), as_the_job=True)) / "groups"
        table = RustTable(place, CLUSTER)
        table.append([encode_file(rows([one])) for one in ids])
        for one in ids:
            found = table.select("group_id", f"group_id = {quote(one)}")
            assert found["group_id"].to_pylist() == [one]


def test_no_character_of_the_name_of_a_cluster_is_escaped_in_a_path() -> None:
    allowed = [one for one in map(chr, range(0x3000)) if is_name(f"a{one}")]
    assert allowed == [one for one in allowed if quote_in_path(one, safe="") == one] != []


def test_a_file_of_rows_without_an_id_has_no_bounds() -> None:
    nothing = pa.table({"group_id": pa.nulls(2, pa.string()), "offset": [1, 2]})
    assert json.loads(encode_file(nothing).stats) == {"numRecords": 2, "nullCount": {"group_id": 2}}
    assert json.loads(encode_file(nothing.select(["offset"])).stats) == {"numRecords": 2}
