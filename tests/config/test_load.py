"""Which source wins for every key. No value of a secret is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streaming_app.config import show
from streaming_app.config.errors import ConfigError
from streaming_app.config.load import DEFAULT, ENVIRONMENT, FILE, FLAG, load
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
