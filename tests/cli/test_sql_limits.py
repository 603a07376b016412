"""`sql` and `streaming_app.query` run one SELECT, within limits; whatever else is refused in a line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import streaming_app
from streaming_app.cli.main import main
from streaming_app.errors import WarehouseError
from tests.warehouses import make_warehouse

REFUSED = (
    "COPY groups TO '{file}'",
    "EXPLAIN ANALYZE COPY groups TO '{file}'",
    "ANALYZE COPY groups TO '{file}'",
    "explain verbose COPY groups TO '{file}'",
    "/* SELECT */ COPY groups TO '{file}'",
    " -- SELECT 1\nCOPY groups TO '{file}'",
    "SELECT 1; COPY groups TO '{file}'",
    "WITH a AS (SELECT 1) INSERT INTO groups SELECT * FROM groups",
    "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/hostname'",
    "DROP TABLE groups",
    "DELETE FROM groups",
    "SET datafusion.runtime.memory_limit = '90G'",
    "EXPLAIN ANALYZE SELECT 1",
)
RUN = (
    "SELECT count(*) AS n FROM groups",
    "SELECT g.group_id, m.group_id FROM groups g LEFT JOIN members m ON g.group_id = m.group_id",
    "WITH a AS (SELECT 1 AS x) SELECT x FROM a ORDER BY x LIMIT 3 -- done",
    "(SELECT 1) UNION ALL (SELECT 2);",
    "EXPLAIN SELECT 1",
    "SELECT 'COPY groups TO x; DROP TABLE groups' AS text",
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_warehouse(tmp_path_factory.mktemp("sql") / "warehouse")


@pytest.mark.parametrize("query", REFUSED)
def test_a_statement_that_is_no_query_is_refused_and_writes_nothing(
    query: str, warehouse: Path, tmp_path: Path
) -> None:
    text = query.format(file=tmp_path / "out.csv")
    with pytest.raises(WarehouseError) as refused:
        streaming_app.query(warehouse, text)
    assert "\n" not in str(refused.value)
    result = CliRunner().invoke(main, ["sql", text, "--warehouse", str(warehouse)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == f"Error: {refused.value}"
    assert list(tmp_path.iterdir()) == []
    assert streaming_app.query(warehouse, "SELECT count(*) AS n FROM groups").to_pylist() == [{"n": 0}]


@pytest.mark.parametrize("query", RUN)
def test_one_query_is_run(query: str, warehouse: Path) -> None:
    assert CliRunner().invoke(main, ["sql", query, "--warehouse", str(warehouse)]).exit_code == 0
    streaming_app.query(warehouse, query)


def test_a_file_is_no_table(warehouse: Path) -> None:
    result = CliRunner().invoke(main, ["sql", "SELECT * FROM '/etc/hostname'", "--warehouse", str(warehouse)])
    assert result.exit_code == 1
    assert "not found" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        ("SELECT repeat('x', 2000000000) AS x", [], "needs more than 4 GiB of memory: --memory gives it more"),
        (
            "SELECT count(DISTINCT a.value * 100003 + b.value) AS n FROM generate_series(1, 20000) AS a, "
            "generate_series(1, 20000) AS b",
            ["--memory", "2g", "--timeout", "10m"],
            "needs more than 2 GiB of memory",
        ),
        (
            "SELECT sum(a.value * b.value % 7) AS n FROM generate_series(1, 4000000) AS a, "
            "generate_series(1, 4000000) AS b",
            ["--timeout", "3s"],
            "took more than 3s: --timeout gives it longer",
        ),
    ],
    ids=["a text", "distinct values", "time"],
)
def test_a_query_that_takes_too_much_ends_with_a_line(
    query: str, options: list[str], words: str, warehouse: Path
) -> None:
    command = [sys.executable, "-m", "streaming_app", "sql", query, "--warehouse", str(warehouse), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert words in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_modules_of_the_working_directory_are_not_imported(warehouse: Path, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit(3)\n", "utf-8")
    program = Path(sys.executable).parent / "streams-groups"
    command = [program, "sql", "--warehouse", warehouse, "--format", "csv", "SELECT 1 AS one"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["one", "1"]), done.stderr
