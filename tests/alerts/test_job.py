"""Alerts end to end: a real broker, the job, and a receiver that is told."""

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

from streaming_app.job.run import JobConfig, run_with
from streaming_app.local.container import Broker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.member import Member
from streaming_app.protocol.topology import subtopology, topology
from streaming_app.serve.warehouse import Warehouse, quoted
from tests.alerts.receivers import HttpReceiver
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
def test_a_group_that_is_not_ready_is_told_of_once_and_once_when_it_is_ready(
    broker: Broker, client: StreamsGroupClient, group_id: str, spark: SparkSession, tmp_path: Path
) -> None:
    member = Member(client, group_id, topology(subtopology("0", source_topics=[f"{group_id}-in"])))
    member.join()
    with HttpReceiver() as receiver:

        def told() -> list[tuple[str, str, str]]:
            return [(body["type"], body["data"]["rule"], body["data"]["group_id"]) for body in receiver.bodies]

        config = JobConfig.model_validate(
            {
                "bootstrap_server": broker.bootstrap_server,
                "warehouse": tmp_path,
                "alerts": {
                    "interval": 0.3,
                    "groups": group_id,
                    "rules": {"StreamsGroupNotReady": {"for": 0}, "StreamsGroupDescriptionMissing": {"enabled": False}},
                },
                "sinks": [{"type": "webhook", "url": receiver.url}],
                "metrics": {"listen": "127.0.0.1:0"},
            }
        )
        with running(spark, config, tmp_path / "spark.log") as lines:
            assert wait_until(lambda: told() != [], 90), lines
        with running(spark, config, tmp_path / "spark.log") as lines:
            assert wait_until(lambda: any("Metrics at" in line for line in lines), 60), lines
            assert wait_until(lambda: answers(lines, "/ready"), 60), lines
            assert f'streams_group_state{{cluster="default",group="{group_id}",state="NotReady"}} 1.0' in scraped(lines)
            client.create_topic(f"{group_id}-in", 1)
            assert wait_until(lambda: bool(member.heartbeat()) and len(told()) > 1, 90), lines
    assert told() == [
        ("alert.firing", "StreamsGroupNotReady", group_id),
        ("alert.resolved", "StreamsGroupNotReady", group_id),
    ]
    assert f"Source topics {group_id}-in are missing" in receiver.bodies[0]["data"]["summary"]
    assert alert_rows(tmp_path, group_id) == [("resolved", ["firing", "resolved"])]


def answers(lines: list[str], page: str) -> bool:
    try:
        return fetched(lines, page)[0] == HTTPStatus.OK
    except HTTPError:
        return False


def scraped(lines: list[str]) -> str:
    return fetched(lines, "/metrics")[1]


def fetched(lines: list[str], page: str) -> tuple[int, str]:
    url = next(found[1] for line in lines if (found := re.match(r"Metrics at (\S+)/metrics", line)))
    with urlopen(url + page, timeout=10) as answer:  # noqa: S310 - our own server
        return answer.status, answer.read().decode()


def alert_rows(warehouse: Path, group_id: str) -> list[tuple[str, list[Any]]]:
    rows = Warehouse(warehouse).rows(f"SELECT state, deliveries FROM alerts WHERE group_id = {quoted(group_id)}")
    return [(row["state"], [one["event"] for one in row["deliveries"] if one["sent_at"]]) for row in rows]
