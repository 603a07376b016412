"""deploy/streams-groups.example.yaml: every key is there, with the default that the program has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming_app.config import show
from streaming_app.config.load import load
from streaming_app.config.paths import keys, kinds
from streaming_app.config.settings import Settings

EXAMPLE = Path(__file__).parents[2] / "deploy" / "streams-groups.example.yaml"


def paths(values: Any) -> set[tuple[str, ...]]:
    if not isinstance(values, dict):
        return {()}
    return {(key, *rest) for key, inner in values.items() for rest in paths(inner)} or {()}


def commented_out(section: str) -> Any:
    """The lines of a section whose `#` one would take away to use it."""
    text = EXAMPLE.read_text("utf-8")
    (block,) = re.findall(rf"^( *)# {section}:\n((?:\1#  .*\n)+)", text, re.MULTILINE)
    return yaml.safe_load(re.sub(rf"^{block[0]}# ", "", block[1], flags=re.MULTILINE))


def test_the_example_says_what_holds_without_it() -> None:
    assert load(EXAMPLE).settings == Settings()


def test_the_example_has_every_key() -> None:
    assert paths(yaml.safe_load(EXAMPLE.read_text("utf-8"))) == paths(show.in_force(load()))


def test_the_example_of_overrides_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump({"alerts": {"overrides": commented_out("overrides")}}))

    assert len(load(file).settings.alerts.overrides) == 1


def test_the_examples_of_sinks_can_be_used_and_have_every_type_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack_url = tmp_path / "slack-url"
    slack_url.write_text("https://hooks.slack.com/services/x\n")
    monkeypatch.setenv("SMTP_PASSWORD", "x")
    monkeypatch.setenv("HOOK_SECRET", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    examples = commented_out("sinks")
    file = tmp_path / "f.yaml"
    file.write_text(yaml.safe_dump({"sinks": examples}).replace("/run/secrets/slack-url", str(slack_url)))

    loaded = load(file)

    types = {kind.model_fields["type"].annotation.__args__[0] for kind in kinds(Settings, ("sinks", 0))}
    assert {sink.type for sink in loaded.settings.sinks} == types
    assert {key for example in examples for key in example} == {
        key
        for key in keys(Settings, ("sinks", 0))
        if not key.endswith("_file") or key.split("_")[0] in {"ca", "cert", "key"}
    }
