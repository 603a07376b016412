"""Commands ask an object store for the tables that they read, each once, and for little else."""

import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from uuid import uuid4

import pytest

from tests.cli.commands import run
from tests.support.s3_server import S3Server, s3_server
from tests.support.sample_groups import write_sample


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        write_sample(server.root / "sample", datetime.now(timezone.utc), hostile=False)
        yield server


_JUDGED = ("alerts", "group_health_history")


@pytest.mark.parametrize(
    ("command", "tables", "lists"),
    [
        ("list", [*_JUDGED, "groups"], 0),
        ("list --state", [*_JUDGED, "broker_facts", "groups"], 0),
        (
            "describe --group orders-enrichment",
            [*_JUDGED, "group_events", "group_records", "groups", "inputs", "lag", "offset_commits"],
            0,
        ),
        (
            "describe --group orders-enrichment --state",
            [*_JUDGED, "broker_facts", "group_events", "group_records", "groups", "offset_commits"],
            0,
        ),
        ("lag", ["inputs", "lag"], 0),
        ("alerts", ["alerts"], 2),
    ],
)
def test_a_command_opens_the_tables_that_it_reads_once(
    command: str, tables: list[str], lists: int, store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    warehouse = uuid4().hex  # this process keeps tables that it opens again
    shutil.copytree(store.root / "sample", store.root / warehouse)
    before = len(store.requests())
    result = run(store.uri(warehouse), *command.split())
    assert result.exit_code == 0, result.output
    requests = store.requests()[before:]
    opened = sorted(key.split("/")[1] for _, key in requests if key.endswith("/_last_checkpoint"))
    assert opened == sorted(tables * 2)  # the second look shows that nothing was cleaned up meanwhile
    assert sum(kind == "LIST" for kind, _ in requests) == lists
