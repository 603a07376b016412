from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from streaming_app.alerts.survey import NO_SURVEY, ClusterSurvey, DescriptionMode, DescriptionSupport, survey_cluster
from streaming_app.groups.snapshot import GroupSnapshot
from tests.support.healthy_group import healthy_group

LONG_AGO = datetime(2026, 1, 1, tzinfo=timezone.utc)
LATER = LONG_AGO + timedelta(days=1)
LAST = LONG_AGO + timedelta(days=2)
STORED = healthy_group(LONG_AGO)
NEVER_STORED = replace(STORED, stored_description_epoch=-1, description_status="NEVER_STORED", first_described_at=None)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def survey(*groups: GroupSnapshot) -> ClusterSurvey:
    return survey_cluster(groups)


def test_without_evidence_the_cluster_does_not_keep_descriptions() -> None:
    assert DescriptionSupport("auto").since(survey(NEVER_STORED)) is None


def test_it_stays_known_after_the_group_with_the_evidence_is_deleted() -> None:
    support = DescriptionSupport("auto")
    assert support.since(survey(STORED)) == LONG_AGO
    assert support.since(NO_SURVEY) == LONG_AGO
    assert DescriptionSupport("auto", known_since=support.known_since).since(NO_SURVEY) == LONG_AGO


def test_the_brokers_configuration_is_evidence_from_the_time_it_was_first_read() -> None:
    support = DescriptionSupport("auto")
    support.plugin_found(LATER)
    support.plugin_found(LAST)
    assert support.since(survey(NEVER_STORED)) == LATER


def test_the_earliest_evidence_counts() -> None:
    support = DescriptionSupport("auto", known_since=LAST)
    support.plugin_found(LATER)
    assert support.since(survey(STORED)) == LONG_AGO


def test_after_the_plugin_was_removed_what_it_stored_before_is_no_evidence() -> None:
    support = DescriptionSupport("auto", known_since=LONG_AGO)
    support.plugin_absent(LATER)
    assert (support.since(survey(STORED)), support.known_since) == (None, None)
    assert support.since(survey(replace(STORED, description_since=LAST))) == LAST  # a push since then


def test_a_plugin_that_is_configured_again_counts_from_then() -> None:
    support = DescriptionSupport("auto", known_since=LONG_AGO)
    support.plugin_absent(LATER)
    support.plugin_found(LAST)
    assert support.since(survey(NEVER_STORED)) == LAST


@pytest.mark.parametrize(("mode", "since"), [("always", EPOCH), ("never", None)])
def test_an_explicit_setting_takes_precedence_and_is_not_stored(mode: DescriptionMode, since: datetime | None) -> None:
    support = DescriptionSupport(mode)
    support.plugin_found(LATER)
    assert support.since(survey(STORED)) == since
    assert support.known_since is None
    assert support.required == (mode == "always")


def test_descriptions_that_are_stored_failed_started_or_pushed_are_evidence() -> None:
    plain = replace(NEVER_STORED, description_since=LONG_AGO)
    later = replace(STORED, description_since=LATER, first_described_at=LATER)
    assert survey(plain).plugin_since is None
    assert survey(plain, later, STORED).plugin_since == LONG_AGO
    assert survey(replace(plain, failed_description_epoch=0, description_since=LATER)).plugin_since == LATER
    assert survey(replace(plain, stored_description_epoch=-2)).plugin_since == LONG_AGO
    pushed = replace(plain, unsolicited_pushes=1, description_since=None, first_seen_at=None)
    assert survey(pushed).plugin_since == EPOCH


def test_a_plugin_that_is_removed_for_the_second_time_was_removed_then() -> None:
    support = DescriptionSupport("auto", known_since=LONG_AGO)
    support.plugin_absent(LONG_AGO)
    support.plugin_found(LONG_AGO)
    support.plugin_absent(LATER)
    assert support.since(survey(replace(STORED, description_since=LATER))) is None
    assert support.since(survey(replace(STORED, description_since=LAST))) == LAST


def test_what_is_read_again_of_a_plugin_that_is_absent_does_not_make_it_absent_later() -> None:
    support = DescriptionSupport("auto")
    support.plugin_absent(LONG_AGO)
    support.plugin_absent(LAST)
    assert support.since(survey(replace(STORED, description_since=LATER))) == LATER
    unsolicited = replace(NEVER_STORED, unsolicited_pushes=1, last_unsolicited_push_at=LATER)
    assert survey(unsolicited).newest_push_at == LATER


def test_the_proof_is_as_old_as_the_first_description_or_else_as_the_group() -> None:
    assert survey(replace(STORED, first_described_at=LATER, description_since=LAST)).plugin_since == LATER
    proof = {"first_described_at": None, "description_since": None}
    assert survey(replace(STORED, **proof, first_seen_at=LAST)).plugin_since == LAST
