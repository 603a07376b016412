"""A few faults; `python -m tests.faults` runs any number of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.campaign import REGRESSIONS, Phase, Results, Round, random_rounds, run_round
from tests.faults.checks import DOUBLE, Finding
from tests.faults.faults import FAULTS

FOUND_BEFORE = Phase(tuple(name for one in REGRESSIONS for name in one.decisive))
SHORT = Round(REGRESSIONS[0].seed, compacting=True, phases=(Phase(("lose_table", "kill_at_write")), FOUND_BEFORE))


@pytest.mark.broker
def test_after_faults_the_tables_agree_with_the_brokers_and_the_log(tmp_path: Path) -> None:
    results, lines = Results(), list[str]()
    assert run_round(SHORT, tmp_path / "round", results, lines.append), "\n".join(lines)
    assert results.survived == results.tried
    assert set(results.tried) == {name for phase in SHORT.phases for name in phase.faults}


def test_a_seed_gives_the_same_rounds_and_all_kinds_of_faults_occur() -> None:
    first, second = random_rounds(3, list(FAULTS)), random_rounds(3, list(FAULTS))
    rounds = [next(first) for _ in range(50)]
    assert rounds == [next(second) for _ in range(50)]
    assert {name for one in rounds for phase in one.phases for name in phase.faults} == set(FAULTS)
    needing = [
        one for one in rounds if any(FAULTS[name].needs_compaction for phase in one.phases for name in phase.faults)
    ]
    assert all(one.compacting for one in needing)


def test_the_results_of_campaigns_are_added(tmp_path: Path) -> None:
    one, sums = Results(), Results()
    one.add(Counter(kill_job=3), [], [("kill_job", 1.5)])
    one.add(Counter(full_disk=1), [Finding(DOUBLE, "twice")], [])
    one.save(tmp_path / "results.json")
    for _ in range(2):
        sums.load(tmp_path / "results.json")
    assert (sums.total, sums.tried, sums.survived) == (8, Counter(kill_job=6, full_disk=2), Counter(kill_job=6))
    assert "1.5" in sums.table()
    assert "2 double, 0 loss" in sums.table()


def test_every_regression_names_faults_that_exist_and_which_of_them_was_decisive() -> None:
    for one in REGRESSIONS:
        names = {name for phase in one.phases for name in phase.faults}
        assert set() < set(one.decisive) <= names <= set(FAULTS)
