"""Which groups are before and after others, where trouble begins, and what the tables say of it."""

import itertools
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.queries.pipelines import (
    Pipelines,
    Read,
    Root,
    pipelines,
    read_pipelines,
)
from streaming_app.tables.reader import WarehouseReader
from tests.support.rows import group_row, subtopology_row
from tests.support.warehouses import append, make_warehouse

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)


def chain(*group_ids: str) -> Pipelines:
    """Return groups of which each reads the topic that the one before it writes."""
    reads = [Read(group_id, f"to-{group_id}") for group_id in group_ids]
    writes = [(one, f"to-{other}") for one, other in itertools.pairwise(group_ids)]
    return Pipelines(tuple(reads), tuple(writes))


def test_trouble_begins_where_no_group_before_is_in_trouble() -> None:
    line = chain("a", "b", "c", "d")
    assert line.downstream("b") == ("c", "d")
    assert line.upstream("c") == ("b", "a")
    assert line.roots({"b", "d"}) == [Root("b", ("c", "d"), ("d",))]
    assert line.roots({"d"}) == [Root("d", (), ())]
    assert line.roots(set()) == []


names = st.sampled_from("abcde")


@given(st.sets(st.tuples(names, names)), st.sets(names))
def test_every_group_in_trouble_is_a_root_or_after_one(edges: set[tuple[str, str]], troubled: set[str]) -> None:
    found = Pipelines(
        tuple(Read(end, f"{start}{end}") for start, end in sorted(edges)),
        tuple((start, f"{start}{end}") for start, end in sorted(edges)),
    )
    roots = found.roots(troubled)
    assert {one.group_id for one in roots}.union(*(one.behind for one in roots)) == troubled
    for one in roots:
        assert set(one.behind) == troubled.intersection(one.downstream)


def test_internal_topics_are_left_out_unless_another_group_reads_them() -> None:
    topology = {
        "group_id": "g",
        "source_topics": ["orders"],
        "repartition_sink_topics": ["g-by-key-repartition"],
        "repartition_source_topics": [{"name": "g-by-key-repartition"}],
        "state_changelog_topics": [{"name": "g-totals-changelog"}],
    }
    lag = [{"group_id": "g", "topic": topic, "lag": 1} for topic in ("orders", "g-by-key-repartition")]
    assert pipelines(lag, [topology], []).topics == ["orders"]
    other = {"group_id": "audit", "topic": "g-by-key-repartition", "lag": 5}
    found = pipelines([*lag, other], [topology], [])
    assert found.topics == ["g-by-key-repartition", "orders"]
    assert found.downstream("g") == ("audit",)


ENDS = [
    ((0, 300, 600), (0, 0, 600), 1.0),
    ((0, 900, 1_500), (0, 100, 1_300), 2.0),
    ((0, 600, 1_199, 1_200), (0, 0, 100, 600), 1.0),
    ((0, 100, 200), (0, 5, 400), 2.0),  # none is so old
    ((0, 600), (500, 0), 0.0),  # created again
    ((0, 0), (5, 5), None),
    ((0,), (5,), None),
    ((), (), None),
]


def test_the_rate_of_a_topic_is_counted_over_ten_minutes(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path)
    rows = [
        {"topic": f"t{n}", "times": [NOW + timedelta(seconds=one) for one in seconds], "end_offsets": list(offsets)}
        for n, (seconds, offsets, _) in enumerate(ENDS)
    ]
    append(warehouse, "log_ends", *({**one, "partition": partition} for partition in (0, 1) for one in rows))
    found = read_pipelines(WarehouseReader(warehouse), "default").rates
    expected = {f"t{n}": 2 * rate for n, (_, _, rate) in enumerate(ENDS) if rate is not None}
    assert found == pytest.approx(expected)


def test_of_the_samples_of_topics_only_their_rates_leave_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 12,000 partitions with an hour of samples, a reading took 3 s of processor time, nearly all for these."""
    warehouse = make_warehouse(tmp_path)
    times = [NOW + timedelta(minutes=minute) for minute in range(60)]
    topics = [{"topic": f"t{n % 5}", "partition": n, "times": times, "end_offsets": list(range(60))} for n in range(50)]
    append(warehouse, "log_ends", *topics)
    values, rows = list[Any](), WarehouseReader.rows

    def seen(reader: WarehouseReader, sql: str) -> list[dict[str, Any]]:
        found = rows(reader, sql)
        values.extend(value for row in found for value in row.values())
        return found

    monkeypatch.setattr(WarehouseReader, "rows", seen)
    assert len(read_pipelines(WarehouseReader(warehouse), "default").rates) == 5
    assert len(values) == 10


def test_the_tables_say_who_reads_and_writes_what(tmp_path: Path) -> None:
    warehouse = make_warehouse(tmp_path)
    topology = [subtopology_row("0", source_topics=["orders", "not-committed"])]
    append(
        warehouse,
        "groups",
        group_row("enrich", subtopologies=topology),
        group_row("gone", state="Dead", subtopologies=topology),
    )
    described = {"from_node": "out", "from_kind": "sink", "to_node": "enriched", "to_kind": "topic"}
    archived = {"group_id": "enrich", "topology_epoch": 0, "content_hash": "h", "is_newest": True, "truncated": False}
    append(warehouse, "descriptions", {**archived, "description_edges": [described]})
    lag = {"partition": 0, "offset_status": "OK", "is_unknown": False}
    append(
        warehouse,
        "lag",
        {**lag, "group_id": "enrich", "topic": "orders", "lag": 7},
        {**lag, "group_id": "report", "topic": "enriched", "lag": 0},
    )
    writes = {"kind": "writer", "subject": "orders", "name": "intake", "value": "transaction", "group_id": "intake"}
    append(warehouse, "broker_facts", {**writes, "observed_at": NOW})
    found = read_pipelines(WarehouseReader(warehouse), "default")
    assert found.downstream("enrich") == ("report",)
    assert found.upstream("enrich") == ("intake",)
    assert [(one.group_id, one.topic, one.lag.lag) for one in found.reads] == [
        ("enrich", "not-committed", None),
        ("enrich", "orders", 7),
        ("report", "enriched", 0),
    ]
    assert found.undescribed == frozenset()
