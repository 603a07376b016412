"""`sql`: the output in each format."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.queries import output
from streaming_app.tables.definitions import table
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row, member_row
from tests.support.warehouses import append, make_warehouse

CLUSTERS = ("default", "prod")
LONG = "orders-" + "x" * 300


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    for cluster in CLUSTERS:
        write_heartbeat(path, cluster)
        append(path, "groups", group_row(LONG, cluster=cluster, members=[member_row(f"m-{cluster}")]))
    return path


def run_sql(warehouse: Path, query: str, *options: str) -> str:
    result = CliRunner().invoke(main, ["sql", query, "--warehouse", str(warehouse), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("query", "last_line"),
    [
        ("SELECT * FROM quarantine", "0 rows"),
        ("SELECT 1 AS n", "1 row"),
        ("SELECT 1 AS n UNION ALL SELECT 2", "2 rows"),
    ],
)
def test_a_table_ends_with_the_number_of_rows(warehouse: Path, query: str, last_line: str) -> None:
    assert run_sql(warehouse, query).splitlines()[-1].rstrip() == last_line


def test_csv_has_a_header_and_json_is_a_list_of_objects(warehouse: Path) -> None:
    query = "SELECT 1 AS n, 'a' AS s"
    assert run_sql(warehouse, query, "--format", "csv") == "n,s\n1,a\n"
    assert run_sql(warehouse, query, "--format", "json") == '[\n  {\n    "n": 1,\n    "s": "a"\n  }\n]\n'


def test_a_table_that_is_piped_has_one_line_a_row_however_wide(warehouse: Path) -> None:
    header, rule, *rows, count = run_sql(warehouse, "SELECT cluster, group_id, state FROM groups").splitlines()
    assert header.split() == ["cluster", "group_id", "state"]
    assert set(rule) == {"─"}
    assert sorted(row.split() for row in rows) == [[cluster, LONG, "Stable"] for cluster in CLUSTERS]
    assert count.strip() == "2 rows"


def test_every_column_of_a_wide_row_is_printed(warehouse: Path) -> None:
    header, _, *rows, _ = run_sql(warehouse, "SELECT * FROM groups").splitlines()
    assert header.split()[:2] == ["cluster", "group_id"]
    assert len(header.split()) == len(table("groups").names)
    assert len(rows) == 2


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster_selects_the_rows_of_tables_and_views(warehouse: Path, name: str) -> None:
    query = "SELECT DISTINCT cluster, member_id FROM members"
    assert run_sql(warehouse, query, "--format", "csv", "--cluster", name) == f"cluster,member_id\n{name},m-{name}\n"
    assert run_sql(warehouse, query, "--format", "csv").count("\n") == 3


def test_show_tables_lists_tables_and_views(warehouse: Path) -> None:
    lines = run_sql(warehouse, "show tables;", "--format", "csv").splitlines()
    assert lines[0] == "name,type,about"
    assert {tuple(line.split(",")[:2]) for line in lines} >= {("groups", "table"), ("members", "view")}


def test_a_terminal_too_narrow_for_a_row_gets_a_block_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    written = io.StringIO()
    rows = [{"group_id": "a" * 50, "state": None, "n": 1}, {"group_id": "b", "state": "Empty", "n": 2}]
    with contextlib.redirect_stdout(written):
        output.print_table(["group_id", "state", "n"], rows)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", written.getvalue())
    assert plain.splitlines() == [
        "-[ row 1 ]-",
        f"group_id: {'a' * 50}",
        "n:        1",
        "",
        "-[ row 2 ]-",
        "group_id: b",
        "state:    Empty",
        "n:        2",
        "",
        "2 rows",
    ]
