"""A few faults; `python -m tests.long.campaign` runs any number of them."""

from pathlib import Path

import pytest

from streaming_app.jvm.jars import KAFKA_VERSION
from tests.long.campaign.rounds import REGRESSIONS, Results, Round, run_round
from tests.long.faults.faults import ROWS

FOUND_BEFORE = tuple(name for one in REGRESSIONS if not one.cluster for name in one.decisive)
SHORT = Round(
    REGRESSIONS[0].seed,
    compacting=True,
    phases=(("lose_tables", "kill_at_write", "kill_jvm"), FOUND_BEFORE),
    once=True,
)
CLUSTER = Round(1, compacting=False, phases=(("move_leader", "poison", "unclean_election"),), cluster=KAFKA_VERSION)
SEEDS = 3  # on a busy machine brokers may undo a fault, by an election of their own for example: it is tried again


@pytest.mark.broker
@pytest.mark.timeout(3600)  # what it waits for may take many minutes on a busy machine
def test_after_faults_the_tables_agree_with_the_brokers_and_the_log(tmp_path: Path) -> None:
    results, lines = Results(), list[str]()
    assert run_round(SHORT, tmp_path / "round", results, lines.append), "\n".join(lines)
    assert results.injected == results.tried
    assert set(results.tried) == {name for phase in SHORT.phases for name in phase}


@pytest.mark.broker
@pytest.mark.timeout(3600)  # what it waits for may take many minutes on a busy machine
def test_after_faults_between_three_brokers_the_tables_agree_with_them_and_with_the_log(tmp_path: Path) -> None:
    results, lines = Results(), list[str]()
    for seed in range(1, 1 + SEEDS):
        assert run_round(CLUSTER._replace(seed=seed), tmp_path / "round", results, lines.append), "\n".join(lines)
        if set(+results.injected) == set(CLUSTER.phases[0]):
            break
    assert set(+results.injected) == set(CLUSTER.phases[0]), lines
    assert any(f"{ROWS} " in line for line in lines), lines
