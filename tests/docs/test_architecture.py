"""The example of docs/architecture.md: a group that a 4.4.0 broker wrote, from its bytes to an alert's summary."""

import json
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from click.testing import CliRunner

from streaming_app.alerts.alert import FIRING, HEALTH, AlertKey
from streaming_app.alerts.engine import truth_of
from streaming_app.alerts.engine_facts import EngineSettings
from streaming_app.alerts.open_alerts import OpenAlerts
from streaming_app.cli.main import main
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.fold import Fold
from streaming_app.groups.not_ready import set_reasons
from streaming_app.groups.replay import RECORD_TYPES
from streaming_app.groups.row import to_row
from streaming_app.groups.snapshot import group_snapshot
from streaming_app.health.board import Board, Known
from streaming_app.health.facts import DEFAULTS
from streaming_app.notify.message import format_message, format_title
from streaming_app.queries.output import as_json
from tests.recorded.record import read
from tests.support.documents import DOCS, ROOT, code_blocks
from tests.support.offsets_log import log_record

PAGE = DOCS / "architecture.md"
RECORDED = ROOT / "tests" / "recorded" / "4.4.0.jsonl.gz"
GROUP = "not-ready"
TOPICS = {"in": 6}
NOW = datetime(2026, 11, 22, tzinfo=timezone.utc)


RECORDS = [one for one in read(RECORDED)[0] if one.record_type in RECORD_TYPES and one.group_id == GROUP and one.value]


@pytest.fixture(scope="module")
def folded() -> Fold:
    """The group after all of its records."""
    fold = Fold.of(GROUP, 1, None)
    fold.add(map(log_record, RECORDS))
    fold.close()
    set_reasons(fold, lambda _names: TOPICS)
    return fold


@pytest.fixture(scope="module")
def row(folded: Fold) -> dict[str, Any]:
    """The row of `groups`, with times as the commands print them."""
    text: str = as_json(to_row("default", folded.group))
    printed: dict[str, Any] = json.loads(text)
    return printed


def block_with(text: str) -> str:
    (block,) = (block for block in code_blocks(PAGE, "text", "json") if text in block.text)
    return block.text


def test_the_bytes_are_those_that_the_broker_wrote() -> None:
    lines = [line.split("\t") for line in block_with("0017").splitlines()]
    written = {(one.key.hex(), (one.value or b"").hex()) for one in RECORDS}
    assert len(lines) == 2
    assert set(map(tuple, lines)) <= written


def test_decode_prints_what_the_page_shows() -> None:
    result = CliRunner().invoke(main, ["decode"], input=block_with("0017"))
    assert result.exit_code == 0
    assert result.output == block_with('{"key":{"type":23')


def test_the_row_has_the_values_that_the_page_shows(row: dict[str, Any]) -> None:
    shown = json.loads(block_with('"state": "NotReady"'))
    assert {name: row[name] for name in shown} == shown


def test_the_events_are_those_that_the_page_shows(folded: Fold) -> None:
    shown = [line.split() for line in block_with("member_joined").splitlines()]
    events = [
        [event.kind, *(part for text in (event.old, event.new) if text for part in text.split())]
        for event in folded.events
    ]
    assert events == shown


def test_the_rule_and_the_message_are_those_that_the_page_shows(folded: Fold) -> None:
    group = group_snapshot(to_row("default", folded.group))
    at = (group.state_since or NOW) + timedelta(minutes=5)
    (change,) = Board(lambda _group_id: DEFAULTS).step(Known({GROUP: group}), at)
    alerts = OpenAlerts(EngineSettings("default", AlertSettings().rule_settings_of()))
    found = truth_of(GROUP, change.verdict, group)
    assert found
    alerts.take(AlertKey(HEALTH, GROUP), found, change.verdict.at)
    (alert,) = alerts.open.values()
    assert alert.summary == block_with("processes nothing").strip()
    assert f"`{format_title([alert], FIRING)}`" in PAGE.read_text("utf-8")
    assert format_message(alert, FIRING, {"runbook_url": None, "page_url": None}).startswith(alert.summary)


def test_every_module_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:\w+\.py)?)`", PAGE.read_text("utf-8")))
    assert named
    assert [one for one in named if not (ROOT / "streaming_app" / one).exists() and not (ROOT / one).exists()] == []
