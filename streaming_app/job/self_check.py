"""The service that compares the tables with the brokers while the job runs, and has groups read again that differ.

`checks.schedule` decides when, and which differences count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from streaming_app.checks.schedule import (
    CONFIRM_SECONDS,
    DifferencesByGroup,
    Schedule,
    Step,
    by_group,
    is_ready,
    lasting,
    with_agreement,
    with_lasting,
)
from streaming_app.checks.verification import Brokers, Report, Tables, VerifyError, WarehouseTables, verify
from streaming_app.job.service import Service, describes_requests
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.report import Report as ReportLine
from streaming_app.report import ReportOnce
from streaming_app.text import count, first_of

if TYPE_CHECKING:
    from streaming_app.config.settings import JobConfig
    from streaming_app.stream.health import Health

_TIMEOUT_SECONDS = 60.0  # of a comparison, for the job to catch up and for groups to stop changing
_NEEDS = "the self-check needs Describe on the groups and on the offsets topic"
_MAX_GROUPS = 100  # that are read again after one check
_MAX_NAMES = 5  # of groups in a line


class _StoppedError(Exception):
    """The job ends."""


class SelfCheck(Service):
    """Runs the checks from `start` to `close`, and passes their results to `health`."""

    def __init__(  # noqa: PLR0913 - each is one thing it needs
        self,
        schedule: Schedule,
        connect: Callable[[], AbstractContextManager[Brokers]],
        tables: Tables,
        read_again: Callable[[Collection[str]], Collection[str]],
        *,
        health: Health,
        report: ReportLine,
        describe_error: Callable[[Exception], str] | None = None,
    ) -> None:
        """Continue from the results in `health`.

        `connect` opens a connection to the brokers for one check; `report` gets lines for the operator; `read_again`
        has groups read again, and returns which: the query ends for that.
        """
        super().__init__(
            "self-check", report, interval=self.poll_seconds, after=self.poll_seconds, describe_error=describe_error
        )
        self._schedule, self._connect, self._tables, self._read_again = schedule, connect, tables, read_again
        self._job = health
        self._status = health.status.self_check
        self._known = health.differing_groups
        self._differing = {group.group_id for group in self._known if group.agreed_at is None}
        self._due, self._start = Step.WAIT, 0
        self._report_denied = ReportOnce(report)

    def now(self) -> float:
        """Return `time.monotonic()`; with `sleep` the clock of the comparison."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than the job runs."""
        if self.stopping.wait(seconds):
            raise _StoppedError

    def is_ready(self) -> bool:
        """Return whether a comparison is due; `tick` makes it."""
        reading = self._job.reading
        self._start = reading or 0
        can_begin = reading is not None and is_ready(self._job.status)
        self._due = self._schedule.next_step(self.now(), start=self._start, is_ready=can_begin)
        return self._due is not Step.WAIT

    def tick(self) -> None:
        """Make the comparison that is due. One during which the stream starts again counts for nothing."""
        try:
            with self._connect() as brokers:
                if self._due is Step.COMPARE_ALL:
                    self._compare_all(brokers)
                else:
                    self._confirm(brokers)
        except Exception:
            if self._job.reading == self._start:
                raise

    def failed(self, text: str) -> str:
        """Publish that a comparison could not be completed, and return the line about it."""
        self._schedule = self._schedule.after_failure(self.now(), start=self._start)
        self._publish(failures=self._status.failures + 1, failed_at=datetime.now(timezone.utc), failure=text)
        return f"self-check: {text}"

    def _compare_all(self, brokers: Brokers) -> None:
        self._status = replace(self._status, runs=self._status.runs + 1)
        report = self._verify(brokers)
        denied = [group for group in report.not_compared if group.is_missing_acl]
        differing, others = by_group(report.differences), {group.group_id for group in report.not_compared}
        if denied and not (report.agreeing or differing):
            raise VerifyError(f"no group can be compared: {denied[0].reason}")
        self._schedule = self._schedule.after_all(self.now(), start=self._start, differing=differing)
        self._agree({one.group_id for one in self._known} - differing.keys() - others)
        self._differing &= differing.keys() | others
        self._publish(
            last_run_at=datetime.now(timezone.utc),
            failed_at=None,
            failure=None,
            compared=report.agreeing + len(differing),
            not_compared=len(report.not_compared),
        )
        if denied:
            self._report_denied(f"self-check: {count(len(denied), 'group')} cannot be compared: {denied[0].reason}")
        else:
            self._report_denied.clear()

    def _confirm(self, brokers: Brokers) -> None:
        """Compare the groups again that differed; report those that still do, and have them read again."""
        first = self._schedule.unconfirmed
        found = lasting(first, by_group(self._verify(brokers, first).differences))
        self._schedule = self._schedule.after_confirmation()
        if not found:
            return
        self._differing |= found.keys()
        self._known = with_lasting(self._known, found, datetime.now(timezone.utc))
        self._publish()
        self.report(f"self-check: the tables differ from the brokers in {count(len(found), 'group')}: {_names(found)}")
        asked = self._read_again(sorted(found)[:_MAX_GROUPS])
        self._publish(repaired=self._status.repaired + len(asked))
        left = len(found) - len(asked)
        rest = f"; left, as they were within the hour before or are very many: {left:,}" if left else ""
        self.report(f"self-check: groups to be read again: {len(asked):,}{rest}")

    def _agree(self, group_ids: Collection[str]) -> None:
        self._known = with_agreement(self._known, group_ids, datetime.now(timezone.utc))
        self._differing.difference_update(group_ids)

    def _verify(self, brokers: Brokers, group_ids: Iterable[str] | None = None) -> Report:
        found = verify(brokers, self._tables, self, _TIMEOUT_SECONDS, lambda _line: self.sleep(0), group_ids=group_ids)
        if self._job.reading != self._start:
            raise VerifyError("the stream was started again")
        return found

    def _publish(self, **changes: Any) -> None:  # noqa: ANN401 - fields of `SelfCheckStatus`
        self._status = replace(self._status, differing=len(self._differing), **changes)
        self._job.self_check(self._status, self._known)


def make_self_check(
    config: JobConfig,
    properties: Mapping[str, str],
    read_again: Callable[[Collection[str]], Collection[str]],
    *,
    health: Health,
    report: ReportLine,
) -> SelfCheck:
    """Return the self-check of a job."""
    return SelfCheck(
        Schedule(config.self_check.interval, CONFIRM_SECONDS),
        partial(StreamsGroupClient.of, properties),
        WarehouseTables(config.warehouse, config.cluster),
        read_again,
        health=health,
        report=report,
        describe_error=describes_requests(properties, _NEEDS),
    )


def _names(found: DifferencesByGroup) -> str:
    """Return the first groups with the fields that differ."""
    names = [f"{name} ({', '.join(one.field for one in found[name][:_MAX_NAMES])})" for name in sorted(found)]
    return first_of(names, _MAX_NAMES)
