"""What an idle job asks of an object store: the checks of its tables, and what a pass over the lag reads."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from streaming_app.stream.commits_writer import SHARED
from streaming_app.stream.stream_state import StateFile
from streaming_app.stream.table_versions import TableVersions
from streaming_app.tables import kept_table
from streaming_app.tables.definitions import tables
from streaming_app.tables.fence import Fence
from streaming_app.tables.kept_table import KNOWN_SECONDS
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.location import Location
from streaming_app.tables.newest_tables import NAMES
from streaming_app.tables.table_creation import create_missing
from streaming_app.tables.writer import TableWriter
from tests.support.s3_server import S3Server, s3_server

pytestmark = pytest.mark.slow
_EVERY = 30.0  # seconds between two checks, and between two passes
_MINUTES = 12


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def test_each_table_is_checked_once_in_two_minutes_and_nothing_is_read_again(
    store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(kept_table, "monotonic", lambda: now)
    warehouse, fence = Location.of(store.uri("w")), Fence("default", 1)
    create_missing(warehouse, ())
    fence.claim(warehouse / one.name for one in tables())
    writer, lag = TableWriter(Mock(), warehouse, "default", fence), LagTables(warehouse, "default", fence)
    records = writer.table("group_records")
    records.append(records.to_table([{"group_id": "g", "record_type": 17, "member_id": "", "last_offset": 1}]))
    places = [warehouse / "_checkpoints" / name for name in ("groups", "offsets")]
    groups, offsets = (StateFile(one) for one in places)
    streams = [
        TableVersions(writer, places[0], groups),
        TableVersions(writer, places[1], offsets, NAMES, shared=SHARED),
    ]
    for stream in streams:
        stream.remember()
        stream.write()

    def go_on() -> None:
        nonlocal now
        now += _EVERY
        for stream in streams:
            stream.check()
        reader = lag.reader()
        lag.commits(reader), lag.group_versions(reader), lag.other_groups(reader)

    for _ in range(5):
        go_on()
    with store.counted() as requests:
        for _ in range(int(60 * _MINUTES / _EVERY)):
            go_on()
    of_a_check = 2  # the commit that is known, and the next one
    assert requests == Counter(GET=of_a_check * len(tables()) * round(60 * _MINUTES / KNOWN_SECONDS))
