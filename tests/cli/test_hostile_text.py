"""Every command, with text in the tables that a terminal would obey if it were printed as it is."""

import ast
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from streaming_app import cli
from streaming_app.alerts.alert import FIRING, Delivery
from streaming_app.cli.main import main
from streaming_app.job_status import JobStatus
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.location import Location
from tests.alerts.examples import make_alert
from tests.long.hostile import STORED, effective_characters
from tests.support.heartbeats import write_heartbeat
from tests.support.lag_harness import row as lag_row
from tests.support.warehouses import append, arrow_schema, make_warehouse

pytestmark = pytest.mark.slow

AT = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)
# the job writes these itself
NOT_HOSTILE = {"cluster": "default", "role": "active", "group_type": "streams", "protocol": "streams"}


def hostile_value(kind: pa.DataType, name: str = "") -> Any:
    """Return a value of an Arrow type in which every text is hostile."""
    if pa.types.is_list(kind):
        return [hostile_value(kind.value_type)]
    if pa.types.is_map(kind):
        return [(STORED, STORED)]
    if pa.types.is_struct(kind):
        return {field.name: hostile_value(field.type, field.name) for field in kind}
    if pa.types.is_string(kind):
        return NOT_HOSTILE.get(name, STORED)
    return None if name == "deleted_at" else AT if pa.types.is_timestamp(kind) else True if kind == pa.bool_() else 1


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    append(path, "groups", {field.name: hostile_value(field.type, field.name) for field in arrow_schema("groups")})
    texts = dict.fromkeys(("group_id", "summary", "cause"), STORED)
    told = {"deliveries": (Delivery("log", FIRING, None, 3, STORED),), "evidence": {STORED: [STORED]}}
    AlertsTable(Location(str(path)), "default").save([make_alert(cluster="default", **texts, **told)])
    names = ("group_id", "topic", "subtopology_id", "task_id", "member_id", "process_id", "client_host")
    LagTables(path, "default").replace_lag([lag_row(**dict.fromkeys(names, STORED))])
    write_heartbeat(path, at=AT, facts=JobStatus(AT, failure=STORED, failing_since=AT), host=STORED)
    return path


def run(warehouse: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--warehouse", str(warehouse)])
    assert effective_characters(result.stdout + result.stderr) == set(), result.output
    return result


ALIAS = '"' + STORED.replace("\0", "") + '"'
TEXT = [
    (["list"], 2),
    (["list", "--state"], 2),
    (["describe", "--all-groups"], 2),
    (["describe", "--all-groups", "--verbose"], 2),
    (["describe", "--group", STORED, "--members", "--verbose"], 5),  # and the endpoint
    (["describe", "--all-groups", "--topology", "--verbose"], 8),  # and four topics
    (["describe", "--all-groups", "--offsets", "--verbose"], 2),
    (["lag", "--by", "task"], 2),
    (["lag", "--group", STORED, "--by", "process"], 2),
    (["alerts"], 2),
    (["sql", "SELECT * FROM groups", "--format", "csv"], 2),
    (["sql", f"SELECT group_id AS {ALIAS} FROM groups", "--format", "csv"], 2),
]


@pytest.mark.parametrize(("command", "lines"), TEXT, ids=lambda value: " ".join(value)[:40] if value is list else None)
def test_a_row_is_a_line_without_characters_that_a_terminal_obeys(
    warehouse: Path, command: list[str], lines: int
) -> None:
    result = run(warehouse, *command)
    assert (result.exit_code, result.stdout.count("\n")) == (0, lines), result.output


@pytest.mark.parametrize("query", ["SELECT * FROM groups", f"SELECT 1 AS {ALIAS}", "SELECT members FROM groups"])
def test_a_table_on_the_terminal_has_no_such_characters(warehouse: Path, query: str) -> None:
    assert run(warehouse, "sql", query).exit_code == 0


def test_status_has_no_such_characters(warehouse: Path) -> None:
    lines = run(warehouse, "status").stdout.splitlines()
    assert lines[1].startswith("job       not running: died")
    assert lines[2].startswith("groups    1 g\\x1b[2J")
    assert lines[3:5] == ["verdicts  1 Unknown", "alerts    1 open"]


@pytest.mark.parametrize(
    "command",
    [
        ["describe", "--all-groups", "--json"],
        ["describe", "--all-groups", "--offsets", "--json"],
        ["lag", "--by", "partition", "--json"],
        ["alerts", "--json"],
        ["status", "--json"],
        ["sql", "SELECT * FROM groups", "--format", "json"],
    ],
    ids=lambda command: command[0],
)
def test_json_keeps_the_text_without_such_characters(warehouse: Path, command: list[str]) -> None:
    printed = json.loads(run(warehouse, *command).stdout)
    assert json.dumps(STORED) in json.dumps(printed)


@pytest.mark.parametrize(
    "command",
    [
        ["describe", "--group", f"no {STORED}".replace("\0", "")],
        ["list", "--state", STORED],
        ["sql", STORED],
        ["list", "--cluster", STORED],
        ["verify", "--bootstrap-server", f"127.0.0.1:1{STORED}", "--timeout", "0"],
    ],
    ids=lambda command: command[0],
)
def test_an_error_has_no_such_characters(warehouse: Path, command: list[str]) -> None:
    result = run(warehouse, *command)
    assert result.exit_code in {1, 2}
    assert [line.startswith("Error: ") for line in result.stderr.splitlines()].count(True) == 1


def test_decode_prints_valid_json_without_such_characters() -> None:
    group_id = STORED.encode()
    key = b"\x00\x14" + len(group_id).to_bytes(2, "big") + group_id
    lines = f"{key.hex()}\t00000000000700\n{STORED.splitlines()[0]}\n"
    result = CliRunner().invoke(main, ["decode"], input=lines.encode())
    assert effective_characters(result.output) == set()
    decoded, error = map(json.loads, result.stdout.splitlines())
    assert decoded["key"]["data"]["groupId"] == STORED
    assert "error" in error


def test_lines_of_the_job_have_no_such_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    def report_hostile_line(_: object, report: Any) -> None:
        report(f"The stream failed: {STORED}")

    monkeypatch.setattr("streaming_app.job.run.run", report_hostile_line)
    result = CliRunner().invoke(main, ["run", "--bootstrap-server", "h:1"])
    assert effective_characters(result.output) == set()
    assert result.output.count("\n") == 1


def test_the_configuration_as_json_has_no_such_characters(tmp_path: Path) -> None:
    conf = {"spark.app.name": STORED}
    (tmp_path / "config.yaml").write_text(json.dumps({"conf": conf}), "utf-8")
    result = CliRunner().invoke(main, ["check", "--show-config", "--json", "--config", str(tmp_path / "config.yaml")])
    assert effective_characters(result.output) == set()
    assert json.loads(result.stdout)["conf"] == conf


SAFE = {"cell", "columns", "as_json", "as_csv", "escape", "escape_json"}
OWN = {"as_yaml"}  # the user's configuration file


def is_escaped(printed: ast.expr) -> bool:
    """Return whether an expression is constant, or the result of a function that escapes."""
    match printed:
        case ast.Constant():
            return True
        case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
            return is_escaped(left) and is_escaped(right)
        case ast.Call(func=ast.Attribute(value=ast.Call() as inner, attr="encode")):
            return is_escaped(inner)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name in SAFE | OWN
    return False


@pytest.mark.parametrize("module", sorted(Path(cli.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_a_command_prints_only_what_a_function_has_escaped(module: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(node, ast.Call)]
    echoed = [call.args[0] for call in calls if ast.unparse(call.func) in {"click.echo", "print"}]
    assert [ast.unparse(one) for one in echoed if not is_escaped(one)] == []
