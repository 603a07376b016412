"""The commands `why` and `alerts end`, and where others show the verdict."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streaming_app.alerts.alert import Alert, Line
from streaming_app.health.verdict import DOWN, OFF, OK, RESTORING, STALLED, Verdict
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.health_tables import EndedAlerts, HealthRow, HealthTable
from streaming_app.text import utc
from tests.alerts.examples import make_alert
from tests.cli.commands import as_json, output
from tests.support.health_harness import NOW, ago
from tests.support.rows import group_row
from tests.support.warehouses import append

DOWN_SINCE = Verdict(
    DOWN,
    ago(minutes=9),
    ago(minutes=4),
    "no members since 03:03; <b>7 offsets wait",
    "critical",
    {"offsets": 7, "not_over": "it has no members"},
    None,
    ago(hours=-3),
    ago(minutes=1),
)


ALERT = make_alert(
    cluster="default",
    rule="StreamsGroupDown",
    opened_at=ago(minutes=4),
    summary=DOWN_SINCE.why,
    timeline=(Line(ago(minutes=4), DOWN, "StreamsGroupDown", "critical", DOWN_SINCE.why),),
)


@pytest.fixture
def warehouse(tmp_path: Path, create_warehouse: Callable[[Path], Path]) -> Path:
    path = create_warehouse(tmp_path / "warehouse")
    down = HealthRow("payments", DOWN_SINCE, DOWN_SINCE.at, {"team": "payments"})
    HealthTable(path, "default").append([down, HealthRow("orders", Verdict(OK, NOW, NOW, "Offsets advance."), NOW)])
    save(path, ALERT)
    return path


def save(warehouse: Path, *alerts: Alert) -> None:
    AlertsTable(warehouse, "default").save(alerts)


def test_why_says_it_in_ten_lines_at_most_and_as_json(warehouse: Path) -> None:
    lines = [line for line in output(warehouse, "why", "--group", "payments").split("\n") if line]
    assert any(line.startswith("payments is Down since 2026-11-21") for line in lines)
    text = "\n".join(lines)
    assert len(lines) <= 11  # and the one about the job
    for words in (
        "It is not over: it has no members.",
        "Retention deletes",
        "Severity: critical",
        f"Alert {ALERT.alert_id}",
        "What to do: No members: read the end of the application's log",
        "More: the runbook, StreamsGroupDown;",
    ):
        assert words in text
    shown = as_json(warehouse, "why", "--group", "payments")
    assert (shown["verdict"], shown["labels"], shown["alert_id"]) == (DOWN, {"team": "payments"}, ALERT.alert_id)
    assert (shown["alert"]["alert_id"], shown["alert"]["state"]) == (ALERT.alert_id, "open")
    assert "There is no verdict on a group 'nobody'" in output(warehouse, "why", "--group", "nobody", code=1)


STALLED_WHY = "no offset of 1 partition moved since 03:05, 7 offsets wait: orders-0 at 7 on 10.0.0.1"


@pytest.mark.parametrize(
    ("now", "step", "rule"),
    [
        (Verdict(STALLED, ago(minutes=7), ago(minutes=2), STALLED_WHY, "critical"), "One partition: ", "Stalled"),
        (Verdict(OK, NOW, NOW, "Offsets advance."), "No members: read the end of", "Down"),
        (Verdict(RESTORING, NOW, NOW, "1 partition may restore state", None), "No members: read the end of", "Down"),
    ],
)
def test_what_to_do_fits_the_verdict_of_now_and_after_it_the_last_bad_one(
    warehouse: Path, now: Verdict, step: str, rule: str
) -> None:
    """Seen: "start the application" of a group whose members were back and did not move: it had been Down before."""
    HealthTable(warehouse, "default").append([HealthRow("payments", now, NOW)])
    last = output(warehouse, "why", "--group", "payments").splitlines()[-1]
    assert last.startswith(f"  What to do: {step}")
    assert f"More: the runbook, StreamsGroup{rule};" in last


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (DOWN, "NotReady since 03:05, it processes nothing: MISSING_SOURCE_TOPICS: Source topics clicks are missing."),
        (STALLED, f"{STALLED_WHY}; a topic to which it writes does not exist: clicks"),
    ],
)
def test_the_command_that_creates_a_missing_topic_names_it(warehouse: Path, verdict: str, why: str) -> None:
    now = Verdict(verdict, ago(minutes=7), ago(minutes=2), why, "critical")
    HealthTable(warehouse, "default").append([HealthRow("payments", now, NOW)])
    save(warehouse, replace(ALERT, cause="missing_topic:clicks"))
    assert "`kafka-topics.sh --create --topic clicks`" in output(warehouse, "why", "--group", "payments")


def test_why_tells_the_end_of_a_deleted_group(warehouse: Path) -> None:
    append(warehouse, "groups", group_row("retired", "Dead", deleted_at=ago(minutes=2)))
    verdicts = [Verdict(OFF, at, at, why) for at, why in ((ago(minutes=9), "Nothing waits."), (NOW, "It was deleted."))]
    first, last = (HealthRow("retired", one, one.at) for one in verdicts)
    moved = first._replace(at=ago(minutes=5))  # another time of the same verdict
    HealthTable(warehouse, "default").append([first, moved, last, last._replace(is_end=True)])
    save(warehouse, replace(ALERT, alert_id="old", group_id="retired", ended_at=ago(minutes=3), ended_by="planned"))
    lines = output(warehouse, "why", "retired").splitlines()[-4:]
    assert lines[:3] == [
        f"retired was deleted at {utc(ago(minutes=2))}.",
        f"  {utc(ago(minutes=9))} Off: Nothing waits.",
        f"  {utc(NOW)} Off: It was deleted.",
    ]
    assert lines[3].startswith("  Its last alert, old, StreamsGroupDown, ended at ")
    shown = as_json(warehouse, "why", "retired")
    assert (shown["verdict"], shown["last_verdicts"][1]["verdict"], shown["alert"]["alert_id"]) == (None, OFF, "old")


_OFFSETS = ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"]


def test_describe_begins_with_the_verdicts_the_worst_first_and_what_will_be_lost(warehouse: Path) -> None:
    append(warehouse, "groups", *(group_row(name, "Stable") for name in ("orders", "payments")))
    write = {"topic": "orders", "partition": 1, "committed_offset": 7}
    append(warehouse, "offset_commits", *({"group_id": name, **write, "last_offset": 1} for name in ("orders", "app")))
    lines = output(warehouse, "describe", "--all-groups").split("\n")[1:]  # the first is about the job
    assert lines[0].startswith("payments is Down since 2026-11-21")
    assert lines[0].endswith(f"7 offsets wait. Retention deletes the oldest record that waits at {utc(ago(hours=-3))}.")
    assert lines[1].startswith("orders is Ok since ")
    assert lines[2].split() == _OFFSETS
    assert [line.split() for line in lines[3:-1]] == [["orders", "orders", "1", "-"]]  # of streams groups only
    of_state = output(warehouse, "describe", "--all-groups", "--state").split("\n")[1:]
    assert of_state[:2] == lines[:2]
    assert of_state[2].split()[:5] == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNOR", "STATE"]


def test_what_was_wrong_is_shown_after_it_is_over(warehouse: Path) -> None:
    save(warehouse, replace(ALERT, ended_at=NOW, ended_by="retired"))
    last = output(warehouse, "why", "--group", "payments").splitlines()[-1]
    ended = f"Its last alert, {ALERT.alert_id}, StreamsGroupDown, ended at {utc(NOW)} after 4m (retired): no "
    assert last.startswith(f"  {ended}")
    assert "no members since" in output(warehouse, "alerts", "--resolved")


def test_who_ends_an_alert_no_longer_sees_it(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the user has no name, as in a container, and before the job has noted it."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    end = ("alerts", "end", ALERT.alert_id, "--reason")
    assert "has ended: retired" in output(warehouse, *end, "retired")
    assert EndedAlerts(warehouse, "default").reasons() == {ALERT.alert_id: "retired"}
    assert "No alerts are open." in output(warehouse, "alerts")
    assert ALERT.alert_id in output(warehouse, "alerts", "--resolved")
    assert "No open alert" in output(warehouse, *end, "planned", code=1)


def test_the_alerts_of_many_groups_are_ended_by_one_request_which_lists_them(warehouse: Path) -> None:
    old = [replace(ALERT, alert_id=f"{number:03}", group_id=f"old-{number}") for number in range(200)]
    other = replace(ALERT, alert_id="stale", group_id="old-1", rule="StreamsGroupMembersStale")
    AlertsTable(warehouse, "default").save([*old, other])
    end = ("alerts", "end", "--match", "old-.*", "--reason", "retired")
    lines = output(warehouse, *end).splitlines()
    assert sorted(line.split()[0] for line in lines)[:200] == [one.alert_id for one in old]
    assert lines[-1] == "200 alerts have ended: retired."
    assert len([*(warehouse / "_jobs" / "default.incidents").iterdir()]) == 1
    assert EndedAlerts(warehouse, "default").reasons() == {one.alert_id: "retired" for one in old}
    left = output(warehouse, "alerts")
    assert "old-2" not in left
    assert ALERT.alert_id in left
    assert "stale" in left
    assert output(warehouse, *end, code=1).splitlines()[1:] == [  # the first is about the job
        "Error: No group with an open alert that can be ended matches 'old-.*': `streams-groups alerts` lists them"
    ]
    ended = as_json(warehouse, "alerts", "end", "--match", ".*", "--reason", "planned")
    assert [row["group"] for row in ended] == ["payments"]


@pytest.mark.parametrize("words", [[], ["abc", "--match", ".*"], ["--match", "a-*"], ["--match", "("]])
def test_neither_an_id_nor_a_pattern_or_both_or_no_pattern_is_wrong_usage(warehouse: Path, words: list[str]) -> None:
    assert output(warehouse, "alerts", "end", *words, "--reason", "retired", code=2).count("\n") == 1


def test_only_an_alert_with_the_health_of_a_group_is_ended_by_a_person(warehouse: Path) -> None:
    save(warehouse, replace(ALERT, alert_id="stale", rule="StreamsGroupMembersStale"))
    said = output(warehouse, "alerts", "end", "stale", "--reason", "retired", code=1)
    assert "it ends by itself when its condition is over" in said
