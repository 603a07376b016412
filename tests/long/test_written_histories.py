"""Histories on a real broker, with their whole log and as its own cleaner leaves it: who is told of what.

The job starts after the histories have ended, as at its first start on a cluster that is older than it.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import LEAVE_EPOCH
from streaming_app.tables.reader import WarehouseReader
from tests.histories.judged import ALL
from tests.long.told import HERE, Told, run_tree, told
from tests.support.internal_topic import TimedRecord, write_records
from tests.support.running_job import is_caught_up, running_job
from tests.support.waiting import MINUTES, wait_until
from tests.support.written_history import ENDED_SECONDS, HistoriesBroker, WrittenHistory, writable

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(6 * MINUTES)]
_METADATA = 17
_AT_ONCE = {"alerts": {"rules": {"StreamsGroupDown": {"for": 0}}}}
HANDED_OVER = (
    "Green overlaps blue for five minutes, and each has its prefix",
    "Green overlaps blue for five minutes, and both have the same",
    "Green runs next to blue for two hours, and blue is stopped",
)
"""Only a job that has seen the first commits of a group can know that it took over from another one."""


class World(NamedTuple):
    """A broker whose log is compacted now, and the warehouses of a job that read it before and after that."""

    broker: HistoriesBroker
    histories: list[WrittenHistory]
    whole: Path
    compacted: Path
    created: dict[str, int]
    """By group that has more than one: the position of its first record of type 17."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = tmp_path_factory.mktemp("histories")
    histories = writable(ALL, time.time() - ENDED_SECONDS)
    with HistoriesBroker(path / "broker", histories) as broker:
        run_tree(HERE, broker.server, path / "whole")
        offsets: defaultdict[str, list[int]] = defaultdict(list)
        for one in broker.log():
            if one.record_type == _METADATA:
                offsets[one.group_id].append(one.offset)
        created = {group_id: known[0] for group_id, known in offsets.items() if len(known) > 1}
        broker.compact()
        run_tree(HERE, broker.server, path / "compacted")
        yield World(broker, histories, path / "whole", path / "compacted", created)


def told_wrongly(found: Told) -> list[str]:
    """Return what was missed, or told although it is in order, but for what only the past shows."""
    print(found)
    return found.missed + [one for one in found.false if not any(f"({name}" in one for name in HANDED_OVER)]


def test_a_job_that_starts_after_an_outage_began_tells_of_it(world: World) -> None:
    assert told_wrongly(told(world.histories, world.whole)) == []


def test_it_tells_the_same_where_the_log_is_compacted(world: World) -> None:
    assert told_wrongly(told(world.histories, world.compacted)) == []


def test_the_cleaner_has_removed_what_created_the_groups(world: World) -> None:
    left = {(one.group_id, one.offset) for one in world.broker.log()}
    assert len(world.created) > len(world.histories) / 2
    assert not left & world.created.items()


def test_an_outage_of_a_group_whose_creation_is_gone_is_told(world: World, tmp_path: Path) -> None:
    (calm,) = (one for one in world.histories if one.history.name == "Restart of the only instance")
    config = tmp_path / "streams-groups.yaml"
    config.write_text(json.dumps(_AT_ONCE), "utf-8")
    print(seconds_to_alert(world.broker.server, tmp_path / "warehouse", calm, "--config", str(config)))


def seconds_to_alert(server: str, warehouse: Path, history: WrittenHistory, *options: str) -> float:
    """Let all members of a group leave while a job runs and records come; return when its alert is in the table."""
    group_id = history.group("app")

    def opened() -> bool:
        found = WarehouseReader(warehouse).rows(f"SELECT opened_at FROM alerts WHERE group_id = '{group_id}'")
        return any(one["opened_at"] for one in found)

    with running_job(server, warehouse, *options) as job, StreamsGroupClient([server]) as client:
        assert wait_until(lambda: is_caught_up(warehouse)), job.lines
        assert not opened()
        (group,) = client.describe([group_id])
        assert group["members"]
        topic = history.topic("in")
        write_records(server, [TimedRecord(None, topic, partition, None, b"x") for partition in range(12)])
        for member in group["members"]:
            client.heartbeat({"group_id": group_id, "member_id": member["member_id"], "member_epoch": LEAVE_EPOCH})
        left = time.monotonic()
        assert wait_until(opened, 3 * MINUTES, interval=0.5), job.lines
        return time.monotonic() - left
