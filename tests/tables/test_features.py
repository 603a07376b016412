"""A table feature that delta-rs cannot write is one line, of `check` and of `run`; and no other is refused."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake.exceptions import CommitFailedError

from streaming_app.checks.result import FAILED
from streaming_app.checks.warehouse import check_format
from streaming_app.cli.main import main
from streaming_app.errors import JobError
from streaming_app.job.owner import ClusterOwner, owner_location
from streaming_app.tables.fence import Fence
from streaming_app.tables.formats import WRITABLE
from streaming_app.tables.kept_table import ConflictError
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.rust_table import RustTable
from streaming_app.text import EPOCH
from tests.support.warehouses import make_warehouse

REFUSED = ["domainMetadata", "icebergCompatV1", "identityColumns", "inCommitTimestamp", "rowTracking", "typeWidening"]
OF_READERS = {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint"}
OF_READERS |= {"variantType", "variantType-preview"}


def of_feature(name: str) -> dict[str, Any]:
    """Return the protocol that another tool writes into the log when it adds a feature."""
    readers = {"minReaderVersion": 3, "readerFeatures": [name]} if name in OF_READERS else {"minReaderVersion": 1}
    return {**readers, "minWriterVersion": 7, "writerFeatures": [name]}


def add(protocol: dict[str, Any], table: Path) -> None:
    log = table / "_delta_log"
    version = max(int(file.stem) for file in log.glob("*.json")) + 1
    (log / f"{version:020}.json").write_text(json.dumps({"protocol": protocol}), "utf-8")


OLD = {f"version {number}": {"minReaderVersion": 1, "minWriterVersion": number} for number in (4, 6)}
PROTOCOLS = {**{name: of_feature(name) for name in (*sorted(WRITABLE), *REFUSED)}, **OLD}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_check_of_a_table_says_what_delta_rs_can_write(name: str, tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path)
    add(PROTOCOLS[name], warehouse / "lag")
    try:
        Fence("default", 1).claim([Location.of(warehouse / "lag")])
        can_be_written = True
    except ConflictError:  # which would be repeated
        raise
    except CommitFailedError:
        can_be_written = False
    result = check_format(Location.of(warehouse))
    assert (result.status != FAILED) == can_be_written, result
    assert can_be_written == (name in WRITABLE or name == "version 4")


def test_the_job_names_table_and_feature_in_one_line_and_ends(tmp_path: Path) -> None:
    add(of_feature("rowTracking"), make_warehouse(tmp_path) / "group_events")
    ran = CliRunner().invoke(main, ["run", "--bootstrap-server", "127.0.0.1:1", "--warehouse", str(tmp_path)])
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert f"{tmp_path}/group_events has the table feature rowTracking, which delta-rs cannot write: drop" in ran.stderr


def test_a_feature_that_is_added_while_the_job_runs_fails_the_write_with_the_name_of_the_table(tmp_path: Path) -> None:
    table = RustTable(Location.of(make_warehouse(tmp_path) / "lag"), "default", Fence("default", 1))
    add(of_feature("domainMetadata"), tmp_path / "lag")
    with pytest.raises(OSError, match=r"Cannot write the table lag: .*DomainMetadata"):
        table.append(table.to_table([{"group_id": "g"}]))


def test_an_owner_whose_term_cannot_be_committed_says_so_and_does_not_try_for_ever(tmp_path: Path) -> None:
    place = owner_location(Location.of(tmp_path), "default")
    ClusterOwner(place, "default", 1, lambda: 0.0, Event()).sign()
    add(of_feature("rowTracking"), place.path)
    owner = ClusterOwner(place, "default", 2, lambda: 0.0, Event())
    with pytest.raises(JobError, match=r"Cannot read or write .*_jobs: .*RowTracking"):
        owner.sign()


def test_rows_of_a_table_with_a_feature_of_readers_do_not_expire_and_a_line_says_why(tmp_path: Path) -> None:
    """A file alone does not say its rows: a deletion vector may delete some."""
    own = RustTable(Location.of(make_warehouse(tmp_path) / "lag_history"), "default")
    own.append(own.to_table([{"group_id": "g", "observed_at": EPOCH}]))
    add(of_feature("deletionVectors"), tmp_path / "lag_history")
    with pytest.raises(OSError, match=r"^Cannot write the table lag_history: another tool has added [^\n]+; drop it"):
        MaintainedTable(own, 7).maintain()
    assert own.count_rows() == 1
