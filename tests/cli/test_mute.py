"""`alerts mute`, and what `alerts` says of muted alerts."""

import re
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from streaming_app.tables.alerts_table import AlertsTable
from tests.alerts.examples import make_alert
from tests.cli.commands import as_json, output, run
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row
from tests.support.warehouses import append, make_warehouse

AT = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
ALERT = make_alert("slack", cluster="default", since=AT, opened_at=AT, summary="payments is NotReady")
MUTE = ("pay.*", "--for", "2h", "--reason", "deployment of payments")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    make_warehouse(tmp_path)
    append(tmp_path, "groups", *map(group_row, ("payments", "payouts", "orders")))
    AlertsTable(tmp_path, "default").save([ALERT])
    return tmp_path


def mute(warehouse: Path, *arguments: str) -> str:
    return output(warehouse, "alerts", "mute", *arguments)


def test_alerts_marks_the_muted_ones_which_still_fire_until_the_mute_is_ended(warehouse: Path) -> None:
    assert "MUTED" not in run(warehouse, "alerts").stdout
    assert as_json(warehouse, "alerts")[0]["muted"] is None
    mute(warehouse, *MUTE)
    result = run(warehouse, "alerts")
    names, line = result.stdout.splitlines()
    assert names.split()[-2:] == ["MUTED", "SUMMARY"]
    assert re.search(r" until \S+ \S+Z payments is NotReady$", line)
    (shown,) = (one for one in result.stderr.splitlines() if one.startswith("Muted until "))
    assert shown.endswith(", pay.*: deployment of payments")
    (printed,) = as_json(warehouse, "alerts")
    assert (printed["state"], printed["muted"]["pattern"]) == ("open", "pay.*")
    assert set(printed["muted"]) == {"pattern", "reason", "ends_at", "created_by"}
    assert mute(warehouse, "pay.*", "--for", "0s") == "pay.* is not muted any more.\n"
    assert "MUTED" not in run(warehouse, "alerts").stdout
    assert "pay.*" not in run(warehouse, "alerts").stderr


def test_check_does_not_count_muted_alerts_unless_told_to_and_notices_a_dead_job(warehouse: Path) -> None:
    write_heartbeat(warehouse)
    mute(warehouse, *MUTE)
    result = run(warehouse, "alerts", "--check")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == "1 open alert is muted and not counted: --muted counts all."
    assert "payments is NotReady" in result.stdout
    counted = run(warehouse, "alerts", "--check", "--muted")
    assert counted.exit_code == 1
    assert "not counted" not in counted.stderr
    AlertsTable(warehouse, "default").save([replace(ALERT, alert_id="other", group_id="orders")])
    assert run(warehouse, "alerts", "--check").exit_code == 1
    mute(warehouse, ".*", "--for", "30d", "--reason", "holidays")
    write_heartbeat(warehouse, at=AT)
    result = run(warehouse, "alerts", "--check")
    assert result.exit_code == 1
    assert "The job of cluster 'default' has died" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (MUTE[:1], "Give --for, such as --for 2h: every mute ends, after 30d at the latest."),
        ((MUTE[0], "--for", "31d", *MUTE[3:]), '--for must be at most 30d, not "31d"'),
        (("x" * 1001, *MUTE[1:]), "PATTERN must have at most 1,000 characters"),
        (("pay(", *MUTE[1:]), "PATTERN is not a valid regular expression: missing ): pay("),
        ((*MUTE, "--cluster", "../elsewhere"), "--cluster: must be letters, digits, "),  # no other directory
    ],
)
def test_a_mute_without_an_end_too_long_or_invalid_is_refused_in_one_line(
    warehouse: Path, arguments: tuple[str, ...], line: str
) -> None:
    result = run(warehouse, "alerts", "mute", *arguments)
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith(f"Error: {line}")
    assert not (warehouse / "_jobs").exists()
