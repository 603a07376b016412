"""Seconds of one evaluation of all rules for every group, and of the life cycle of the alerts.

One group in a hundred has a problem, the others are Stable; another one in a hundred was restarted lately. The first
evaluation also matches every group id against the settings' patterns; later ones remember. Seconds are those of the
processor, not of the clock: a busy machine changes little.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from rich.console import Console
from rich.table import Table

from streaming_app.alerts.evaluate import evaluate
from streaming_app.alerts.lifecycle import AlertState, advance
from streaming_app.alerts.rule import EvaluationContext
from streaming_app.alerts.survey import DescriptionSupport, survey_cluster
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.snapshot import NOT_REVOKING, GroupSnapshot, UnsettledMember
from streaming_app.health.history import Assignment, GroupHistory, MemberChange, StateChange
from streaming_app.job_status import JobStatus
from tests.alerts.healthy_group import healthy_group

NOW = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
AGO = NOW - timedelta(days=3)
WRONG_EVERY = 100
STUCK = UnsettledMember("m1", NOT_REVOKING, "worker-1", "10.0.0.1", "p1", None, AGO, 300_000, ("0_1",), 1)
SETTINGS = {
    "ignore_groups": ["test-.*", ".*-scratch"],
    "overrides": [{"groups": f"team{n}-.*", "rules": {"StreamsGroupDown": {"after": "1h"}}} for n in range(5)],
}


def facts(groups: int) -> list[GroupSnapshot]:
    """As many groups of five teams: 99 of 100 are Stable with their description stored."""
    well = replace(healthy_group(AGO), first_seen_at=AGO - timedelta(days=30))
    never_stored = replace(well, description_status="NEVER_STORED", stored_description_epoch=-1)
    wrong = (
        replace(well, state="NotReady", not_ready_reason="Source topics a are missing."),
        replace(well, state="Reconciling", unsettled=(STUCK,), unsettled_count=1),
        replace(never_stored, state="Empty", member_count=0),
        replace(well, description_status="NEVER_STORED", stored_description_epoch=-1, solicitable=True),
    )
    return [
        replace(
            well if n % WRONG_EVERY else wrong[n // WRONG_EVERY % len(wrong)], group_id=f"team{n % 5}-application-{n}"
        )
        for n in range(groups)
    ]


def restarted_lately() -> GroupHistory:
    """Return the history of a group of three instances after a rolling restart."""
    states, assignments, members = [], [], []
    for n in range(3):
        at = NOW - timedelta(minutes=10 - n)
        states += [StateChange(at, n, "Stable", "Assigning"), StateChange(at, n, "Assigning", "Stable")]
        assignments += [Assignment(at, n, "member_left"), Assignment(at, n, "member_joined")]
        changes = [(at, n, f"m{n}-{joined}", joined, f"10.0.0.{n}") for joined in (False, True)]
        members += [MemberChange(*change) for change in changes]
    return GroupHistory(states, assignments, members)


def run(groups: int = 100_000) -> None:
    """Print the seconds of the first evaluation and of later ones."""
    rule_settings_of = AlertSettings.model_validate(SETTINGS).rule_settings_of()
    notify_policy = AlertSettings().notify_policy(["chat"])
    everything, job, state = facts(groups), JobStatus(started_at=AGO, caught_up=True, last_success_at=NOW), AlertState()
    histories = {group.group_id: restarted_lately() for group in everything[1::WRONG_EVERY]}
    table = Table(title=f"One evaluation of {groups:,} groups, {groups // WRONG_EVERY:,} with a problem, in seconds")
    for column in ("evaluation", "survey", "rules", "life cycle", "alerts written"):
        table.add_column(column, justify="right")
    for number in range(1, 4):
        now = NOW + timedelta(seconds=5 * number)
        start = time.process_time()
        survey = survey_cluster(everything)
        since = DescriptionSupport("auto").since(survey)
        surveyed = time.process_time()
        context = EvaluationContext(now, histories, survey, descriptions_since=since)
        found = evaluate(everything, job, context, rule_settings_of)
        evaluated = time.process_time()
        changes = advance(
            state,
            found,
            cluster="c",
            now=now,
            rule_settings_of=rule_settings_of,
            notify_policy=notify_policy,
            caught_up=True,
        )
        ended = time.process_time()
        state = changes.state
        # Whether groups process is judged by `health`, not by rules; the descriptions are one alert for the cluster.
        assert len(state.open) == 1
        table.add_row(
            str(number),
            f"{surveyed - start:.3f}",
            f"{evaluated - surveyed:.3f}",
            f"{ended - evaluated:.3f}",
            f"{len(changes.changed):,}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    run()
