"""Files that workers encode and the job commits: no row is lost, and no filter skips a file that has a row."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_app.tables.data_files import EncodedFile, encode_file, encode_files, write_file
from streaming_app.tables.location import Location
from streaming_app.tables.reader import query_table, quote
from streaming_app.tables.rust_table import RustTable
from tests.support.warehouses import arrow_schema, make_warehouse

CLUSTER = "default"
IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


def rows(group_ids: list[str]) -> pa.Table:
    values = [{"cluster": CLUSTER, "group_id": one, "last_offset": place} for place, one in enumerate(group_ids)]
    return pa.Table.from_pylist(values, arrow_schema("groups"))


def decoded(batches: list[pa.RecordBatch]) -> list[EncodedFile]:
    return [EncodedFile(**row) for batch in batches for row in batch.to_pylist()]


@given(st.lists(IDS, min_size=1, max_size=30), st.integers(0, 7), st.integers(1, 9))
def test_files_have_all_rows_in_their_order_and_no_more_each_than_asked_for(
    ids: list[str], most_rows: int, batch_rows: int
) -> None:
    batches = rows(ids).to_batches(max_chunksize=batch_rows)
    files = decoded(list(encode_files(batches, most_rows)))
    stored = [pq.read_table(pa.BufferReader(one.content)) for one in files]
    assert [group_id for one in stored for group_id in one["group_id"].to_pylist()] == ids
    assert all("cluster" not in one.column_names for one in stored)
    if most_rows:
        assert max(one.num_rows for one in stored) <= most_rows
    for one, file in zip(stored, files, strict=True):
        stats, own = json.loads(file.stats), [text.encode() for text in one["group_id"].to_pylist()]
        assert stats["numRecords"] == one.num_rows
        bounds = stats["minValues"]["group_id"].encode(), stats["maxValues"]["group_id"].encode()
        assert bounds == (min(own), max(own))


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(IDS, min_size=1, max_size=8, unique=True))
def test_a_query_for_a_group_finds_its_row_in_whichever_file_it_is(ids: list[str]) -> None:
    with TemporaryDirectory() as directory:
        place = Location.of(make_warehouse(Path(directory), as_the_job=True)) / "groups"
        added = [write_file(place, CLUSTER, encode_file(rows([one]))) for one in ids]
        RustTable(place, CLUSTER).append_files(added)
        for one in ids:
            found = query_table(place, f"SELECT group_id FROM t WHERE group_id = {quote(one)}")
            assert found["group_id"].to_pylist() == [one]


def test_a_file_of_rows_without_an_id_has_no_bounds() -> None:
    nothing = pa.table({"group_id": pa.nulls(2, pa.string()), "offset": [1, 2]})
    assert json.loads(encode_file(nothing).stats) == {"numRecords": 2, "nullCount": {"group_id": 2}}
    assert json.loads(encode_file(nothing.select(["offset"])).stats) == {"numRecords": 2}
    assert list(encode_files([], 10)) == []
