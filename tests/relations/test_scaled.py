"""Relation G: ten and a hundred times the members cost the commands at most ten and a hundred times as much."""

from collections.abc import Callable

import pytest
from prometheus_client import generate_latest

from streaming_app.config.sections import MetricsSettings
from streaming_app.metrics.collector import make_registry
from streaming_app.queries.described import format_tasks, member_rows
from streaming_app.queries.topics import endpoint_rows
from streaming_app.tables.reader import Row
from tests.histories.bed import run
from tests.histories.history import STATE, History, do, start, stop
from tests.relations.scaled import is_in_proportion, out_of_proportion
from tests.support.metrics_harness import group as metrics_group
from tests.support.metrics_harness import scraped


def _group(members: int) -> Row:
    """Return a row of `groups` with so many members, of which each has five tasks."""
    return {
        "group_id": "orders",
        "assignment_epoch": 7,
        "assignment_configs": None,
        "members": [
            dict.fromkeys(_MEMBER) | {"member_id": f"m-{n}", "member_epoch": 7, "user_endpoint": f"h:{n}"}
            for n in range(members)
        ],
        "assignments": [
            {"member_id": f"m-{n}", "role": "active", "subtopology_id": "0", "partition": n * 5 + one}
            | {"current": True, "target": True, "pending_revocation": False}
            for n in range(members)
            for one in range(5)
        ],
    }


_MEMBER = (
    *("process_id", "client_id", "client_host", "instance_id", "rack_id", "user_endpoint"),
    *("client_tags", "topology_epoch", "member_state"),
)


def _members(size: int) -> Callable[[], object]:
    groups = [_group(size)]
    return lambda: member_rows(groups, verbose=True)


def _endpoints(size: int) -> Callable[[], object]:
    groups = [_group(size)]
    return lambda: endpoint_rows(groups, {"orders": []})


@pytest.mark.parametrize("times", [10, 100])
@pytest.mark.parametrize("rows", [_members, _endpoints])
def test_members_are_described_in_proportion_to_their_number(
    rows: Callable[[int], Callable[[], object]], times: int
) -> None:
    assert is_in_proportion(rows, times=times)


def test_the_relation_sees_work_that_is_quadratic() -> None:
    assert not is_in_proportion(lambda size: lambda: [[b for b in range(size) if b == a] for a in range(size)])


def test_the_relation_of_modules_sees_one_that_is_quadratic() -> None:
    def prepare(size: int) -> Callable[[], object]:
        rows = [{"subtopology_id": f"{n}", "role": "active", "partition": 0} for n in range(size)]
        return lambda: [format_tasks(rows) for _ in rows]

    assert "queries/described.py" in out_of_proportion(prepare, 20)


def _played(groups: int = 1, members: int = 1, partitions: int = 2, commits: int = 1) -> Callable[[], object]:
    """Play a history of ten minutes, in which half of the groups lose their members."""
    names = [f"app{n}" for n in range(groups)]
    operations = []
    for name in names:
        instances = [f"{name}-i{n}" for n in range(members)]
        operations += start(instances, 1.0, 0.01, group=name, **STATE)
        operations += do(5.0, "read", group=name, rate=10.0)
        operations += stop(instances, 200.0, 0.01) if name.endswith("0") else []
    in_order = tuple(sorted(operations, key=lambda one: one.at))
    history = History("Scaled", in_order, 600.0 * commits, begins=200.0, topics={"in": partitions, "log": partitions})
    return lambda: run(history, only_changes=True)


@pytest.mark.parametrize("what", ["groups", "members", "partitions", "commits"])
@pytest.mark.slow
def test_fold_lag_verdicts_and_alerts_take_at_most_in_proportion(what: str) -> None:
    least = {"groups": 4, "members": 4, "partitions": 4, "commits": 4}[what]  # a short outage is not late yet
    assert out_of_proportion(lambda size: _played(**{what: size}), least) == {}


@pytest.mark.parametrize("times", [10, 100])
def test_an_export_of_metrics_takes_at_most_in_proportion(times: int) -> None:
    def prepare(size: int) -> Callable[[], object]:
        scrape = scraped([metrics_group(f"g{number}") for number in range(size)])
        registry = make_registry(scrape, MetricsSettings(max_groups=100_000))
        return lambda: generate_latest(registry)

    assert out_of_proportion(prepare, 10, times) == {}
