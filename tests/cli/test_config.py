"""`check --show-config`, and the option --config of the other commands."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streaming_app.cli.main import main
from streaming_app.web.access import Access
from tests.support.waiting import MINUTES
from tests.support.warehouses import make_warehouse

pytestmark = pytest.mark.slow

READ_COMMANDS = [["list"], ["describe", "--all-groups"], ["sql", "SELECT 1"], ["status"], ["alerts"]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "streams-groups.yaml"
    path.write_text(f"warehouse: {tmp_path / 'from-file'}\ncluster: from-file\n")
    return path


@pytest.fixture(autouse=True)
def _empty_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_cli(*arguments: object, **variables: str) -> Result:
    return CliRunner().invoke(
        main,
        [str(one) for one in arguments],
        env={f"STREAMS_GROUPS_{name}": value for name, value in variables.items()},
    )


def test_the_configuration_is_printed_or_each_error(file: Path) -> None:
    valid = run_cli("check", "--show-config", "--config", file)
    file.write_text("topik: a\ntrigger: soon\n")
    invalid = run_cli("check", "--show-config", "--config", file)

    assert (valid.exit_code, valid.stdout.splitlines()[:2]) == (
        0,
        [f"# file: {file}", "# set by file: cluster, warehouse"],
    )
    assert (invalid.exit_code, invalid.stdout) == (2, "")
    assert sorted(invalid.stderr.splitlines()) == [
        f"Error: {file}: topik: is not a known key; did you mean topic?",
        f'Error: {file}: trigger: must be seconds, or a duration such as 90s, 5m or 1h30m, not "soon"',
    ]


def test_a_read_command_does_not_need_the_secrets_in_the_file(file: Path) -> None:
    file.write_text(file.read_text() + "sinks: [{type: webhook, url: '${env:NO_SUCH_VARIABLE}'}]\n")

    assert "No streams-groups warehouse" in run_cli("list", "--config", file).stderr
    assert "NO_SUCH_VARIABLE is not set" in run_cli("check", "--config", file).stderr


COMMANDS_WITH_A_CLUSTER = [*READ_COMMANDS, ["verify", "--bootstrap-server", "h:1"], ["run"], ["check"], ["demo"]]


@pytest.mark.parametrize("command", COMMANDS_WITH_A_CLUSTER, ids=lambda command: command[0])
def test_no_command_accepts_a_cluster_name_that_is_not_one_file_name(command: list[str], file: Path) -> None:
    new = file.parent / "new"
    for name in ("..", "../other", "", "a\nb", "n" * 201, "a.state0.json.new"):
        result = run_cli(*command, "--cluster", name, "--config", file, WAREHOUSE=str(new))

        errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        assert (result.exit_code, len(errors)) == (2, 1), result.output
        assert errors[0].startswith("Error: --cluster: must be letters, digits, ")
        assert not new.exists()
    result = run_cli(*command, CLUSTER="..")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("Error: STREAMS_GROUPS_CLUSTER: cluster: must be ")


def test_an_invalid_conf_flag_is_not_printed_because_it_may_contain_a_secret() -> None:
    result = run_cli("check", "--conf", "spark.password:hunter2")

    assert result.exit_code == 2
    assert "hunter2" not in result.output


def test_reading_tables_loads_neither_pandas_nor_a_terminal(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path / "w")
    code = f"""import sys
from click.testing import CliRunner
from streaming_app.cli.main import main
for command in (['list'], ['describe', '--all-groups', '--json'], ['status']):
    assert CliRunner().invoke(main, [*command, '--warehouse', {str(warehouse)!r}]).exit_code == 0, command
print(sorted({{'pandas', 'rich.console', 'pyspark'}} & sys.modules.keys()))"""

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=MINUTES)
    assert ran.stdout == "[]\n"


def test_the_server_of_the_page_reads_its_section(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Access] = []
    monkeypatch.setattr("streaming_app.web.page.serve", lambda *arguments: served.append(arguments[2]))
    file.write_text("page: {allowed_hosts: [A.example]}\n")
    for variables in ({}, {"PAGE__ALLOWED_HOSTS": '["B"]'}):
        result = run_cli("web", "--config", file, **variables)
        assert result.exit_code == 0, result.output
    assert [one.allowed_hosts for one in served] == [{"A.example"}, {"B"}]
