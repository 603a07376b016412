"""What several long tests share: real applications beside a job, and a report of what they said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming_app.config.settings import JobConfig
from streaming_app.sandbox.broker import LocalBroker
from tests.support.application_world import World
from tests.support.compared_tools import SHORT_SESSIONS
from tests.support.kafka_tool import StreamsGroupsTool
from tests.support.running_job import job_in_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = {"alerts": {"rules": {"StreamsGroupDown": {"for": 0}, "StreamsGroupStalled": {"for": 0}}}}
_REPORTS = Path(__file__).parents[2] / "build" / "application-states"
"""Of each test: the states in which all was equal, and the seconds from what happened to each verdict."""


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    start_broker: Callable[..., LocalBroker],
    spark: SparkSession,
    empty_warehouse: Path,
    tmp_path: Path,
) -> Iterator[World]:
    server = start_broker(
        properties=SHORT_SESSIONS | {"group.streams.max.session.timeout.ms": "60000"}
    ).bootstrap_server
    config = {"bootstrap_server": server, "warehouse": empty_warehouse, "metrics": {"listen": "127.0.0.1:0"}}
    with ExitStack() as running:
        tool = running.enter_context(closing(StreamsGroupsTool(server)))
        settings = JobConfig.model_validate({**config, **_AT_ONCE})
        job = running.enter_context(job_in_thread(spark, settings, tmp_path / "spark.log"))
        found = World(server, empty_warehouse, tmp_path, tool, job, running)
        yield found
        _REPORTS.mkdir(parents=True, exist_ok=True)
        (_REPORTS / f"{request.node.name}.json").write_text(json.dumps(found.notes, indent=1))
