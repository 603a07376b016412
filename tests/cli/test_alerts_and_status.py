"""`alerts` and `status`: their output and exit codes."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from streaming_app.alerts.alert import FIRING, Alert, Delivery
from streaming_app.job_status import JobStatus, StreamStatus
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.definitions import tables
from streaming_app.tables.location import Location
from tests.alerts.examples import make_alert
from tests.cli.commands import as_json, run
from tests.support.heartbeats import write_heartbeat
from tests.support.warehouses import make_warehouse

pytestmark = pytest.mark.slow

AT = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
FIRING_ALERT = make_alert(
    cluster="default",
    rule="StreamsGroupDown",
    since=AT,
    opened_at=AT,
    summary="payments is NotReady",
    deliveries=(Delivery("slack", FIRING, None, 3, "answered 503"), Delivery("log", FIRING, AT, 1)),
)
PENDING_ALERT = replace(FIRING_ALERT, alert_id="2", group_id="orders", opened_at=None, deliveries=())
RESOLVED_ALERT = replace(FIRING_ALERT, alert_id="3", group_id="ledger", ended_at=AT)
OTHER_CLUSTER = replace(FIRING_ALERT, cluster="other")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return make_warehouse(tmp_path)


def save(warehouse: Path, *alerts: Alert) -> None:
    for alert in alerts:
        AlertsTable(Location(str(warehouse)), alert.cluster).save([alert])


def test_alerts_shows_the_open_alerts_with_their_unsent_notifications_and_others_on_request(
    warehouse: Path,
) -> None:
    save(warehouse, FIRING_ALERT, PENDING_ALERT, RESOLVED_ALERT, OTHER_CLUSTER)
    write_heartbeat(warehouse)
    result = run(warehouse, "alerts")
    assert result.exit_code == 0
    names, line = result.stdout.splitlines()
    assert names.split() == ["ID", "STATE", "SEVERITY", "RULE", "GROUP", "SINCE", "UNSENT", "SUMMARY"]
    assert line.split()[:5] == [FIRING_ALERT.alert_id, "open", "critical", "StreamsGroupDown", "payments"]
    assert line.split()[5] == "2026-11-21T03:12:00.000Z"
    assert "slack (answered 503)" in line
    assert line.endswith("payments is NotReady")
    for options, groups in (
        ([], ["payments"]),
        (["--pending"], ["orders", "payments"]),
        (["--resolved"], ["ledger", "payments"]),
    ):
        assert sorted(alert["group_id"] for alert in as_json(warehouse, "alerts", *options)) == groups


def ended_at(seconds_ago: float, **fields: Any) -> JobStatus:
    """The status of a job that was last at the end of the topic so many seconds ago."""
    at = datetime.now(timezone.utc) - timedelta(seconds=seconds_ago)
    return JobStatus(AT, caught_up=True, caught_up_at=at, **fields)


@pytest.mark.parametrize("command", ["alerts", "status"])
@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (None, "No job has written cluster 'default' here yet."),
        ({"at": AT, "facts": ended_at(1)}, "The job of cluster 'default' has died: the tables are as of "),
        (
            {"stopped": True, "facts": ended_at(600)},
            "The job of cluster 'default' is not running: the tables are as of",
        ),
        (
            {"stopped": True, "ended_by": "The stream failed: no space left.", "facts": ended_at(1)},
            "The job of cluster 'default' has ended by an error (The stream failed: no space left): the tables are as",
        ),
        ({"facts": JobStatus(AT)}, "is late (still reading): the tables are not complete yet."),
        ({"facts": ended_at(600, behind=7)}, "is late (7 offsets behind): the tables are as of "),
        (
            {"facts": ended_at(600, brokers_away_since=AT)},
            "is late (no broker has answered since 2026-11-21 03:12:00Z)",
        ),
        ({"facts": ended_at(600, failing_since=AT, failure="Full disk")}, "is late (the stream fails since"),
    ],
    ids=["never", "died", "stopped", "ended by an error", "first read", "behind", "no broker", "failing"],
)
def test_check_exits_with_1_and_says_why_if_the_tables_are_not_up_to_date(
    warehouse: Path, command: str, fields: dict[str, object] | None, line: str
) -> None:
    if fields is not None:
        write_heartbeat(warehouse, **fields)
    result = run(warehouse, command, "--check")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert line in result.stderr
    assert run(warehouse, command).exit_code == 0


@pytest.mark.parametrize("command", ["alerts", "status"])
def test_check_exits_with_0_while_the_tables_are_up_to_date_or_as_old_as_allowed(warehouse: Path, command: str) -> None:
    write_heartbeat(warehouse, facts=ended_at(5))
    assert run(warehouse, command, "--check").exit_code == 0
    write_heartbeat(warehouse, stopped=True, facts=ended_at(5))  # such as `run --once`
    assert run(warehouse, command, "--check").exit_code == 0
    write_heartbeat(warehouse, stopped=True, facts=ended_at(3000))
    assert run(warehouse, command, "--check", "--max-age", "3600").exit_code == 0


@pytest.mark.parametrize(
    "arguments", [["alerts"], ["list"], ["describe", "--all-groups"], ["sql", "SELECT 1"]], ids=lambda words: words[0]
)
def test_tables_that_no_job_updates_are_shown_with_a_line_that_says_so(warehouse: Path, arguments: list[str]) -> None:
    line = "The job of cluster 'default' is not running: the tables are as of 2026-11-21 03:12:00Z.\n"
    write_heartbeat(warehouse, at=AT, stopped=True, facts=JobStatus(AT, caught_up=True, caught_up_at=AT))
    result = run(warehouse, *arguments)
    assert (result.exit_code, result.stderr) == (0, line)
    write_heartbeat(warehouse)
    assert run(warehouse, *arguments).stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["alerts"],
        ["status"],
        ["list"],
        ["describe", "--all-groups"],
        ["history", "g", "--topology"],
        ["sql", "SELECT 1"],
    ],
    ids=lambda words: words[0],
)
def test_an_unknown_cluster_is_an_error_that_names_those_there_are(warehouse: Path, arguments: list[str]) -> None:
    for name in ("prod", "default"):
        write_heartbeat(warehouse, name)
    result = run(warehouse, *arguments, "--cluster", "typo")
    assert result.exit_code == 1
    line = f"Error: No cluster 'typo' in {warehouse}, which has 'default', 'prod': name one with --cluster\n"
    assert result.output == line
    assert run(warehouse, "list", "--cluster", "prod").exit_code == 0


def test_status_shows_how_old_each_input_is(warehouse: Path) -> None:
    now = datetime.now(timezone.utc)
    ends = {"2": now - timedelta(minutes=5), "1": now}
    later = {"log_ends_at": ends, "descriptions_at": now - timedelta(hours=2)}
    offsets = StreamStatus(failing_since=AT, failure="no space")
    write_heartbeat(warehouse, facts=JobStatus(AT, caught_up_at=now, offsets=offsets, **later))
    lines = run(warehouse, "status").stdout.splitlines()
    assert any("; the stream fails since 03:12:00Z: no space" in line for line in lines)
    known_until = as_json(warehouse, "status")["job"]["known_until"]
    names = ["groups", "commits", "log ends of broker 1", "log ends of broker 2", "descriptions"]
    (parts,) = (line.removeprefix("inputs    ").split(", ") for line in lines if line.startswith("inputs    groups"))
    assert [one.startswith(name) for one, name in zip(parts, names, strict=True)] == [True] * 5
    assert parts[1] == "commits not yet"
    assert list(known_until) == names
    assert known_until["commits"] is None


def test_status_shows_groups_alerts_and_tables(warehouse: Path) -> None:
    save(warehouse, FIRING_ALERT, OTHER_CLUSTER)
    lines = run(warehouse, "status").output.splitlines()
    assert lines[1] == "job       has never run here"
    assert lines[3] == "alerts    1 open"
    names = [definition.name for definition in tables()]
    assert [line.split()[0] for line in lines[-len(names) :]] == names
    printed = as_json(warehouse, "status")
    assert (printed["job"], printed["groups"], len(printed["alerts"])) == (None, {}, 1)
    assert all(table["files_with_history"] for table in printed["tables"])
