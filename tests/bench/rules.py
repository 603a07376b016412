"""How long one look at every group takes: all rules, and the life cycle of what they find.

One group in a hundred is wrong in some way, the others are Stable. The first look also matches every group's id against
the settings' patterns; later ones remember. Seconds are those of the processor, not of the clock: a busy machine
changes little.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from rich.console import Console
from rich.table import Table

from streaming_app.alerts.settings import AlertSettings
from streaming_app.core.facts import GroupFacts, JobFacts
from streaming_app.core.lifecycle import Book, advance
from streaming_app.core.rule import Look
from streaming_app.core.rules import evaluate
from tests.core.healthy import healthy

NOW = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
AGO = NOW - timedelta(days=3)
WRONG_EVERY = 100
SETTINGS = {
    "ignore_groups": ["test-.*", ".*-scratch"],
    "overrides": [{"groups": f"team{n}-.*", "rules": {"StreamsGroupEmpty": {"for": "1h"}}} for n in range(5)],
}


def facts(groups: int) -> list[GroupFacts]:
    """As many groups of five teams: 99 of 100 are Stable with their description stored."""
    well = replace(healthy(AGO), first_seen_at=AGO - timedelta(days=1))
    never_stored = replace(well, description_status="NEVER_STORED", stored_description_epoch=-1)
    wrong = (
        replace(well, state="NotReady", not_ready_reason="Source topics a are missing."),
        replace(well, state="Reconciling", not_revoking=("10.0.0.1 worker-1 (m1)",)),
        replace(never_stored, state="Empty", member_count=0),
        replace(never_stored, solicitable=True),
    )
    return [
        replace(
            well if n % WRONG_EVERY else wrong[n // WRONG_EVERY % len(wrong)], group_id=f"team{n % 5}-application-{n}"
        )
        for n in range(groups)
    ]


def run(groups: int = 100_000) -> None:
    """Print the seconds of the first look and of later ones."""
    terms_of = AlertSettings.model_validate(SETTINGS).terms_of()
    manner = AlertSettings().manner(["chat"])
    everything, job, book = facts(groups), JobFacts(started_at=AGO, caught_up=True, last_success_at=NOW), Book()
    table = Table(title=f"One look at {groups:,} groups, of which {groups // WRONG_EVERY:,} are wrong, in seconds")
    for column in ("look", "rules", "life cycle", "alerts written"):
        table.add_column(column, justify="right")
    for number in range(1, 4):
        now = NOW + timedelta(seconds=5 * number)
        since = AlertSettings().descriptions_since(everything, None)
        start = time.process_time()
        found = evaluate(everything, job, Look(now, descriptions_since=since), terms_of)
        evaluated = time.process_time()
        step = advance(book, found, cluster="c", now=now, terms_of=terms_of, manner=manner, caught_up=True)
        ended = time.process_time()
        book = step.book
        assert len(book.open) == groups // WRONG_EVERY
        table.add_row(str(number), f"{evaluated - start:.3f}", f"{ended - evaluated:.3f}", f"{len(step.changed):,}")
    Console(width=120).print(table)


if __name__ == "__main__":
    run()
