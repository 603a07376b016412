"""`silence`, and what `alerts` says of silenced alerts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streaming_app.alerts.alert import FIRING, Alert, Delivery
from streaming_app.cli.main import main
from streaming_app.notify.silences import Silence, SilenceStore
from streaming_app.tables.alerts_table import AlertsTable
from tests.heartbeats import write_heartbeat
from tests.long.hostile import STORED, effective_characters
from tests.rows import group_row
from tests.warehouses import append, make_warehouse

AT = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
ALERT = Alert(
    "default", "payments", "StreamsGroupNotReady", "critical", FIRING, AT, AT, None, "payments is NotReady", {},
    (Delivery("slack", FIRING),),
)  # fmt: skip
ADD = ("--group", "pay.*", "--for", "2h", "--comment", "deployment of payments")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    make_warehouse(tmp_path)
    append(tmp_path, "groups", *map(group_row, ("payments", "payouts", "orders")))
    AlertsTable(tmp_path, "default").save([ALERT])
    return tmp_path


def run(warehouse: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--warehouse", str(warehouse)])


def add(warehouse: Path, *arguments: str) -> str:
    """Add a silence and return its id."""
    result = run(warehouse, "silence", "add", *arguments)
    assert result.exit_code == 0, result.output
    return result.output.split()[0]


def test_a_new_silence_says_until_when_and_what_it_matches(warehouse: Path) -> None:
    before = datetime.now(timezone.utc)
    result = run(warehouse, "silence", "add", *ADD)
    match = re.fullmatch(
        r"[0-9a-f]{8} until (\S+ \S+)Z: 2 of 3 groups match, 1 of 1 firing alerts are silenced\n", result.output
    )
    assert match
    until = datetime.fromisoformat(match[1] + "+00:00")
    assert timedelta(hours=2) - timedelta(seconds=1) <= until - before < timedelta(hours=2, minutes=1)


def test_the_list_shows_active_silences_and_with_all_also_the_ended_ones(warehouse: Path) -> None:
    assert run(warehouse, "silence", "list").output == "No silences.\n"
    first = add(warehouse, *ADD)
    second = add(warehouse, "--group", ".*", "--rule", "StreamsGroupDown", "--for", "1h", "--comment", "nightly")
    names, *rows = run(warehouse, "silence", "list").output.splitlines()
    assert names.split() == ["ID", "STATE", "STARTS", "ENDS", "GROUP", "RULE", "CREATED-BY", "COMMENT"]
    assert [(row.split()[0], row.split()[1]) for row in rows] == [(second, "active"), (first, "active")]
    assert rows[1].endswith("deployment of payments")
    assert run(warehouse, "silence", "expire", second).output == f"{second} has ended.\n"
    assert [line.split()[0] for line in run(warehouse, "silence", "list").output.splitlines()] == ["ID", first]
    listed = json.loads(run(warehouse, "silence", "list", "--all", "--json").output)
    assert [(one["id"], one["group"], one["rule"]) for one in listed] == [
        (second, ".*", "StreamsGroupDown"),
        (first, "pay.*", None),
    ]


def test_a_silence_may_begin_later_and_is_pending_until_then(warehouse: Path) -> None:
    result = run(warehouse, "silence", "add", *ADD, "--starts-at", "2999-01-01T00:00Z")
    assert "--starts-at must be at most 365d ahead" in result.stderr
    begin = f"{datetime.now(timezone.utc) + timedelta(days=2):%Y-%m-%dT%H:%MZ}"
    assert (
        f" from {begin.replace('T', ' ')[:-1]}:00Z until "
        in run(warehouse, "silence", "add", *ADD, "--starts-at", begin).output
    )
    assert run(warehouse, "silence", "list").output.splitlines()[1].split()[1] == "pending"
    assert "SILENCED" not in run(warehouse, "alerts").stdout
    assert run(warehouse, "silence", "add", *ADD, "--starts-at", "2h").exit_code == 2  # two hours ago


def test_silences_of_the_configuration_are_shown_while_they_are_active(warehouse: Path, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    always = {"name": "always", "time_intervals": [{"years": ["1:9999"]}]}
    never = {"name": "never", "time_intervals": [{"years": [1]}]}
    silences = [
        {"groups": "pay.*", "mute_time_intervals": "never"},
        {"groups": "pay.*", "active_time_intervals": "never", "comment": "why"},
    ]
    file.write_text(json.dumps({"time_intervals": [always, never], "silences": silences}))
    _, row = run(warehouse, "silence", "list", "--config", str(file)).output.splitlines()
    assert row.split()[:2] == ["silences[1]", "active"]
    assert "(silences[1])" in run(warehouse, "alerts", "--config", str(file)).stdout
    assert json.loads(run(warehouse, "silence", "list", "--json", "--config", str(file)).output)[0]["group"] == "pay.*"


def test_alerts_marks_the_silenced_ones_which_still_fire(warehouse: Path) -> None:
    assert "SILENCED" not in run(warehouse, "alerts").stdout
    assert json.loads(run(warehouse, "alerts", "--json").stdout)[0]["silenced"] is None
    silence_id = add(warehouse, *ADD)
    names, line = run(warehouse, "alerts").stdout.splitlines()
    assert names.split()[-2:] == ["SILENCED", "SUMMARY"]
    assert f"({silence_id})" in line
    (printed,) = json.loads(run(warehouse, "alerts", "--json").stdout)
    assert (printed["state"], printed["silenced"]["silence"]) == ("firing", silence_id)
    run(warehouse, "silence", "expire", silence_id)
    assert "SILENCED" not in run(warehouse, "alerts").stdout


def test_check_does_not_count_silenced_alerts_unless_told_to(warehouse: Path) -> None:
    write_heartbeat(warehouse)
    add(warehouse, *ADD)
    result = run(warehouse, "alerts", "--check")
    assert (result.exit_code, result.stderr) == (
        0,
        "1 firing alert is silenced and not counted: --silenced counts all.\n",
    )
    assert "payments is NotReady" in result.stdout
    counted = run(warehouse, "alerts", "--check", "--silenced")
    assert (counted.exit_code, counted.stderr) == (1, "")
    AlertsTable(warehouse, "default").save([replace(ALERT, group_id="orders")])
    assert run(warehouse, "alerts", "--check").exit_code == 1


def test_check_notices_a_dead_job_whatever_is_silenced(warehouse: Path) -> None:
    write_heartbeat(warehouse, at=AT)
    add(warehouse, "--group", ".*", "--for", "30d", "--comment", "holidays")
    result = run(warehouse, "alerts", "--check")
    assert result.exit_code == 1
    assert "The job of cluster 'default' has died" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (ADD[:2] + ADD[4:], "Give --for, such as --for 2h: every silence ends, after 30d at the latest."),
        ((*ADD, "--for", "31d"), '--for must be at most 30d, not "31d"'),
        ((*ADD, "--group", "pay("), "--group is not a valid regular expression: missing ): pay("),
        (
            (*ADD, "--rule", "StreamGroupDown"),
            "--rule 'StreamGroupDown' is not a rule; did you mean StreamsGroupDown?",
        ),
    ],
)
def test_a_silence_without_an_end_too_long_or_invalid_is_refused_in_one_line(
    warehouse: Path, arguments: tuple[str, ...], line: str
) -> None:
    result = run(warehouse, "silence", "add", *arguments)
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {line}")
    assert result.output.count("\n") == 1
    assert SilenceStore(warehouse, "default").all() == []


@pytest.mark.parametrize("arguments", [("add", *ADD), ("expire", "00000000")])
def test_no_warehouse_and_no_such_silence_are_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = run(tmp_path, "silence", *arguments)
    assert result.exit_code == 1
    assert result.output.startswith("Error: No s")
    assert result.output.count("\n") == 1


def test_a_cluster_cannot_name_another_directory(warehouse: Path) -> None:
    result = run(warehouse, "silence", "add", *ADD, "--cluster", "../elsewhere")
    assert result.exit_code != 0
    assert not (warehouse / "_jobs").exists()


def test_a_comment_and_a_pattern_cannot_break_a_line(warehouse: Path) -> None:
    now = datetime.now(timezone.utc)
    values = {"starts_at": now, "ends_at": now + timedelta(hours=1), "comment": STORED, "created_by": STORED}
    SilenceStore(warehouse, "default").add(
        Silence.model_validate({"id": "0" * 8, "group": f"x{STORED[2:30]}", **values})
    )
    result = run(warehouse, "silence", "list")
    assert (result.exit_code, result.output.count("\n")) == (0, 2)
    assert effective_characters(result.output) == set()
