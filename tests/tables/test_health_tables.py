"""The tables of verdicts and incidents: what is stored is read again, and who ends an incident is heard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from streaming_app.health.incidents import Incidents

from streaming_app.health.board import Change
from streaming_app.health.verdict import DOWN, OK, Verdict
from streaming_app.tables import health_tables
from streaming_app.tables.health_tables import EndedProblems, HealthTables, read_health, read_incidents
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable
from tests.support.health_harness import NOW, ago

OF_DOWN = Verdict(
    DOWN, ago(minutes=9), ago(minutes=4), "no members", "critical", {"offsets": 7}, None, ago(hours=-3), ago(minutes=1)
)


def test_verdicts_and_incidents_are_read_as_they_were_stored(
    tmp_path: Path, create_warehouse: Callable[[Path], Path]
) -> None:
    tables, other = (HealthTables(create_warehouse(tmp_path), name) for name in ("prod", "other"))
    (incident,) = Incidents("prod").step([Change("a", OF_DOWN, OF_DOWN.at)], NOW)
    verdicts = {"a": OF_DOWN, "b": Verdict(OK, NOW, NOW, "Offsets advance.")}
    other.save_verdicts({"a": verdicts["b"]}, (), {}, NOW)
    tables.save_verdicts(verdicts, (), {"a": incident.incident_id}, NOW)
    tables.save_incidents([incident])
    tables.append_changes([Change("a", OF_DOWN, OF_DOWN.at)])
    tables.maintain(30)
    assert tables.verdicts() == verdicts
    assert tables.incidents(NOW) == [incident]
    warehouse = WarehouseReader(tmp_path)
    (row, _) = read_health(warehouse, "cluster = 'prod'")
    assert (row.incident_id, row.inputs_age) == (incident.incident_id, 60)
    assert warehouse.rows("SELECT verdict, why FROM group_health_history") == [{"verdict": DOWN, "why": "no members"}]

    ended = replace(incident, ended_at=NOW, ended_by="planned", open_groups=())
    tables.save_incidents([ended])
    tables.save_verdicts({"a": OF_DOWN}, {"a"}, {}, NOW)
    assert (list(tables.verdicts()), tables.incidents(NOW)) == (["b"], [ended])
    assert tables.incidents(NOW + timedelta(hours=25)) == []
    assert read_incidents(WarehouseReader(tmp_path), "cluster = 'prod'") == [ended]
    assert list(other.verdicts()) == ["a"]


def test_very_many_verdicts_are_written_some_at_a_time(
    tmp_path: Path, create_warehouse: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_tables, "_WRITTEN", 3)
    tables = HealthTables(create_warehouse(tmp_path), "prod")
    verdicts = {str(number): OF_DOWN for number in range(10)}
    changes = [Change(group_id, one, one.at) for group_id, one in verdicts.items()]
    for _ in range(2):  # the second time as after a failure
        tables.save_verdicts(verdicts, {"7"}, {}, NOW)
        tables.append_changes([])
        tables.append_changes(changes)
        tables = HealthTables(tmp_path, "prod")  # another job, that does not know what this one has written
    assert tables.verdicts().keys() == verdicts.keys() - {"7"}
    (stored,) = WarehouseReader(tmp_path).rows(
        "SELECT count(*) AS n, count(DISTINCT group_id) AS d FROM group_health_history"
    )
    assert stored == {"n": 10, "d": 10}


def test_who_ends_an_incident_is_heard_once_and_a_damaged_file_is_not(tmp_path: Path) -> None:
    ended = EndedProblems(tmp_path, "prod")
    assert ended.reasons() == {}
    ended.end("abc", "retired", "somebody", NOW)
    (tmp_path / "_jobs" / "prod.incidents" / "def.json").write_text("{")
    assert EndedProblems(tmp_path, "prod").reasons() == {"abc": "retired"}


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
