"""`sql`: output in each format; like `streaming_app.query` it runs one SELECT, within limits, and refuses all else."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import streaming_app
from streaming_app.errors import WarehouseError
from streaming_app.tables.definitions import table
from tests.cli.commands import run
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row, member_row
from tests.support.waiting import MINUTES, wait_until
from tests.support.warehouses import append, make_warehouse

pytestmark = pytest.mark.slow

CLUSTERS = ("default", "prod")
LONG = "orders-" + "x" * 300


@pytest.fixture(scope="module")
def two_clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    for cluster in CLUSTERS:
        write_heartbeat(path, cluster)
        append(path, "groups", group_row(LONG, cluster=cluster, members=[member_row(f"m-{cluster}")]))
    return path


def test_csv_has_a_header_and_json_is_a_list_of_objects(two_clusters: Path) -> None:
    query = "SELECT 1 AS n, 'a' AS s"
    assert run(two_clusters, "sql", query, "--format", "csv").stdout == "n,s\n1,a\n"
    assert run(two_clusters, "sql", query, "--format", "json").stdout == '[\n  {\n    "n": 1,\n    "s": "a"\n  }\n]\n'
    lines = run(two_clusters, "sql", "show tables;", "--format", "csv").stdout.splitlines()
    assert lines[0] == "name,type,about"
    assert {tuple(line.split(",")[:2]) for line in lines} >= {("groups", "table"), ("members", "view")}


def test_a_table_that_is_piped_has_one_line_a_row_however_wide_and_their_number(two_clusters: Path) -> None:
    header, rule, *rows, count = run(
        two_clusters, "sql", "SELECT cluster, group_id, state FROM groups"
    ).stdout.splitlines()
    assert header.split() == ["cluster", "group_id", "state"]
    assert set(rule) == {"─"}
    assert sorted(row.split() for row in rows) == [[cluster, LONG, "Stable"] for cluster in CLUSTERS]
    assert count.strip() == "2 rows"
    header, _, *rows, _ = run(two_clusters, "sql", "SELECT * FROM groups").stdout.splitlines()
    assert len(header.split()) == len(table("groups").names)
    assert len(rows) == 2
    assert run(two_clusters, "sql", "SELECT * FROM quarantine").stdout.splitlines()[-1].strip() == "0 rows"


def test_a_cluster_selects_the_rows_of_tables_and_views(two_clusters: Path) -> None:
    query = "SELECT DISTINCT cluster, member_id FROM members"
    selected = run(two_clusters, "sql", query, "--format", "csv", "--cluster", "prod").stdout
    assert selected == "cluster,member_id\nprod,m-prod\n"
    assert run(two_clusters, "sql", query, "--format", "csv").stdout.count("\n") == 3


REFUSED = (
    "COPY groups TO '{file}'",
    "EXPLAIN ANALYZE COPY groups TO '{file}'",
    "/* SELECT */ COPY groups TO '{file}'",
    "SELECT 1; COPY groups TO '{file}'",
    "WITH a AS (SELECT 1) INSERT INTO groups SELECT * FROM groups",
    "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/hostname'",
    "DROP TABLE groups",
    "SET datafusion.runtime.memory_limit = '90G'",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN SELECT 1",
    "SELECT * FROM (SELECT 1 AS a INTO x)",
    "SELECT * FROM '/etc/hostname'",
    "",
)
RUN = (
    "SELECT g.group_id, m.group_id FROM groups g LEFT JOIN members m ON g.group_id = m.group_id",
    "WITH a AS (SELECT 1 AS x) SELECT x FROM a ORDER BY x LIMIT 3 -- done",
    "(SELECT 1) UNION ALL (SELECT 2);",
    "SELECT 'COPY groups TO x; DROP TABLE groups' AS text",
)


MODULE = ("-m", "streaming_app")
ENDLESS = (
    "SELECT sum(a.value * b.value % 7) AS n FROM generate_series(1, 4000000) AS a, generate_series(1, 4000000) AS b"
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_warehouse(tmp_path_factory.mktemp("sql") / "warehouse")


def sql(warehouse: Path, query: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, *MODULE, "sql", query, "--warehouse", str(warehouse), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * MINUTES)


@pytest.mark.parametrize("query", REFUSED)
def test_a_statement_that_is_no_query_is_refused_and_writes_nothing(
    query: str, warehouse: Path, tmp_path: Path
) -> None:
    text = query.format(file=tmp_path / "out.csv")
    with pytest.raises(WarehouseError) as refused:
        streaming_app.query(warehouse, text)
    assert "\n" not in str(refused.value)
    result = run(warehouse, "sql", text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == f"Error: {refused.value}"
    assert list(tmp_path.iterdir()) == []
    assert streaming_app.query(warehouse, "SELECT count(*) AS n FROM groups").to_pylist() == [{"n": 0}]


@pytest.mark.parametrize("query", RUN)
def test_one_query_is_run(query: str, warehouse: Path) -> None:
    assert run(warehouse, "sql", query).exit_code == 0
    streaming_app.query(warehouse, query)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("-- groups\nSELECT nosuch FROM groups", "No field named nosuch"),
        ("SELECT group_id FROM lag WHERE status <> 'OK'", "the column status of lag went with 0.4: use offset_status"),
        ("SELECT\n1,\n2 + * 3", "found: * at Line: 3, Column: 5"),
    ],
)
def test_an_error_in_a_query_is_named_with_its_place(query: str, words: str, warehouse: Path) -> None:
    with pytest.raises(WarehouseError, match=re.escape(words)):
        streaming_app.query(warehouse, query)


@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        ("SELECT repeat('x', 2000000000) AS x", [], "needs more than 4.0 GiB of memory: raise --memory"),
        (
            "SELECT array_length(array_agg(a.value)) AS n FROM generate_series(1, 400000000) AS a",
            ["--memory", "1g", "--timeout", "10m"],
            "needs more than 1.0 GiB of memory",
        ),
        (ENDLESS, ["--timeout", "3s"], "took more than 3s: raise --timeout"),
    ],
    ids=["a text", "values in one row", "time"],
)
def test_a_query_that_takes_too_much_ends_with_a_line(
    query: str, options: list[str], words: str, warehouse: Path
) -> None:
    result = sql(warehouse, query, *options)
    assert (result.returncode, result.stdout) == (1, "")
    assert words in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_killed_leaves_no_process_behind(warehouse: Path, end: signal.Signals) -> None:
    command = [sys.executable, *MODULE, "sql", ENDLESS, "--warehouse", str(warehouse), "--timeout", "5s"]
    with subprocess.Popen(command) as running:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        started: list[str] = []

        def has_started() -> bool:
            started[:] = children.read_text("utf-8").split()
            return bool(started)

        assert wait_until(has_started)
        running.send_signal(end)
    assert wait_until(lambda: not Path("/proc", *started).exists())


def test_temporary_files_of_a_killed_query_are_removed(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    query = (
        "SELECT a.value * 100003 + b.value AS n FROM generate_series(1, 20000) AS a, "
        "generate_series(1, 20000) AS b ORDER BY n DESC"
    )
    done = sql(warehouse, query, "--memory", "1g", "--timeout", "10s")
    assert done.returncode == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_modules_of_the_working_directory_are_not_imported(warehouse: Path, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit(3)\n", "utf-8")
    program = Path(sys.executable).parent / "streams-groups"
    command = [program, "sql", "--warehouse", warehouse, "--format", "csv", "SELECT 1 AS one"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["one", "1"]), done.stderr
