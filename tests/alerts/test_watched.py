"""Rules see only groups of which they may have a finding: they find the same, and look at nothing that is unchanged."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streaming_app.alerts.engine_facts import DescriptionSupport, EngineFacts, Observed
from streaming_app.alerts.evaluate import Watched, evaluate
from streaming_app.groups.snapshot import GroupSnapshot
from tests.alerts.evaluation import rule_settings_of, truths_of
from tests.support.healthy_group import healthy_group

NOW = datetime(2026, 11, 25, 9, tzinfo=timezone.utc)
OLD = NOW - timedelta(days=60)
IDS = tuple(f"app-{n}" for n in range(5))

times = st.sampled_from(
    [None, OLD, NOW - timedelta(days=8), NOW - timedelta(hours=23), NOW - timedelta(minutes=5), NOW]
)
snapshots = st.builds(
    lambda **fields: replace(healthy_group(OLD), **fields),
    group_type=st.sampled_from(["streams", "streams", "classic"]),
    state=st.sampled_from(["Stable", "Empty", "NotReady", "Reconciling", "Unknown", "Dead"]),
    description_status=st.sampled_from(["CURRENT", "NEVER_STORED", "STALE", "FAILED", "UNCERTAIN"]),
    stored_description_epoch=st.sampled_from([-2, -1, 0]),
    first_described_at=times,
    description_since=times,
    last_unsolicited_push_at=times,
    first_seen_at=times,
    solicitable=st.booleans(),
    member_count=st.integers(0, 2),
    stale_member_count=st.integers(0, 1),
    set_aside_reason=st.sampled_from([None, "too many steps"]),
)
steps = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(IDS), st.one_of(snapshots, st.none()), max_size=3),
        st.sampled_from([5.0, 5.0, 3_600.0, 90_000.0, -7_200.0]),
    ),
    min_size=1,
    max_size=6,
)


@given(steps)
def test_what_is_left_out_changes_no_finding_and_no_count(history: list[tuple[dict[str, Any], float]]) -> None:
    descriptions, groups, now = DescriptionSupport("auto"), dict[str, GroupSnapshot](), NOW
    watched = Watched(descriptions)
    for changes, seconds in history:
        now += timedelta(seconds=seconds)
        changed = {name: one and replace(one, group_id=name) for name, one in changes.items()}
        groups = {name: one for name, one in {**groups, **changed}.items() if one}
        watched.update(groups)
        fresh = DescriptionSupport("auto")
        for one in groups.values():
            fresh.group_changed(None, one)
        assert (descriptions.described, descriptions.undescribed) == (fresh.described, fresh.undescribed)
        for since in (None, OLD):
            fresh.known_since = since
            facts = EngineFacts(now, Observed(groups), descriptions=fresh)
            of_all = truths_of(groups.values(), now, descriptions_since=since)
            assert evaluate(facts, watched, rule_settings_of) == of_all


def test_groups_that_never_had_a_description_are_not_looked_at_one_by_one_before_one_is_expected_of_any() -> None:
    watched = Watched(descriptions := DescriptionSupport("auto", known_since=OLD))
    had = replace(healthy_group(OLD), description_status="STALE")
    never = replace(had, description_status="NEVER_STORED", stored_description_epoch=-1, first_described_at=None)
    watched.update({"had": had, **dict.fromkeys(IDS, never)})
    facts = EngineFacts(NOW, Observed({}), descriptions=descriptions)
    assert [key.group_id for key in watched.candidates(facts)] == ["had"]
