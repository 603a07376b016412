"""A few faults; `python -m tests.long.faults` runs any number of them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaProducer

from streaming_app.checks.verification import VerifyError
from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from tests.long.faults import checks, harness, job_faults
from tests.long.faults.campaign import REGRESSIONS, Phase, Results, Round, random_rounds, run_round
from tests.long.faults.checks import DOUBLE, Finding
from tests.long.faults.cluster_faults import ROWS
from tests.long.faults.faults import FAULTS
from tests.long.faults.harness import TOPIC, UNKNOWN_TYPE, FaultHarness, internal_producer
from tests.support.offsets_log import read_log
from tests.support.waiting import MINUTES, wait_until

FOUND_BEFORE = Phase(tuple(name for one in REGRESSIONS if not one.cluster for name in one.decisive))
SHORT = Round(
    REGRESSIONS[0].seed, compacting=True, phases=(Phase(("lose_table", "kill_at_write")), FOUND_BEFORE), once=True
)
CLUSTER = Round(
    1,
    compacting=False,
    phases=(Phase(("move_offsets_leader", "poison", "unclean_election")),),
    cluster=KAFKA_VERSION,
)
SEEDS = 3  # on a busy machine brokers may undo a fault, by an election of their own for example: it is tried again


@pytest.mark.broker
def test_after_faults_the_tables_agree_with_the_brokers_and_the_log(tmp_path: Path) -> None:
    results, lines = Results(), list[str]()
    assert run_round(SHORT, tmp_path / "round", results, lines.append), "\n".join(lines)
    assert results.survived == results.tried
    assert set(results.tried) == {name for phase in SHORT.phases for name in phase.faults}


@pytest.mark.broker
def test_after_faults_between_three_brokers_the_tables_agree_with_them_and_with_a_fresh_reading(tmp_path: Path) -> None:
    results, lines = Results(), list[str]()
    for seed in range(1, 1 + SEEDS):
        assert run_round(CLUSTER._replace(seed=seed), tmp_path / "round", results, lines.append), "\n".join(lines)
        if set(+results.injected) == set(CLUSTER.phases[0].faults):
            break
    assert set(+results.injected) == set(CLUSTER.phases[0].faults), lines
    assert results.survived == results.injected
    assert results.seconds[ROWS], lines


def test_workers_are_killed_also_where_the_job_takes_long_to_start() -> None:
    began: list[subprocess.Popen[bytes]] = []
    operated: list[float] = []

    def operate(seconds: float) -> None:
        operated.append(seconds)
        if len(operated) == 40:
            began.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))

    def workers() -> list[int]:
        return [one.pid for one in began if one.poll() is None]

    effects: list[bool] = []
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
    try:
        FAULTS["kill_worker"].inject(stub)
    finally:
        for one in began:
            one.kill()
            one.wait()
    assert effects == [True]


def test_a_job_that_begins_to_read_everything_again_while_rows_are_compared_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*_: object) -> SimpleNamespace:
        if not waited:
            raise VerifyError("The job has not finished a batch yet")
        return SimpleNamespace(differences=[], not_compared=[])

    waited: list[bool] = []
    monkeypatch.setattr(checks, "verify", compare)
    stub = SimpleNamespace(warehouse=tmp_path, client=None, settle=lambda: waited.append(True))
    assert not checks._verify(stub)
    assert len(waited) == 1


@pytest.mark.broker
def test_a_record_that_none_can_decode_is_in_the_log(start_broker: Callable[..., LocalBroker]) -> None:
    broker = start_broker()
    with StreamsGroupClient(broker.bootstrap_server) as client:
        client.create_topic("t")
        client.commit_offsets("g", {("t", 0): 1})
    key = UNKNOWN_TYPE.to_bytes(2, "big") + b"\x00\x01g"
    with (
        KafkaProducer(bootstrap_servers=broker.bootstrap_server, client_id="__admin_client") as refused,
        pytest.raises(ValueError, match="partition"),  # from kafka-python itself, whatever the broker would do
    ):
        refused.send(TOPIC, key=key, value=b"?", partition=0).get(MINUTES)
    with internal_producer(broker.bootstrap_server) as producer:
        offset = producer.send(TOPIC, key=key, value=b"?", partition=0).get(MINUTES).offset
    (found,) = [one for one in read_log(broker.bootstrap_server) if one.record_type == UNKNOWN_TYPE]
    assert (found.partition, found.offset, found.key, found.value) == (0, offset, key, b"?")


def test_a_seed_gives_the_same_rounds_and_all_kinds_of_faults_occur() -> None:
    first, second = random_rounds(3, list(FAULTS)), random_rounds(3, list(FAULTS))
    rounds = [next(first) for _ in range(50)]
    assert rounds == [next(second) for _ in range(50)]
    assert {name for one in rounds for phase in one.phases for name in phase.faults} == set(FAULTS)
    for one in rounds:
        brokers = 3 if one.cluster else 1
        assert all(brokers in FAULTS[name].brokers for phase in one.phases for name in phase.faults)
    needing = [
        one for one in rounds if any(FAULTS[name].needs_compaction for phase in one.phases for name in phase.faults)
    ]
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
        played.append(("seconds", FaultHarness.seconds(one, low, high)))
        return played[-1][1]

    def poison() -> int:
        played.append(("poison", one.random.random()))
        return -1

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=go_on)
    for module in (harness, job_faults):
        monkeypatch.setattr(module, "time", clock)
    one: Any = FaultHarness(directory, 5, compacting=False)
    one.start_seconds = 4.0
    one.broker = SimpleNamespace(pid=1, start=lambda: None)
    one.operations = SimpleNamespace(step=lambda: go_on(step_seconds))
    one.client = SimpleNamespace(end_offsets=lambda _: {0: 9})
    one.job = SimpleNamespace(running=True, unexpected_exit=None, pid=None, pids=list, kill=lambda: None)
    one.job.start = lambda how: played.append(("start", how))
    one.is_caught_up = lambda: True
    one.seconds = draw_seconds
    one.write_unknown_record = lambda random: (0, -1 if random is one._operating else poison())
    one.remove = lambda *names: played.append(("remove", names)) or True
    for name in kinds:
        one.begin_fault(name)
        FAULTS[name].inject(one)
    return played


def test_the_results_of_campaigns_are_added(tmp_path: Path) -> None:
    one, sums = Results(), Results()
    one.add({"kill_job": [True, True, True, False]}, [], [("kill_job", 1.5)])
    one.add({"full_disk": [True]}, [Finding(DOUBLE, "twice")], [])
    one.rounds = 1
    one.save(tmp_path / "results.json")
    for _ in range(2):
        sums.load(tmp_path / "results.json")
    assert (sums.total, sums.tried, sums.survived) == (8, Counter(kill_job=8, full_disk=2), Counter(kill_job=6))
    assert sums.rounds == 2
    assert "1.5" in sums.table()
    assert "2 double, 0 loss" in sums.table()


def test_every_regression_names_faults_that_exist_and_which_of_them_was_decisive() -> None:
    for one in REGRESSIONS:
        names = {name for phase in one.phases for name in phase.faults}
        assert set() < set(one.decisive) <= names <= set(FAULTS)
        assert not one.cluster or set(one.decisive) <= set(CLUSTER.phases[0].faults)
