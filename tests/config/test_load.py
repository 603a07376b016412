"""The precedence of the sources for every key. No secret is printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import pytest
from pydantic import BaseModel

from streaming_app.config import show
from streaming_app.config.load import load
from streaming_app.config.settings import Settings
from streaming_app.errors import ConfigError

SECRET = "hunter2"  # noqa: S105 - not a real one


class Key(NamedTuple):
    """A key with a value for each source; `flag` is None if no flag sets the key."""

    path: tuple[str, ...]
    file: Any
    variable: str
    flag: Any = None
    needs: Mapping[str, Any] = MappingProxyType({})
    """What else is in the file."""


_NIGHTS = {"time_intervals": [{"name": "nights", "time_intervals": []}]}

_SINKS = [
    {
        "type": "alertmanager",
        "name": "file",
        "timeout": 10.0,
        "urls": ["http://h"],
        "watchdog": False,
    }
]

SECONDS = """
    alerts.interval
    alerts.rules.StreamsGroupDescriptionFailed.for offsets.trigger self_check.interval lag.interval
    lag.history_days
"""
COUNTS = """
    metrics.max_groups
    group_budget.members group_budget.tasks group_budget.bytes lag.allowed
"""
SWITCHES = """
    alerts.rules.StreamsGroupDown.enabled self_check.enabled lag.enabled task_copies.enabled
    broker_facts.enabled descriptions.enabled
"""

KEYS = [
    *(Key(tuple(path.split(".")), 1.0, "2.0") for path in SECONDS.split()),
    *(Key(tuple(path.split(".")), 1, "2") for path in COUNTS.split()),
    *(Key(tuple(path.split(".")), json.loads("false"), "true") for path in SWITCHES.split()),
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
    Key(("alerts", "groups"), "file.*", "variable.*"),
    Key(("alerts", "ignore_groups"), ["file"], '["variable"]'),
    Key(("alerts", "descriptions"), "never", "always"),
    Key(("alerts", "lag_of"), "all", "streams"),
    Key(("alerts", "successors"), {"file": "other"}, '{"variable": "other"}'),
    Key(("alerts", "overrides"), [{"groups": "a", "rules": {}}], '[{"groups": "b", "rules": {}}]'),
    Key(
        ("sinks",),
        _SINKS,
        json.dumps([{**_SINKS[0], "name": "variable"}]),
    ),
    Key(("metrics", "listen"), "file:1", "variable:2", "flag:3"),
    Key(("metrics", "allowed_hosts"), ["file"], '["variable"]'),
    Key(("metrics", "groups"), "file", "variable"),
    Key(("metrics", "lag_by"), ["group"], '["partition"]'),
    Key(
        ("time_intervals",),
        [{"name": "nights", "time_intervals": [{"location": "Europe/Berlin"}]}],
        '[{"name": "nights", "time_intervals": [{"location": "Europe/Paris"}]}]',
    ),
    Key(
        ("running_hours",),
        [{"groups": "file", "time_intervals": ["nights"]}],
        '[{"groups": "variable", "time_intervals": ["nights"]}]',
        needs=_NIGHTS,
    ),
    Key(("offsets", "enabled"), json.loads("false"), "true", json.loads("false")),
    Key(("lag", "allowed_by_group"), {"file": 1}, '{"variable": 2}'),
    Key(("page", "base_path"), "/file", "/variable"),
    Key(("page", "allowed_hosts"), ["file"], '["variable"]'),
    Key(("page", "auth_file"), "/file", "/variable"),
    Key(("labels",), [{"groups": "file", "team": "a"}], '[{"groups": "variable", "team": "a"}]'),
    Key(
        ("mute_times",),
        [{"groups": "file", "time_intervals": ["nights"]}],
        '[{"groups": "variable", "time_intervals": ["nights"]}]',
        needs=_NIGHTS,
    ),
]


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return value


def effective_value(loaded: Any, path: tuple[str, ...]) -> str:
    value: Any = show.effective_values(loaded)
    for part in path:
        value = value.get(part) if isinstance(value, dict) else value
    return json.dumps(value)


def test_the_table_of_keys_is_complete() -> None:
    sections = {"alerts", "metrics", "page"}
    known = {(name,) for name in Settings.model_fields if name not in sections} | {
        (name, key) for name in sections for key in Settings.model_fields[name].annotation.model_fields
    }

    assert {key.path[:2] if key.path[0] in sections else key.path[:1] for key in KEYS} == known


@pytest.mark.parametrize("key", KEYS, ids=lambda key: ".".join(key.path))
def test_precedence_is_flags_environment_file_default(
    key: Key, write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write({**nested(key.path, key.file), **key.needs})
    flags = {("metrics", "listen"): "metrics_listen", ("offsets", "enabled"): "offsets"}
    flag = {flags[key.path]: key.flag} if key.path in flags else nested(key.path, key.flag)
    from_default, from_file = load(), load(file)
    monkeypatch.setenv("STREAMS_GROUPS_" + "__".join(key.path).upper(), key.variable)
    from_variable = load(file)
    from_flag = load(file, flag) if key.flag else None

    values = [effective_value(one, key.path) for one in (from_default, from_file, from_variable, from_flag) if one]
    assert values[0] != values[1] == json.dumps(key.file)
    if key.path != ("dialect",):  # there are only two values
        assert len({*values[1:]}) == len(values) - 1


def test_a_variable_of_one_key_does_not_change_other_keys_of_its_section(
    write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write({"alerts": {"interval": 7, "descriptions": "always"}, "conf": {"a": 1, "b": True}})
    monkeypatch.setenv("STREAMS_GROUPS_ALERTS__INTERVAL", "9s")
    monkeypatch.setenv("STREAMS_GROUPS_CONF", '{"a": "2"}')

    settings = load(file, {"conf": {"c": "3"}}).settings

    assert (settings.alerts.interval, settings.alerts.descriptions) == (9, "always")
    assert settings.conf == {"a": "2", "b": "true", "c": "3"}
    assert show.as_yaml(load(file, {"conf": {"c": "3"}})).splitlines()[:4] == [
        f"# file: {file}",
        "# set by flags: conf.c",
        "# set by environment: alerts.interval, conf.a",
        "# set by file: alerts.descriptions, conf.b",
    ]


WITH_SECRETS = f"""
conf: {{fs.s3a.secret.key: {SECRET}, spark.a: b}}
topic: "${{env:SECRET_TOPIC}}"
sinks:
  - {{type: apprise, url: "json://hooks.example/{SECRET}"}}
  - {{type: webhook, url: "https://example/${{env:HOOK}}", headers: {{X: {SECRET}}}, token: "${{file:SECRET_FILE}}"}}
  - {{type: alertmanager, urls: ["http://h"], username: u, password: {SECRET}}}
"""


def test_secrets_are_redacted_and_references_are_printed_as_in_the_file(
    write: Callable[[Any], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", SECRET + "a")
    monkeypatch.setenv("SECRET_TOPIC", SECRET + "b")
    (tmp_path / "secret").touch(0o600)
    (tmp_path / "secret").write_text(SECRET + "c")

    loaded = load(write(WITH_SECRETS.replace("SECRET_FILE", str(tmp_path / "secret"))))

    assert loaded.settings.topic == SECRET + "b"
    for printed in (show.as_yaml(loaded), show.as_json(loaded)):
        assert SECRET not in printed
        assert printed.count("**********") == 5
        assert "${env:SECRET_TOPIC}" in printed
        assert f"${{file:{tmp_path}/secret}}" in printed


@pytest.mark.parametrize(
    "text",
    [
        f"sinks: [{{type: apprise, url: {SECRET}}}]",
        f"sinks: [{{type: webhook, url: 'http://h', secret: {SECRET}}}]",
        f"sinks: [{{type: webhook, url: 'http://h', headers: {{'a b': {SECRET}}}}}]",
        f"conf: {{spark.password: [{SECRET}]}}",
        "cluster: '/${env:HOOK}'",
    ],
)
def test_no_error_contains_a_secret(text: str, write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", SECRET)

    with pytest.raises(ConfigError) as raised:
        load(write(text))

    assert SECRET not in str(raised.value)


def test_the_printed_configuration_can_be_read_back(
    write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LETTER", "a")
    whole: dict[str, Any] = {"conf": {"spark.x": "line\nline # two: '\"", "a: b": ""}}
    for key in KEYS:
        section = whole
        for part in key.path[:-1]:
            section = section.setdefault(part, {})
        section[key.path[-1]] = key.file
    whole |= {"cluster": "x${env:LETTER}"}
    loaded = load(write(whole))

    from_yaml = load(write(show.as_yaml(loaded)))
    from_json = load(write(show.as_json(loaded)))

    assert from_yaml.settings == loaded.settings
    assert from_json.settings == loaded.settings
    assert from_yaml.settings.cluster == "xa"


def paths_of(model: type[BaseModel], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key; those of a rule, of a sink and of an item of a list have one path."""
    for name, field in model.model_fields.items():
        inner = [one for one in parts_of(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
        yield from ((*before, name),) if not inner else chain.from_iterable(paths_of(m, (*before, name)) for m in inner)


def parts_of(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from parts_of(part)


def test_there_are_at_most_eighty_keys() -> None:
    assert len(set(paths_of(Settings))) <= 80
