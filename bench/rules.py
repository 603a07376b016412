"""Seconds of one evaluation of all groups by the engine: verdicts, rules, and the life cycle of the alerts.

One group in a hundred has an alert; another one in a hundred was restarted recently; the others are Stable. The first
evaluation judges all groups, and matches every group id against the patterns in the settings. Later ones only process
changed groups. Times are processor times, so a busy machine changes them little.
"""

import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import islice

from bench.bench_harness import print_table
from streaming_app.alerts.engine import AlertEngine
from streaming_app.alerts.engine_facts import DescriptionSupport, EngineSettings, Observed
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.snapshot import NOT_REVOKING, GroupSnapshot, UnsettledMember, Versions
from streaming_app.health.group_history import ASSIGNED, JOINED, LEFT, STATE, Event, GroupHistory
from streaming_app.job_status import JobStatus
from tests.support.healthy_group import healthy_group

NOW = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
AGO = NOW - timedelta(days=3)
WRONG_EVERY, CHANGED = 100, 50
STUCK = UnsettledMember("m1", NOT_REVOKING, "worker-1", "10.0.0.1", "p1", None, AGO, 300_000, ("0_1",), 1)
SETTINGS = {
    "ignore_groups": ["test-.*", ".*-scratch"],
    "overrides": [{"groups": f"team{n}-.*", "rules": {"StreamsGroupDown": {"for": "1h"}}} for n in range(5)],
}


def facts(groups: int) -> list[GroupSnapshot]:
    """Return so many groups of five teams: 99 of 100 are Stable, with their description stored."""
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
        states += [Event(at, n, STATE, "Stable", "Assigning"), Event(at, n, STATE, "Assigning", "Stable")]
        assignments += [Event(at, n, ASSIGNED, cause=kind) for kind in (LEFT, JOINED)]
        members += [Event(at, n, kind, member_id=f"m{n}-{kind}", place=f"10.0.0.{n}") for kind in (LEFT, JOINED)]
    return GroupHistory(states, assignments, members)


def engine_of() -> AlertEngine:
    """Return an engine with settings of five teams, and a sink."""
    settings = EngineSettings("c", AlertSettings.model_validate(SETTINGS).rule_settings_of(), ("chat",))
    return AlertEngine(settings, (), DescriptionSupport("auto"))


def step(engine: AlertEngine, observed: Observed, now: datetime) -> tuple[float, int]:
    """Evaluate; return the seconds of the processor, and how many alerts are to be written."""
    start = time.process_time()
    engine.step(observed, now)
    seconds, written = time.process_time() - start, len(engine.lifecycle.unsaved)
    engine.lifecycle.saved(engine.lifecycle.unsaved)
    engine.lifecycle.publish()
    engine.unsaved_changes.clear()
    return seconds, written


def caught_up(now: datetime) -> JobStatus:
    """Return the status of a job that has read everything."""
    return JobStatus(started_at=AGO, caught_up=True, caught_up_at=now, last_success_at=now)


def run(groups: int = 100_000) -> None:
    """Print the seconds of the first evaluation, of later ones, and of one after 50 groups have changed."""
    engine = engine_of()
    everything = Versions((group.group_id, group) for group in facts(groups))
    histories = Versions((group_id, restarted_lately()) for group_id in islice(everything, 1, None, WRONG_EVERY))
    rows = []
    for number, label in enumerate(("first", "second", "third", f"{CHANGED} groups changed"), 1):
        now = NOW + timedelta(seconds=5 * number)
        if number > 3:
            changes = {one: replace(everything[one], last_offset=1) for one in islice(everything, CHANGED)}
            everything = everything.after(changes)
        seconds, written = step(engine, Observed(everything, histories, job=caught_up(now)), now)
        rows.append((label, f"{seconds:.3f}", f"{written:,}"))
    title = f"One evaluation of {groups:,} groups, {groups // WRONG_EVERY:,} with an alert"
    print_table(title, ("seconds", "alerts written"), rows)
