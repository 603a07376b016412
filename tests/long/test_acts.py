"""What Kafka's own tools do to groups, offsets and topics of real applications, told from the log with from and to.

Both queries fold the records of a real broker without Spark, and lag passes look at its topics.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from streaming_app.job.lag_pass import LagPass
from streaming_app.kafka.client import StreamsGroupClient, fetch_committed_offsets
from streaming_app.lag.model import ReadUntil
from streaming_app.lag.tracker import LagTracker
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.reader import WarehouseReader
from tests.stream.test_offset_acts import PAST, Topic
from tests.support.compared_tools import SHORT_SESSIONS
from tests.support.kafka_tool import run_script
from tests.support.offsets_log import read_log
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until
from tests.support.warehouses import append

GROUP, CLASSIC, TOPICS = "kept", "kept-classic", ("lines", "results")
PROPERTIES = {"commit.interval.ms": "200"}
WAYS = ("--to-earliest", "--shift-by 2", "--to-offset 1", "--to-datetime 2020-01-01T00:00:00.000")
RESET, DELETED = "offsets_reset", "offsets_deleted"


class Scene:
    """A broker, its tools, and a job that reads its log."""

    def __init__(self, directory: Path, server: str, warehouse: Path) -> None:
        self.directory, self.server, self.warehouse = directory, server, warehouse
        self.client = StreamsGroupClient(server)
        self.job, self.shift = Topic(warehouse, []), 0.0
        self.store = LagTables(warehouse, "default")
        self.passes = LagPass(self.store, LagTracker(), self.now, lambda: ReadUntil(self.now(), self.now()))
        for topic in TOPICS:
            self.client.create_topic(topic, 2)

    def now(self) -> float:
        return time.time() + self.shift

    def run(self, command: str) -> None:
        run_script(self.server, self.directory, command)

    def read(self, group_id: str = GROUP) -> None:
        """Read what is new of a group."""
        known = {(row["partition"], row["offset"]) for row in self.job.records}
        new = [raw for raw in read_log(self.server, group_id) if (raw.partition, raw.offset) not in known]
        self.job.add(new)

    def committed(self, group_id: str = GROUP) -> dict[tuple[str, int], int | None]:
        found, _ = fetch_committed_offsets(self.client, [group_id])
        return {key: one.offset for key, one in found.get(group_id, {}).items()}

    def has_committed(self, group_id: str) -> bool:
        offsets = self.committed(group_id)
        return all((offsets.get(("lines", partition)) or 0) >= 4 for partition in range(2))

    def runs_and_stops(self, application: StreamsApplication) -> None:
        """Let the application commit, and wait until it is known that it has stopped."""
        application.start()
        application.produce(on=True)
        assert wait_until(lambda: self.has_committed(application.application_id), interval=0.5)
        application.produce(on=False)
        self.read(application.application_id)
        application.stop()

        def has_stopped() -> bool:
            self.read(application.application_id)
            query = f"SELECT 1 FROM groups WHERE group_id = '{application.application_id}' AND state = 'Empty'"
            return bool(WarehouseReader(self.warehouse).rows(query))

        assert wait_until(has_stopped, interval=1)

    def acts(self, kind: str, group_id: str = GROUP) -> list[dict[str, Any]]:
        query = f"SELECT * FROM group_events e WHERE kind = '{kind}' AND group_id = '{group_id}' ORDER BY at, e.offset"
        return WarehouseReader(self.warehouse).rows(query)

    def tells(self, command: str, group_id: str = GROUP, kind: str = RESET, cause: str = "while_empty") -> None:
        """Assert that an act is told for each partition: from, to, when and why."""
        known, before, began = len(self.acts(kind, group_id)), self.committed(group_id), time.time()
        self.run(command)
        after, ended = self.committed(group_id), time.time()
        self.read(group_id)
        new = self.acts(kind, group_id)[known:]
        told = {(one["topic"], one["partition"]): (one["old"], one["new"]) for one in new}
        changed = {one for one in before if one[0] == "lines"}
        assert told == {one: (str(before[one]), _text(after.get(one))) for one in changed}, command
        assert {one["cause"] for one in new} == {cause}, command
        assert all(began - 1 <= one["at"].timestamp() <= ended + 1 for one in new), command

    def passes_tell(self, kind: str) -> tuple[str | None, str | None]:
        """Make a pass in which all topics are described again; return what it tells of the input topic."""
        self.shift += 400
        result = self.passes.run(self.client)
        self.store.append_events(result.topic_events)
        (one,) = [row for row in self.acts(kind) if row["topic"] == "lines"]
        return one["old"], one["new"]


def _text(offset: int | None) -> str | None:
    return None if offset is None or offset < 0 else str(offset)


def application(scene: Scene, name: str, **properties: str) -> StreamsApplication:
    return StreamsApplication(
        scene.server, scene.directory / name, name, "keep", TOPICS, properties=PROPERTIES | properties
    )


@pytest.fixture
def start(start_broker: Callable[..., LocalBroker], empty_warehouse: Path, tmp_path: Path) -> Callable[..., Scene]:
    def started(**properties: str) -> Scene:
        broker = start_broker(properties=SHORT_SESSIONS | {one.replace("_", "."): v for one, v in properties.items()})
        return Scene(tmp_path, broker.bootstrap_server, empty_warehouse)

    return started


def test_acts_of_kafkas_tools_on_real_applications_are_told_with_from_to_and_when(start: Callable[..., Scene]) -> None:
    scene = start()
    append(scene.warehouse, "broker_facts", *retention("10080"))
    tool = f"kafka-streams-groups.sh --group {GROUP}"
    with ExitStack() as running:
        own = running.enter_context(application(scene, GROUP))
        scene.runs_and_stops(own)
        for way in WAYS:
            scene.tells(f"{tool} --reset-offsets --input-topic lines {way} --execute")
        scene.tells(f"{tool} --delete-offsets --input-topic lines", kind=DELETED, cause="deleted,while_empty")

        name = "streams.num.standby.replicas"
        scene.run(f"kafka-configs.sh --alter --entity-type groups --entity-name {GROUP} --add-config {name}=1")
        scene.runs_and_stops(own)
        (changed,) = scene.acts("config_changed")
        assert "num.standby.replicas=0" in changed["old"]
        assert "num.standby.replicas=1" in changed["new"]

        scene.passes.run(scene.client)
        scene.run("kafka-topics.sh --alter --topic lines --partitions 3")
        assert scene.passes_tell("topic_grown") == ("2", "3")
        scene.run("kafka-topics.sh --delete --topic lines")
        topic_id, nothing = scene.passes_tell("topic_deleted")
        assert nothing is None
        scene.run("kafka-topics.sh --create --topic lines --partitions 2")
        before, after = scene.passes_tell("topic_recreated")
        assert before == topic_id != after

        scene.run(f"{tool} --delete")
        scene.read()
        assert [one["old"] for one in scene.acts("deleted")] == ["streams"]

        scene.runs_and_stops(running.enter_context(application(scene, CLASSIC, **{"group.protocol": "classic"})))
        reset = f"kafka-streams-application-reset.sh --application-id {CLASSIC} --input-topics lines --force"
        scene.tells(reset, CLASSIC)


def retention(minutes: str) -> Iterable[dict[str, Any]]:
    """Yield the fact that the service of broker facts reads."""
    fact = {"kind": "broker_config", "subject": "1", "name": "offsets.retention.minutes", "value": minutes}
    yield {**fact, "observed_at": PAST}


def test_an_expiry_is_told_as_one(start: Callable[..., Scene]) -> None:
    scene = start(offsets_retention_minutes="1", offsets_retention_check_interval_ms="5000")
    append(scene.warehouse, "broker_facts", *retention("1"))
    with application(scene, GROUP) as own:
        scene.runs_and_stops(own)
        before = scene.committed()

    def is_told() -> bool:
        scene.read()
        return bool(scene.acts(DELETED))

    assert wait_until(is_told, interval=5)
    gone = scene.acts(DELETED)
    assert {(one["topic"], one["partition"]): one["old"] for one in gone} == {
        key: _text(offset) for key, offset in before.items()
    }
    assert {one["cause"].split(",")[0] for one in gone} <= {"expired", "deleted_or_expired"}
