"""A real job with a real broker: `verify` finds a row that somebody else changed, and a release brings it back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from streaming_app.checks.verification import Verification, WarehouseTables
from streaming_app.cli.main import main
from streaming_app.config.settings import JobConfig
from streaming_app.job import supervisor
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.tables.reader import WarehouseReader
from tests.support.running_job import job_in_thread
from tests.support.waiting import MINUTES, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
GROUP, OTHER = 'payments "${spark.app.name}" 🎉', "orders"


class TablesOfJob:
    """What the tests read from the tables of a running job, and what they change in them with delta-rs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["group_id"]: row for row in WarehouseReader(self._path).rows("SELECT * FROM groups")}

    def events(self) -> list[dict[str, Any]]:
        return WarehouseReader(self._path).rows(
            'SELECT * FROM group_events ORDER BY group_id, "offset", kind, member_id'
        )

    def overwrite(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Replace each row of `groups` by the row that `change` returns for it."""
        table = DeltaTable(str(self._path / "groups"))
        schema = pa.schema(table.schema().to_arrow())
        rows = WarehouseReader(self._path).query("SELECT * FROM groups").select(schema.names).cast(schema).to_pylist()
        write_deltalake(table, pa.Table.from_pylist(list(map(change, rows)), schema), mode="overwrite")


def test_a_row_that_was_changed_behind_the_back_of_the_job_is_found_by_verify_and_read_again_once_released(
    start_broker: Callable[..., LocalBroker],
    spark: SparkSession,
    empty_warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "_TOPIC_SECONDS", 1.0)
    own, tables = start_broker(), TablesOfJob(empty_warehouse)
    values = {"bootstrap_server": own.bootstrap_server, "warehouse": empty_warehouse}
    fast = {"alerts": {"interval": 0.3}}
    with StreamsGroupClient(own.bootstrap_server) as client:
        client.create_topic("in", 2)
        reads = topology(subtopology("0", source_topics=["in"]))
        members = [SimulatedMember(client, group, reads) for group in (GROUP, GROUP, OTHER)]
        for member in members:
            member.join()
        settle(members)

        def verify() -> set[str]:
            """Return the groups that differ, once no group is behind."""
            found = Verification(client, WarehouseTables(empty_warehouse, "default"), MINUTES, lambda _: None).run()
            assert found.not_compared == []
            return {one.group_id for one in found.differences}

        with job_in_thread(spark, JobConfig.model_validate(values | fast), empty_warehouse / "spark.log") as job:
            assert job.says("Caught up"), job.lines
            assert {row["state"] for row in tables.rows().values()} == {"Stable"}
            assert verify() == set()
            good, events = tables.rows(), tables.events()

            def corrupt(row: dict[str, Any]) -> dict[str, Any]:
                changed = {"state": "Empty", "group_epoch": 77, "members": [], "last_offset": 1 << 40}
                return row | changed if row["group_id"] == GROUP else row

            tables.overwrite(corrupt)
            assert verify() == {GROUP}
            release = ["status", "--release", GROUP, "--warehouse", str(empty_warehouse)]
            assert CliRunner().invoke(main, release).exit_code == 0
            assert wait_until(lambda: tables.rows() == good), job.lines
            assert tables.events() == events

            members[0].leave()
            settle(members[1:])
            assert wait_until(lambda: tables.rows()[GROUP]["member_count"] == 1), job.lines
            added = [event for event in tables.events() if event not in events]
            assert {event["group_id"] for event in added} == {GROUP}
            assert [event["member_id"] for event in added if event["kind"] == "member_left"] == [members[0].member_id]
    assert job.lines[-1] == "Stopped."
