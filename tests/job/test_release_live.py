"""A real job with a real broker: `verify` finds a row that somebody else changed, and a release brings it back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from streaming_app.checks.verification import Verification, WarehouseTables
from streaming_app.cli.main import main
from streaming_app.config.settings import JobConfig
from streaming_app.job import supervisor
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.tables.reader import WarehouseReader, quote
from tests.support.running_job import job_in_thread
from tests.support.waiting import MINUTES, wait_until
from tests.support.warehouses import replace_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
GROUP, OTHER = 'payments "${spark.app.name}" 🎉', "orders"


def test_a_row_that_was_changed_behind_the_back_of_the_job_is_found_by_verify_and_read_again_once_released(
    start_broker: Callable[..., LocalBroker],
    spark: SparkSession,
    empty_warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "_TOPIC_SECONDS", 1.0)
    own = start_broker()
    values = {"bootstrap_server": own.bootstrap_server, "warehouse": empty_warehouse, "alerts": {"interval": 0.3}}

    def rows() -> list[dict[str, Any]]:
        return WarehouseReader(empty_warehouse).query("SELECT * FROM groups ORDER BY group_id").to_pylist()

    def events() -> list[dict[str, Any]]:
        query = 'SELECT * FROM group_events ORDER BY group_id, "offset", kind, member_id'
        return WarehouseReader(empty_warehouse).rows(query)

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

        with job_in_thread(spark, JobConfig.model_validate(values), empty_warehouse / "spark.log") as job:
            assert job.says("Caught up"), job.lines
            assert {row["state"] for row in rows()} == {"Stable"}
            assert verify() == set()
            good, told = rows(), events()
            (row,) = (one for one in good if one["group_id"] == GROUP)
            changed = {**row, "state": "Empty", "group_epoch": 77, "members": [], "last_offset": 1 << 40}
            replace_rows(empty_warehouse, "groups", changed, where=f"group_id = {quote(GROUP)}")
            assert verify() == {GROUP}
            release = ["status", "--release", GROUP, "--warehouse", str(empty_warehouse)]
            assert CliRunner().invoke(main, release).exit_code == 0
            assert wait_until(lambda: rows() == good), job.lines
            assert events() == told
            members[0].leave()
            settle(members[1:])
            assert wait_until(lambda: [one["member_count"] for one in rows()] == [1, 1]), job.lines
            added = [event for event in events() if event not in told]
            assert {event["group_id"] for event in added} == {GROUP}
            assert [event["member_id"] for event in added if event["kind"] == "member_left"] == [members[0].member_id]
    assert job.lines[-1] == "Stopped."
