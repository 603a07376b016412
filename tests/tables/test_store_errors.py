"""A store that denies access is one line with a hint, each time the same; one that is busy is waited for."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.tables.location import Location
from streaming_app.tables.rust_table import RustTable
from tests.support.s3_server import S3Server, s3_server
from tests.support.warehouses import make_warehouse

pytestmark = pytest.mark.slow
HINT = "credentials come from environment variables, see deploy/README.md"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(tmp_path, monkeypatch.setenv) as server:
        shutil.copytree(make_warehouse(tmp_path / "made"), server.root / "warehouse")
        yield server


COMMANDS = [
    "list",
    "describe --all-groups",
    "lag",
    "alerts",
    "status",
    "history --group g",
    "alerts end 1 --reason retired",
    "run --bootstrap-server 127.0.0.1:1",
]


def test_every_command_gives_the_hint_when_credentials_have_expired(store: S3Server) -> None:
    with store.denying_expired_credentials():
        for command in COMMANDS:
            ran = CliRunner().invoke(main, [*command.split(), "--warehouse", store.uri("warehouse")])
            assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1), ran.output
            assert HINT in ran.stderr, command


def test_a_store_that_is_busy_for_some_seconds_fails_no_read_and_no_write(store: S3Server) -> None:
    table = RustTable(Location.of(store.uri("warehouse/lag")), "default")
    file = Location.of(store.uri("warehouse/_jobs/a.json"))
    asked: tuple[Callable[[], object], ...] = (
        lambda: table.append(table.to_table([{"group_id": "g"}])),
        lambda: file.write_text("text"),
        file.parent.names,
    )
    for ask in asked:
        with store.answering_busy(6):  # delta-rs' own limit was four repetitions
            found = ask()
    assert found == ["a.json"]
    assert (table.count_rows(), file.read_text()) == (1, "text")
