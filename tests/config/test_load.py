"""Which source wins for every key, and what a user reads when something is wrong. No value of a secret is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from streaming_app.config import show
from streaming_app.config.errors import ConfigError, FlagError
from streaming_app.config.load import DEFAULT, ENVIRONMENT, FILE, FLAG, load, slips
from streaming_app.config.settings import Settings

SECRET = "hunter2"  # noqa: S105 - nobody's


class Key(NamedTuple):
    """A key with a value for each source; `flag` None where no flag sets it."""

    path: tuple[str, ...]
    file: Any
    variable: str
    flag: Any = None


KEYS = [
    Key(("bootstrap_server",), "file:1", "variable:1", "flag:1,flag:2"),
    Key(("command_config",), "/file", "/variable", "/flag"),
    Key(("warehouse",), "/file", "/variable", "/flag"),
    Key(("state_dir",), "/file", "/variable"),
    Key(("cluster",), "file", "variable", "flag"),
    Key(("topic",), "file", "variable", "flag"),
    Key(("dialect",), "kip-1331", "kip-1331", "kip-1331"),
    Key(("trigger",), 1.0, "2.0", 3.0),
    Key(("max_offsets_per_trigger",), 1, "2", 3),
    Key(("retention_days",), 1.0, "2.5", 3.0),
    Key(("conf", "a"), "file", "variable", "flag"),
    Key(("alerts", "interval"), 1.0, "2.0"),
    Key(("alerts", "groups"), "file.*", "variable.*"),
    Key(("alerts", "ignore_groups"), ["file"], '["variable"]'),
    Key(("alerts", "descriptions"), "never", "always"),
    Key(("alerts", "keep_firing_for"), 1.0, "2.0"),
    Key(("alerts", "repeat_after"), 1.0, "2.0"),
    Key(("alerts", "rules", "StreamsGroupNotReady", "for"), 1.0, "2.0"),
    Key(("alerts", "rules", "StreamsGroupRebalanceStorm", "count"), 3, "4"),
    Key(("alerts", "rules", "StreamsGroupEmpty", "enabled"), json.loads("false"), "true"),
    Key(("alerts", "overrides"), [{"groups": "a", "rules": {}}], '[{"groups": "b", "rules": {}}]'),
    Key(("sinks",), [{"type": "log", "name": "file", "format": "json"}], '[{"type": "log", "name": "variable"}]'),
    Key(("metrics", "listen"), "file:1", "variable:2", "flag:3"),
    Key(("metrics", "groups"), "file", "variable"),
    Key(("metrics", "max_groups"), 1, "2"),
]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    """Writes a configuration file: `write({"cluster": "a"})`."""

    def write(values: Any) -> Path:
        file = tmp_path / "streams-groups.yaml"
        file.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
        return file

    return write


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def in_force(loaded: Any, path: tuple[str, ...]) -> str:
    shown: Any = show.in_force(loaded)
    for part in path:
        shown = shown.get(part) if isinstance(shown, dict) else shown
    return json.dumps(shown)


def test_the_table_of_keys_names_every_key_that_there_is() -> None:
    sections = {"alerts", "metrics"}
    there = {(name,) for name in Settings.model_fields if name not in sections} | {
        (name, key)
        for name in sections
        for key in Settings.model_fields[name].annotation.model_fields  # type: ignore[union-attr]
    }

    assert {key.path[:2] if key.path[0] in sections else key.path[:1] for key in KEYS} == there


@pytest.mark.parametrize("key", KEYS, ids=lambda key: ".".join(key.path))
def test_flags_win_over_the_environment_that_over_the_file_and_that_over_the_default(
    key: Key, write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(nested(key.path, key.file))
    flag = {"metrics_listen": key.flag} if key.path[0] == "metrics" else nested(key.path, key.flag)
    default, by_file = load(), load(file)
    monkeypatch.setenv("STREAMS_GROUPS_" + "__".join(key.path).upper(), key.variable)
    by_variable = load(file)
    by_flag = load(file, flag) if key.flag else None

    told = [in_force(one, key.path) for one in (default, by_file, by_variable, by_flag) if one]
    assert (default.origin(key.path), by_file.origin(key.path), by_variable.origin(key.path)) == (
        DEFAULT,
        FILE,
        ENVIRONMENT,
    )
    assert by_flag is None or by_flag.origin(key.path) == FLAG
    assert told[0] != told[1] == json.dumps(key.file)
    if key.path != ("dialect",):  # of which there are two
        assert len({*told[1:]}) == len(told) - 1


def test_a_variable_of_one_key_leaves_its_neighbours_to_the_file(
    write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write({"alerts": {"interval": 7, "keep_firing_for": 8}, "conf": {"a": 1, "b": True}})
    monkeypatch.setenv("STREAMS_GROUPS_ALERTS__INTERVAL", "9s")
    monkeypatch.setenv("STREAMS_GROUPS_CONF", '{"a": "2"}')

    settings = load(file, {"conf": {"c": "3"}}).settings

    assert (settings.alerts.interval, settings.alerts.keep_firing_for) == (9, 8)
    assert settings.conf == {"a": "2", "b": "true", "c": "3"}


def test_a_list_replaces_that_of_the_weaker_source_whole(
    write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write({"sinks": [{"type": "log", "format": "json"}, {"type": "log", "name": "b"}]})
    monkeypatch.setenv("STREAMS_GROUPS_SINKS", '[{"type": "log"}]')

    loaded = load(file)

    assert len(loaded.settings.sinks) == 1
    assert loaded.origin(("sinks", 0, "type")) == ENVIRONMENT
    assert loaded.origin(("sinks", 0, "format")) == DEFAULT


def test_an_empty_variable_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMS_GROUPS_COMMAND_CONFIG", "")

    assert load().settings.command_config is None


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "alerts: {rules: {StreamsGroupNotReady: {for: soon}}}",
            ["alerts.rules.StreamsGroupNotReady.for: must be seconds, or a duration such as 90s, 5m or 1h30m, "
             'not "soon"'],
        ),
        ("topik: a", ["topik: is no known key; did you mean topic?"]),
        ("nothing_like_it: a", ["nothing_like_it: is no known key"]),
        ("Topic: a", ["Topic: is no known key; did you mean topic?"]),
        ("alerts: {intervall: 5}", ["alerts.intervall: is no known key; did you mean interval?"]),
        (
            "alerts: {rules: {StreamsGroupNotRedy: {for: 5}}}",
            ["alerts.rules.StreamsGroupNotRedy: is no known key; did you mean StreamsGroupNotReady?"],
        ),
        ("sinks: [{type: log, formt: json}]", ["sinks[0].formt: is no known key; did you mean format?"]),
        ("sinks: [{type: log}, {type: log}]", ["sinks: two sinks have the name log: give each a name of its own"]),
        (
            "sinks: [{type: pigeon}, {name: a}]",
            [
                "sinks[0].type: must be one of alertmanager, log, email, slack, webhook",
                "sinks[1].type: must be given: one of alertmanager, log, email, slack, webhook",
            ],
        ),
        ("sinks: [{type: email, host: h, from: a@b}]", ["sinks[0].to: must be given"]),
        ("sinks: [{type: webhook}]", ["sinks[0]: url or url_file is missing"]),
        ("sinks: {type: log}", ["sinks: must be a list"]),
        ("sinks: [log]", ["sinks[0]: must hold keys and values"]),
        ("alerts: 5", ['alerts: must hold keys and values, not "5"']),
        ("alerts: {groups: '('}", ['alerts.groups: is no regular expression: missing ), unterminated subpattern at '
                                   'position 1 of "("']),
        ("trigger: soon", ['trigger: must be a number, not "soon"']),
        ("trigger: -1", ['trigger: must be greater than or equal to 0, not "-1"']),
        ("trigger: .nan", ['trigger: must be a finite number, not "nan"']),
        ("retention_days: .inf", ['retention_days: must be a finite number, not "inf"']),
        ("max_offsets_per_trigger: 1.5", ['max_offsets_per_trigger: must be a whole number, not "1.5"']),
        ("cluster: 7", ['cluster: must be text; write it in quotes, not "7"']),
        ("cluster: a/b", ['cluster: must be letters, digits, ".", "_" and "-", not "a/b"']),
        (
            "bootstrap_server: broker",
            ['bootstrap_server: must be HOST:PORT, several with commas between them, not "broker"'],
        ),
        ("dialect: kip-1332", ['dialect: must be one of shipped, kip-1331, not "kip-1332"']),
        ("conf: {a: [1]}", ["conf.a: must be text; write it in quotes"]),
        ("conf: a", ['conf: must hold keys and values, not "a"']),
        ("warehouse: [a]", ["warehouse: must be a path; write it in quotes"]),
        ("metrics: {listen: '9464'}", ['metrics.listen: must be HOST:PORT, such as 127.0.0.1:9464 or [::]:9464, '
                                       'not "9464"']),
        ("trigger: a\ncluster: a/b\nx: 1", 3),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)  # fmt: skip
def test_each_wrong_key_is_a_line_that_names_the_file_and_the_key(
    text: str, lines: list[str] | int, write: Callable[[Any], Path]
) -> None:
    file = write(text)

    with pytest.raises(ConfigError) as told:
        load(file)

    assert not isinstance(told.value, FlagError)
    assert all(line.startswith(f"{file}: ") for line in told.value.lines)
    if isinstance(lines, int):
        assert len(told.value.lines) == lines
    else:
        assert [line.removeprefix(f"{file}: ") for line in told.value.lines] == lines


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("TRIGGER", "soon", 'trigger: must be a number, not "soon"'),
        (
            "ALERTS__RULES__STREAMSGROUPNOTREADY__SEVERITY",
            "loud",
            "alerts.rules.StreamsGroupNotReady.severity: must be 'info', 'warning' or 'critical', not \"loud\"",
        ),
        ("METRICS__LISTN", "a:1", "metrics.listn: is no known key; did you mean listen?"),
        ("METRICS", '{"max_groups": -1}', 'metrics.max_groups: must be greater than or equal to 0, not "-1"'),
        ("SINKS", "slack", "sinks: must be JSON"),
        ("ALERTS__IGNORE_GROUPS", "[", 'alerts.ignore_groups: must be JSON, such as ["a", "b"] or {"a": 1}'),
        ("ALERTS__IGNORE_GROUPS", '["("]', "alerts.ignore_groups[0]: is no regular expression"),
        ("SINKS", '[{"type": "pigeon"}]', "sinks[0].type: must be one of alertmanager, log, email, slack, webhook"),
    ],
)  # fmt: skip
def test_what_a_variable_says_wrong_is_told_with_the_variable_and_the_key(
    variable: str, value: str, line: str, write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"STREAMS_GROUPS_{variable}", value)

    with pytest.raises(ConfigError) as told:
        load(write({"trigger": 1}))

    (said,) = told.value.lines
    assert said.startswith(f"STREAMS_GROUPS_{variable}: {line}")


def test_what_a_flag_says_wrong_is_told_with_the_flag() -> None:
    with pytest.raises(FlagError) as told:
        load(None, {"metrics_listen": "nowhere", "cluster": "a/b"})

    assert [line.split(": ")[0] for line in told.value.lines] == ["--cluster", "--metrics-listen"]


def test_what_a_stronger_source_replaces_may_be_wrong(write: Callable[[Any], Path]) -> None:
    assert load(write({"trigger": "soon"}), {"trigger": 1.0}).settings.trigger == 1


def test_keys_that_are_not_wanted_need_no_secrets_but_names_that_exist(
    write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMS_GROUPS_SINKS", "no JSON")
    sinks = [{"type": "slack", "url": "${file:/nowhere}"}]

    assert str(load(write({"warehouse": "/w", "sinks": sinks}), only={"warehouse"}).settings.warehouse) == "/w"
    with pytest.raises(ConfigError, match="warehous: is no known key; did you mean warehouse"):
        load(write({"warehous": "/w", "sinks": sinks}), only={"warehouse"})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("WAREHOSE", "WAREHOUSE"),
        ("METRICS_LISTEN", "METRICS__LISTEN"),
        ("BOOTSTRAP_SERVERS", "BOOTSTRAP_SERVER"),
        ("ALERT__INTERVAL", "ALERTS__INTERVAL"),
        ("CACHE", None),
        ("BROKER", None),
        ("IVY_SETTINGS", None),
        ("CONFIG", None),
        ("HOME", None),
        ("TOPIC", None),
        ("METRICS__LISTEN", None),
        # what Kubernetes says of Services named streams-groups and streams-groups-metrics
        ("SERVICE_HOST", None),
        ("SERVICE_PORT_HTTP_METRICS", None),
        ("PORT", None),
        ("PORT_9464_TCP_ADDR", None),
        ("METRICS_SERVICE_HOST", None),
        ("METRICS_PORT_9464_TCP", None),
    ],
)
def test_a_variable_that_looks_like_a_slip_is_told_and_others_are_not(
    variable: str, meant: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"STREAMS_GROUPS_{variable}", "x")

    assert list(slips()) == ([(f"STREAMS_GROUPS_{variable}", f"STREAMS_GROUPS_{meant}")] if meant else [])


WITH_SECRETS = f"""
conf: {{fs.s3a.secret.key: {SECRET}, spark.a: b}}
topic: "${{env:TOPIC_OF_MINE}}"
sinks:
  - {{type: slack, url: "https://hooks.example/{SECRET}"}}
  - {{type: webhook, url: "https://example/${{env:HOOK}}", headers: {{X: {SECRET}}}, token: "${{file:SECRET_FILE}}"}}
  - {{type: email, host: h, from: a@b, to: [a@b], username: u, password: {SECRET}}}
"""


def test_secrets_are_never_shown_and_references_are_shown_as_written(
    write: Callable[[Any], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", SECRET)
    monkeypatch.setenv("TOPIC_OF_MINE", SECRET)
    (tmp_path / "secret").write_text(SECRET)

    loaded = load(write(WITH_SECRETS.replace("SECRET_FILE", str(tmp_path / "secret"))))

    assert loaded.settings.topic == SECRET
    for shown in (show.as_yaml(loaded), show.as_json(loaded)):
        assert SECRET not in shown
        assert shown.count("**********") == 6
        assert "${env:TOPIC_OF_MINE}" in shown
    assert "url: '**********'  # file, https://example/${env:HOOK}" in show.as_yaml(loaded)


@pytest.mark.parametrize(
    "text",
    [
        f"sinks: [{{type: slack, url: {SECRET}}}]",
        f"sinks: [{{type: webhook, url: 'http://h', secret: {SECRET}}}]",
        f"sinks: [{{type: webhook, url: 'http://h', pasword: {SECRET}}}]",
        f"sinks: [{{type: webhook, url: 'http://h', headers: {SECRET}}}]",
        f"sinks: [{{type: webhook, url: 'http://h', headers: {{'a b': {SECRET}}}}}]",
        f"sinks: [{SECRET}]",
        f"sinks: {SECRET}",
        f"sinks: [{{type: email, password: [{SECRET}]}}]",
        f"conf: {{spark.password: [{SECRET}]}}",
        "cluster: '/${env:HOOK}'",
        "alerts: {interval: '${env:HOOK}'}",
        "metrics: {listen: 'a${env:HOOK}'}",
    ],
)
def test_no_error_shows_a_secret(text: str, write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", SECRET)

    with pytest.raises(ConfigError) as told:
        load(write(text))

    assert SECRET not in str(told.value)


def test_a_number_where_a_secret_belongs_is_not_shown_either(write: Callable[[Any], Path]) -> None:
    with pytest.raises(ConfigError, match=r"url: must be text; write it in quotes$"):
        load(write("sinks: [{type: slack, url: 1234567}]"))


def test_what_is_shown_can_be_read_back(write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "a")
    whole: dict[str, Any] = {"conf": {"spark.x": "line\nline # two: '\"", "a: b": ""}}
    for key in KEYS:
        there = whole
        for part in key.path[:-1]:
            there = there.setdefault(part, {})
        there[key.path[-1]] = key.file
    whole |= {"cluster": "x${env:MINE}"}
    loaded = load(write(whole))

    again = load(write(show.as_yaml(loaded)))
    from_json = load(write(show.as_json(loaded)))

    assert again.settings == loaded.settings
    assert from_json.settings == loaded.settings
    assert again.settings.cluster == "xa"
