"""What the tables hold when a log is read from its beginning in one batch, without Spark: its fold is plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from itertools import groupby
from operator import itemgetter
from typing import Any

from streaming_app.groups.fold import CLASSIC_GROUP
from streaming_app.groups.replay import RECORD_TYPES
from streaming_app.stream.fold_stage import fold_group
from streaming_app.stream.outcome import FoldOptions, LogRow
from streaming_app.stream.outputs import APPENDED
from streaming_app.tables.definitions import table
from tests.long.campaign.bed import CLUSTER, PARTITIONS, TOPIC
from tests.long.faults.bed import UNKNOWN_TYPE
from tests.support.offsets_log import RawRecord

Rows = list[dict[str, Any]]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_READ = {*RECORD_TYPES, CLASSIC_GROUP, UNKNOWN_TYPE}


def read_afresh(log: Iterable[RawRecord]) -> Mapping[str, Rows]:
    """Return the rows of `groups` and of each table that a batch appends to."""
    options = FoldOptions(CLUSTER, TOPIC, partitions=PARTITIONS)
    tables: dict[str, Rows] = {"groups": [], **{output.table: [] for output in APPENDED}}
    records = sorted(map(_row, (raw for raw in log if raw.record_type in _READ)), key=itemgetter(0, 1))
    for _, of_group in groupby(records, key=itemgetter(0)):
        for folded in fold_group(of_group, options, None):
            row = folded.row
            if row["group_id"] is not None:
                tables["groups"].append({name: row[name] for name in table("groups").names})
            for output in APPENDED:
                of_all = {"cluster": CLUSTER, "group_id": row["group_id"]}
                names = table(output.table).names
                tables[output.table] += [
                    {name: {**of_all, **one}[name] for name in names} for one in row[output.column]
                ]
    return tables


def _row(raw: RawRecord) -> LogRow:
    group_bytes = raw.key[4 : 4 + int.from_bytes(raw.key[2:4], "big")]
    at = _EPOCH + timedelta(milliseconds=raw.timestamp_ms)
    return group_bytes, raw.offset, raw.partition, at, raw.key, raw.value, None
