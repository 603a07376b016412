"""`alerts` and `status`: what they print, and what they exit with."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streaming_app.alerts.store import AlertStore
from streaming_app.cli.main import main
from streaming_app.core.alert import FIRING, PENDING, RESOLVED, Alert, Delivery
from streaming_app.core.facts import JobFacts
from streaming_app.serve.place import Place
from streaming_app.serve.running import Running
from tests.tables import make_warehouse

AT = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
FIRED = Alert(
    "default", "payments", "StreamsGroupNotReady", "critical", FIRING, AT, AT, None, "payments is NotReady", {},
    (Delivery("slack", FIRING, None, 3, "answered 503"), Delivery("log", FIRING, AT, 1)),
)  # fmt: skip
WAITING = replace(FIRED, group_id="orders", state=PENDING, opened_at=None, deliveries=())
OVER = replace(FIRED, group_id="ledger", state=RESOLVED, resolved_at=AT)
ELSEWHERE = replace(FIRED, cluster="other")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    make_warehouse(tmp_path)
    (tmp_path / "_jobs").mkdir()
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def save(warehouse: Path, *alerts: Alert) -> None:
    for alert in alerts:
        AlertStore(Place(str(warehouse)), alert.cluster).save([alert])


def sign(warehouse: Path, **more: object) -> None:
    now = datetime.now(timezone.utc)
    told = {"at": now, "every_seconds": 5, "facts": JobFacts(now, caught_up=True), "records_seen": 7}
    running = Running.model_validate({"last_batch_seconds": 0.4, **told, **more})
    (warehouse / "_jobs" / "default.running.json").write_text(running.model_dump_json(), "utf-8")


def test_alerts_shows_what_fires_in_this_cluster_and_which_sink_was_not_told(warehouse: Path) -> None:
    save(warehouse, FIRED, WAITING, OVER, ELSEWHERE)
    sign(warehouse)
    ran = run("alerts", "--warehouse", warehouse)
    assert ran.exit_code == 0
    names, line = ran.output.splitlines()
    assert names.split() == ["STATE", "SEVERITY", "RULE", "GROUP", "SINCE", "UNSENT", "SUMMARY"]
    assert line.split()[:5] == ["firing", "critical", "StreamsGroupNotReady", "payments", "2026-11-21T03:12:00.000Z"]
    assert "slack (answered 503)" in line
    assert line.endswith("payments is NotReady")


@pytest.mark.parametrize(
    ("options", "groups"),
    [([], ["payments"]), (["--pending"], ["orders", "payments"]), (["--resolved"], ["ledger", "payments"])],
)
def test_pending_and_resolved_ones_are_shown_when_asked_for(
    warehouse: Path, options: list[str], groups: list[str]
) -> None:
    save(warehouse, FIRED, WAITING, OVER)
    told = json.loads(run("alerts", "--json", *options, "--warehouse", warehouse).stdout)
    assert sorted(alert["group_id"] for alert in told) == groups


@pytest.mark.parametrize(("alert", "code"), [(FIRED, 1), (WAITING, 0), (OVER, 0), (ELSEWHERE, 0)])
def test_check_exits_with_1_only_if_something_fires(warehouse: Path, alert: Alert, code: int) -> None:
    save(warehouse, alert)
    assert run("alerts", "--check", "--warehouse", warehouse).exit_code == code


def test_alerts_that_nobody_keeps_up_to_date_are_shown_with_a_warning(warehouse: Path) -> None:
    assert "No job has written cluster 'default' here yet." in run("alerts", "--warehouse", warehouse).stderr
    sign(warehouse, at=AT)
    assert "not running: this is what it knew at 2026-11-21 03:12:00Z" in run("alerts", "--warehouse", warehouse).stderr
    sign(warehouse)
    ran = run("alerts", "--warehouse", warehouse)
    assert (ran.stderr, ran.stdout) == ("", "Nothing fires.\n")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, r"job       running; 0 offsets behind; no batch yet; process"),
        ({"stopped": True}, "job       not running: stopped, last heard of 0 s ago"),
        ({"at": datetime.now(timezone.utc) - timedelta(hours=2)}, "job       not running: died, last heard of 2 h ago"),
        (
            {"facts": JobFacts(AT, caught_up=False, behind=12345, failure="Full disk", brokers_away_since=AT)},
            "running; 12,345 offsets behind; no batch yet; no broker answers since 03:12:00Z; the stream fails: "
            "Full disk; still catching up; process",
        ),
    ],
    ids=["runs", "stopped", "died", "troubled"],
)
def test_status_tells_how_the_job_is(warehouse: Path, more: dict[str, object], line: str) -> None:
    sign(warehouse, **more)
    assert line in run("status", "--warehouse", warehouse).output


def test_status_is_one_screen_of_groups_alerts_and_tables(warehouse: Path) -> None:
    save(warehouse, FIRED, ELSEWHERE)
    lines = run("status", "--warehouse", warehouse).output.splitlines()
    assert lines[1] == "job       has never run here"
    assert lines[3] == "alerts    1 firing"
    assert [line.split()[0] for line in lines[-4:]] == ["groups", "group_events", "quarantine", "alerts"]
    told = json.loads(run("status", "--json", "--warehouse", warehouse).stdout)
    assert (told["job"], told["groups"], len(told["firing"])) == (None, {}, 1)
    assert all(table["files_with_history"] for table in told["tables"])


def test_a_sign_of_life_that_is_none_is_told_in_one_line(warehouse: Path) -> None:
    (warehouse / "_jobs" / "default.running.json").write_text("{}", "utf-8")
    ran = run("status", "--warehouse", warehouse)
    assert ran.exit_code == 1
    assert ran.output.count("\n") == 1
    assert "written by another release" in ran.output
