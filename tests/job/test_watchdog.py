"""The heartbeats by which something else notices that the job is gone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from streaming_app.job.watchdog import Watchdog
from streaming_app.job_status import JobStatus
from tests.notify.receivers import HttpReceiver, Response, make_sink
from tests.waiting import wait_until


class Job:
    """One that has just started and read everything."""

    evaluated_at: datetime | None = None

    def evaluated(self) -> None:
        self.evaluated_at = datetime.now(timezone.utc)

    def status(self) -> JobStatus:
        return JobStatus(datetime.now(timezone.utc), caught_up=True, evaluated_at=self.evaluated_at)


@pytest.fixture
def job() -> Job:
    return Job()


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with HttpReceiver() as started:
        yield started


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def service(receiver: HttpReceiver, lines: list[str], job: Job) -> Iterator[Watchdog]:
    sink: Any = make_sink(type="watchdog", url=f"{receiver.url}/ping/5e")
    sink.beat_seconds = 0.05
    started = Watchdog(sink, "prod", job.status, lines.append, patience=0.5)
    started.poll_seconds = 0.05  # type: ignore[misc]
    yield started
    started.close()


def test_heartbeats_come_while_alerts_are_evaluated_and_end_when_they_are_not(
    service: Watchdog, receiver: HttpReceiver, lines: list[str], job: Job
) -> None:
    service.start()
    assert not wait_until(lambda: bool(receiver.requests), seconds=0.3)  # nothing has been evaluated
    job.evaluated()
    assert wait_until(lambda: len(receiver.requests) >= 3)
    assert {(one.path, one.body) for one in receiver.requests} == {("/ping/5e", b"prod: caught up\n")}
    assert wait_until(lambda: len(lines) == 1)  # the thread of the alerts hangs
    assert "no heartbeat is sent: alerts were last evaluated" in lines[0]
    sent = len(receiver.requests)
    assert not wait_until(lambda: len(receiver.requests) > sent, seconds=0.3)
    job.evaluated()
    assert wait_until(lambda: len(receiver.requests) > sent)


def test_a_receiver_that_refuses_is_reported_in_one_line_without_the_secret_path(
    service: Watchdog, receiver: HttpReceiver, lines: list[str], job: Job
) -> None:
    receiver.default = Response(404)
    job.evaluated()
    service.start()
    assert wait_until(lambda: len(receiver.requests) >= 2)
    assert lines == [f"watchdog watchdog: {receiver.url} responded with status 404: check the URL"]
