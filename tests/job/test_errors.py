"""Errors of the job are one line on stderr; topics without records of groups are not errors."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from streaming_app.cli.main import main
from tests.support.warehouses import make_warehouse

NO_BROKER = "127.0.0.1:1"


def in_the_way(warehouse: Path) -> None:
    warehouse.parent.touch()


def of_another_program(warehouse: Path) -> None:
    write_deltalake(warehouse / "groups", pa.table({"x": [1]}))


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (in_the_way, "Cannot write the warehouse: Not a directory"),
        (of_another_program, "was not created by streams-groups"),
    ],
    ids=["not a directory", "another program"],
)
def test_what_is_wrong_with_files_is_one_line_before_spark_starts(
    tmp_path: Path, prepare: Callable[[Path], None], message: str
) -> None:
    warehouse = tmp_path / "directory" / "warehouse"
    prepare(warehouse)
    ran = CliRunner().invoke(main, ["run", "--bootstrap-server", NO_BROKER, "--warehouse", str(warehouse)])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("Error: ")
    assert (message in ran.stderr, ran.stderr.count("\n")) == (True, 1), ran.stderr


@pytest.mark.parametrize("command", ["run", "check", "verify"])
def test_client_properties_that_cannot_be_read_are_an_invalid_configuration(command: str, tmp_path: Path) -> None:
    options = ["--bootstrap-server", NO_BROKER, "--command-config", "/nowhere.properties"]
    ran = CliRunner().invoke(main, [*command.split(), *options, "--warehouse", str(make_warehouse(tmp_path))])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == "Error: --command-config /nowhere.properties: No such file or directory\n"
