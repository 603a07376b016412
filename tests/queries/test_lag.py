"""The sums of lag that `lag`, the views and the metrics show, over rows of every kind."""

import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import cast

import pytest

from streaming_app.config.sections import MetricsSettings
from streaming_app.lag.ends import LogEnds
from streaming_app.lag.model import Commit, LagRow, ReadUntil
from streaming_app.lag.statuses import LEFT_OVER, STATUSES, UNKNOWN
from streaming_app.lag.tracker import LagTracker
from streaming_app.metrics.lag_metrics import LAG_METRICS, LagScrape
from streaming_app.metrics.metric import Sample
from streaming_app.queries.lag import BY, find_lag, to_row
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.reader import Row, WarehouseReader
from tests.support.lag_harness import row
from tests.support.warehouses import make_warehouse, replace_rows

pytestmark = pytest.mark.slow

BY_RANK = ("LOST", "RECREATED", "AHEAD", "UNOWNED", "REWOUND", "UNKNOWN", "WAITS", "HELD", "OK", "LEFT_OVER")
"""Every status, the worst first."""
NO_LAG = {"lag": None, "lag_seconds": None, "offset_status": UNKNOWN}
IS_UNKNOWN: Sequence[tuple[Row, bool]] = (
    ({"log_end_offset": None}, True),
    ({"offset_status": "RECREATED", "log_start_offset": 9, "log_end_offset": 9}, True),
    ({"committed_offset": None, "log_start_offset": 5, "log_end_offset": 9}, True),
    ({"committed_offset": None, "log_start_offset": 9, "log_end_offset": 9}, False),
    ({"offset_status": LEFT_OVER}, False),
)
"""What a row without lag has, and whether its lag is unknown: else nothing waits, or it does not count."""


def random_rows() -> list[LagRow]:
    """Return rows of thirty groups with every status, owner and age."""
    draw, found = random.Random(7), {}  # noqa: S311 - the same rows each time
    for _ in range(250):
        status, owner = draw.choice(sorted(STATUSES)), draw.choice([None, "", "m1", "m2"])
        unknown, lag = status == UNKNOWN, draw.choice([0, 0, 1, 2, 10**12])
        seconds = None if unknown else draw.choice([0.0, 0.5, 40.0, None] if lag else [0.0])
        committed, time = None if unknown and lag == 0 else 90, draw.choice([None, 0.0, 5.0, 7.0])
        one = row(
            group_id=f"g{draw.randrange(30)}",
            topic=draw.choice("xyz"),
            partition=draw.randrange(6),
            lag=None if unknown else lag,
            lag_seconds=seconds,
            lag_seconds_is_lower_bound=None if seconds is None else draw.choice([True, False]),
            committed_offset=committed,
            subtopology_id=None if owner is None else "0",
            task_id=None if owner is None else "0_1",
            member_id=owner or None,
            process_id=owner or None,
            client_host=owner or None,
            partition_time=None if committed is None else time,
            offset_status=status,
        )
        found[one[:3]] = one
    return list(found.values())


ROWS = random_rows()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> WarehouseReader:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    cases = [
        row(group_id=str(fields), partition=n, **(NO_LAG | fields if n else {}))
        for fields, _ in IS_UNKNOWN
        for n in (0, 1)
    ]
    empty = LagTracker().observe(
        {("begins", "in", 0): Commit(None)},
        {("in", 0): LogEnds(7, 7, 7)},
        {},
        1_000.0,
        {"begins": ReadUntil(1_000.0, 1_000.0)},
    )
    LagTables(path, "default").replace_lag([*cases, *empty, *ROWS])
    LagTables(path, "other").replace_lag([row(group_id="g0", lag=1)])
    return WarehouseReader(path)


@pytest.mark.parametrize(("fields", "is_unknown"), IS_UNKNOWN, ids=str)
def test_a_sum_says_of_how_many_partitions_the_lag_is_not_known(
    reader: WarehouseReader, fields: Row, *, is_unknown: bool
) -> None:
    (found,) = find_lag(reader, "default", [str(fields)], "group")
    assert (found["lag"], found["unknown_partitions"], found["is_lower_bound"]) == (10, int(is_unknown), is_unknown)


@pytest.mark.parametrize("by", BY)
def test_every_sum_is_over_the_same_lag_and_the_largest_comes_first(reader: WarehouseReader, by: str) -> None:
    groups = sorted({one.group_id for one in ROWS})
    sums = find_lag(reader, "default", groups, by)
    in_tasks = by in {"subtopology", "task", "member", "process", "host"}
    expected = [one for one in ROWS if one.offset_status != LEFT_OVER and (one.task_id is not None or not in_tasks)]
    assert sum(one["lag"] or 0 for one in sums) == sum(one.lag or 0 for one in expected)
    assert sum(one["partitions"] for one in sums) == len(expected)
    lags = [-1 if one["lag"] is None else one["lag"] for one in sums]
    assert lags == sorted(lags, reverse=True)
    assert len({tuple(one[name] for name in BY[by]) for one in sums}) == len(sums)


def test_nothing_waits_for_a_group_whose_only_topic_is_empty_and_has_no_commit(reader: WarehouseReader) -> None:
    (found,) = find_lag(reader, "default", ["begins"], "group")
    names = ("lag", "lag_seconds", "offset_status", "unknown_partitions", "is_lower_bound")
    assert [found[name] for name in names] == [0, 0.0, "OK", 0, False]


def test_a_sum_is_over_the_partitions_whose_lag_is_known_and_as_bad_as_the_worst_with_a_commit(
    reader: WarehouseReader,
) -> None:
    groups = sorted({one.group_id for one in ROWS if one.offset_status != LEFT_OVER})
    sums = find_lag(reader, "default", groups, "group")
    assert len(sums) == len(groups)
    for one in sums:
        those = [each for each in ROWS if each.group_id == one["group_id"] and each.offset_status != LEFT_OVER]
        committed = [each for each in those if each.committed_offset is not None]
        known = [each for each in committed if each.lag is not None]
        assert one["offset_status"] == min(
            (each.offset_status for each in committed or those), key=BY_RANK.index, default=UNKNOWN
        )
        assert one["lag"] == (sum(each.lag or 0 for each in known) if known else None)
        assert one["lag_seconds"] == max(
            (each.lag_seconds for each in known if each.lag_seconds is not None), default=None
        )
        assert one["partitions_without_commit"] == len(those) - len(committed)
        assert one["unknown_partitions"] == sum(each.is_unknown for each in those)
        bounds = any(each.lag_seconds_is_lower_bound in {None, True} for each in known)
        assert one["is_lower_bound"] == (bounds or one["unknown_partitions"] > 0)
        times = [each.partition_time for each in committed if each.partition_time is not None]
        ends = [datetime.fromtimestamp(edge(times), timezone.utc) if times else None for edge in (min, max)]
        assert [one["min_partition_time"], one["max_partition_time"]] == ends
        worst = max((each.lag or 0 for each in known), default=None)
        assert one["max_lag"] == worst
        places = {(each.topic, each.partition) for each in known if each.lag == worst}
        assert (one["max_lag_topic"], one["max_lag_partition"]) in (places or {(None, None)})


@pytest.mark.parametrize("by", ["group", "topic", "partition"])
def test_metrics_are_the_same_sums(reader: WarehouseReader, by: str) -> None:
    scrape = LagScrape(ROWS, MetricsSettings.model_validate({"lag_by": by}))
    sums = find_lag(reader, "default", sorted({one.group_id for one in ROWS}), by)
    values = {
        metric.name: {
            sample.labels: sample.value
            for sample in cast("Iterable[Sample]", metric.read(scrape))
            if sample.value is not None  # not known: no sample
        }
        for metric in LAG_METRICS[:4]
    }
    columns = ("lag", "lag_seconds", "unknown_partitions", "min_partition_time")
    for (name, found), column in zip(values.items(), columns, strict=True):
        expected = {
            (*(str(one[key]) for key in BY[by]), "", "")[:3]: one[column] for one in sums if one[column] is not None
        }
        if column == "min_partition_time":
            expected = {key: value.timestamp() for key, value in expected.items()}
        assert found == expected, name


_KNOWN = ({"input": "commits"}, {"input": "log_ends", "broker": 1})


@pytest.mark.parametrize(
    "rows",
    [
        [row(leader=1)],
        [row(leader=1), row(partition=1, leader=1, **NO_LAG)],
        [row(leader=1), row(partition=1, leader=None, **NO_LAG)],
    ],
    ids=["well for three days", "a partition is hidden", "a partition has no leader"],
)
def test_a_partition_without_an_answer_changes_no_age_of_the_lag_of_its_group(
    rows: list[LagRow], tmp_path: Path
) -> None:
    """That every surface says this age is relation A."""
    path, known_until = make_warehouse(tmp_path), datetime(2026, 11, 27, 8, tzinfo=timezone.utc)
    LagTables(path, "default").replace_lag(rows)
    replace_rows(path, "inputs", *({**one, "known_until": known_until} for one in _KNOWN))
    (sums,) = find_lag(WarehouseReader(path, "default"), "default", ["payments"], "group")
    assert to_row(sums, known_until + timedelta(seconds=5))["KNOWN"] == "5 s ago"
