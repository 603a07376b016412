"""What verdicts may not say, whatever is alerted: that all is well of a group that restores, hangs or is not known."""

from __future__ import annotations

import pytest

from streaming_app.health.verdict import DOWN, IDLE, OK, RESTORING, STALLED, UNKNOWN, UNSTABLE, Verdict
from tests.histories.bed import run
from tests.histories.clients import START
from tests.histories.history import (
    BEGINS,
    HOUR,
    STATE,
    TOPICS,
    TRAFFIC,
    Operations,
    crash_loop,
    do,
    names,
    ordinary,
    start,
    steady,
    stop,
    working,
)


def said(*operations: Operations, hours: float = 4.0, after: float = BEGINS, **others: object) -> list[Verdict]:
    """Return the verdicts of a history after a time, and the one of then."""
    changes = run(ordinary("", *operations, hours=hours, **others)).changes
    seconds = [(one.at - START).total_seconds() for one in changes]
    first = max(n for n, at in enumerate(seconds) if not n or at <= after)
    return [one.verdict for one in changes[first:]]


def verdicts(found: list[Verdict]) -> list[str]:
    """Return their names, each once in a row."""
    return [one.verdict for n, one in enumerate(found) if not n or one.verdict != found[n - 1].verdict]


@pytest.mark.parametrize(
    ("ends", "comes"),
    [(stop(names(1), BEGINS), start(["x"], BEGINS + 20, **STATE)), (stop(["i0"], BEGINS), start(["x"], BEGINS - 10))],
    ids=["it is started again", "another one takes over"],
)
def test_offsets_do_not_advance_while_state_is_restored(ends: Operations, comes: Operations) -> None:
    reads = do(TRAFFIC, "read", restore_seconds=600.0)
    started = [one for one in comes if one.arguments.setdefault("changelogs", STATE["changelogs"])]
    found = said(steady(1, **STATE), reads, ends, started, after=BEGINS + 120, topics=TOPICS)
    assert verdicts(found)[-2:] == [RESTORING, OK]
    assert OK not in verdicts(found)[:-1]


def test_a_loop_of_an_application_whose_topic_is_missing_is_not_interrupted_processing() -> None:
    loops = [crash_loop(name, BEGINS, 12, BEGINS + HOUR) for name in names(2)]
    found = said(start(names(2), BEGINS - 30), *loops, do(BEGINS + 1, "set_topic", topic="in", partitions=None))
    assert not {UNSTABLE, OK, IDLE} & {one.verdict for one in found}
    down = next(one for one in found if one.verdict == DOWN)
    assert "MISSING_SOURCE_TOPICS" in down.why


def test_a_group_of_which_nothing_is_known_any_more_is_not_ok() -> None:
    """Aborted records are the last, of topics that the job may not read."""
    ends = do(BEGINS, "change", rate=0.0), do(BEGINS + 600, "end_transaction", offsets=3, denied=True)
    found = said(working(2), *ends, hours=5, after=BEGINS + 1800)
    assert verdicts(found) == [UNKNOWN]
    assert "not known since" in found[-1].why


def test_records_of_a_topic_that_was_created_again_that_nobody_reads_are_no_advance() -> None:
    again = do(BEGINS + 600, "recreate_topics"), do(BEGINS + 600, "stick"), do(BEGINS + 700, "change", rate=0.01)
    found = said(working(2), do(BEGINS, "change", rate=0.0), *again, after=BEGINS + 880)
    assert verdicts(found) == [UNKNOWN, STALLED]
    assert "0 offsets" not in found[-1].why
