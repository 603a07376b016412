"""What the services of a job are made of, for tests that run one of them alone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from streaming_app.config.settings import JobConfig
from streaming_app.job.service import Job
from streaming_app.job_status import JobStatus, StreamStatus
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import SharedConnection
from streaming_app.report import Report
from streaming_app.stream.job_state import JobState


class AtTheEnd(JobState):
    """The health of a job that is at the end of the topic all the time."""

    @property
    def status(self) -> JobStatus:
        now = datetime.now(timezone.utc)
        offsets = StreamStatus(caught_up=True, caught_up_at=now)
        return replace(super().status, caught_up=True, caught_up_at=now, offsets=offsets)


def a_job(
    warehouse: Path,
    report: Report,
    settings: Mapping[str, Any] | None = None,
    server: str = "127.0.0.1:1",
    **parts: Any,
) -> Job:
    """Return a job that writes into a warehouse; `parts` are fields of it."""
    config = JobConfig.model_validate({"bootstrap_server": server, "warehouse": warehouse, **(settings or {})})
    connection = SharedConnection({"bootstrap.servers": server}, StreamsGroupClient)
    values = {"connection": connection, "health": JobState(), "report": report}
    return Job(config, **(values | parts))
