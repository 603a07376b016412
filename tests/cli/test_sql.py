"""`sql`: the output in each format."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from tests.warehouses import make_warehouse


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("warehouse")
    make_warehouse(path)
    return path


def run_sql(warehouse: Path, query: str, *options: str) -> str:
    result = CliRunner().invoke(main, ["sql", query, "--warehouse", str(warehouse), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("query", "last_line"),
    [("SELECT * FROM groups", "0 rows"), ("SELECT 1 AS n", "1 row"), ("SELECT 1 AS n UNION ALL SELECT 2", "2 rows")],
)
def test_a_table_ends_with_the_number_of_rows(warehouse: Path, query: str, last_line: str) -> None:
    assert run_sql(warehouse, query).splitlines()[-1].rstrip() == last_line


def test_csv_has_a_header_and_json_is_a_list_of_objects(warehouse: Path) -> None:
    query = "SELECT 1 AS n, 'a' AS s"
    assert run_sql(warehouse, query, "--format", "csv") == "n,s\n1,a\n"
    assert run_sql(warehouse, query, "--format", "json") == '[\n  {\n    "n": 1,\n    "s": "a"\n  }\n]\n'
