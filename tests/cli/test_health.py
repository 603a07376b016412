"""The commands `why` and `incidents`, and where others show the verdict."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from streaming_app.health.incidents import Incidents

from streaming_app.cli.main import main
from streaming_app.health.board import Change
from streaming_app.health.verdict import DOWN, OK, Verdict
from streaming_app.tables.health_tables import EndedProblems, HealthTables
from streaming_app.text import utc
from tests.support.health_harness import NOW, ago
from tests.support.rows import group_row
from tests.support.warehouses import append

DOWN_SINCE = Verdict(
    DOWN,
    ago(minutes=9),
    ago(minutes=4),
    "no members; <b>7 offsets wait",
    "critical",
    {"offsets": 7, "not_over": "it has no members"},
    None,
    ago(hours=-3),
    ago(minutes=1),
)


@pytest.fixture
def warehouse(tmp_path: Path, create_warehouse: Callable[[Path], Path]) -> Path:
    path = create_warehouse(tmp_path / "warehouse")
    tables = HealthTables(path, "default")
    (incident,) = Incidents("default").step([Change("payments", DOWN_SINCE, NOW)], NOW)
    verdicts = {"payments": DOWN_SINCE, "orders": Verdict(OK, NOW, NOW, "Offsets advance.")}
    tables.save_incidents([incident])
    tables.save_verdicts(verdicts, (), {"payments": incident.incident_id}, NOW)
    return path


def run(warehouse: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, [*arguments, "--warehouse", str(warehouse)])
    assert result.exit_code == code, result.output
    return result.output


def incident_of(warehouse: Path) -> str:
    result = CliRunner().invoke(main, ["incidents", "--json", "--warehouse", str(warehouse)])
    (one,) = json.loads(result.stdout)
    return str(one["incident_id"])


def test_an_incident_without_a_time_line_is_shown(warehouse: Path) -> None:
    tables = HealthTables(warehouse, "default")
    (incident,) = tables.incidents(NOW)
    for group_ids in (("payments",), ()):  # open, and about to end
        tables.save_incidents([replace(incident, timeline=(), open_groups=group_ids)])
        assert incident.incident_id in run(warehouse, "incidents")
        assert "payments is Down" in run(warehouse, "why", "--group", "payments")


def test_why_says_it_in_ten_lines_at_most_and_as_json(warehouse: Path) -> None:
    lines = [line for line in run(warehouse, "why", "--group", "payments").split("\n") if line]
    assert any(line.startswith("payments is Down since 2026-11-21") for line in lines)
    text = "\n".join(lines)
    assert len(lines) <= 11  # and the one about the job
    for words in ("It is not over: it has no members.", "Retention deletes", "Severity: critical", "Incident "):
        assert words in text
    assert "There is no verdict on a group 'nobody'" in run(warehouse, "why", "--group", "nobody", code=1)


def test_list_shows_and_selects_by_verdicts(warehouse: Path) -> None:
    append(warehouse, "groups", *map(group_row, ("orders", "payments", "new")))
    lines = run(warehouse, "list").splitlines()[-4:]
    assert [line.split() for line in lines] == [
        ["GROUP", "HEALTH"],
        ["new", "Unknown"],
        ["orders", "Ok"],
        ["payments", "Down"],
    ]
    down = run(warehouse, "list", "--health", "down,Stalled")
    assert ("payments" in down, "orders" in down) == (True, False)
    assert "No such verdict: Dwn" in run(warehouse, "list", "--health", "Dwn", code=1)
    assert "health    1 Down, 1 Ok" in run(warehouse, "status")


def test_describe_begins_with_the_verdicts_the_worst_first_and_what_will_be_lost(warehouse: Path) -> None:
    append(warehouse, "groups", *(group_row(name, "Stable") for name in ("orders", "payments")))
    lines = run(warehouse, "describe", "--all-groups").split("\n")[1:]  # the first is about the job
    assert lines[0].startswith("payments is Down since 2026-11-21")
    assert lines[0].endswith(f"7 offsets wait. Retention deletes the oldest record that waits at {utc(ago(hours=-3))}.")
    assert lines[1].startswith("orders is Ok since ")
    assert lines[2].split()[:4] == ["GROUP", "COORDINATOR", "(ID)", "STATE"]


def test_a_warehouse_of_an_older_release_is_one_line(warehouse: Path) -> None:
    shutil.rmtree(warehouse / "group_health")
    *_, line = run(warehouse, "list", code=1).splitlines()  # after the one about the job
    assert line.startswith("Error: ")
    assert "was created by an older release and lacks the table group_health: start the job of this release" in line


def test_an_alert_about_an_incident_names_it_and_the_command_that_says_why(warehouse: Path) -> None:
    now = {"pending_since": ago(minutes=9), "opened_at": ago(minutes=4), "deliveries": []}
    common = {"cluster": "default", "severity": "critical", "state": "firing", **now}
    details = json.dumps({"incident": incident_of(warehouse), "verdict": "Down"})
    down = {"group_id": "pay ments", "rule": "StreamsGroupDown", "summary": "pay ments is Down", "details": details}
    job = {"rule": "StreamsGroupsJobStopped", "summary": "The job has stopped", "details": "{}"}
    append(warehouse, "alerts", {**common, **down}, {**common, **job})
    result = CliRunner().invoke(main, ["alerts", "--warehouse", str(warehouse)])
    names, *rows = (line.split() for line in result.stdout.splitlines())
    found = {row[2]: row[names.index("INCIDENT") + (row[3] == "pay")] for row in rows}
    assert found == {"StreamsGroupDown": incident_of(warehouse), "StreamsGroupsJobStopped": "-"}
    assert "what will be lost: streams-groups why --group 'pay ments'\n" in result.stderr
    as_json = json.loads(CliRunner().invoke(main, ["alerts", "--json", "--warehouse", str(warehouse)]).stdout)
    assert {one["incident_id"] for one in as_json} == {incident_of(warehouse), None}


def test_what_was_wrong_is_shown_after_it_is_over(warehouse: Path) -> None:
    incident_id = incident_of(warehouse)
    tables = HealthTables(warehouse, "default")
    incidents = Incidents("default", tables.incidents(NOW))
    over = Verdict(OK, NOW, NOW, "Offsets advance.")
    tables.save_incidents(incidents.step([Change("payments", over, NOW)], NOW))
    tables.save_verdicts({"payments": over}, (), {}, NOW)
    last = run(warehouse, "why", "--group", "payments").splitlines()[-1]
    ended = f"Its last incident, {incident_id}, Down, ended at {utc(NOW)} after 4m (evidence): no members;"
    assert last.startswith(f"  {ended}")
    (line,) = [one for one in run(warehouse, "incidents", "--all").splitlines() if one.startswith(incident_id)]
    assert "no members;" in line


def test_who_ends_an_incident_no_longer_sees_it(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the user has no name, as in a container."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    incident_id = incident_of(warehouse)
    end = ("incidents", "end", "--incident", incident_id, "--reason")
    assert "has ended: retired" in run(warehouse, *end, "retired")
    assert EndedProblems(warehouse, "default").reasons() == {incident_id: "retired"}
    assert "No incidents." in run(warehouse, "incidents")
    assert incident_id in run(warehouse, "incidents", "--all")
    assert "No open incident" in run(warehouse, *end, "planned", code=1)


def test_options_before_a_subcommand_are_its_own_unless_it_has_them(warehouse: Path) -> None:
    end = ["end", "--incident", "x", "--reason", "planned"]
    own, nowhere = ["--warehouse", str(warehouse)], ["--warehouse", "nowhere", "--cluster", "other"]
    for arguments, words in (
        ([*own, *end], "No open incident 'x'"),
        ([*nowhere, *end, *own], "'other'"),
    ):
        result = CliRunner().invoke(main, ["incidents", *arguments])
        assert (result.exit_code, words in result.output) == (1, True), result.output
