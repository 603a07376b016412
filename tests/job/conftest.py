"""What several test modules of the job share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming_app.local.container import Broker
from tests.job.running import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def run(broker: Broker, spark: SparkSession, tmp_path: Path) -> Callable[..., str]:
    """Runs the job over what a topic holds, in the shared session; returns its first line."""

    def once(topic: str, **settings: Any) -> str:
        return run_once(spark, broker.bootstrap_server, **{"warehouse": tmp_path, "topic": topic, **settings})[0]

    return once
