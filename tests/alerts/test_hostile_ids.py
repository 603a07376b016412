"""Ids that a tenant made for the worst case: rules see them, and take no longer than for others."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from streaming_app.alerts.alert import AlertKey
from streaming_app.alerts.evaluate import evaluate
from streaming_app.alerts.rule import EvaluationContext
from streaming_app.alerts.survey import survey_cluster
from streaming_app.config.alerts import AlertSettings
from tests.support.healthy_group import healthy_group

NOW = datetime(2026, 11, 24, 9, tzinfo=timezone.utc)
LONGEST = 32_000  # what a StreamsGroupHeartbeat can name is limited by the length of a string of Kafka
HOSTILE = [
    part * (LONGEST // len(part)) + end
    for part in ("1", "1_", "-1", "v1.", "blue", "-blue", "(", "[a-", "\\", "%", "${", "\u202e", "é")
    for end in ("", "!")
]


@pytest.mark.parametrize("group_id", HOSTILE, ids=lambda value: ascii(value[:6])[1:-1])
def test_a_group_whose_id_is_made_to_be_slow_gets_its_alert_and_so_do_the_others(group_id: str) -> None:
    ended = NOW - timedelta(days=1)
    failed = {"description_status": "FAILED", "stored_description_epoch": -1, "failed_description_epoch": 0}
    quiet = replace(healthy_group(NOW - timedelta(days=9)), state="Empty", state_since=ended, member_count=0, **failed)
    hostile = replace(quiet, group_id=group_id)
    rivals = [
        replace(
            healthy_group(NOW - timedelta(days=2)), group_id=f"{group_id}{n}", first_seen_at=NOW - timedelta(days=2)
        )
        for n in range(5)
    ]
    groups = [hostile, replace(quiet, group_id="payments", sources_hash="other"), *rivals]
    context = EvaluationContext(NOW, survey=survey_cluster(groups))
    found = evaluate(groups, None, context, AlertSettings().rule_settings_of())
    assert AlertKey("StreamsGroupDescriptionFailed", "payments") in found
