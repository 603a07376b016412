"""When the running job compares its tables with the brokers, and what follows. Pure: no clock, no I/O.

Theory of operation
-------------------
All groups are compared once after each start of the stream, when the job is at the end of the topic, and then every
`interval`. A group that differs is compared again a minute later. The comparison itself (`verification`) already waits
until the job has processed what the brokers described; the second one leaves out what happens while a broker or the
job restarts. A difference lasts if both found it in the same field. Its value may have changed meanwhile.

A group with a difference that lasts is reported, and its records are read again. It is compared once more after that,
and at each later check.

A check that cannot be completed, for example since an ACL is missing, is tried again after `interval`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from streaming_app.checks.compare import Difference
from streaming_app.job_status import DifferingGroup, JobStatus
from streaming_app.text import shorten

CONFIRM_SECONDS = 60.0
"""Between the two comparisons of a group that differs."""
_MAX_FIELDS = 10  # of a group, that are kept with their values
_MAX_CHARACTERS = 200  # of a value
_MAX_GROUPS = 100  # that are kept: each is an alert

DifferencesByGroup = Mapping[str, tuple[Difference, ...]]


class Step(Enum):
    """What is to be done now."""

    WAIT = "wait"
    COMPARE_ALL = "compare all groups"
    CONFIRM = "compare the groups again that differed"


@dataclass(frozen=True)
class Schedule:
    """When the next check is due. Times are seconds since an arbitrary point, such as those of `time.monotonic`."""

    interval: float
    confirm_seconds: float = CONFIRM_SECONDS
    checked_start: int | None = None
    """The start of the stream that the last check of all groups belongs to; None before the first check."""
    due_at: float = 0.0
    unconfirmed: DifferencesByGroup = field(default_factory=dict)
    """Groups that differed once."""
    confirm_at: float = 0.0

    def next_step(self, now: float, *, start: int, is_ready: bool) -> Step:
        """Return what is to be done now. `start` counts the starts of the stream; `is_ready`: see `is_ready`."""
        if not is_ready:
            return Step.WAIT
        if self.unconfirmed:
            return Step.CONFIRM if now >= self.confirm_at else Step.WAIT
        is_due = self.checked_start != start or now >= self.due_at
        return Step.COMPARE_ALL if is_due else Step.WAIT

    def after_all(self, now: float, *, start: int, differing: DifferencesByGroup) -> Schedule:
        """Return the schedule after all groups were compared, of which these differed."""
        return replace(
            self,
            checked_start=start,
            due_at=now + self.interval,
            unconfirmed=differing,
            confirm_at=now + self.confirm_seconds,
        )

    def after_confirmation(self) -> Schedule:
        """Return the schedule after the groups that differed were compared again."""
        return replace(self, unconfirmed={})

    def after_failure(self, now: float, *, start: int) -> Schedule:
        """Return the schedule after a comparison that could not be completed."""
        return replace(self, checked_start=start, due_at=now + self.interval, unconfirmed={})


def is_ready(job: JobStatus) -> bool:
    """Return whether the job is at the end of the topic, and a comparison makes sense."""
    return job.caught_up and not job.behind and job.failing_since is None and job.brokers_away_since is None


def by_group(differences: Iterable[Difference]) -> DifferencesByGroup:
    """Return the differences of each group."""
    groups: dict[str, tuple[Difference, ...]] = {}
    for one in differences:
        groups[one.group_id] = (*groups.get(one.group_id, ()), one)
    return groups


def lasting(first: DifferencesByGroup, second: DifferencesByGroup) -> DifferencesByGroup:
    """Return the groups that differed in the same field both times, with their differences of the second time."""
    fields = {group_id: {one.field for one in found} for group_id, found in first.items()}
    return {
        group_id: found
        for group_id, found in second.items()
        if any(one.field in fields.get(group_id, ()) for one in found)
    }


def with_lasting(
    known: Iterable[DifferingGroup], found: DifferencesByGroup, now: datetime
) -> tuple[DifferingGroup, ...]:
    """Return the groups to report after differences were found that last. Of very many groups only the first count."""
    groups = {one.group_id: one for one in known}
    for group_id, differences in found.items():
        before = groups.pop(group_id, None)
        since = before.since if before and before.agreed_at is None else now
        shown = tuple((one.field, _describe(one)) for one in differences[:_MAX_FIELDS])
        groups[group_id] = DifferingGroup(group_id, since, len(differences), shown)
    differing = sorted(groups.values(), key=lambda one: (one.agreed_at is not None, one.since, one.group_id))
    return tuple(differing[:_MAX_GROUPS])


def with_agreement(
    known: Iterable[DifferingGroup], agreeing: Collection[str], now: datetime
) -> tuple[DifferingGroup, ...]:
    """Return the groups after a comparison that found no difference in those whose ids are `agreeing`."""
    return tuple(
        replace(one, agreed_at=now) if one.agreed_at is None and one.group_id in agreeing else one for one in known
    )


def _describe(difference: Difference) -> str:
    tables, broker = (shorten(value, _MAX_CHARACTERS, " ...") for value in difference.values_as_text)
    return f"{tables} in the tables, {broker} on the broker"
