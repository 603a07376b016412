from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from streaming_app.alerts.survey import ClusterSurvey, DescriptionMode, DescriptionSupport, survey_cluster
from streaming_app.groups.snapshot import GroupSnapshot
from tests.support.healthy_group import healthy_group

LONG_AGO = datetime(2026, 1, 1, tzinfo=timezone.utc)
LATER = LONG_AGO + timedelta(days=1)
LAST = LONG_AGO + timedelta(days=2)
STORED = healthy_group(LONG_AGO)
NEVER_STORED = replace(STORED, stored_description_epoch=-1, description_status="NEVER_STORED", first_described_at=None)
PUSHED_LAST = replace(STORED, description_since=LAST)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def survey(*groups: GroupSnapshot) -> ClusterSurvey:
    return survey_cluster(groups)


@pytest.mark.parametrize(
    ("known_since", "plugin", "groups", "since"),
    [
        pytest.param(None, [], [NEVER_STORED], None, id="no evidence"),
        pytest.param(None, [], [STORED], LONG_AGO, id="a group has one"),
        pytest.param(LONG_AGO, [], [], LONG_AGO, id="the group with the evidence was deleted"),
        pytest.param(None, [("found", LATER), ("found", LAST)], [NEVER_STORED], LATER, id="configured"),
        pytest.param(LONG_AGO, [("absent", LATER)], [STORED], None, id="removed"),
        pytest.param(LONG_AGO, [("absent", LATER)], [PUSHED_LAST], LAST, id="removed, and a push since"),
        pytest.param(LONG_AGO, [("absent", LATER), ("found", LAST)], [NEVER_STORED], LAST, id="configured again"),
    ],
)
def test_a_cluster_keeps_descriptions_since_the_earliest_evidence_of_a_plugin_that_is_there(
    known_since: datetime | None,
    plugin: list[tuple[str, datetime]],
    groups: list[GroupSnapshot],
    since: datetime | None,
) -> None:
    support = DescriptionSupport("auto", known_since=known_since)
    for what, at in plugin:
        (support.plugin_found if what == "found" else support.plugin_absent)(at)
    assert support.since(survey(*groups)) == since


@pytest.mark.parametrize(("mode", "since"), [("always", EPOCH), ("never", None)])
def test_an_explicit_setting_takes_precedence_and_is_not_stored(mode: DescriptionMode, since: datetime | None) -> None:
    support = DescriptionSupport(mode)
    support.plugin_found(LATER)
    assert support.since(survey(STORED)) == since
    assert support.known_since is None
    assert support.required == (mode == "always")
