"""A warehouse that 0.3.0 wrote is upgraded once, whatever happens meanwhile; older and newer ones are refused."""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableAlterer
from pyspark.sql import SparkSession

from streaming_app.checks.result import WARNING
from streaming_app.checks.warehouse import check_format
from streaming_app.cli.main import main
from streaming_app.errors import StorageError, WarehouseError
from streaming_app.tables import upgrade_steps
from streaming_app.tables.data_files import encode_file
from streaming_app.tables.definitions import FORMAT_PROPERTY, WAREHOUSE_FORMAT, tables
from streaming_app.tables.fence import Fence
from streaming_app.tables.formats import format_of
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.table_creation import existing_tables
from streaming_app.tables.upgrade_steps import STEPS_TO
from streaming_app.tables.writer import TableWriter
from tests.support.s3_server import s3_server
from tests.support.warehouses import arrow_schema, copy_warehouse, make_warehouse
from tests.tables.test_readers import READERS, write_as_0_3_0
from tests.tables.test_streaming_readers import Seen, stream
from tests.upgrade.record import extract

HISTORY = "group_health_history"
NAMES = [one.name for one in tables() if one.name != HISTORY]
"""The tables that keep their columns."""
IN_ROOT = {"group_events": 2, "group_records": 2, "groups": 1, "topologies": 1}
"""How many files of each table 0.3.0 wrote into its root."""
_LAG = "offset_status offset_status_since waits_since unmoved_since late_since slow_since owner_since"
_CLASSIC = ["protocol", "undecoded_members", "tasks_moving", "probing_rebalance_at", "assignment_error"]
NEW = {
    "lag": _LAG.split(),
    "lag_history": ["offset_status"],
    HISTORY: ["judged_at"],
    "groups": _CLASSIC,
    "group_events": ["protocol", "topic", "partition"],
    "group_records": [],
    "task_copies": ["protocol"],
    "topologies": [],
}
"""The columns of each table that 0.4.0 brings; in `topologies`, as in `groups`, only a field of a nested column."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse as 0.3.0 left it; tests upgrade copies."""
    return extract("0.3.0", tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def warehouse(recorded: Path, tmp_path: Path) -> Path:
    return copy_warehouse(recorded, tmp_path / "warehouse")


def at(minute: int) -> datetime:
    return datetime(2026, 11, 21, 3, minute, tzinfo=timezone.utc)


def start(warehouse: Path | str, cluster: str = "default", term: int = 1_000) -> list[str]:
    """Prepare the tables as a job does at its start; return what it says."""
    lines: list[str] = []
    writer = TableWriter(cast("Any", None), warehouse, cluster, Fence(cluster, term))
    writer.prepare(lines.append)
    return lines


def opened(warehouse: Path) -> dict[str, DeltaTable]:
    return existing_tables(Location.of(warehouse))


def in_root(warehouse: Path) -> dict[str, int]:
    found = {name: len(upgrade_steps.root_files(table)) for name, table in opened(warehouse).items()}
    return {name: number for name, number in found.items() if number}


def rows(warehouse: Path) -> dict[str, Any]:
    """Return the rows by table, in the columns that both releases have."""
    return {name: values(READERS["delta-rs"](str(warehouse / name), {}), name) for name in NAMES}


def values(table: pa.Table, name: str) -> Any:
    schema = arrow_schema(name)
    kept = pa.schema([one for one in schema if one.name in table.column_names and one.name not in NEW.get(name, ())])
    found = table.select(kept.names).cast(kept).to_pylist()
    return sorted(found, key=lambda row: (row["cluster"] or "", repr(row)))


def verdicts(warehouse: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the verdicts, from the table of 0.3.0 or the view of this release; and the changes that 0.3.0 wrote."""
    changes = DeltaTable(warehouse / HISTORY).to_pyarrow_table()
    if "judged_at" in changes.column_names:
        changes = changes.filter(pc.field("judged_at").is_null())
    changes = changes.select(["group_id", "at", "verdict", "severity", "since", "why", "evidence"]).sort_by("at")
    if [*(warehouse / "group_health").rglob("*.json")]:  # a store's server leaves empty directories
        found = DeltaTable(warehouse / "group_health").to_pyarrow_table().to_pylist()
    else:
        found = WarehouseReader(warehouse).rows("SELECT * FROM group_health")
    kept = ("group_id", "verdict", "severity", "since", "judged_at", "why", "evidence", "losing_at", "inputs_at")
    judged = sorted(({name: row[name] for name in kept} for row in found), key=lambda row: row["group_id"])
    return judged, changes.to_pylist()


def check_is_upgraded(warehouse: Path, recorded: Path) -> None:
    assert {format_of(one) for one in opened(warehouse).values()} == {WAREHOUSE_FORMAT}
    assert (in_root(warehouse), rows(warehouse)) == ({}, rows(recorded))
    assert verdicts(warehouse) == verdicts(recorded)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"status": "OK"}, {"offset_status": "OK"}),
        ({"status": "OK", "behind_since": at(5)}, {"offset_status": "WAITS", "waits_since": at(5)}),
        ({"status": "STOPPED", "behind_since": at(5)}, {"offset_status": "WAITS", "unmoved_since": at(2)}),
        ({"status": "STALLED", "status_since": at(7)}, {"offset_status": "WAITS", "unmoved_since": at(6)}),
        ({"status": "BEHIND", "lag_seconds": 600.0, "status_since": at(7)}, {"late_since": at(7), "slow_since": at(7)}),
        ({"status": "BEHIND", "lag_seconds": 599.0, "status_since": at(7)}, {"late_since": None, "slow_since": None}),
        ({"status": "AHEAD", "status_since": at(7)}, {"offset_status": "AHEAD", "waits_since": at(7)}),
        ({"status": "REWOUND", "status_since": at(7)}, {"offset_status": "REWOUND", "offset_status_since": at(7)}),
        ({"committed_offset": None, "status": "UNKNOWN"}, {"offset_status": "UNKNOWN", "unmoved_since": at(9)}),
    ],
    ids=lambda one: str(next(iter(one.values()))),
)
def test_what_offsets_prove_follows_from_the_statuses_of_0_3(
    warehouse: Path, old: dict[str, Any], new: dict[str, Any]
) -> None:
    row = {"cluster": "other", "group_id": "g", "committed_offset": 5, "committed_at": at(2), "observed_at": at(9)}
    theirs = DeltaTable(warehouse / "lag")
    rows = pa.Table.from_pylist([{**row, **old}], pa.schema(theirs.schema().to_arrow()))
    write_deltalake(theirs, rows, mode="append")
    start(warehouse)
    (found,) = RustTable(Location.of(warehouse / "lag"), "other").select(", ".join(new)).to_pylist()
    assert found == new


def test_an_upgrade_is_done_once(warehouse: Path, recorded: Path) -> None:
    first, *_, last = start(warehouse)
    assert first == "Upgrading the warehouse from 0.3 to 0.4, once: 6 files (0 MB) of 15 tables"
    assert last.startswith("The warehouse is upgraded to 0.4: ")
    versions = {name: one.version() for name, one in opened(warehouse).items()}
    assert start(warehouse) == []
    claims = 1  # of the new term
    assert {name: one.version() - claims for name, one in opened(warehouse).items()} == versions
    check_is_upgraded(warehouse, recorded)


def test_the_check_says_before_what_the_job_will_do_and_how_long_it_takes(warehouse: Path) -> None:
    result = check_format(Location.of(warehouse))
    assert (result.status, result.text) == (
        WARNING,
        "of 0.3: the job upgrades them at its start, 6 files (0 MB) of 15 tables, in about 1 s",
    )
    assert in_root(warehouse) == IN_ROOT, "it has changed nothing"


def test_a_command_of_this_release_says_that_the_job_comes_first(warehouse: Path) -> None:
    with pytest.raises(WarehouseError, match=r"^\S+ is of 0.3: start the job of this release first, to upgrade it$"):
        WarehouseReader(warehouse).rows("SELECT 1 FROM groups")


class KilledError(BaseException):
    pass


WRITES: list[tuple[Any, str]] = [
    (Location, "write_bytes"),
    (DeltaTable, "create_write_transaction"),
    (TableAlterer, "set_table_properties"),
    (TableAlterer, "add_columns"),
    (upgrade_steps, "write_deltalake"),
]


def every_write(patched: pytest.MonkeyPatch, of: Callable[[int, Callable[[], Any]], Any]) -> None:
    """Call `of` with the number of each write of this process, and what does it, instead."""
    number = iter(range(1_000_000))
    for owner, name in WRITES:
        write = getattr(owner, name)

        def counted(*args: Any, _write: Any = write, **options: Any) -> Any:
            return of(next(number), lambda: _write(*args, **options))

        patched.setattr(owner, name, counted)


def write_numbers() -> tuple[range, int]:
    """Return the numbers of the writes that copy, commit and move, where each commit has a file; and of all writes."""
    claims, formats = len(tables()), len(tables())
    every = claims + 2 * sum(IN_ROOT.values()) + formats + len(NEW) + 1  # the verdicts move
    return range(claims - 1, every - formats), every


def check_kill(
    after: int,
    recorded: Path,
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException] = KilledError,
) -> None:
    """Kill an upgrade after a write, which leaves the same as a kill before the next one; start again."""
    copy_warehouse(recorded, warehouse)

    def write(number: int, do: Callable[[], Any]) -> Any:
        result = do()
        if number == after:
            raise error("no space\nis left")
        return result

    with monkeypatch.context() as patched:
        patched.setattr(upgrade_steps, "_FILES_PER_COMMIT", 1)
        every_write(patched, write)
        with pytest.raises((KilledError, StorageError)) as raised:
            start(warehouse)
    assert error is KilledError or "no space is left" in str(raised.value)
    start(warehouse)
    check_is_upgraded(warehouse, recorded)


def test_an_upgrade_that_is_killed_at_any_write_goes_on_at_the_next_start(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a third of the writes, of each kind; `tests/long/test_upgrade_kills.py` has all."""
    numbers, every = write_numbers()
    for number in (*numbers[::3], every - 1):
        check_kill(number, recorded, tmp_path / str(number), monkeypatch)
    check_kill(numbers[4], recorded, tmp_path / "error", monkeypatch, OSError)


def test_what_other_jobs_commit_meanwhile_is_kept(
    warehouse: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a copy and its commit, and between a table's open and its commit: rows of two clusters change."""
    copy, write, names = upgrade_steps._copy, RustTable._commit, list[str]()

    def copied(own: RustTable, table: DeltaTable, file: upgrade_steps.RootFile) -> None:
        copy(own, table, file)
        name = own.location.name
        if name not in names:  # once in each table: all rows of the cluster go into other files
            names.append(name)
            theirs = DeltaTable(warehouse / name)  # with the columns of 0.3
            schema = pa.schema(theirs.schema().to_arrow())
            mine = RustTable(own.location, "default").select("*").select(schema.names).cast(schema)
            write_deltalake(theirs, mine, mode="overwrite", predicate="cluster = 'default'")
            others = pa.Table.from_pylist([{"cluster": "other", "group_id": "g"}], schema)
            write_deltalake(theirs, others, mode="append")

    overtaken = list[str]()

    def commit(self: RustTable, batch: Any, files: Any) -> Any:
        made = write(self, batch, files)
        if self.cluster == "default" and self.location.name not in overtaken and self.location.name == "lag":
            overtaken.append(self.location.name)
            theirs = DeltaTable(warehouse / "lag")  # as a job of 0.3 has it
            row = pa.Table.from_pylist([{"cluster": "other", "group_id": "g"}], pa.schema(theirs.schema().to_arrow()))
            write_deltalake(theirs, row, mode="append")
        return made

    monkeypatch.setattr(upgrade_steps, "_copy", copied)
    monkeypatch.setattr(RustTable, "_commit", commit)
    start(warehouse)
    assert (sorted(names), overtaken) == (sorted(IN_ROOT), ["lag"])
    assert {format_of(one) for one in opened(warehouse).values()} == {WAREHOUSE_FORMAT}
    assert in_root(warehouse) == {}
    before, after = rows(recorded), rows(warehouse)
    for name in NAMES:
        added = [row for row in after[name] if row not in before[name]]
        assert [row for row in after[name] if row in before[name]] == before[name]
        assert [(row["cluster"], row["group_id"]) for row in added] == (
            [("other", "g")] if name in {*IN_ROOT, "lag"} else []
        )


def test_jobs_of_two_clusters_upgrade_the_tables_that_they_share_at_once(warehouse: Path, recorded: Path) -> None:
    program = "import sys; from tests.upgrade.test_upgrade import start; start(sys.argv[1], sys.argv[2])"
    jobs = [
        subprocess.Popen([sys.executable, "-c", program, str(warehouse), name], stderr=subprocess.PIPE, text=True)
        for name in ("default", "other")
    ]
    assert [one.communicate()[1] for one in jobs] == ["", ""]
    check_is_upgraded(warehouse, recorded)


@pytest.mark.parametrize("removed", ["*.parquet", "_delta_log/*.parquet"])
def test_an_old_table_that_another_job_is_removing_is_looked_at_again(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    there = warehouse / "group_health"
    other = copy_warehouse(warehouse, warehouse.parent / "other")
    start(other)  # the other job has moved the verdicts, and removes files
    shutil.rmtree(warehouse / HISTORY)
    shutil.copytree(other / HISTORY, warehouse / HISTORY)
    for file in [*there.glob(removed), *there.glob(f"*/{removed}")]:
        file.unlink()
    do: Any = upgrade_steps.STEPS[-1].do
    monkeypatch.setattr(do.retry, "sleep", lambda _: shutil.rmtree(there, ignore_errors=True))
    do(RustTable(Location.of(warehouse / HISTORY), "default"), lambda *_: None)
    moved, whole = (DeltaTable(one / HISTORY).to_pyarrow_table().sort_by("at") for one in (warehouse, other))
    assert (moved, there.exists()) == (whole, False)


def test_files_that_a_job_of_the_release_before_writes_after_the_upgrade_move_at_the_start_of_its_successor(
    warehouse: Path,
) -> None:
    start(warehouse)
    rows = pa.Table.from_pylist([{"cluster": "other", "group_id": "g"}], arrow_schema("group_events"))
    write_as_0_3_0(Location.of(warehouse / "group_events"), encode_file(rows), "other")
    assert in_root(warehouse) == {"group_events": 1}
    first, *_ = start(warehouse, "other")
    assert first == "Upgrading the warehouse from 0.3 to 0.4, once: 1 file (0 MB) of 1 table"
    assert in_root(warehouse) == {}
    theirs = RustTable(Location.of(warehouse / "group_events"), "other")
    assert theirs.select("group_id").to_pylist() == [{"group_id": "g"}]


def test_files_stay_for_readers_of_older_versions_and_go_when_the_retention_is_over(
    warehouse: Path, recorded: Path
) -> None:
    reader = {name: DeltaTable(warehouse / name).to_pyarrow_dataset() for name in IN_ROOT}
    start(warehouse)
    for name, dataset in reader.items():
        own = RustTable(Location.of(warehouse / name), "default")
        MaintainedTable(own).maintain()
        assert values(dataset.to_table(), name) == rows(recorded)[name]
        own.open().alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
        MaintainedTable(own).maintain()
        assert list((warehouse / name).glob("*.parquet")) == []


def test_who_streams_from_a_table_gets_nothing_twice(spark: SparkSession, warehouse: Path) -> None:
    seen: Seen = {name: Counter() for name in ("group_events", "quarantine", "topologies")}
    stream(spark, warehouse, seen)
    before = {name: Counter(found) for name, found in seen.items()}
    assert before["group_events"]
    start(warehouse)
    stream(spark, warehouse, seen)
    assert seen == before
    own = RustTable(Location.of(warehouse / "group_events"), "default")
    own.append(own.to_table([{"group_id": "new"}]))
    stream(spark, warehouse, seen)
    assert sum((seen["group_events"] - before["group_events"]).values()) == 1


@pytest.mark.slow
def test_a_warehouse_in_a_store_is_upgraded_too(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path, monkeypatch.setenv) as server:
        copy_warehouse(recorded, server.root / "w")
        start(server.uri("w"))
        check_is_upgraded(server.root / "w", recorded)


def set_format(warehouse: Path, number: int) -> None:
    for table in opened(warehouse).values():
        table.alter.set_table_properties({FORMAT_PROPERTY: str(number)}, raise_if_not_exists=False)


def before_0_3(warehouse: Path) -> str:
    set_format(warehouse, 1)
    for name in ("alerts", "groups"):
        table, kept = DeltaTable(warehouse / name), ["cluster", "group_id"]
        rows = table.to_pyarrow_table().select(kept)
        write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", partition_by=["cluster"])
    return "is of a release before 0.3, and this is 0.4: go through 0.3, see "


def of_a_newer_release(warehouse: Path) -> str:
    set_format(warehouse, WAREHOUSE_FORMAT + 1)
    return "is of a release after 0.4: use that one, or restore a copy from before its upgrade"


@pytest.mark.parametrize("of_release", [before_0_3, of_a_newer_release])
def test_warehouses_of_other_releases_are_refused_in_one_line_by_every_command(
    of_release: Callable[[Path], str], tmp_path: Path
) -> None:
    text = of_release(make_warehouse(tmp_path))
    versions = {name: DeltaTable(tmp_path / name).version() for name in NAMES}
    warehouse, broker = ["--warehouse", str(tmp_path)], ["--bootstrap-server", "127.0.0.1:1"]
    for command in (["run", *broker], ["alerts"], ["sql", "SELECT count(*) FROM alerts"]):
        ran = CliRunner().invoke(main, [*command, *warehouse])
        assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1), ran.stderr
        assert text in ran.stderr
    assert text in check_format(Location.of(tmp_path)).line
    assert {name: DeltaTable(tmp_path / name).version() for name in NAMES} == versions, "nothing was written"


def test_the_steps_are_those_of_this_release() -> None:
    assert STEPS_TO == WAREHOUSE_FORMAT, "steps of an earlier upgrade are to be removed"
