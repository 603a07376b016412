"""The service that compares the tables with the brokers while the job runs; groups that differ are read again.

Theory of operation
-------------------
The service compares all groups once after each start of the stream, when the job is at the end of the topic, and then
every `interval`. If a group differs, it compares the group again a minute later. The comparison (`checks.verification`)
itself waits until the job has processed the records up to the brokers' answers; the second one excludes differences
while a broker or the job restarts. A difference is confirmed if both comparisons found it in the same field. Its value
may have changed meanwhile.

The service reports a group with a confirmed difference, and its records are read again. It compares the group once more
after that, and at each later comparison. If a comparison cannot be completed, for example because an ACL is missing,
the service tries again after `interval`.
"""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from streaming_app.checks.verification import Comparison, Verification, VerifyError, WarehouseTables
from streaming_app.job.service import Job, Poller
from streaming_app.job.stopping import StopRequestedError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.text import count, first_of

CONFIRM_SECONDS = 60.0
"""The time between the two comparisons of a group that differs."""
_TIMEOUT_SECONDS = 60.0  # of a comparison: for the job to catch up, and for groups to stop changing
_NEEDS = "the self-check needs Describe on the groups and on the offsets topic"
_MAX_GROUPS = 100  # read again after one check, at most
_MAX_NAMES = 5  # of groups in a line


class SelfCheck(Poller):
    """Runs the checks from `start` to `close`, and passes their results to `health`."""

    def __init__(self, job: Job, read_again: Callable[[Collection[str]], Collection[str]]) -> None:
        """Prepare; `read_again` requests that groups are read again, and returns those that will be."""
        super().__init__("self-check", job, _NEEDS, self.poll_seconds)
        self._every, self._health, self._read_again = job.config.self_check.interval, job.health, read_again
        self._tables = WarehouseTables(job.config.warehouse, job.config.cluster)
        self._status = job.health.status.self_check
        self._differing = set[str]()
        self._start, self._checked_start = 0, -1  # number of the stream's start: current, and at the last comparison
        self._due_at = 0.0
        self._unconfirmed: set[tuple[str, str]] = set()  # groups that differed once, with each field

    def now(self) -> float:
        """Return `time.monotonic()`; `now` and `sleep` are the clock of the comparison."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait, but end early when the job ends."""
        if self.stopping.wait(seconds):
            raise StopRequestedError

    def is_ready(self) -> bool:
        """Return whether a comparison is due and the job is at the end of the topic; `tick` makes the comparison."""
        job, reading = self._health.status, self._health.reading
        self._start = reading or 0
        if reading is None or not job.caught_up or job.behind or job.failing_since or job.brokers_away_since:
            return False
        has_started = self._checked_start != self._start
        if has_started:
            self._unconfirmed = set()
        return has_started or self.now() >= self._due_at

    def tick(self) -> None:
        """Make the comparison that is due. It does not count if the stream starts again meanwhile."""
        try:
            with self._job.connection.use() as brokers:
                if self._unconfirmed:
                    self._confirm(brokers)
                else:
                    self._compare_all(brokers)
        except Exception:
            if self._health.reading == self._start:
                raise

    def failed(self, text: str) -> str:
        """Publish that a comparison failed, and return the line about it."""
        self._compared(self._every, set())
        self._publish(failures=self._status.failures + 1, failed_at=datetime.now(timezone.utc), failure=text)
        return f"self-check: {text}"

    def _compare_all(self, brokers: StreamsGroupClient) -> None:
        self._status = replace(self._status, runs=self._status.runs + 1)
        report = self._verify(brokers)
        denied = [group for group in report.not_compared if group.is_missing_acl]
        differing = {one.group_id for one in report.differences}
        if denied and not (report.agreeing or differing):
            raise VerifyError(f"no group can be compared: {denied[0].reason}")
        unconfirmed = {(one.group_id, one.field) for one in report.differences}
        self._compared(CONFIRM_SECONDS if unconfirmed else self._every, unconfirmed)
        self._differing &= differing.union(group.group_id for group in report.not_compared)
        self._publish(
            last_run_at=datetime.now(timezone.utc),
            failed_at=None,
            failure=None,
            compared=report.agreeing + len(differing),
            not_compared=len(report.not_compared),
        )
        of_groups = f"{count(len(denied), 'group')} cannot be compared: {denied[0].reason}" if denied else None
        self.report_denied(of_groups)

    def _confirm(self, brokers: StreamsGroupClient) -> None:
        """Compare the groups that differed again; report those that still differ, and request to read them again."""
        found: dict[str, list[str]] = {}
        for one in self._verify(brokers, {group_id for group_id, _ in self._unconfirmed}).differences:
            if (one.group_id, one.field) in self._unconfirmed:
                found.setdefault(one.group_id, []).append(one.field)
        self._compared(self._every, set())
        if not found:
            return
        self._differing |= found.keys()
        self._publish()
        names = [f"{group_id} ({', '.join(fields[:_MAX_NAMES])})" for group_id, fields in sorted(found.items())]
        which = f"{count(len(found), 'group')}: {first_of(names, _MAX_NAMES)}"
        self.report(f"self-check: the tables differ from the brokers in {which}")
        asked = self._read_again(sorted(found)[:_MAX_GROUPS])
        self._publish(repaired=self._status.repaired + len(asked))
        left = len(found) - len(asked)
        rest = f"; not again, because of the last hour or their number: {left:,}" if left else ""
        self.report(f"self-check: groups to be read again: {len(asked):,}{rest}")

    def _compared(self, next_in: float, unconfirmed: set[tuple[str, str]]) -> None:
        self._checked_start, self._due_at, self._unconfirmed = self._start, self.now() + next_in, unconfirmed

    def _verify(self, brokers: StreamsGroupClient, group_ids: Iterable[str] | None = None) -> Comparison:
        check = Verification(brokers, self._tables, _TIMEOUT_SECONDS, lambda _: self.sleep(0), self.now, self.sleep)
        found = check.run(group_ids)
        if self._health.reading != self._start:
            raise VerifyError("the stream was started again")
        return found

    def _publish(self, **changes: Any) -> None:  # noqa: ANN401 - fields of `SelfCheckStatus`
        self._status = replace(self._status, differing=len(self._differing), **changes)
        self._health.note(self_check=self._status)
