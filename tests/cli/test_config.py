"""The configuration as commands take it: `streams-groups config`, and what --config does for the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from streaming_app.cli.main import main

COMMAND = Path(sys.executable).with_name("streams-groups")
READING = [["list"], ["describe", "--all-groups"], ["sql", "SELECT 1"], ["status"], ["alerts"]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "streams-groups.yaml"
    path.write_text(f"warehouse: {tmp_path / 'of-the-file'}\ncluster: of-the-file\n")
    return path


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(*arguments: object, **variables: str) -> Result:
    return CliRunner().invoke(
        main,
        [str(one) for one in arguments],
        env={f"STREAMS_GROUPS_{name}": value for name, value in variables.items()},
    )


def shown(*arguments: object, **variables: str) -> Any:
    """What `config` says is in force."""
    told = ran("config", "--format", "json", *arguments, **variables)
    assert told.exit_code == 0, told.output
    return json.loads(told.stdout)


FLAGS: list[tuple[str, str, str, str]] = [
    ("bootstrap_server", "a:1", "b:1", "c:1"),
    ("command_config", "/a", "/b", "/c"),
    ("warehouse", "/a", "/b", "/c"),
    ("cluster", "a", "b", "c"),
    ("topic", "a", "b", "c"),
    ("dialect", "kip-1331", "shipped", "kip-1331"),
    ("trigger", "1.5", "2.5", "3.5"),
    ("max_offsets_per_trigger", "1", "2", "3"),
    ("retention_days", "1.5", "2.5", "3.5"),
]


@pytest.mark.parametrize(("key", "in_file", "variable", "flag"), FLAGS, ids=[flag[0] for flag in FLAGS])
def test_a_flag_wins_over_a_variable_and_that_over_the_file(
    key: str, in_file: str, variable: str, flag: str, tmp_path: Path
) -> None:
    config = tmp_path / "f.yaml"
    config.write_text(f"{key}: {in_file}")
    given = [f"--{key.replace('_', '-')}", flag]

    assert str(shown("--config", config)[key]) == in_file
    assert str(shown("--config", config, **{key.upper(): variable})[key]) == variable
    assert str(shown("--config", config, *given, **{key.upper(): variable})[key]) == flag
    assert str(shown(CONFIG=str(config))[key]) == in_file


def test_a_flag_that_says_the_default_wins_too(file: Path) -> None:
    assert shown("--config", file, "--cluster", "default", CLUSTER="b")["cluster"] == "default"


def test_settings_of_spark_are_put_together_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("conf: {a: file, b: file, c: file}")

    told = shown("--config", "f.yaml", "--conf", "c=flag", "--conf", "d=x=y", CONF='{"b": "variable", "c": "variable"}')

    assert told["conf"] == {"a": "file", "b": "variable", "c": "flag", "d": "x=y"}


def test_yaml_tells_who_said_each_value(file: Path) -> None:
    told = ran("config", "--config", file, "--topic", "t", "--metrics-listen", "127.0.0.1:0", TRIGGER="2").stdout

    lines = [line.strip() for line in told.splitlines()]
    assert lines[0] == f"# file: {file}"
    assert {
        "cluster: of-the-file  # file",
        "topic: t  # flag",
        "trigger: 2.0  # environment",
        "retention_days: 30.0  # default",
        "listen: 127.0.0.1:0  # flag",
    } <= set(lines)
    assert yaml.safe_load(told)["cluster"] == "of-the-file"


def test_a_check_says_that_there_are_no_errors_or_each_of_them(file: Path) -> None:
    good = ran("config", "--check", "--config", file)
    file.write_text("topik: a\ntrigger: soon\n")
    bad = ran("config", "--check", "--config", file)

    assert (good.exit_code, good.output) == (0, f"{file}: no errors\n")
    assert (bad.exit_code, bad.stdout) == (1, "")
    assert sorted(bad.stderr.splitlines()) == [
        f"Error: {file}: topik: is no known key; did you mean topic?",
        f'Error: {file}: trigger: must be a number, not "soon"',
    ]


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_every_reading_command_takes_the_warehouse_of_the_file_unless_told_otherwise(
    command: list[str], file: Path, tmp_path: Path
) -> None:
    def looked_in(*arguments: object, **variables: str) -> str:
        told = ran(*command, *arguments, **variables)
        assert told.exit_code == 1
        return told.stderr.split(" (no table")[0].rpartition("/")[2].split()[0].rstrip(":,")

    other = tmp_path / "other"
    assert looked_in("--config", file) == "of-the-file"
    assert looked_in(CONFIG=str(file)) == "of-the-file"
    assert looked_in("--config", file, WAREHOUSE=str(other)) == "other"
    assert looked_in("--config", file, "--warehouse", other, WAREHOUSE="/x") == "other"


def test_a_reading_command_needs_none_of_the_secrets_in_the_file(file: Path) -> None:
    file.write_text(file.read_text() + "sinks: [{type: slack, url: '${env:NO_SUCH_VARIABLE}'}]\n")

    assert "No streams-groups warehouse" in ran("list", "--config", file).stderr
    assert "NO_SUCH_VARIABLE is not set" in ran("config", "--config", file).stderr


@pytest.mark.parametrize("command", ["run", "verify"])
def test_a_command_that_is_told_of_no_broker_in_any_way_is_wrong_usage(command: str, file: Path) -> None:
    told = ran(command, "--config", file)

    assert told.exit_code == 2
    assert (
        "Missing option '--bootstrap-server'. Or set STREAMS_GROUPS_BOOTSTRAP_SERVER, or bootstrap_server"
        in told.stderr
    )


@pytest.mark.parametrize("how", ["file", "variable"])
def test_the_brokers_of_the_file_or_the_environment_are_asked(how: str, file: Path) -> None:
    # run notices the directory that is no file before it asks a broker: so it got that far
    more = f"command_config: {file.parent / 'nowhere'}\n"
    server = "bootstrap_server: 127.0.0.1:1\n" if how == "file" else ""
    file.write_text(file.read_text() + more + server)

    told = ran("run", "--config", file, **({} if server else {"BOOTSTRAP_SERVER": "127.0.0.1:1"}))

    assert (told.exit_code, "nowhere" in told.stderr) == (1, True)


def test_a_wrong_flag_of_the_job_is_wrong_usage_and_a_wrong_key_is_not() -> None:
    flag = ran("run", "--bootstrap-server", "h:1", "--cluster", "a/b")
    variable = ran("run", "--bootstrap-server", "h:1", CLUSTER="a/b")

    assert (flag.exit_code, variable.exit_code) == (2, 1)
    assert 'Error: --cluster: must be letters, digits, ".", "_" and "-", not "a/b"' in flag.stderr
    assert variable.stderr.startswith("Error: STREAMS_GROUPS_CLUSTER: cluster: must be ")


def test_a_pair_that_is_none_is_not_repeated_as_it_may_hold_a_secret() -> None:
    told = ran("config", "--conf", "spark.password:hunter2")

    assert told.exit_code == 2
    assert "hunter2" not in told.output


def test_a_file_that_is_not_there_is_one_line() -> None:
    told = ran("list", "--config", "nowhere.yaml")

    assert (told.exit_code, told.stderr) == (1, "Error: nowhere.yaml: cannot be read: No such file or directory\n")


def test_a_variable_that_looks_like_a_slip_is_a_warning(file: Path) -> None:
    told = ran("config", "--check", "--config", file, WAREHOSE="/w")

    assert told.exit_code == 0
    assert told.stderr == "Warning: STREAMS_GROUPS_WAREHOSE says nothing; did you mean STREAMS_GROUPS_WAREHOUSE?\n"


def test_help_and_reading_without_a_file_load_no_settings() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom streaming_app.cli.main import main\n"
        "CliRunner().invoke(main, ['run', '--help'])\n"
        "print(sorted({'pydantic', 'yaml', 'pyspark'} & sys.modules.keys()))\n"
        "CliRunner().invoke(main, ['list'])\nprint('streaming_app.config.settings' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMS_GROUPS_")}

    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )

    assert told.stdout == "[]\nFalse\n"


def test_the_installed_command_reads_a_file_that_the_environment_names(file: Path) -> None:
    environment = os.environ | {"STREAMS_GROUPS_CONFIG": str(file)}

    told = subprocess.run([COMMAND, "config"], env=environment, capture_output=True, text=True, check=False, timeout=60)

    assert (told.returncode, told.stderr) == (0, "")
    assert "cluster: of-the-file  # file" in told.stdout
