"""The tables of verdicts: what is stored is read again, and who ends a problem is heard."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streaming_app.health.board import Change
from streaming_app.health.verdict import DOWN, OK, Verdict
from streaming_app.tables.health_tables import EndedProblems, HealthRow, HealthTables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable
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
    tables.maintain(30)
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
