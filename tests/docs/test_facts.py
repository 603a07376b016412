"""Each row of "What the sources describe" shows something: its columns hold values, its commands print what it names.

The warehouse is the sample, with a group that has what few groups have.
"""

from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.tables.reader import WarehouseReader
from tests.docs.test_sources import COLUMNS, NAMED
from tests.support.rows import member_row
from tests.support.sample_groups import RICH, WRITTEN, group, write_sample
from tests.support.warehouses import append

pytestmark = pytest.mark.slow

FULL = "full"
SHOWN_COLUMNS = sorted({name for _, name in NAMED if name in COLUMNS})
PRINTED = {
    "describe --copies": ["RESTORING", "STANDBY", "WARMUP"],
    "describe --members": ["orders-member-0", "ACTIVE: "],
    "describe --members --verbose": ["rack-a", "zone=z1", "full.example:7070", "PENDING-REVOCATION"],
    "describe --offsets": ["OFFSET-LAG", "18240"],
    "describe --offsets --verbose": ["CURRENT-OFFSET", "LOG-END-OFFSET", "1204331"],
    "describe --state": ["Reconciling", "COORDINATOR (ID)", "ASSIGNOR"],
    "describe --state --verbose": ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH"],
    "describe --topology": ["by-customer-repartition", "audit-.*"],
    "describe --topology --description": ["Topologies:"],
    "describe --topology --verbose": ["PARTITIONS", "by-customer-repartition"],
    "history": ["member_left"],
    "history --topology": [RICH],
    "lag": ["18240"],
    "list": [RICH],
    "list --state": ["Reconciling"],
    "list --type": ["Share", "Classic"],
    "list --type --state": ["Classic", "Empty"],
    "status": ["groups", "Reconciling"],
}
"""Words that a command of the table prints of the sample."""
NEEDS_A_BROKER = {"check", "decode", "verify"}
"""Commands of the table that other tests run, with a broker or without tables."""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, and a group, an offset, a copy and facts of brokers that have every column of the table."""
    path, at = tmp_path_factory.mktemp("facts") / "warehouse", WRITTEN - timedelta(hours=1)
    write_sample(path, WRITTEN, hostile=False)
    member = member_row("m1", instance_id="i1", rack_id="rack-a", client_tags={"zone": "z1"}, previous_member_epoch=1)
    member["user_endpoint"] = "full.example:7070"
    epochs = [{"topology_epoch": 0, "first_seen_at": at, "description_stored_at": at, "description_stored": True}]
    columns = {"members": [member], "topology_epochs": epochs, "description_stale_since": at}
    append(path, "groups", group(FULL, "Stable", WRITTEN, 9, **columns))
    partition = {"group_id": FULL, "topic": "t", "partition": 0, "partition_time": at}
    append(path, "lag", {**partition, "status": "OK", "observed_at": at})
    committed = {"committed_offset": 5, "committed_at": at, "expire_at": at, "last_offset": 900, "source_partition": 0}
    append(path, "offset_commits", {**partition, **committed})
    copy = {"group_id": FULL, "member_id": "m1", "subtopology_id": "0", "partition": 0, "role": "standby"}
    append(
        path,
        "task_copies",
        {**copy, "process_id": "p", "acceptable_lag": 10, "stateful": True, "rate": 5.0, "ready_at": at},
    )
    fact = {"kind": "group_config", "subject": FULL, "group_id": FULL, "name": "streams.num.standby.replicas"}
    append(path, "broker_facts", {**fact, "value": "1", "source": "group", "value_before": "0", "observed_at": at})
    described = {
        "status": "AVAILABLE",
        "text": "Topologies:\n   Sub-topology: 0\n",
        "node_count": 1,
        "truncated": False,
    }
    newest = {"topology_epoch": 0, "content_hash": "h", "is_newest": True, "fetched_at": at, "asked_at": at}
    append(path, "descriptions", {"group_id": FULL, **newest, **described})
    return path


@pytest.mark.parametrize("column", SHOWN_COLUMNS)
def test_a_column_of_the_table_holds_values(column: str, warehouse: Path) -> None:
    table, name = column.split(".")
    (row,) = WarehouseReader(warehouse).rows(f'SELECT count("{name}") AS n FROM {table}')
    assert row["n"] > 0


def test_each_command_of_the_table_has_words_that_it_prints() -> None:
    named = {name for _, name in NAMED if name.split()[0] in main.commands and "." not in name}
    assert named - PRINTED.keys() - NEEDS_A_BROKER == set()
    assert PRINTED.keys() <= named


@pytest.mark.parametrize(("command", "words"), PRINTED.items(), ids=PRINTED)
def test_a_command_of_the_table_prints_what_it_names(command: str, words: list[str], warehouse: Path) -> None:
    name, *options = command.split()
    if name in {"describe", "history"}:
        options = [FULL if {"rack-a", "Topologies:"} & set(words) else RICH, *options]
    if "--type" in options:
        options.insert(options.index("--type") + 1, "all")
    result = CliRunner().invoke(main, [name, *options, "--warehouse", str(warehouse)], env={"COLUMNS": "500"})
    assert result.exit_code == 0, result.output
    assert [word for word in words if word not in result.stdout] == []
