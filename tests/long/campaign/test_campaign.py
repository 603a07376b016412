"""A few faults; `python -m tests.long.campaign` runs any number of them."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from streaming_app.jvm.jars import KAFKA_VERSION
from tests.long.campaign.rounds import REGRESSIONS, Results, Round, random_rounds, run_round
from tests.long.faults import bed as fault_bed
from tests.long.faults import job_faults
from tests.long.faults.bed import FaultBed
from tests.long.faults.cluster_faults import ROWS
from tests.long.faults.faults import FAULTS
from tests.support.waiting import wait_until

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


def test_workers_are_killed_also_where_the_job_takes_long_to_start() -> None:
    began: list[subprocess.Popen[bytes]] = []
    looks = itertools.count()

    def operate(_: float) -> None:
        if next(looks) == 40:
            began.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

    effects: list[bool] = []
    workers = lambda: [one.pid for one in began if one.poll() is None]  # noqa: E731 - of the stub
    stub = SimpleNamespace(
        random=Random(1),  # noqa: S311 - no secret
        start_job_for_workers=lambda _: None,
        kill_job=lambda: None,
        wait_before=lambda: None,
        operate=operate,
        seconds=lambda *_: 0.0,
        expect=lambda effect: effects.append(wait_until(effect)),
        job=SimpleNamespace(workers=workers, unexpected_exit=None),
    )
    FAULTS["kill_worker"].inject(stub)
    for one in began:
        one.communicate()
    assert [one.returncode for one in began] == [-signal.SIGKILL]
    assert effects == [True]


def test_a_seed_gives_the_same_rounds_and_all_kinds_of_faults_occur() -> None:
    first, second = random_rounds(3, list(FAULTS)), random_rounds(3, list(FAULTS))
    rounds = [next(first) for _ in range(50)]
    assert rounds == [next(second) for _ in range(50)]
    assert {name for one in rounds for phase in one.phases for name in phase} == set(FAULTS)
    for one in rounds:
        brokers = 3 if one.cluster else 1
        assert all(brokers in FAULTS[name].brokers for phase in one.phases for name in phase)
    needing = [one for one in rounds if any(FAULTS[name].needs_compaction for phase in one.phases for name in phase)]
    assert all(one.compacting for one in needing)


def test_a_seed_plays_the_same_faults_on_a_fast_machine_and_on_a_slow_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("kill_job", "kill_at_write", "poison", "failing_store", "lose_while_running")
    fast, slow = (list(_plays(kinds, tmp_path, monkeypatch, seconds)) for seconds in (0.01, 1.0))
    assert fast == slow
    assert len({what for what, _ in fast}) == 4


def _plays(
    kinds: Sequence[str], directory: Path, monkeypatch: pytest.MonkeyPatch, step_seconds: float
) -> list[tuple[str, Any]]:
    """Return what is played, in order, where each operation on the groups takes so long."""
    played: list[tuple[str, Any]] = []
    now = [0.0]

    def go_on(seconds: float) -> None:
        now[0] += seconds

    def draw_seconds(low: float, high: float) -> float:
        played.append(("seconds", FaultBed.seconds(one, low, high)))
        return played[-1][1]

    def poison() -> int:
        played.append(("poison", one.random.random()))
        return -1

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=go_on)
    for module in (fault_bed, job_faults):
        monkeypatch.setattr(module, "time", clock)
    one: Any = FaultBed(directory, 5)
    one.start_seconds = 4.0
    one.broker = SimpleNamespace(pid=1, start=lambda: None)
    one.operations = SimpleNamespace(step=lambda: go_on(step_seconds))
    one.client = SimpleNamespace(end_offsets=lambda _: {0: 9})
    one.job = SimpleNamespace(running=True, unexpected_exit=None, pid=None, pids=list, kill=lambda: None)
    one.job.start = lambda *options, **how: played.append(("start", (options, how)))
    one.is_caught_up = lambda: True
    one.seconds = draw_seconds
    one.write_unknown_record = lambda random: (0, -1 if random is one._operating else poison())
    one.remove = lambda *names: played.append(("remove", names)) or True
    for name in kinds:
        one.begin(name)
        FAULTS[name].inject(one)
    return played


def test_every_regression_names_faults_that_exist_and_which_of_them_was_decisive() -> None:
    for one in REGRESSIONS:
        names = {name for phase in one.phases for name in phase}
        assert set() < set(one.decisive) <= names <= set(FAULTS)
        assert not one.cluster or set(one.decisive) <= set(CLUSTER.phases[0])
