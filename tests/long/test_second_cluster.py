"""Relation K with whole jobs: a second cluster that writes, is cleaned, or a RESTORE, leaves a cluster's rows as alone.

The job of the cluster reads the same topic into a warehouse of its own, too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.tables.reader import WarehouseReader
from tests.relations.test_second_cluster import maintain_as_other
from tests.stream.stopped_job import Stopped
from tests.support.container import Broker
from tests.support.encode import encode
from tests.support.job_runner import run_once
from tests.support.offsets_topic import UNDECODABLE, appending, epoch_records
from tests.support.running_job import running_job
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]
RESTORED = ("groups", "group_events", "quarantine", "offset_commits", "group_records")
STATE = {"groups": "group_id", "offsets": 'group_id, topic, "partition"', "all_groups": "group_id"}
HISTORY = {"group_events": 'group_id, "offset", kind, member_id', "quarantine": '"partition", "offset"'}
_OF_A_RUN = {"updated_at", "quarantined_at"}
GROUPS = 4


class Shared:
    """A topic of a cluster, its job in a warehouse of its own, and one in a warehouse that has a second cluster."""

    def __init__(self, spark: SparkSession, server: str, topic: str, directory: Path) -> None:
        self.spark, self.server, self.topic = spark, server, topic
        self.alone, self.shared = directory / "alone", directory / "shared"
        self.epoch = 0

    def write(self) -> None:
        """Bring each group to its next epoch, with a commit, and write a record that cannot be decoded."""
        self.epoch += 1
        with appending(self.server) as append:
            for number in range(GROUPS):
                key = {"group": f"g{number}", "topic": "in", "partition": 0}
                commit = encode(1, key, {"offset": self.epoch, "leader_epoch": -1, "commit_timestamp": 1})
                append(self.topic, *epoch_records(f"g{number}", self.epoch), commit)
            append(self.topic, UNDECODABLE)

    def run(self, warehouse: Path, **others: Any) -> str:
        settings = {"topic": self.topic, "offsets": {"enabled": True}, **others}
        return "\n".join(run_once(self.spark, self.server, warehouse, **settings))

    def versions(self) -> dict[str, int]:
        return {name: DeltaTable(self.shared / name).version() for name in RESTORED}

    def restore(self, versions: dict[str, int]) -> None:
        """Let somebody restore all tables, and the second cluster's job write and clean them up."""
        other = Stopped(self.shared)
        for name, version in versions.items():
            DeltaTable(self.shared / name).restore(version)
            maintain_as_other(other, name)

    def rows(self, warehouse: Path, tables: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
        reader = WarehouseReader(warehouse)
        return {
            name: [
                {column: value for column, value in row.items() if column not in _OF_A_RUN}
                for row in reader.rows(f"SELECT * FROM {name} WHERE cluster = 'default' ORDER BY {order}")
            ]
            for name, order in tables.items()
        }

    def is_as_alone(self) -> bool:
        return all(self.rows(self.alone, one) == self.rows(self.shared, one) for one in (STATE, HISTORY))


@pytest.fixture
def shared(
    spark: SparkSession, broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> Shared:
    topic = unique("offsets")
    client.create_topic(topic, 1, {"delete.retention.ms": str(24 * 3_600_000)})
    one = Shared(spark, broker.bootstrap_server, topic, tmp_path)
    one.write()
    one.run(one.shared)
    one.run(one.shared, cluster="other")
    return one


def test_tables_restored_between_two_runs_are_as_those_alone_after_the_next(shared: Shared) -> None:
    versions = shared.versions()
    shared.write()
    shared.run(shared.shared)
    shared.restore(versions)
    shared.write()
    said = shared.run(shared.shared)
    shared.run(shared.alone)
    assert "lost or restored since: groups, group_events, quarantine; reading from the beginning" in said
    assert "lost or restored since: offset_commits, group_records, group_events, quarantine; reading" in said
    assert shared.rows(shared.shared, STATE) == shared.rows(shared.alone, STATE)
    assert shared.rows(shared.shared, HISTORY) == shared.rows(shared.alone, HISTORY)
    assert "resuming from the checkpoint" in shared.run(shared.shared)


def test_tables_restored_while_the_job_runs_are_as_those_alone_soon(shared: Shared) -> None:
    versions = shared.versions()
    with running_job(shared.server, shared.shared, "--topic", shared.topic) as job:
        assert job.says("Caught up")
        shared.write()
        shared.run(shared.alone)
        assert wait_until(shared.is_as_alone)
        shared.restore(versions)
        shared.write()
        shared.run(shared.alone)
        assert wait_until(shared.is_as_alone), job.lines
        assert any("restored" in line for line in job.lines)
