"""What a command asks of an object store waits for few requests before it: the store takes a while for each."""

import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from unittest.mock import Mock
from uuid import uuid4

import pytest

from streaming_app.tables.definitions import tables
from streaming_app.tables.fence import Fence
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import maintained_tables
from streaming_app.tables.writer import TableWriter
from tests.cli.commands import run
from tests.support.s3_server import S3Server, s3_server
from tests.support.sample_groups import RICH, write_sample

pytestmark = pytest.mark.slow
_COMMITS = 4
"""After a checkpoint, of each table: the job makes the next one after fifty."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        sample = Location.of(write_sample(server.root / "sample", datetime.now(timezone.utc), hostile=False))
        (sample / "_checkpoints" / "default" / "sources" / "0" / "0").write_text("Spark's, which `status` lists, too")
        fence = Fence("default", 1)
        for one in maintained_tables(TableWriter(Mock(), sample, "default", fence), 14, 14):
            one.own.open().create_checkpoint()
        for _ in range(_COMMITS):
            fence.claim(sample / one.name for one in tables())
        yield server


@pytest.mark.parametrize(
    "command",
    [
        *(["status"], ["list"], ["list", "--state"], ["lag"], ["alerts"], ["history", RICH], ["why", RICH]),
        *(["describe", RICH], ["describe", RICH, "--json"], ["sql", "SELECT count(*) AS n FROM group_overview"]),
    ],
    ids=" ".join,
)
def test_a_command_waits_for_ten_requests_at_most(
    command: list[str], store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.use(monkeypatch.setenv)
    warehouse = uuid4().hex  # this process keeps tables that it opens again
    shutil.copytree(store.root / "sample", store.root / warehouse)
    with store.counted_in_line() as in_line:
        result = run(store.uri(warehouse), *command)
    assert result.exit_code == 0, result.output
    assert in_line[0] <= 10
