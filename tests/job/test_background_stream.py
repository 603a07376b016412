"""What happens to the second stream concerns only itself."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_app.errors import JobError, NotAuthorizedError
from streaming_app.job import supervisor
from streaming_app.job.background_stream import BackgroundStream
from streaming_app.job.service import LinkedEvent
from streaming_app.job.supervisor import Supervisor
from streaming_app.job_status import OffsetsStatus
from streaming_app.stream.health import Health
from tests.job.test_supervise import Query
from tests.support.waiting import wait_until


class Stream:
    """A stream whose next starts fail with these errors, and then succeed."""

    is_writing = False

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.queries = list(errors), list[Query]()
        self.looks_left = math.inf
        """After so many looks at the query it is done."""

    def start(self) -> Query:
        if self.errors:
            raise self.errors.pop(0)
        self.queries.append(Query())
        return self.queries[-1]

    def check(self) -> None:
        return None

    def look_at(self, query: Query) -> None:
        self.looks_left = max(0, self.looks_left - 1)
        if not self.looks_left:
            query.stop()

    def has_changed(self) -> bool:
        return False


class Harness:
    def __init__(self) -> None:
        self.stop, self.lines, self.health = threading.Event(), list[str](), Health()
        self.background: BackgroundStream | None = None

    def begin(self, stream: Stream, *, once: bool = False) -> BackgroundStream:
        self.background = BackgroundStream(
            Supervisor(
                stream,
                LinkedEvent(self.stop),
                self.lines.append,
                Path("spark.log"),
                self.health,
                stream,
                once,
            )
        )
        self.background.start()
        return self.background


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    for name in ("_PAUSE_SECONDS", "_POLL_SECONDS"):
        monkeypatch.setattr(supervisor, name, 0.01)
    monkeypatch.setattr(BackgroundStream, "retry_seconds", 0.05)
    made = Harness()
    yield made
    made.stop.set()
    if made.background:
        made.background.close()


def test_a_stream_that_is_given_up_is_tried_again_and_its_failure_is_in_the_health(harness: Harness) -> None:
    stream = Stream(*[OSError("no space left")] * 4, NotAuthorizedError("no ACL."))
    harness.begin(stream)
    assert wait_until(lambda: bool(stream.queries))
    assert any("The stream failed: no space left" in line and "Trying again" in line for line in harness.lines)
    assert any("no ACL. Trying again" in line for line in harness.lines)
    status = Health(harness.health).status
    assert isinstance(status.offsets, OffsetsStatus)
    assert status.offsets.failure
    assert status.offsets.failing_since is not None
    assert (status.failure, status.failing_since) == (None, None)


def test_with_once_its_error_is_raised_when_the_other_stream_is_done(harness: Harness) -> None:
    background = harness.begin(Stream(OSError("no space left")), once=True)
    with pytest.raises(JobError, match="no space left"):
        background.finish()


def test_with_once_it_is_waited_for(harness: Harness) -> None:
    stream = Stream()
    background = harness.begin(stream, once=True)
    assert wait_until(lambda: bool(stream.queries))
    stream.looks_left = 5
    background.finish()
    assert stream.looks_left == 0


@pytest.mark.parametrize("signal", [True, False], ids=["by a signal", "since the other stream ended"])
def test_it_ends_with_the_job(harness: Harness, *, signal: bool) -> None:
    stream = Stream()
    background = harness.begin(stream)
    assert wait_until(lambda: bool(stream.queries))
    if signal:
        harness.stop.set()
    assert background.close()
    assert wait_until(lambda: not stream.queries[0].isActive)
