"""The configuration files in the documents are valid."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from streaming_app.config.load import load
from tests.support.documents import DOCUMENTS, code_blocks, name

EXAMPLES = [
    pytest.param(block.text, id=f"{name(document)}: {block.text.splitlines()[0]}")
    for document in DOCUMENTS
    for block in code_blocks(document, "yaml")
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_valid_configuration_file(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "json://hooks.example.com/1"
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text(url, "utf-8")
    monkeypatch.setenv("CHAT_URL", url)
    monkeypatch.setenv("TEAMS_URL", "workflows://prod.westus.logic.azure.com:443/workflow/signature")
    monkeypatch.setenv("TELEGRAM_URL", "tgram://123456789:abcdefg/12315544")
    monkeypatch.setenv("PAGERDUTY_KEY", "key")
    monkeypatch.setenv("OPSGENIE_KEY", "key")
    file = tmp_path / "streams-groups.yaml"
    file.write_text(example.replace("/run/secrets/chat-url", str(secret)), "utf-8")
    settings = load(file).settings
    assert settings.model_fields_set == set(yaml.safe_load(example))
