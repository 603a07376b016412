"""The lines that are printed for an invalid configuration."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming_app.config.load import load, typo_suggestions
from streaming_app.errors import ConfigError, FlagError

NAME_FORM = 'must be letters, digits, ".", "_" and "-" (at most 200, not "." or "..", no ".json" or ".new" at the end)'


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "sinks: [{type: pigeon}, {name: a}]",
            [
                "sinks[0]: its type must be one of alertmanager, apprise, watchdog, webhook",
                "sinks[1]: its type must be one of alertmanager, apprise, watchdog, webhook",
            ],
        ),
        ("sinks: [{type: alertmanager}]", ["sinks[0].urls: must be given"]),
        ("sinks: [{type: webhook, url: 'http://h', name: '..'}]", [f'sinks[0].name: {NAME_FORM}, not ".."']),
        (
            "time_intervals: [{name: n, time_intervals: [{weekdays: [friday:sunday]}]}]",
            [
                'time_intervals[0].time_intervals[0]: weekdays must begin before they end, not "friday:sunday"; '
                "a range over the end needs two ranges"
            ],
        ),
        (
            "time_intervals: [{name: nights, time_intervals: []}]\nrunning_hours: [{groups: a, time_intervals: night}]",
            ['running_hours: "night" is not the name of a time interval; did you mean nights?'],
        ),
        ("sinks: [log]", ["sinks[0]: must contain keys and values"]),
        ("max_offsets_per_trigger: 1.5", ["max_offsets_per_trigger: must be a whole number"]),
        (
            "bootstrap_server: a:9092,b:99999",
            ['bootstrap_server: must be HOST:PORT, or several separated by commas, not "a:9092,b:99999"'],
        ),
        ("bootstrap_server: a:0", ['bootstrap_server: must be HOST:PORT, or several separated by commas, not "a:0"']),
        ("conf: {a: [1]}", ["conf.a: must be text; write it in quotes"]),
        ("metrics: {listen: '9464'}", ['metrics.listen: must be HOST:PORT, such as 127.0.0.1:9464 or [::]:9464, '
                                       'not "9464"']),
        (
            "alerts: {rules: {StreamsGroupOffsetsRewond: {}}}",
            [
                "alerts.rules.StreamsGroupOffsetsRewond: is not the name of a rule; "
                "did you mean StreamsGroupOffsetsRewound?"
            ],
        ),
        ("alerts: {interval: 0}", ["alerts.interval: must be more than 0"]),
        ("alerts: {groups: 5}", ['alerts.groups: must be a regular expression, in quotes, not "5"']),
        (
            "alerts: {ignore_groups: [ok, '*']}",
            ["alerts.ignore_groups[1]: is not a valid regular expression: no argument for repetition operator: *"],
        ),
        (
            "alerts: {overrides: [{groups: x, rules: {StreamsGroupDown: {enabeld: false}}}]}",
            ["alerts.overrides[0].rules.StreamsGroupDown.enabeld: is not a known key; did you mean enabled?"],
        ),
        ("alerts: {lag_of: all}", ["alerts: lag_of has gone: in place of `lag_of: all` write `protocols: all_groups`"]),
        ("alerts: {protocols: classic}", ["alerts.protocols: must be 'streams', 'all' or 'all_groups'"]),
        ("trigger: a\ncluster: a/b\nx: 1", 3),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_each_invalid_key_is_a_line_that_names_the_file_and_the_key(
    text: str, lines: list[str] | int, write: Callable[[Any], Path]
) -> None:
    file = write(text)
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert not isinstance(raised.value, FlagError)
    assert all(line.startswith(f"{file}: ") for line in raised.value.lines)
    if isinstance(lines, int):
        assert len(raised.value.lines) == lines
    else:
        assert [line.removeprefix(f"{file}: ") for line in raised.value.lines] == lines


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("TRIGGER", "soon", 'trigger: must be seconds, or a duration such as 90s, 5m or 1h30m, not "soon"'),
        (
            "ALERTS__RULES__STREAMSGROUPOFFSETSREWOUND__SEVERITY",
            "loud",
            "alerts.rules.StreamsGroupOffsetsRewound.severity: must be 'info', 'warning' or 'critical'",
        ),
        ("ALERTS__OVERRIDES", "[", "alerts.overrides: must be a list, as JSON"),
        ("CONF", "a", "conf: must contain keys and values, as JSON"),
        ("ALERTS__IGNORE_GROUPS", '["("]', "alerts.ignore_groups[0]: is not a valid regular expression"),
    ],
)  # fmt: skip
def test_the_line_about_a_variable_names_the_variable_and_the_key(
    variable: str, value: str, line: str, write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"STREAMS_GROUPS_{variable}", value)
    with pytest.raises(ConfigError) as raised:
        load(write({"trigger": 1}))
    (printed,) = raised.value.lines
    assert printed.startswith(f"STREAMS_GROUPS_{variable}: {line}")


def test_the_line_about_a_flag_names_the_flag() -> None:
    with pytest.raises(FlagError) as raised:
        load(None, {"bootstrap_server": "nowhere", "cluster": "a/b"})
    assert [line.split(": ")[0] for line in raised.value.lines] == ["--bootstrap-server", "--cluster"]


def test_keys_that_are_not_needed_may_lack_their_secrets_but_must_have_known_names(
    write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMS_GROUPS_SINKS", "not JSON")
    monkeypatch.setenv("SECRET", "x")
    sinks = [{"type": "webhook", "url": "${file:/nowhere}", "secret": "${env:SECRET}"}]
    loaded = load(write({"warehouse": "/w", "sinks": sinks}), only={"warehouse"})
    assert (str(loaded.settings.warehouse), loaded.secrets) == ("/w", {})
    with pytest.raises(ConfigError, match="warehous: is not a known key; did you mean warehouse"):
        load(write({"warehous": "/w", "sinks": sinks}), only={"warehouse"})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("WAREHOSE", "WAREHOUSE"),
        ("METRICS_LISTEN", "METRICS__LISTEN"),
        ("ALERT__INTERVAL", "ALERTS__INTERVAL"),
        ("CACHE", None),
        ("TOPIC", None),
        ("METRICS__LISTEN", None),
        # set by Kubernetes for Services named streams-groups and streams-groups-metrics
        ("SERVICE_HOST", None),
        ("METRICS_PORT_9464_TCP", None),
    ],
)
def test_only_a_variable_that_looks_like_a_typo_has_a_suggestion(
    variable: str, meant: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"STREAMS_GROUPS_{variable}", "x")
    assert list(typo_suggestions()) == ([(f"STREAMS_GROUPS_{variable}", f"STREAMS_GROUPS_{meant}")] if meant else [])
