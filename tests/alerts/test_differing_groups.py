"""Groups of which the tables differ from the brokers: found without being in the tables, and for an hour after."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from streaming_app.alerts.alert import AlertKey, Finding
from streaming_app.alerts.evaluate import evaluate
from streaming_app.alerts.rule import EvaluationContext
from streaming_app.config.alerts import AlertSettings
from streaming_app.job_status import DifferingGroup

NOW = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
CONTEXT = EvaluationContext(NOW)
SELF_CHECK = "StreamsGroupsSelfCheckFailed"
SETTINGS = AlertSettings().rule_settings_of()
FIELDS = (
    ("group_epoch", "3 in the tables, 4 on the broker"),
    ("state", "Empty in the tables, Stable on the broker"),
    ("members[m]", "absent in the tables, present on the broker"),
)
DIFFERING = DifferingGroup("payments", NOW - timedelta(minutes=9), 5, FIELDS)
REPAIRED = replace(DIFFERING, repair="its records were read again", agreed_at=NOW - timedelta(minutes=59))


def find_differing(
    group: DifferingGroup, context: EvaluationContext = CONTEXT, settings_of: Any = SETTINGS
) -> Finding | None:
    found = evaluate([], None, replace(context, differing_groups=(group,)), settings_of)
    return found.get(AlertKey(SELF_CHECK, group.group_id))


@pytest.mark.parametrize(
    ("group", "summary", "details"),
    [
        (
            DIFFERING,
            "payments: the tables differ from the broker in group_epoch, state, members[m] and 2 more",
            {"fields": dict(FIELDS), "field_count": 5},
        ),
        (
            REPAIRED,
            "payments: the tables differed from the broker in group_epoch, state, members[m] and 2 more, until "
            "2026-11-21 02:13:00 UTC; its records were read again",
            {
                "fields": dict(FIELDS),
                "field_count": 5,
                "repair": "its records were read again",
                "agreed_at": "2026-11-21T02:13:00+00:00",
            },
        ),
    ],
    ids=["differs", "repaired"],
)
def test_a_group_that_differs_from_the_broker_is_found_without_being_in_the_tables(
    group: DifferingGroup, summary: str, details: dict[str, Any]
) -> None:
    finding = find_differing(group)
    assert finding == Finding(group.since, summary, details)
    assert json.loads(json.dumps(finding.details)) == finding.details
    assert find_differing(group, replace(CONTEXT, now=NOW + timedelta(seconds=5))) == finding


def test_a_group_that_agrees_again_is_found_until_the_window_is_over() -> None:
    assert find_differing(REPAIRED, replace(CONTEXT, now=NOW + timedelta(seconds=59))) is not None
    assert find_differing(REPAIRED, replace(CONTEXT, now=NOW + timedelta(minutes=1))) is None


def test_a_group_that_the_settings_exclude_is_not_reported_as_differing() -> None:
    assert find_differing(DIFFERING, settings_of=lambda _group: {}) is None
