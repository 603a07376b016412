"""What ends the job, what it waits for and what starts its stream again, with a stream that does what the test says.

The errors in question come from brokers in states that a test cannot hold still; test_signals.py and
test_ill_coordinators.py have real ones.
"""

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import repeat
from types import SimpleNamespace

import pytest

from streaming_app.errors import (
    JobError,
    MissingTopicError,
    NotAuthorizedError,
    OtherTopicError,
    StorageError,
    UnreachableError,
)
from streaming_app.job import supervisor
from streaming_app.job.supervisor import Supervisor
from streaming_app.job_status import StreamStatus
from streaming_app.stream.job_state import CommittedBatch, JobState
from streaming_app.stream.log_positions import TruncatedLogError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

Step = Exception | None


class Query:
    """A query that runs until it is stopped or fails."""

    def __init__(self) -> None:
        self.isActive = True
        self.failure: str | None = None

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> str | None:
        return self.failure

    def fail(self, failure: str) -> None:
        self.failure = failure
        self.isActive = False


class SupervisorHarness:
    """Runs a supervisor in a thread; the steps of starts and checks are consumed one by one, then all succeed."""

    def __init__(self) -> None:
        self.starts: list[Step | Callable[[], None]] = []
        self.checks: list[Step] = []
        self.queries: list[Query] = []
        self.lines: list[str] = []
        self.health = JobState()
        self.stopping = threading.Event()
        self.batch: Iterator[bool] = iter(())
        """Whether a batch is being written, each time that this is asked; then not."""
        self.unreachable: UnreachableError | None = None
        """Why each batch fails, if it does because no leader answers."""
        self.query = self.progress = self
        self.supervisor: Supervisor

    @property
    def is_writing(self) -> bool:
        return next(self.batch, False)

    def report(self, line: str) -> None:
        self.lines.append(line)

    def start(self) -> Query:
        step = self.starts.pop(0) if self.starts else None
        if isinstance(step, Exception):
            raise step
        if step is not None:
            step()
        self.queries.append(Query())
        return self.queries[-1]

    def check(self) -> None:
        step = self.checks.pop(0) if self.checks else None
        if step:
            raise step

    def poll(self, _query: Query) -> None: ...

    def begin(self, *, once: bool = False, is_second: bool = False) -> None:
        self.config, self.name = SimpleNamespace(once=once), "offsets" if is_second else None
        self.supervisor = Supervisor(self, "spark.log")
        self.supervisor.start()

    def ends_with(self) -> Exception | None:
        """Wait for the end of the stream; return why it was given up."""
        try:
            self.supervisor.wait(threading.Event())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return error
        return None

    def runs(self, number: int = 1) -> bool:
        """Wait until so many queries were started, and the last one runs."""
        return wait_until(lambda: len(self.queries) >= number and self.queries[number - 1].isActive)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[SupervisorHarness]:
    for name in ("_PAUSE_SECONDS", "_POLL_SECONDS", "_TOPIC_SECONDS", "_CONFIRM_SECONDS", "_WAIT_SECONDS"):
        monkeypatch.setattr(supervisor, name, 0.01)
    harness = SupervisorHarness()
    yield harness
    harness.stopping.set()


def test_leaders_that_do_not_answer_batches_are_waited_for_however_many_fail(job: SupervisorHarness) -> None:
    """A check in between is answered: of a broker that was just restarted and is under load."""
    job.unreachable = UnreachableError("No leader of partition 0 answers.")
    job.begin()
    for number in range(1, 7):
        assert job.runs(number), job.lines
        job.queries[-1].fail("No leader of partition 0 answers.")
    job.unreachable = None
    assert job.runs(7), job.lines
    assert "No leader of partition 0 answers. Waiting for a broker." in job.lines


@pytest.mark.parametrize(
    ("error", "once"),
    [
        (UnreachableError("away"), True),
        (MissingTopicError("none"), True),
        (NotAuthorizedError("ACL"), False),
        (OtherTopicError("other"), False),
        (JobError("wrong password"), False),
    ],
)
def test_what_waiting_does_not_solve_ends_the_first_start_and_with_once_whatever_fails(
    job: SupervisorHarness, error: JobError, *, once: bool
) -> None:
    job.starts = [error]
    job.begin(once=once)
    assert job.ends_with() is error


@pytest.mark.parametrize("error", [ValueError("odd"), UnreachableError("odd")])
def test_an_error_of_the_regular_check_is_reported_once_and_does_not_end_a_job(
    job: SupervisorHarness, error: Exception
) -> None:
    job.begin()
    assert job.runs()
    job.checks = [error] * 5
    assert wait_until(lambda: not job.checks)
    assert wait_until(lambda: len(job.lines) == 2), job.lines
    assert job.lines[0].startswith("odd")
    assert job.lines[1] in {"The topic can be read again.", "A broker answers again."}
    assert (len(job.queries), job.queries[0].isActive) == (1, True)


@pytest.mark.parametrize(
    "steps",
    [[NotAuthorizedError("no ACL")] * 2, [OtherTopicError("created again")]],
    ids=["an ACL is missing twice", "the topic was created again"],
)
def test_a_check_that_finds_what_waiting_does_not_solve_ends_the_job(
    job: SupervisorHarness, steps: list[Exception]
) -> None:
    job.begin()
    assert job.runs()
    job.checks = [NotAuthorizedError("no ACL"), None]  # a step, which is checked again
    assert wait_until(lambda: not job.checks)
    assert job.runs()
    job.checks = list(steps)
    assert job.ends_with() is steps[0]
    assert not job.queries[0].isActive


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        ("No space left", "Records are gone: the stream failed (No space left), and starts again"),
        ("TruncatedLogError: Records are gone", "Records are gone: the stream starts again"),
    ],
)
def test_a_start_that_fails_after_the_log_was_cut_says_why_and_is_not_repeated_for_ever(
    job: SupervisorHarness, failure: str, line: str
) -> None:
    cut = TruncatedLogError("Records are gone")
    job.starts, job.checks = [RuntimeError(failure)] * 9, [cut] * 9
    job.begin()
    assert failure in str(job.ends_with()), job.lines
    assert job.lines[0] == line


def test_a_gap_that_is_too_long_starts_the_stream_again(job: SupervisorHarness) -> None:
    now = datetime.now(timezone.utc)
    job.health.started_reading(from_beginning=False, tombstone_retention=timedelta(hours=1))
    job.begin()
    assert job.runs()
    job.health.nothing_new(now - timedelta(hours=2))
    job.health.nothing_new(now)
    assert wait_until(lambda: len(job.queries) > 1)


DENIED = "http://store returned ExpiredToken: The token has expired; credentials come from the environment"


@pytest.mark.parametrize("error", [StorageError, OSError])
def test_a_store_that_denies_access_at_a_restart_fails_the_stream_four_times_and_is_not_the_topic(
    job: SupervisorHarness, error: type[Exception]
) -> None:
    job.begin()
    assert job.runs()
    job.starts = [error(DENIED)] * 9
    job.queries[0].fail("the batch was not written")
    assert str(job.ends_with()) == f"The stream failed: {DENIED} (see spark.log)"
    assert (len(job.lines), len(job.starts)) == (3, 6)
    assert not any("topic" in line for line in job.lines)


def test_a_checkpoint_that_cannot_be_read_is_said_once_and_ends_the_job_after_four_checks_in_a_row(
    job: SupervisorHarness,
) -> None:
    job.begin()
    assert job.runs()
    job.checks = [*[StorageError(DENIED)] * 3, None, *[StorageError(DENIED)] * 4]
    assert str(job.ends_with()) == DENIED
    assert job.lines == [f"{DENIED}. Trying again.", "The warehouse can be read again.", f"{DENIED}. Trying again."]
    assert not job.queries[0].isActive


def a_batch_is_written(job: SupervisorHarness) -> None:
    job.health.batch_done(CommittedBatch(1, 1.0, {}, 0, 0, {}))


def no_broker_answers(job: SupervisorHarness) -> None:
    job.checks = [UnreachableError("No broker.")] * 2


@pytest.mark.parametrize("before", [a_batch_is_written, no_broker_answers])
def test_failures_after_a_batch_and_while_no_broker_answers_do_not_end_the_job(
    job: SupervisorHarness, before: Callable[[SupervisorHarness], None]
) -> None:
    job.begin()
    for number in range(1, 8):
        assert job.runs(number)
        before(job)
        job.queries[-1].fail("a worker was killed")
    assert job.runs(8)


def test_the_end_waits_neither_for_a_broker_to_come_nor_for_its_answer(
    job: SupervisorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(Supervisor, "close_seconds", 600.0)
    hangs = threading.Event()
    job.starts = [UnreachableError("No broker."), lambda: bool(hangs.wait()) and None]
    job.begin()
    assert wait_until(lambda: not job.starts)
    assert job.lines == ["No broker. Waiting for a broker."]
    assert not job.supervisor.close()
    assert job.queries == []
    hangs.set()
    assert job.supervisor.join(600)
    assert not any(query.isActive for query in job.queries)  # one that was started late


def test_the_end_waits_for_a_running_batch_also_if_it_comes_while_a_broker_answers(
    job: SupervisorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FINISH_SECONDS", 2 * supervisor._ANSWER_SECONDS)
    monkeypatch.setattr(Supervisor, "close_seconds", 600.0)
    asked = threading.Event()

    def answer_late() -> None:
        asked.set()
        job.stopping.wait()

    monkeypatch.setattr(job, "check", answer_late)
    job.batch = repeat(object=True)
    job.begin()
    assert asked.wait(600)
    assert job.supervisor.close()
    assert not job.queries[0].isActive


def test_a_second_stream_that_is_given_up_is_tried_again_and_its_failure_is_in_the_health(
    job: SupervisorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_RETRY_SECONDS", 0.05)
    job.starts = [*[OSError("no space left")] * 4, *[NotAuthorizedError("no ACL.")] * 2]
    job.begin(is_second=True)
    assert job.runs()
    assert any("The stream failed: no space left" in line and "Trying again" in line for line in job.lines)
    assert sum("no ACL. Trying again" in line for line in job.lines) == 2
    status = JobState(job.health).status
    assert isinstance(status.offsets, StreamStatus)
    assert status.offsets.failure
    assert status.offsets.failing_since is not None
    assert (status.failure, status.failing_since) == (None, None)
    assert job.supervisor.close()
    assert not job.queries[0].isActive
