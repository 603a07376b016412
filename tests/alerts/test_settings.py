"""The section `alerts:`: what it may say, what it says of wrong input, and whom it concerns."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from streaming_app.alerts.settings import AlertSettings
from streaming_app.config import problems
from streaming_app.config.paths import written
from streaming_app.core.lifecycle import Manner
from streaming_app.core.rules import OF_GROUPS, RULES
from tests.core.test_rules import HEALTHY, LONG_AGO, NEVER_STORED


class File(BaseModel):
    alerts: AlertSettings


def refused(values: dict[str, Any]) -> list[str]:
    """The lines that users see of a file with this section."""
    whole = {"alerts": values}
    with pytest.raises(ValidationError) as raised:
        File.model_validate(whole)
    errors = raised.value.errors(include_url=False)
    return [problems.line(error, File, whole, {}, written)[1] for error in errors]


def test_who_says_nothing_gets_what_the_rules_say() -> None:
    settings = AlertSettings()
    terms = settings.terms_of()("any")
    assert terms == {name: rule.terms for name, rule in RULES.items()}
    assert settings.manner(["chat"]) == Manner(("chat",), 0.0, None)
    assert settings.interval == 5
    assert settings.rebalance_window == 600


@pytest.mark.parametrize(
    ("spelled", "seconds"),
    [
        *((0, 0), (90, 90), (1.5, 1.5), ("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("8d", 691_200)),
        *(("1w", 604_800), ("250ms", 0.25), (" 5m ", 300)),
    ],
)
def test_durations_are_seconds_or_spelled_as_in_prometheus(spelled: object, seconds: float) -> None:
    settings = AlertSettings.model_validate({"rules": {"StreamsGroupNotReady": {"for": spelled}}})
    assert settings.terms_of()("any")["StreamsGroupNotReady"].grace == seconds


@pytest.mark.parametrize("spelled", ["", "m", "5 m", "30m1h", "1h1h", "five", True, [], {}, "nan", "5M"])
def test_what_is_no_duration_is_named(spelled: object) -> None:
    (line,) = refused({"rules": {"StreamsGroupNotReady": {"for": spelled}}})
    key = "alerts.rules.StreamsGroupNotReady.for"
    assert line == f'{key}: must be seconds, or a duration such as 90s, 5m or 1h30m, not "{spelled}"'


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"rules": {"StreamsGroupNotRedy": {}}},
            "alerts.rules.StreamsGroupNotRedy: is no known key; did you mean StreamsGroupNotReady?",
        ),
        (
            {"rules": {"StreamsGroupRebalanceStorm": {"windw": "1h"}}},
            "alerts.rules.StreamsGroupRebalanceStorm.windw: is no known key; did you mean window?",
        ),
        (
            {"rules": {"StreamsGroupNotReady": {"window": 1}}},
            "alerts.rules.StreamsGroupNotReady.window: is no known key",
        ),
        (
            {"rules": {"StreamsGroupSchemaDrift": {"for": 1}}},
            "alerts.rules.StreamsGroupSchemaDrift: is no known key; did you mean StreamsGroupsSchemaDrift?",
        ),
        (
            {"rules": {"StreamsGroupsSchemaDrift": {"for": 1}}},
            "alerts.rules.StreamsGroupsSchemaDrift.for: is no known key",
        ),
        (
            {"rules": {"StreamsGroupNotReady": {"for": "-5m"}}},
            'alerts.rules.StreamsGroupNotReady.for: must not be negative, not "-5m"',
        ),
        ({"keep_firing_for": "3651d"}, 'alerts.keep_firing_for: must be at most 3650d, not "3651d"'),
        ({"keep_firing_for": float("inf")}, 'alerts.keep_firing_for: must be at most 3650d, not "inf"'),
        ({"interval": 0}, "alerts.interval: must be more than 0"),
        ({"repeat_after": "0s"}, "alerts.repeat_after: must be more than 0"),
        (
            {"rules": {"StreamsGroupNotReady": {"severity": "high"}}},
            "alerts.rules.StreamsGroupNotReady.severity: must be 'info', 'warning' or 'critical', not \"high\"",
        ),
        (
            {"groups": "pay(ments"},
            'alerts.groups: is no regular expression: missing ), unterminated subpattern at position 4 of "pay(ments"',
        ),
        (
            {"ignore_groups": ["ok", "*"]},
            'alerts.ignore_groups[1]: is no regular expression: nothing to repeat at position 1 of "*"',
        ),
        ({"groups": 5}, 'alerts.groups: must be a regular expression, in quotes, not "5"'),
        ({"descriptions": "maybe"}, "alerts.descriptions: must be 'auto', 'always' or 'never', not \"maybe\""),
        ({"overrides": [{"rules": {}}]}, "alerts.overrides[0].groups: must be given"),
        (
            {"overrides": [{"groups": "x", "rules": {"StreamsGroupEmpty": {"enabeld": False}}}]},
            "alerts.overrides[0].rules.StreamsGroupEmpty.enabeld: is no known key; did you mean enabled?",
        ),
    ],
)
def test_an_error_names_the_key_and_says_what_is_wrong(values: dict[str, Any], line: str) -> None:
    assert refused(values) == [line]


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "many"])
def test_a_count_is_a_whole_number_of_at_least_one(count: object) -> None:
    (line,) = refused({"rules": {"StreamsGroupRebalanceStorm": {"count": count}}})
    assert line.startswith("alerts.rules.StreamsGroupRebalanceStorm.count: must be ")


def test_rules_about_the_job_have_no_overrides_by_group() -> None:
    (line,) = refused({"overrides": [{"groups": ".*", "rules": {"StreamsGroupsJobStopped": {"enabled": False}}}]})
    assert "StreamsGroupsJobStopped: is no known key" in line


def test_patterns_match_whole_ids() -> None:
    terms_of = AlertSettings.model_validate(
        {"groups": "pay.*|orders", "ignore_groups": ["payroll", ".*-test"]}
    ).terms_of()
    concerned = [g for g in ("payments", "orders", "orders-2", "payroll", "payroll-2", "pay-test", "x") if terms_of(g)]
    assert concerned == ["payments", "orders", "payroll-2"]
    assert "StreamsGroupsJobStopped" in terms_of(None)
    assert AlertSettings.model_validate({"ignore_groups": "a"}).terms_of()("a") == {}


def test_of_overrides_the_later_one_wins_key_by_key() -> None:
    not_ready = "StreamsGroupNotReady"
    terms_of = AlertSettings.model_validate(
        {
            "rules": {not_ready: {"severity": "warning"}, "StreamsGroupEmpty": {"enabled": False}},
            "overrides": [
                {"groups": "batch-.*", "rules": {not_ready: {"for": "1h", "severity": "info"}}},
                {
                    "groups": ".*-gold",
                    "rules": {not_ready: {"severity": "critical"}, "StreamsGroupEmpty": {"enabled": True}},
                },
                {
                    "groups": "batch-x",
                    "rules": {not_ready: {"enabled": False}, "StreamsGroupRebalanceStorm": {"count": 99}},
                },
            ],
        }
    ).terms_of()

    def told(group_id: str) -> tuple[str, float]:
        return terms_of(group_id)[not_ready][:2]

    assert told("payments") == ("warning", 300)
    assert told("batch-1") == ("info", 3600)
    assert told("batch-gold") == ("critical", 3600)
    assert not_ready not in terms_of("batch-x")
    assert terms_of("batch-x")["StreamsGroupRebalanceStorm"].thresholds == {"count": 99, "window": 600}
    assert ["StreamsGroupEmpty" in terms_of(name) for name in ("payments", "batch-1", "a-gold")] == [False, False, True]


def test_groups_that_share_their_terms_share_one_object() -> None:
    terms_of = AlertSettings.model_validate({"overrides": [{"groups": "b.*", "rules": {}}]}).terms_of()
    assert terms_of("a1") is terms_of("a2") is terms_of(None)
    assert terms_of("b1") is terms_of("b2") is not terms_of("a1")


def test_the_longest_window_of_any_override_decides_how_long_rebalances_are_kept() -> None:
    storm = {"StreamsGroupRebalanceStorm": {"window": "2h"}}
    settings = AlertSettings.model_validate(
        {"overrides": [{"groups": "a", "rules": storm}, {"groups": "b", "rules": {}}]}
    )
    assert settings.rebalance_window == 7200


def test_whether_the_cluster_keeps_descriptions_may_be_said_or_seen() -> None:
    seen, unseen = [HEALTHY], [replace(HEALTHY, **NEVER_STORED)]
    configured = LONG_AGO + timedelta(days=1)

    def since(mode: str, groups: list[Any], plugin: datetime | None = None) -> datetime | None:
        return AlertSettings.model_validate({"descriptions": mode}).descriptions_since(groups, plugin)

    assert since("auto", unseen) is None
    assert since("auto", unseen, configured) == configured
    assert since("auto", seen, configured) == LONG_AGO
    assert since("never", seen, configured) is None
    assert since("always", unseen) == datetime(1970, 1, 1, tzinfo=timezone.utc)


def test_what_is_in_force_can_be_shown_and_read_again() -> None:
    settings = AlertSettings.model_validate(
        {
            "groups": "a.*",
            "repeat_after": "4h",
            "overrides": [{"groups": "b", "rules": {"StreamsGroupEmpty": {"for": "1h"}}}],
        }
    )
    shown = settings.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert shown["rules"]["StreamsGroupNotReady"] == {"enabled": True, "severity": "critical", "for": 300.0}
    shown_again = AlertSettings.model_validate(shown)
    assert shown_again.terms_of()("b") == settings.terms_of()("b")
    assert shown_again.model_dump() == settings.model_dump()


def test_every_threshold_of_every_rule_can_be_set() -> None:
    for rule in OF_GROUPS:
        for name, threshold in rule.thresholds.items():
            given = {"rules": {rule.name: {name: int(threshold.default) + 1}}}
            terms = AlertSettings.model_validate(given).terms_of()("any")
            assert terms[rule.name].thresholds[name] == threshold.default + 1
