"""The rules about lag, from the rows of one pass to the next; what whole applications do is in `tests/histories`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest

from streaming_app.alerts.problem import Finding, ProblemKey
from streaming_app.health.history import GroupHistory, StateChange
from streaming_app.lag.model import LagRow
from streaming_app.lag.work import GroupWork, observe_work
from tests.alerts.engine_rig import Rig, group
from tests.alerts.evaluation import findings_of
from tests.support.lag_harness import GROUP, row

START = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
REWOUND = "StreamsGroupOffsetsRewound"
OWNED = {"subtopology_id": "0", "task_id": "0_0", "member_id": "m", "process_id": "p", "client_host": "10.0.0.1"}


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def seconds(minutes: float) -> float:
    return at(minutes).timestamp()


def owned(status: str, minutes: float | None = None, **fields: Any) -> LagRow:
    """Return a row of a task that a member has, with this status since so many minutes after the start."""
    since = None if minutes is None else seconds(minutes)
    return row(**{**OWNED, "status": status, "status_since": since, "lag": 5_432, "lag_seconds": 1_200.0, **fields})


def after(rows: Iterable[LagRow]) -> dict[str, GroupWork]:
    """Return what is known after a pass an hour after the start."""
    return observe_work(rows, {}, {}, seconds(60))


def find(lag: Mapping[str, GroupWork], **observed: Any) -> Finding | None:
    found = findings_of([], at(60), work=lag, **observed)
    assert {key.group_id for key in found} <= {GROUP}
    one = found.get(ProblemKey(REWOUND, GROUP))
    if one:
        assert json.loads(json.dumps(one.evidence)) == one.evidence
        assert "\n" not in one.summary
    return one


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ([], True),
        ([("Stable", 5), ("Empty", 50), ("Assigning", 55), ("Stable", 56)], False),
        ([("Stable", 5), ("Empty", 30), ("Assigning", 35), ("Stable", 36)], True),
        ([("Stable", 5), ("Empty", 30), ("Assigning", 47), ("Stable", 48)], False),
        ([("Stable", 5), ("Empty", 30), ("Assigning", 46), ("Stable", 48)], True),
        ([("Stable", 5), ("Assigning", 10), ("Stable", 11), ("Empty", 30)], False),
    ],
    ids=[
        "has run all the time",
        "was empty just before",
        "was empty long before",
        "has members for ten minutes",
        "has members for eleven minutes",
        "is empty",
    ],
)
def test_offsets_that_go_back_are_found_unless_somebody_reset_them(
    states: list[tuple[str, float]], *, found: bool
) -> None:
    history = GroupHistory(
        [StateChange(at(minute), int(minute), old, state) for (old, _), (state, minute) in pairwise(states)]
    )
    known = after([owned("REWOUND", 57, rewound_from=1_000, committed_offset=90)])
    one = find(known, histories={GROUP: history})
    assert (one is not None) == found
    assert one is None or one.summary == (
        "payments went back in 1 partition while it had members, at 2026-11-22 09:57:00Z: orders-0 from 1000"
    )


def rewound(**fields: Any) -> LagRow:
    return owned("REWOUND", 57, **{"rewound_from": 1_000, "committed_offset": 90, **fields})


def open_after(lag: Mapping[str, GroupWork]) -> set[str]:
    """Return the rules of the alerts that are left after a pass with this lag, where an offset had gone back."""
    rig = Rig()
    rig.cycle(0, group(), work=after([rewound()]))
    assert rig.open_rules() == {REWOUND}
    rig.cycle(60, group(), work=lag)
    return rig.open_rules()


@pytest.mark.parametrize(
    ("rows", "stays"),
    [
        pytest.param([owned("OK")], False, id="the old offset is reached"),
        pytest.param([owned("UNKNOWN", committed_offset=90)], True, id="the broker of the partition is away"),
        pytest.param([owned("BEHIND", 30, held_since=seconds(59))], True, id="the group rebalances"),
    ],
)
def test_an_alert_about_offsets_that_went_back_stays_while_nothing_is_known(rows: list[LagRow], *, stays: bool) -> None:
    assert open_after(after(rows)) == ({REWOUND} if stays else set())
