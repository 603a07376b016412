"""Group ids are whatever a client sends: each is written, replaced, deleted and read like any other, and only it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from offsets_decoder import encode
from streaming_app.checks.verification import WarehouseTables
from streaming_app.cli.main import main
from streaming_app.queries.groups import find_groups
from streaming_app.queries.overview import list_groups
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.groups_writer import GroupsBatchWriter
from streaming_app.tables.reader import WarehouseReader, quote
from streaming_app.tables.writer import TableWriter
from tests.support.encoded import metadata_record
from tests.support.frames import batch, limit_driver
from tests.support.odd_group_ids import ODD

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 1, tzinfo=timezone.utc)
CLUSTER = "odd"
ALONE = [ODD[name] for name in ODD if name.startswith("a variable")]
"""Each of these is replaced by a batch of its own, too: what else is in a batch does not hide what its id does."""
NOT_UTF8 = (b"\xff\xfe", b"a\x80", b"\xed\xa0\x80", b"\xc0\x80")
USERS_CONF = {"spark.sql.variable.substitute": "true", "spark.sql.parser.escapedStringLiterals": "true"}

Pair = tuple[bytes, bytes | None]


def joins(group_id: str, epoch: int) -> Iterator[Pair]:
    group, member = {"group_id": group_id}, {"group_id": group_id, "member_id": group_id[:100]}
    yield encode(19, member, {"client_id": group_id[:100]})
    yield metadata_record(group, epoch)


@pytest.fixture(scope="module", params=["few", "many"])
def warehouse(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    create_warehouse: Callable[[Path], Path],
) -> Path:
    """Every group is created, then replaced, with all others and some alone; half of them are deleted at last."""
    path = tmp_path_factory.mktemp("odd")
    session = spark.newSession()
    for name, value in USERS_CONF.items():
        session.conf.set(name, value)
    writer = TableWriter(session, str(path), CLUSTER)
    writer.prepare() if request.param == "few" else create_warehouse(path)
    write = GroupsBatchWriter(writer, FoldOptions(CLUSTER, "topic"), lambda *_: None, topics=lambda _: {})
    not_utf8 = [(b"\x00\x11" + len(one).to_bytes(2, "big") + one, b"\x00\x00") for one in NOT_UTF8]
    ids = list(ODD.values())
    batches = [
        [*(pair for group_id in ids for pair in joins(group_id, 2)), *not_utf8],
        *(list(joins(group_id, 3)) for group_id in ALONE if request.param == "few"),
        [pair for group_id in ids for pair in joins(group_id, 4)],
        [encode(17, {"group_id": group_id}, None) for group_id in ids[::2]],
    ]
    offset = 0
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "many":
            limit_driver(patched, records=0)
        for number, pairs in enumerate(batches):
            rows = [(offset + n, START + timedelta(seconds=number), *pair) for n, pair in enumerate(pairs)]
            write(batch(session, rows), number)
            offset += len(rows)
    return path


def state_of(group_id: str) -> str:
    return "Dead" if group_id in list(ODD.values())[::2] else "NotReady"


def test_each_group_has_one_row_with_its_last_state_and_no_other_group_has_one(warehouse: Path) -> None:
    reader = WarehouseReader(warehouse)
    rows = reader.rows('SELECT group_id, "cluster", state, group_epoch FROM groups')
    assert sorted(tuple(row.values()) for row in rows) == sorted(
        (one, CLUSTER, state_of(one), 4) for one in ODD.values()
    )
    events = reader.rows("SELECT group_id, new FROM group_events WHERE kind = 'group_epoch' AND new <> '3'")
    expected = [(group_id, epoch) for group_id in ODD.values() for epoch in ("2", "4")]
    assert sorted((event["group_id"], event["new"]) for event in events) == sorted(expected)
    kept = reader.rows("SELECT key, group_id FROM quarantine")
    assert sorted(row["key"][4:] for row in kept) == sorted(NOT_UTF8)  # what names no group, with its bytes
    assert {row["group_id"] for row in kept} == {None}


def test_the_commands_find_a_group_by_any_id_and_print_each_in_a_line(warehouse: Path) -> None:
    reader, tables = WarehouseReader(warehouse), WarehouseTables(warehouse, CLUSTER)
    living = sorted(group_id for group_id in ODD.values() if state_of(group_id) != "Dead")
    for group_id in ODD.values():
        assert reader.rows(f"SELECT group_id FROM groups WHERE group_id = {quote(group_id)}") == [
            {"group_id": group_id}
        ]
        assert [row["group_id"] for row in find_groups(reader, CLUSTER, [group_id])] == [group_id]
        assert list(tables.rows([group_id])) == [group_id]
    assert sorted(row["GROUP"] for row in list_groups(reader, CLUSTER)) == sorted(tables.group_ids()) == living
    of_cluster = ["--warehouse", str(warehouse), "--cluster", CLUSTER]
    for command in (["list"], ["list", "--state"], ["describe", "--all-groups", "--state"]):
        ran = CliRunner().invoke(main, [*command, *of_cluster], catch_exceptions=False)
        assert ran.exit_code == 0
        lines = ran.stdout.split("\n")[:-1]
        assert len(lines) == len(living) + 1  # with the header
        assert all(line.isprintable() for line in lines)
