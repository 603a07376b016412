"""Settings that are valid and change nothing are named; the same settings where they have an effect are not."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.config.load import settings_of
from streaming_app.config.without_effect import without_effect

UNSTABLE, STALLED, BEHIND = "StreamsGroupUnstable", "StreamsGroupStalled", "StreamsGroupBehind"
NIGHT = [{"name": "night", "time_intervals": [{"times": [{"start_time": "00:00", "end_time": "06:00"}]}]}]
WATCHDOG = {"type": "watchdog", "url": "https://example.com/beat"}
Settings = dict[str, Any]


def rule(name: str, **values: Any) -> Settings:
    return {"alerts": {"rules": {name: values}}}


def override(name: str, **values: Any) -> Settings:
    return {"groups": "a.*", "rules": {name: values}}


CASES: dict[str, tuple[Settings, Settings]] = {
    "alerts.rules.StreamsGroupUnstable.for": (rule(UNSTABLE, **{"for": "5m"}), rule(UNSTABLE, **{"for": 0})),
    "alerts.rules.StreamsGroupStalled.for": (rule(STALLED, **{"for": "59s"}), rule(STALLED, **{"for": "1m"})),
    "alerts.rules.StreamsGroupOffsetsRewound.for": (
        rule("StreamsGroupOffsetsRewound", **{"for": "1h"}),
        rule("StreamsGroupOffsetsRewound", **{"for": "59m"}),
    ),
    "alerts.rules.StreamsGroupBehind": (
        rule(BEHIND, enabled=False, severity="critical"),
        rule(BEHIND, enabled=False, severity="warning"),
    ),
    "alerts.overrides[0].rules.StreamsGroupBehind": (
        {"alerts": {"rules": {BEHIND: {"enabled": False}}, "overrides": [override(BEHIND, severity="info")]}},
        {"alerts": {"rules": {BEHIND: {"enabled": False}}, "overrides": [override(BEHIND, enabled=True)]}},
    ),
    "alerts.overrides[0].rules.StreamsGroupsJobBehind": (
        {"alerts": {"overrides": [override("StreamsGroupsJobBehind", severity="info")]}},
        rule("StreamsGroupsJobBehind", severity="info"),
    ),
    "alerts.rules.StreamsGroupBehind ": (
        rule(BEHIND, severity="info") | {"lag": {"enabled": False}},
        rule(BEHIND, severity="info"),
    ),
    "time_intervals[0]": (
        {"time_intervals": NIGHT},
        {"time_intervals": NIGHT, "mute_times": [{"groups": "a", "time_intervals": "night"}]},
    ),
    "sinks[0].page_url": ({"sinks": [{**WATCHDOG, "page_url": "https://example.com"}]}, {"sinks": [WATCHDOG]}),
    "alerts.protocols": (
        {"alerts": {"protocols": "all_groups"}, "lag": {"enabled": False}},
        {"alerts": {"protocols": "all_groups"}},
    ),
    "alerts.protocols ": (
        {"alerts": {"protocols": "all"}, "classic_streams": {"enabled": False}},
        {"alerts": {"protocols": "all"}},
    ),
}


@pytest.mark.parametrize("key", CASES)
def test_a_setting_without_effect_is_named_and_one_with_an_effect_is_not(key: str) -> None:
    wrong, right = CASES[key]
    assert [line.split(" has no effect: ")[0] for line in without_effect(settings_of(wrong, "test"))] == [key.strip()]
    assert without_effect(settings_of(right, "test")) == []


def test_the_check_fails_for_them_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "streams-groups.yaml"
    file.write_text(yaml.safe_dump(rule(UNSTABLE, **{"for": "5m"})), "utf-8")
    options = ["--config", str(file), "--bootstrap-server", "127.0.0.1:1", "--warehouse", str(tmp_path / "w"), "--json"]
    ran = CliRunner().invoke(main, ["check", *options])
    found = [one for one in json.loads(ran.stdout) if one["check"] == "configuration"]
    assert (ran.exit_code, [(one["status"], one["text"].split(":")[0]) for one in found]) == (
        1,
        [("failed", "alerts.rules.StreamsGroupUnstable.for has no effect")],
    )
