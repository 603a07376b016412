"""deploy/streams-groups.example.yaml has every key with its default."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from streaming_app.alerts.catalog import rules
from streaming_app.config import show
from streaming_app.config.alerts import AlertSettings
from streaming_app.config.declared import GroupTimesSettings, IntervalSettings
from streaming_app.config.load import load
from streaming_app.config.settings import AnySink, Settings

EXAMPLE = Path(__file__).parents[2] / "deploy" / "streams-groups.example.yaml"


def key_paths(values: Any) -> set[tuple[str, ...]]:
    if not isinstance(values, dict):
        return {()}
    return {(key, *rest) for key, inner in values.items() for rest in key_paths(inner)} or {()}


def parse_commented_out(section: str) -> Any:
    """Parse the lines of a section that is commented out."""
    text = EXAMPLE.read_text("utf-8")
    (block,) = re.findall(rf"^( *)# {section}:\n((?:\1#  .*\n)+)", text, re.MULTILINE)
    return yaml.safe_load(re.sub(rf"^{block[0]}# ", "", block[1], flags=re.MULTILINE))


def test_the_example_equals_the_defaults() -> None:
    settings = load(EXAMPLE).settings
    assert settings.alerts.rule_settings_of()(None) == AlertSettings().rule_settings_of()(None)
    without_rules = settings.model_copy(update={"alerts": settings.alerts.model_copy(update={"rules": {}})})
    assert without_rules == Settings()


def test_the_example_has_every_key() -> None:
    example = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    given = example["alerts"].pop("rules")
    assert {name: set(one) for name, one in given.items()} == {name: {"enabled", "severity", "for"} for name in rules()}
    assert key_paths(example) == {path for path in key_paths(show.effective_values(load())) if path[1:2] != ("rules",)}


def test_the_examples_of_overrides_and_times_are_valid_and_those_have_every_key(tmp_path: Path) -> None:
    values = {name: parse_commented_out(name) for name in ("time_intervals", "running_hours")}
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump({**values, "alerts": {"overrides": parse_commented_out("overrides")}}))
    assert len(load(file).settings.alerts.overrides) == 1
    assert len(load(file).settings.running_hours) == len(values["running_hours"])
    intervals = [interval for named in values["time_intervals"] for interval in named["time_intervals"]]
    for model, examples in ((GroupTimesSettings, values["running_hours"]), (IntervalSettings, intervals)):
        assert {key for one in examples for key in one} == model.model_fields.keys()


def test_the_examples_of_sinks_are_valid_and_have_every_type_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_url = tmp_path / "chat-url"
    chat_url.touch(0o600)
    chat_url.write_text("json://127.0.0.1/x\n")
    monkeypatch.setenv("SMTP_PASSWORD", "x")
    monkeypatch.setenv("PING_KEY", "x")
    monkeypatch.setenv("PAGERDUTY_KEY", "x")
    monkeypatch.setenv("HOOK_SECRET", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    examples = parse_commented_out("sinks")
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump({"sinks": examples}).replace("/run/secrets/chat-url", str(chat_url)))
    loaded = load(file)
    models = get_args(get_args(AnySink)[0])
    assert {type(sink) for sink in loaded.settings.sinks} == set(models)
    assert {key for example in examples for key in example} == {
        key
        for model in models
        for key in model.model_fields
        if not key.endswith("_file") or key.split("_")[0] in {"ca", "cert", "key"}
    }
