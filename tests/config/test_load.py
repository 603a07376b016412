"""The precedence of the sources for every key. No secret is printed."""

import json
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from streaming_app.config import show
from streaming_app.config.load import load
from streaming_app.config.settings import Settings
from streaming_app.errors import ConfigError
from streaming_app.queries.output import as_json

SECRET = "hunter2"  # noqa: S105 - not a real one


_NIGHTS = [{"name": "nights", "time_intervals": []}]


def hours(groups: str) -> list[dict[str, Any]]:
    return [{"groups": groups, "time_intervals": ["nights"]}]


# Of each flag and of each kind of key: a value in the file, one of a variable, and one of the flag, if there is one.
KEYS: dict[str, tuple[Any, ...]] = {
    "bootstrap_server": ("file:1", "variable:1", "flag:1,flag:2"),
    "command_config": ("/file", "/variable", "/flag"),
    "warehouse": ("/file", "/variable", "/flag"),
    "cluster": ("file", "variable", "flag"),
    "topic": ("file", "variable", "flag"),
    "trigger": (1.0, 2.0, 3.0),
    "max_offsets_per_trigger": (1, 2),
    "retention_days": (1.0, 2.5),
    "conf.a": ("file", "variable", "flag"),
    "offsets.enabled": (False, True),
    "metrics.listen": ("file:1", "variable:2"),
    "metrics.groups": ("file", "variable"),
    "alerts.rules.StreamsGroupDescriptionFailed.for": (1.0, 2.0),
    "alerts.rules.StreamsGroupDown.enabled": (False, True),
    "alerts.ignore_groups": (["file"], ["variable"]),
    "alerts.successors.group": ("file", "variable"),
    "alerts.overrides": ([{"groups": "a", "rules": {}}], [{"groups": "b", "rules": {}}]),
    "running_hours": (hours("file"), hours("variable")),
    "labels": ([{"groups": "file", "team": "a"}], [{"groups": "variable", "team": "a"}]),
    "sinks": tuple([{"type": "alertmanager", "urls": [f"http://{one}"]}] for one in ("file", "variable")),
}


def nested(path: list[str], value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return value


def effective_value(loaded: Any, path: list[str]) -> Any:
    value: Any = show.effective_values(loaded)
    for part in path:
        value = value.get(part) if isinstance(value, dict) else value
    return value


def part_of(value: Any, like: Any) -> Any:
    """Return what `like` has of a value, whose sections in lists also have the keys that are not set."""
    if isinstance(value, list):
        return [part_of(*pair) for pair in zip(value, like, strict=True)]
    return {key: part_of(value[key], inner) for key, inner in like.items()} if isinstance(like, dict) else value


@pytest.mark.parametrize("key", KEYS)
def test_precedence_is_flags_environment_file_default(
    key: str, write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, (in_file, variable, *flag) = key.split("."), KEYS[key]
    file = write({"time_intervals": _NIGHTS, **nested(path, in_file)})
    values = [effective_value(load(), path), effective_value(load(file), path)]
    text = variable if isinstance(variable, str) else json.dumps(variable)
    monkeypatch.setenv("STREAMS_GROUPS_" + "__".join(path).upper(), text)
    values.append(effective_value(load(file), path))
    values += (effective_value(load(file, nested(path, given)), path) for given in flag)
    assert values[0] != in_file
    assert [part_of(*pair) for pair in zip(values[1:], KEYS[key], strict=True)] == [*KEYS[key]]


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


def test_a_variable_without_a_value_is_not_printed_for_other_keys_without_one(
    write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", "")
    loaded = load(write("alerts: {successors: {a: '${env:EMPTY}', b: ''}}"))
    assert show.effective_values(loaded)["alerts"]["successors"]["b"] == ""


def test_secrets_are_redacted_and_references_are_printed_as_in_the_file(
    write: Callable[[Any], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", SECRET + "a")
    monkeypatch.setenv("SECRET_TOPIC", SECRET + "b")
    (tmp_path / "secret").touch(0o600)
    (tmp_path / "secret").write_text(SECRET + "c")
    loaded = load(write(WITH_SECRETS.replace("SECRET_FILE", str(tmp_path / "secret"))))
    assert loaded.settings.topic == SECRET + "b"
    for printed in (show.as_yaml(loaded), as_json(show.effective_values(loaded))):
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
    whole: dict[str, Any] = {"time_intervals": _NIGHTS, "conf": {"spark.x": "line\nline # two: '\"", "a: b": ""}}
    for key, (in_file, *_) in KEYS.items():
        *sections, last = key.split(".")
        reduce(lambda outer, name: outer.setdefault(name, {}), sections, whole)[last] = in_file
    whole |= {"cluster": "x${env:LETTER}"}
    loaded = load(write(whole))
    from_yaml = load(write(show.as_yaml(loaded)))
    from_json = load(write(as_json(show.effective_values(loaded))))
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
