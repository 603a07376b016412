"""Missing and lost descriptions: of a group that had one, or where others have; and whether brokers keep any."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from streaming_app.alerts.alert import AlertKey, Holds
from streaming_app.alerts.engine_facts import DescriptionMode, DescriptionSupport, LostDescription
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.text import EPOCH
from tests.alerts.evaluation import findings_of
from tests.alerts.examples import make_alert
from tests.support.health_harness import NOW, ago
from tests.support.healthy_group import healthy_group

LONG_AGO = NOW - timedelta(days=300)
HEALTHY = healthy_group(LONG_AGO)
MISSING = "StreamsGroupDescriptionMissing"


def evaluate_groups(*groups: GroupSnapshot, **facts: Any) -> Mapping[AlertKey, Holds]:
    return findings_of(groups, NOW, **{"descriptions_since": LONG_AGO, **facts})


def undescribed(name: str = "old", **fields: Any) -> GroupSnapshot:
    never = {"description_status": "NEVER_STORED", "stored_description_epoch": -1, "first_described_at": None}
    times = {"description_since": ago(days=90), "members_since": ago(days=90)}
    return replace(HEALTHY, group_id=name, solicitable=True, **{**never, **times, **fields})


def described(number: int, since: datetime) -> Iterable[GroupSnapshot]:
    return (
        replace(HEALTHY, group_id=f"new-{n}", description_since=since, first_described_at=since) for n in range(number)
    )


PUSHED = replace(
    HEALTHY, group_id="new", description_status="STALE", description_since=ago(days=99), first_described_at=ago(days=98)
)
"""A group whose description is of an older epoch, and which pushed one that nobody asked for."""


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        pytest.param([undescribed()], set(), id="no other one has a description"),
        pytest.param([undescribed(), *described(9, ago(days=6))], set(), id="the others were upgraded this week"),
        pytest.param(
            [undescribed(), undescribed("b"), *described(8, ago(days=20))], set(), id="one of ten others lacks it"
        ),
        pytest.param([undescribed(), *described(9, ago(days=8))], {"old"}, id="all others were upgraded"),
        pytest.param(
            [undescribed(), undescribed("b"), *(replace(one, member_count=0) for one in described(9, ago(days=8)))],
            set(),
            id="those that were have no members",
        ),
        pytest.param([undescribed(), PUSHED], {"new"}, id="another one has an older description"),
        pytest.param(
            [undescribed(), replace(PUSHED, last_unsolicited_push_at=ago(hours=2))],
            {"new", "old"},
            id="another one pushed one",
        ),
        pytest.param(
            [undescribed(members_since=ago(days=1)), *described(9, ago(days=8))], set(), id="it has just started"
        ),
        pytest.param([undescribed(first_described_at=ago(days=99))], {"old"}, id="it had one"),
        pytest.param([undescribed(unsolicited_pushes=1)], {"old"}, id="it pushed one"),
    ],
)
def test_a_description_is_missing_where_the_group_or_nearly_all_others_have_had_one_for_a_week(
    groups: list[GroupSnapshot], found: set[str]
) -> None:
    assert {key.group_id for key in evaluate_groups(*groups) if key.subject == MISSING} == found


# What the brokers' plugin returns

FAILED = "StreamsGroupDescriptionFailed"
STORED = [replace(HEALTHY, group_id=f"s{number}") for number in range(5)]


def lost(minutes: float, status: str = "NOT_STORED") -> LostDescription:
    return LostDescription(status, 3, ago(minutes=minutes))


def test_a_description_that_the_plugin_did_not_return_when_it_was_asked_twice_is_a_finding_of_its_group() -> None:
    found = evaluate_groups(*STORED, lost_descriptions={"s1": lost(70), "s2": lost(69), "s3": lost(90, "ERROR")})
    assert {key: one.since for key, one in found.items()} == {
        AlertKey(FAILED, "s1"): ago(minutes=70),
        AlertKey(FAILED, "s3"): ago(minutes=90),
    }
    is_open = {AlertKey(FAILED, "s1"): make_alert()}
    assert evaluate_groups(*STORED, lost_descriptions={"s1": lost(5, "ERROR")}, open=is_open).keys() == is_open.keys()
    asked = {"topology_epoch": 3, "asked": ago(minutes=70).isoformat()}
    assert found[AlertKey(FAILED, "s1")].evidence == {"status": "NOT_STORED", **asked}
    assert "plugin does not have the topology description of epoch 3" in found[AlertKey(FAILED, "s1")].summary
    assert "plugin fails to return the topology description of epoch 3" in found[AlertKey(FAILED, "s3")].summary


# Whether the cluster keeps descriptions

LATER = LONG_AGO + timedelta(days=1)
LAST = LONG_AGO + timedelta(days=2)
NEVER = replace(HEALTHY, stored_description_epoch=-1, description_status="NEVER_STORED", first_described_at=None)
PUSHED_LAST = replace(HEALTHY, description_since=LAST)


@pytest.mark.parametrize(
    ("known_since", "plugin", "groups", "since"),
    [
        pytest.param(None, [], [NEVER], None, id="no evidence"),
        pytest.param(None, [], [HEALTHY], LONG_AGO, id="a group has one"),
        pytest.param(LONG_AGO, [], [], LONG_AGO, id="the group with the evidence was deleted"),
        pytest.param(None, [("found", LATER), ("found", LAST)], [NEVER], LATER, id="configured"),
        pytest.param(LONG_AGO, [("absent", LATER)], [HEALTHY], None, id="removed"),
        pytest.param(LONG_AGO, [("absent", LATER)], [PUSHED_LAST], LAST, id="removed, and a push since"),
        pytest.param(LONG_AGO, [("absent", LATER), ("found", LAST)], [NEVER], LAST, id="configured again"),
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
        support.plugin_read(at, exists=what == "found")
    for group in groups:
        support.group_changed(None, group)
    assert support.since == since


def test_a_push_after_the_plugin_was_removed_stays_evidence_when_the_configuration_is_read_again() -> None:
    support = DescriptionSupport("auto")
    for old, new, since in ((None, HEALTHY, None), (HEALTHY, PUSHED_LAST, LAST)):
        support.group_changed(old, new)
        for at in (LATER, NOW):
            support.plugin_read(at, exists=False)
            assert support.since == since


def test_a_removed_plugin_stays_removed_after_a_restart_while_the_configuration_cannot_be_read() -> None:
    before = DescriptionSupport("auto")
    before.plugin_read(LATER, exists=False)
    support = DescriptionSupport("auto", known_since=before.known_since, removed_at=before.removed_at)
    for group, since in ((HEALTHY, None), (PUSHED_LAST, LAST)):
        support.group_changed(None, group)
        assert support.since == since


@pytest.mark.parametrize(("mode", "since"), [("always", EPOCH), ("never", None)])
def test_an_explicit_setting_takes_precedence(mode: DescriptionMode, since: datetime | None) -> None:
    support = DescriptionSupport(mode)
    support.plugin_read(LATER, exists=True)
    support.group_changed(None, HEALTHY)
    assert support.since == since
    assert support.expects_one(NEVER, LATER, NOW) == (mode == "always")
