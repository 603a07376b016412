"""Relation G: ten times as much of something costs at most ten times as much; `tests/long` has commands and pages."""

from collections.abc import Callable

import pytest
from prometheus_client import generate_latest

from streaming_app.config.sections import MetricsSettings
from streaming_app.metrics.collector import make_registry
from tests.histories.bed import run
from tests.histories.history import STATE, History, do, start, stop
from tests.relations.scaled import out_of_proportion
from tests.support.metrics_harness import group as metrics_group
from tests.support.metrics_harness import scraped


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
    assert out_of_proportion(lambda size: _played(**{what: size}), 4) == {}  # a short outage is not late yet


@pytest.mark.parametrize("times", [10, 100])
def test_an_export_of_metrics_takes_at_most_in_proportion(times: int) -> None:
    def prepare(size: int) -> Callable[[], object]:
        scrape = scraped([metrics_group(f"g{number}") for number in range(size)])
        registry = make_registry(scrape, MetricsSettings(max_groups=100_000))
        return lambda: generate_latest(registry)

    assert out_of_proportion(prepare, 10, times) == {}
