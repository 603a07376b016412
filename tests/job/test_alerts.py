"""Alerts end to end: a real broker, the job, and a receiver of notifications."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from streaming_app.config.settings import JobConfig
from streaming_app.job.run import run_with
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from streaming_app.tables.reader import WarehouseReader, quote
from tests.notify.receivers import HttpReceiver
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def running(spark: SparkSession, config: JobConfig, log_file: Path) -> Iterator[list[str]]:
    lines: list[str] = []
    stop = Event()
    job = Thread(target=run_with, args=(spark, config, lines.append, stop, log_file))
    job.start()
    try:
        yield lines
    finally:
        stop.set()
        job.join()


@pytest.mark.broker
def test_a_group_that_is_not_ready_is_notified_once_and_once_when_it_is_ready(
    broker: Broker, client: StreamsGroupClient, group_id: str, spark: SparkSession, empty_warehouse: Path
) -> None:
    member = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[f"{group_id}-in"])))
    member.join()
    with HttpReceiver() as receiver:

        def notifications() -> list[tuple[str, str, str]]:
            return [(body["type"], body["data"]["rule"], body["data"]["group_id"]) for body in receiver.bodies]

        config = JobConfig.model_validate(
            {
                "bootstrap_server": broker.bootstrap_server,
                "warehouse": empty_warehouse,
                "alerts": {
                    "interval": 0.3,
                    "groups": group_id,
                    "rules": {"StreamsGroupNotReady": {"for": 0}, "StreamsGroupDescriptionMissing": {"enabled": False}},
                },
                "sinks": [{"type": "webhook", "url": receiver.url}],
                "metrics": {"listen": "127.0.0.1:0"},
            }
        )
        with running(spark, config, empty_warehouse / "spark.log") as lines:
            assert wait_until(lambda: notifications() != [], 90), lines
        with running(spark, config, empty_warehouse / "spark.log") as lines:
            assert wait_until(lambda: any("Serving " in line for line in lines), 60), lines
            assert wait_until(lambda: is_ok(lines, "/ready"), 60), lines
            assert f'streams_group_state{{cluster="default",group="{group_id}",state="NotReady"}} 1.0' in scrape(lines)
            client.create_topic(f"{group_id}-in", 1)
            assert wait_until(lambda: bool(member.heartbeat()) and len(notifications()) > 1, 90), lines
    assert notifications() == [
        ("alert.firing", "StreamsGroupNotReady", group_id),
        ("alert.resolved", "StreamsGroupNotReady", group_id),
    ]
    assert f"Source topics {group_id}-in are missing" in receiver.bodies[0]["data"]["summary"]
    assert alert_rows(empty_warehouse, group_id) == [("resolved", ["firing", "resolved"])]


def is_ok(lines: list[str], path: str) -> bool:
    try:
        return fetch(lines, path)[0] == HTTPStatus.OK
    except HTTPError:
        return False


def scrape(lines: list[str]) -> str:
    return fetch(lines, "/metrics")[1]


def fetch(lines: list[str], path: str) -> tuple[int, str]:
    url = next(match[1] for line in lines if (match := re.match(r"Serving (\S+)/metrics", line)))
    with urlopen(url + path, timeout=10) as response:  # noqa: S310 - our own server
        return response.status, response.read().decode()


def alert_rows(warehouse: Path, group_id: str) -> list[tuple[str, list[Any]]]:
    rows = WarehouseReader(warehouse).rows(f"SELECT state, deliveries FROM alerts WHERE group_id = {quote(group_id)}")
    return [
        (row["state"], [delivery["event"] for delivery in row["deliveries"] if delivery["sent_at"]]) for row in rows
    ]
