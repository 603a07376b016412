"""The tables of verdicts: what is stored is read again, and who ends a problem is heard."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streaming_app.alerts.problem import Problem
from streaming_app.health.board import Change
from streaming_app.health.verdict import DOWN, OK, Verdict
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.health_tables import EndedProblems, HealthRow, HealthTables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable
from tests.alerts.examples import make_alert
from tests.support.health_harness import NOW, ago

OF_DOWN = Verdict(
    DOWN, ago(minutes=9), ago(minutes=4), "no members", "critical", {"offsets": 7}, None, ago(hours=-3), ago(minutes=1)
)


def test_verdicts_are_read_as_they_were_stored(tmp_path: Path, create_warehouse: Callable[[Path], Path]) -> None:
    tables, other = (HealthTables(create_warehouse(tmp_path), name) for name in ("prod", "other"))
    down = HealthRow("a", OF_DOWN, "3f2a90bc51de", 60, {"team": "payments"})
    ok = HealthRow("b", Verdict(OK, NOW, NOW, "Offsets advance."), None, None)
    other.save([ok._replace(group_id="a")], (), NOW)
    tables.save([down, ok], (), NOW)
    tables.append_changes([Change("a", OF_DOWN, OF_DOWN.at)])
    warehouse = WarehouseReader(tmp_path)
    assert sorted(tables.rows()) == [down, ok]
    assert warehouse.rows("SELECT verdict, why FROM group_health_history") == [{"verdict": DOWN, "why": "no members"}]

    tables.save([down], {"a"}, NOW)
    assert ([*tables.rows()], [row.group_id for row in other.rows()]) == ([ok], ["a"])


def test_the_first_verdicts_are_appended_since_merges_of_a_million_take_minutes(
    tmp_path: Path, create_warehouse: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, append = HealthTables(create_warehouse(tmp_path), "prod"), RustTable.append
    rows = [HealthRow(name, OF_DOWN, None, 60) for name in "abc"]
    changes = [Change(row.group_id, OF_DOWN, NOW) for row in rows]
    assert [*tables.rows()] == []
    with monkeypatch.context() as patched:
        patched.delattr(RustTable, "merge")
        tables.save(rows, {"c"}, NOW)
        tables.append_changes(changes)
    assert sorted(tables.rows()) == rows[:2]

    def lose_answer(table: RustTable, rows: Any) -> None:
        append(table, rows)
        raise OSError("no answer")

    other = HealthTables(tmp_path, "other")
    assert [*other.rows()] == []
    with monkeypatch.context() as patched:
        patched.setattr(RustTable, "append", lose_answer)
        for write in (lambda: other.save(rows, (), NOW), lambda: other.append_changes(changes)):
            with pytest.raises(OSError, match="no answer"):
                write()
    other.save(rows, {"c"}, NOW)
    other.append_changes(changes)
    assert sorted(other.rows()) == rows[:2]
    written = WarehouseReader(tmp_path).rows("SELECT cluster, count(*) n FROM group_health_history GROUP BY cluster")
    assert sorted(row["n"] for row in written) == [3, 3]


def test_who_ends_a_problem_is_heard_once_and_a_damaged_file_is_not(tmp_path: Path) -> None:
    ended = EndedProblems(tmp_path, "prod")
    assert ended.reasons() == {}
    ended.end(["abc"], "retired", "somebody", NOW)
    ended.end(["d", "e"], "planned", "somebody", NOW)
    (tmp_path / "_jobs" / "prod.incidents" / "def.json").write_text("{")
    assert EndedProblems(tmp_path, "prod").reasons() == {"abc": "retired", "d": "planned", "e": "planned"}


def test_a_change_is_written_once_whatever_became_of_the_write_and_of_the_job(
    tmp_path: Path, create_warehouse: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, append = HealthTables(create_warehouse(tmp_path), "prod"), RustTable.append
    first, second = (Change("a", OF_DOWN, NOW + timedelta(minutes=number)) for number in range(2))
    tables.append_changes([first])

    def lose_answer(table: RustTable, rows: Any) -> None:
        append(table, rows)
        raise OSError("no answer")

    monkeypatch.setattr(RustTable, "append", lose_answer)
    with pytest.raises(OSError, match="no answer"):
        tables.append_changes([second])
    monkeypatch.undo()
    tables.append_changes([second])
    HealthTables(tmp_path, "prod").append_changes([first, second])  # of a job that died before it had written the rest
    assert WarehouseReader(tmp_path).rows("SELECT count(*) AS n FROM group_health_history") == [{"n": 2}]


def test_what_one_cause_brought_in_june_and_in_november_are_two_incidents(
    tmp_path: Path, create_warehouse: Callable[[Path], Path]
) -> None:
    path = create_warehouse(tmp_path / "warehouse")

    def one(alert_id: str, days: float, ended: float | None, cause: str | None = "broker_away:3") -> Problem:
        at, end = NOW - timedelta(days=days), None if ended is None else NOW - timedelta(days=ended)
        own: dict[str, Any] = {"alert_id": alert_id, "group_id": f"g-{alert_id}", "rule": "StreamsGroupDown"}
        return make_alert(cluster="default", since=at, opened_at=at, ended_at=end, cause=cause, **own)

    june = [one("a", 150, 149.5), one("b", 149.8, 149)]
    now = [one("c", 1, 0.5), one("d", 0.7, None), one("e", 0.2, 0.1), one("f", 0.2, 0.1, None)]
    AlertsTable(path, "default").save([*june, *now])
    rows = WarehouseReader(path).rows("SELECT incident_id, ended_at, groups FROM incidents ORDER BY incident_id")
    assert [(row["incident_id"], row["ended_at"], sorted(row["groups"])) for row in rows] == [
        ("a", NOW - timedelta(days=149), ["g-a", "g-b"]),
        ("c", None, ["g-c", "g-d", "g-e"]),
        ("f", NOW - timedelta(days=0.1), ["g-f"]),
    ]
