"""Two source trees read the same logs into two warehouses, and every column of every table is compared.

    python -m tests.long.side_by_side OLD_TREE NEW_TREE

The logs are the recorded ones of each release and those of the written histories, whole and compacted. Each difference
is printed as `table.column`, with the number of rows and an example; the histories also with what each tree tells.
"""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deltalake import DeltaTable

from streaming_app.health.verdict import UNKNOWN
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.tables.definitions import tables
from tests.histories.judged import ALL
from tests.long.told import run_tree, told
from tests.recorded import record
from tests.support.internal_topic import PARTITIONS, TimedRecord, write_records
from tests.support.offsets_log import RawRecord, sort_list
from tests.support.written_history import ENDED_SECONDS, HistoriesBroker, writable

_KEYS = {one.name: one.key for one in tables()} | {"alerts": ("cluster", "group_id", "rule")}
_OF_THE_RUN = frozenset({"alert_id", "incident_id", "lag_seconds", "inputs_age", "times", "end_offsets"})
"""Columns that are others in each run, or count up to its time; so are all times since it began."""
_SHOWN = 120  # characters of a value
Row = Mapping[str, Any]


def compare(old: Path, new: Path, began: datetime) -> list[str]:
    """Return the differences between all tables of two warehouses, but for times since the first run began."""
    names = sorted({one.parent.name for path in (old, new) for one in path.glob("*/_delta_log")})
    return [one for name in names for one in compare_rows(name, rows_of(old / name), rows_of(new / name), began)]


def compare_rows(name: str, old: Iterable[Row], new: Iterable[Row], began: datetime) -> Iterator[str]:
    """Yield the differences between the rows of one table, which are compared by its key, by column and log."""
    key = _KEYS.get(name, ("cluster",))
    both = [{tuple(_comparable(row.get(one), began) for one in key): row for row in rows} for rows in (old, new)]
    keys = [*both[0], *(one for one in both[1] if one not in both[0])]
    found: dict[str, list[tuple[Any, str]]] = defaultdict(list)
    for one in keys:
        before, after = (rows.get(one) for rows in both)
        if before is None or after is None:
            found[f"{name} (rows of the {'new' if before is None else 'old'} tree only)"].append((one[0], str(one)))
            continue
        for column in sorted({*before, *after} - _OF_THE_RUN):
            if column == "evidence" and before.get("verdict") == after.get("verdict") == UNKNOWN:
                continue  # it has what was known when the job first evaluated: before its lag pass, or after that
            values = [_comparable(row.get(column), began) for row in (before, after)]
            if values[0] != values[1]:
                shown = " -> ".join(str(value)[:_SHOWN] for value in values)
                found[f"{name}.{column}"].append((one[0], f"{one}: {shown}"))
    for what, rows in found.items():
        logs = ", ".join(f"{log}: {number}" for log, number in Counter(cluster for cluster, _ in rows).items())
        yield f"{what}: {len(rows)} of {len(keys)} rows ({logs}), such as {rows[0][1]}"


def rows_of(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist() if table.exists() else []
    return rows


def _comparable(value: Any, began: datetime) -> Any:
    """Return a value without what is of the run, and with lists in any order."""
    if isinstance(value, dict):
        return {name: _comparable(one, began) for name, one in value.items() if name not in _OF_THE_RUN}
    if isinstance(value, datetime) and value >= began:
        return "of the run"
    return sort_list([_comparable(one, began) for one in value]) if isinstance(value, list) else value


def compacted(records: Sequence[RawRecord]) -> list[RawRecord]:
    """Return what a cleaner leaves: the newest record of each key, without tombstones."""
    newest = {one.key: one for one in records}
    return [one for one in records if newest[one.key] is one and one.value is not None]


def read_recorded(trees: Mapping[Path, Path], directory: Path, versions: Iterable[str] = record.VERSIONS) -> None:
    """Let each tree read the recorded logs of these releases into its warehouse, each as a cluster of its own."""
    with LocalBroker(directory / "recorded") as broker, StreamsGroupClient([broker.bootstrap_server]) as client:
        for version in versions:
            whole, _ = record.read(Path(record.__file__).parent / f"{version}.jsonl.gz")
            for name, records in ((f"{version}-whole", whole), (f"{version}-compacted", compacted(whole))):
                client.create_topic(name, PARTITIONS, {"retention.ms": "-1"})  # the records are old
                written = (TimedRecord(one.timestamp_ms, name, one.partition, one.key, one.value) for one in records)
                write_records(broker.bootstrap_server, written)
                for tree, warehouse in trees.items():
                    run_tree(tree, broker.bootstrap_server, warehouse, "--topic", name, "--cluster", name)


def read_histories(trees: Mapping[Path, Path], directory: Path) -> None:
    """Let each tree read the log of the histories, as it is and as the broker's cleaner leaves it."""
    histories = writable(ALL, time.time() - ENDED_SECONDS)
    with HistoriesBroker(directory / "histories", histories) as broker:
        for name in ("whole", "compacted"):
            if name == "compacted":
                broker.compact()
            for tree, warehouse in trees.items():
                cluster = f"histories-{name}"
                run_tree(tree, broker.server, warehouse, "--cluster", cluster)
                print(f"{cluster} by {tree}: {told(histories, warehouse, cluster, tree)}", flush=True)


def main(old: Path, new: Path) -> None:
    """Print the differences between what two trees make of all logs."""
    began = datetime.now(timezone.utc)
    with TemporaryDirectory() as made:
        directory = Path(made)
        trees = {old: directory / "old", new: directory / "new"}
        read_recorded(trees, directory)
        read_histories(trees, directory)
        print(*compare(trees[old], trees[new], began), sep="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
