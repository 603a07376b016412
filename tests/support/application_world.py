"""Real applications beside a job that reads their groups, and Kafka's own tool that is asked the same."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from kafka import KafkaProducer

from streaming_app.cli.main import main
from streaming_app.errors import WarehouseError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.tables.reader import WarehouseReader, quote
from tests.support.compared_tools import ComparedGroup
from tests.support.kafka_tool import StreamsGroupsTool
from tests.support.running_job import JobOutput
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

_FAST = {"commit.interval.ms": "200"}


class World:
    """A broker, a job that reads it, and Kafka's tool. `notes` has what was equal, and how soon verdicts came."""

    def __init__(
        self, server: str, warehouse: Path, directory: Path, tool: StreamsGroupsTool, job: JobOutput, stack: ExitStack
    ) -> None:
        self.server, self.warehouse, self.job, self._directory = server, warehouse, job, directory
        self._tool, self._stack = tool, stack
        self.client = stack.enter_context(StreamsGroupClient(server))
        self.notes: list[dict[str, Any]] = []
        self._happened = ("started", time.time())

    def application(
        self, group_id: str, topology: str, topics: Mapping[str, int], name: str = "1", **options: Any
    ) -> StreamsApplication:
        """Start an instance of an application, with its topics."""
        known = set(self.client.admin.list_topics())
        for topic, partitions in topics.items():
            if topic not in known:
                self.client.create_topic(topic, partitions)
        properties = {**_FAST, **options.pop("properties", {})}
        one = StreamsApplication(
            self.server,
            self._directory / f"{group_id}-{name}",
            group_id,
            topology,
            [*topics],
            properties=properties,
            **options,
        )
        return self._stack.enter_context(one)

    def compared(self, group_id: str, *applications: StreamsApplication) -> ComparedGroup:
        return ComparedGroup(group_id, self.server, self.warehouse, self._tool, *applications, notes=self.notes)

    def happens(self, what: str) -> None:
        """Note what happens to an application now: the next verdict is counted from here."""
        self._happened = what, time.time()

    def printed(self, *arguments: str) -> str:
        """Return what a command prints."""
        return CliRunner().invoke(main, [*arguments, "--warehouse", str(self.warehouse)]).stdout

    def copies(self, group_id: str) -> dict[str, Any]:
        """Return what `describe --copies --json` prints of a group."""
        (report,) = json.loads(self.printed("describe", group_id, "--copies", "--json"))
        return report  # type: ignore[no-any-return]

    def verdict(self, group_id: str) -> str | None:
        return self._health(group_id).get("verdict")

    def await_verdict(self, group_id: str, *verdicts: str) -> None:
        assert wait_until(lambda: self.verdict(group_id) in verdicts, interval=0.5), self._health(group_id)
        what, since = self._happened
        verdict, seconds = self.verdict(group_id), round(time.time() - since, 1)
        self.notes.append({"group": group_id, "after": what, "verdict": verdict, "seconds": seconds})

    def _health(self, group_id: str) -> dict[str, Any]:
        try:
            rows = WarehouseReader(self.warehouse).rows(
                f"SELECT verdict, why, evidence FROM group_health WHERE group_id = {quote(group_id)}"
            )
        except WarehouseError:  # the job has not created the tables yet
            return {}
        return rows[0] if rows else {}

    def produce(self, topic: str, *lines: str) -> None:
        with KafkaProducer(bootstrap_servers=self.server) as producer:
            for line in lines:
                producer.send(topic, line.encode())
