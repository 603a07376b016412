"""What several test modules of the job share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from streaming_app.job.run import JobConfig, run_with
from streaming_app.local.container import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def run(broker: Broker, spark: SparkSession, tmp_path: Path) -> Callable[..., str]:
    """Runs the job over what a topic holds, in the shared session; returns what it says."""

    def once(topic: str, **settings: Any) -> str:
        lines: list[str] = []
        settings = {"warehouse": tmp_path, **settings}
        config = JobConfig(bootstrap_server=broker.bootstrap_server, topic=topic, once=True, **settings)
        run_with(spark, config, lines.append, Event(), tmp_path / "spark.log")
        return "\n".join(lines)

    return once
