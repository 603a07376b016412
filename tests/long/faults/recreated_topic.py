"""A topic that is deleted and created again: refused until `--reset`, which may be killed any number of times.

It has a topic and a warehouse of its own: brokers keep `__consumer_offsets` in use.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from typing import NamedTuple

from kafka import KafkaProducer
from kafka.errors import InvalidReplicationFactorError
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from streaming_app.tables.reader import WarehouseReader
from tests.long.faults.harness import CLUSTER, JOB_SETUP, FaultHarness
from tests.long.faults.job import JobProcess, StartOptions
from tests.support.encoded import metadata_record
from tests.support.waiting import MINUTES, wait_until

_GROUPS = 4
_CATCH_UP_SECONDS = 600.0
_REFUSED_SECONDS = 300.0


class Change(NamedTuple):
    """An event that the topic shows: the new epoch of a group, and when."""

    group_id: str
    epoch: str
    at_ms: int


class RecreatedTopic:
    """The topic, what was written into it in all its lives, and its job."""

    def __init__(self, harness: FaultHarness) -> None:
        self._harness, self._random = harness, harness.random
        directory = harness.directory / "recreated"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        self.topic = f"offsets-{self._random.randrange(10**9)}"
        server = harness.broker.bootstrap_server
        self.job = JobProcess(server, directory / "warehouse", directory / "job.log", JOB_SETUP)
        self._lines_before = 0
        self.changes: list[Change] = []
        self.last: dict[str, str] = {}

    @property
    def topic_id(self) -> str:
        """The id that the broker gave the topic."""
        return str(self._harness.client.admin.describe_topics([self.topic])[0]["topic_id"])

    def create(self) -> None:
        """Create the topic with other contents than before, and more or fewer records."""
        self._create_topic()
        ids = self._random.sample(self._harness.operations.groups, _GROUPS)
        producer = KafkaProducer(bootstrap_servers=self._harness.broker.bootstrap_server)
        self.last = {}
        at_ms = 1000 * int(time.time())
        try:
            for epoch in range(2, self._random.randrange(3, 30)):
                for group_id in ids:
                    at_ms += 1
                    group = {"group_id": group_id}
                    key, value = metadata_record(group, epoch)
                    producer.send(self.topic, key=key, value=value, partition=0, timestamp_ms=at_ms).get(MINUTES)
                    self.changes.append(Change(group_id, str(epoch), at_ms))
                    self.last[group_id] = str(epoch)
        finally:
            producer.close()

    @retry(
        retry=retry_if_exception_type(InvalidReplicationFactorError),
        stop=stop_after_delay(MINUTES),
        wait=wait_fixed(0.2),
        reraise=True,
    )
    def _create_topic(self) -> None:
        """Create the topic, as soon as a broker may hold it: one that was stopped is fenced at first."""
        self._harness.client.create_topic(self.topic, 1)

    def start(self, *options: str) -> None:
        """Start its job."""
        self._lines_before = len(self._lines_about_starts())
        self.job.start(StartOptions(("--topic", self.topic, *options)))

    def is_refused(self) -> bool:
        """Return whether its job, which was started, ends and says that the topic is another one."""
        wait_until(lambda: bool(self.job.unexpected_exit), _REFUSED_SECONDS)
        refused = "deleted and created again" in (self.job.unexpected_exit or "")
        self.job.close()
        return refused

    def is_caught_up(self) -> bool:
        """Return whether its job comes to the end of the topic, since it was started."""

        def is_at_end() -> bool:
            if len(self._lines_about_starts()) == self._lines_before:
                return False  # the checkpoint may still be that of the topic before
            done = read_checkpoint_offsets(self.job.warehouse, CLUSTER)
            return done is not None and not done.offsets_behind(self._harness.client.end_offsets(self.topic))

        return wait_until(lambda: is_at_end() or bool(self.job.unexpected_exit), _CATCH_UP_SECONDS) and is_at_end()

    def _lines_about_starts(self) -> list[str]:
        """Return the lines in which its job said from where it reads; then the checkpoint fits the topic."""
        return [line for line in self.job.output.splitlines() if line.startswith(f"{self.topic} at ")]

    def differences(self) -> list[str]:
        """Compare the tables with what was written."""
        reader = WarehouseReader(self.job.warehouse)
        rows = {row["group_id"]: str(row["group_epoch"]) for row in reader.rows("SELECT * FROM groups")}
        events = Counter(
            Change(row["group_id"], row["new"], int(row["at"].timestamp() * 1000))
            for row in reader.rows("SELECT group_id, new, at FROM group_events WHERE kind = 'group_epoch'")
        )
        expected = Counter(self.changes)
        found = [] if rows == self.last else [f"rows {rows} for {self.last}"]
        found += [f"{change} {events[change]} times" for change in events - expected]
        return found + [f"{change} is missing" for change in expected - events]
