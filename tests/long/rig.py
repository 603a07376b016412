"""A broker, a job and groups in states of all kinds: members that send heartbeats, applications, commands."""

import base64
import json
import os
import random
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from kafka import KafkaProducer
from kafka.errors import KafkaError

from streaming_app.chunks import chunks
from streaming_app.cli.main import main
from streaming_app.errors import WarehouseError
from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.kafka.protocol import Fields, GroupError
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.demo_groups import rejoin
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.tables.reader import Row, quote
from tests.long.bed import Bed
from tests.support.compared_tools import ComparedGroup
from tests.support.ivy import broker_jars
from tests.support.kafka_tool import StreamsGroupsTool, run_script
from tests.support.receivers import HttpReceiver
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import MINUTES, wait_until

_HEARTBEAT_SECONDS = 1.0
_PLUGIN = Path(__file__).parents[1] / "support" / "RefusingPlugin.java"
_LONGEST = 1500.0
"""Seconds: the job asks for some things every five minutes, and senders and brokers wait longer after each failure."""


def broker_that_refuses(directory: Path) -> LocalBroker:
    """Return a broker, not started, whose plugin may refuse descriptions of topologies: see `Rig.refuse`."""
    plugin, jars = directory / "plugin", broker_jars(KAFKA_VERSION)
    plugin.mkdir()
    subprocess.run(["javac", "-cp", ":".join(map(str, jars)), "-d", str(plugin), str(_PLUGIN)], check=True)
    properties = {"group.streams.topology.description.plugin.class": "RefusingPlugin"}
    return LocalBroker(directory / "broker", class_path=[plugin, *jars], properties=properties)


class Rig(Bed):
    """Start it, or use it as a context manager. Its members send heartbeats until it is stopped."""

    def __init__(self, directory: Path, config: Mapping[str, Any], broker: LocalBroker) -> None:
        super().__init__(directory, broker, config=config, megabytes=900)
        self._members: list[SimulatedMember] = []
        self.lock = threading.RLock()
        """Held while members send; hold it to make a member do something else."""
        self._stop = threading.Event()
        self.hidden: list[tuple[str, str]] = []
        """What of this machine no output shows, and what it shows instead."""

    def _prepare(self) -> None:
        thread = threading.Thread(target=self._send, name="heartbeats", daemon=True)
        self._stack.callback(thread.join)
        self._stack.callback(self._stop.set)
        thread.start()

    # Commands about the job

    def run(self, command: str, *, may_fail: bool = False, **values: str) -> str:
        """Return what a command prints, with values for its placeholders; `may_fail`: it may exit with 1."""
        for name, value in values.items():
            command = re.sub(rf"\b{name}\b", value, command)
        if not command.startswith("streams-groups "):
            return run_script(self.server, self.directory, command)
        ran = CliRunner(env={"STREAMS_GROUPS_CONFIG": str(self.config_file)}).invoke(main, command.split()[1:])
        assert ran.exit_code in {0, int(may_fail)}, f"{command}: {ran.output}"
        return ran.output

    def copies(self, group_id: str) -> dict[str, Any]:
        """Return what `describe --copies --json` prints of a group."""
        (report,) = json.loads(self.run(f"streams-groups describe {group_id} --copies --json"))
        return dict(report)

    def compared(self, group_id: str, *applications: StreamsApplication) -> ComparedGroup:
        """Return a group that can be compared with what Kafka's own tool and its applications say of it."""
        return ComparedGroup(group_id, self.server, self.warehouse, self._tool, *applications)

    @cached_property
    def _tool(self) -> StreamsGroupsTool:
        return self._stack.enter_context(closing(StreamsGroupsTool(self.server)))

    def alert(self, rule: str, group_id: str | None) -> Row | None:
        """Return the newest alert of a rule about a group, which may have ended."""
        of = "group_id IS NULL" if group_id is None else f"group_id = {quote(group_id)}"
        rows = self.found(
            f"SELECT alert_id, rule, severity, opened_at, ended_at, summary FROM alerts WHERE rule = {quote(rule)} "
            f"AND {of} AND opened_at IS NOT NULL ORDER BY opened_at DESC LIMIT 1"
        )
        return rows[0] if rows else None

    def await_open(self, rule: str, group_id: str | None) -> None:
        assert wait_until(lambda: self._is_open(rule, group_id), _LONGEST, interval=1), (rule, group_id)

    def await_end(self, rule: str, group_id: str | None) -> None:
        assert wait_until(lambda: not self._is_open(rule, group_id), _LONGEST, interval=1), self.alert(rule, group_id)

    def _is_open(self, rule: str, group_id: str | None) -> bool:
        found = self.alert(rule, group_id)
        return bool(found) and found["ended_at"] is None

    def verdict(self, group_id: str) -> str | None:
        return self._health(group_id).get("verdict")

    def await_verdict(self, group_id: str, *verdicts: str) -> None:
        assert wait_until(lambda: self.verdict(group_id) in verdicts, interval=0.5), self._health(group_id)

    def _health(self, group_id: str) -> Row:
        query = f"SELECT verdict, why, evidence FROM group_health WHERE group_id = {quote(group_id)}"
        return next(iter(self.found(query)), {})

    def found(self, query: str) -> list[Row]:
        """Return the rows of a query; none while there are no tables."""
        with suppress(WarehouseError):  # the job has not created the tables yet
            return self.rows(query)
        return []

    # Groups

    def prepare(
        self, group_id: str, *subtopologies: Fields, topics: tuple[str, ...] = (), **settings: Any
    ) -> SimulatedMember:
        """Return a member that has not joined, of a group that reads these topics, or with these subtopologies."""
        epoch = settings.pop("epoch", 0)
        own = topology(*(subtopologies or (subtopology("0", source_topics=list(topics)),)), epoch=epoch)
        return SimulatedMember(self.client, group_id, own, **settings)

    def keep(self, *members: SimulatedMember, settles: bool = True) -> None:
        """Let members join, and send heartbeats from then on; return once their groups have settled, if asked."""
        with self.lock:
            for one in members:
                one.join()
            self._members += members
            if settles:
                groups = {member.group_id for member in members}
                settle([one for one in self._members if one.group_id in groups])

    def drop(self, member: SimulatedMember) -> None:
        """Let a member leave."""
        with self.lock:
            self._members.remove(member)
            member.leave()

    def state(self, group_id: str) -> str:
        return str(self.client.describe([group_id])[0]["group_state"])

    def has_topic(self, topic: str) -> bool:
        return topic in self.client.list_topics()

    def _send(self) -> None:
        while not self._stop.wait(_HEARTBEAT_SECONDS):  # noqa: WAIT002 - a pause
            with self.lock:
                for member in self._members:
                    with suppress(KafkaError, OSError):
                        try:
                            member.step()
                        except GroupError as error:
                            rejoin(member, error)

    def commit(self, member: SimulatedMember, topic: str, offset: int | None = None) -> None:
        """Commit an offset in all partitions that a member has, by default the ends of their logs."""
        with self.lock:
            ends = self.client.end_offsets(topic)
            active = [one for own in member.assignment["active"].values() for one in own]
            offsets = {(topic, one): ends[one] if offset is None else offset for one in active if one in ends}
            self.client.commit_offsets(member.group_id, offsets, member.member_id, member.epoch)

    def produce(self, topic: str, records: int, *, minutes_old: float = 0.0) -> None:
        """Append records, each partition in turn, which say that they are so old."""
        stamp = int(1000 * (time.time() - 60 * minutes_old))
        partitions = len(self.client.end_offsets(topic))
        with KafkaProducer(bootstrap_servers=self.server) as producer:
            for number in range(records):
                producer.send(topic, b"%d" % number, partition=number % partitions, timestamp_ms=stamp)

    def send(self, topic: str, *values: str) -> None:
        with KafkaProducer(bootstrap_servers=self.server) as producer:
            for value in values:
                producer.send(topic, value.encode())

    def fill(self, topic: str, records: int, weights: Sequence[float] | None = None) -> None:
        """Write records of 10,000 bytes that cannot be compressed, each with a key of its own, into any partitions."""
        chance, partitions = random.Random(1), sorted(self.client.end_offsets(topic))  # noqa: S311 - no secret
        with KafkaProducer(bootstrap_servers=self.server, batch_size=500_000, linger_ms=50) as producer:
            for some in chunks(range(records), 500):  # so that none waits in the producer for too long
                values = ((b"key-%d" % number, base64.b64encode(os.urandom(7_500))) for number in some)
                places = chance.choices(partitions, weights, k=len(some))
                for sent in [producer.send(topic, v, k, place) for (k, v), place in zip(values, places, strict=True)]:
                    sent.get(MINUTES)

    def application(
        self, group_id: str, kind: str, topics: Mapping[str, int], name: str = "1", **options: Any
    ) -> StreamsApplication:
        """Start an instance of a real application, with its topics and their numbers of partitions."""
        for topic, partitions in topics.items():
            if not self.has_topic(topic):
                self.client.create_topic(topic, partitions)
        properties = {"commit.interval.ms": "200", **options.pop("properties", {})}
        directory = self.directory / f"{group_id}-{name}"
        one = StreamsApplication(self.server, directory, group_id, kind, [*topics], properties=properties, **options)
        return self._stack.enter_context(one)

    def refuse(self, group_id: str) -> Path:
        """Let the plugin refuse the descriptions of a group for good; return the file that ends it once it is gone."""
        file = self.broker.directory / f"refused-{group_id}"
        file.touch()
        return file


class JobRig(Rig):
    """One whose job sends alerts to a receiver, with a token from a file."""

    def _prepare(self) -> None:
        self.receiver = self._stack.enter_context(HttpReceiver())
        self.hidden = [(self.receiver.url, "https://hooks.example.com")]
        self.token = self.directory / "token"
        self.token.touch(0o600)
        self.token.write_text("old-token", "utf-8")
        sink = {"type": "webhook", "name": "pager", "url": self.receiver.url, "token_file": str(self.token)}
        self.config["sinks"] = [sink]
        self.client.create_topic("events", 2)
        super()._prepare()
