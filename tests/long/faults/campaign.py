"""Rounds of phases of faults: after each phase everything is checked, and what is found is reported with its seed."""

from __future__ import annotations

import json
import shutil
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

from streaming_app.jvm.jars import KAFKA_VERSION
from tests.long.faults.checks import ALARM, DIFFERENCE, DOUBLE, LOSS, Finding, check, compare_with_fresh
from tests.long.faults.cluster_harness import ClusterHarness
from tests.long.faults.faults import FAULTS
from tests.long.faults.harness import DidNotRecoverError, FaultHarness, UnexpectedError

_PHASES_PER_ROUND = 8
_FAULTS_PER_PHASE = (2, 3, 4)
_PHASES_PER_CLUSTER, _FAULTS_PER_CLUSTER_PHASE = 5, 6
_OLDER = "4.2.1"  # of a cluster that is upgraded: the release that began to write whether a group is ready
_UPGRADE = "rolling_upgrade"
Effects = dict[str, list[bool]]
"""Whether each fault of a kind showed its effect."""

_STUCK = "did not recover"
BROKEN = "error of the campaign"
_KINDS = (DOUBLE, LOSS, DIFFERENCE, ALARM, _STUCK)


class Phase(NamedTuple):
    """The faults between two checks."""

    faults: tuple[str, ...]


class Round(NamedTuple):
    """Phases on one broker and warehouse. The seed decides everything else."""

    seed: int
    compacting: bool
    phases: tuple[Phase, ...]
    decisive: tuple[str, ...] = ()
    """Those of the faults that once left something wrong: `make test` tries them again, without the others."""
    cluster: str = ""
    """The release of three brokers at first; empty for one broker."""
    once: bool = False
    """A fault that may be repeated happens once, as each start of the job takes long: for `make test`."""


# Rounds in which a fault once left a difference, a double or a loss.
REGRESSIONS: tuple[Round, ...] = (
    # A batch took 13 s, and tombstones were removed while it waited for the brokers.
    Round(
        576166047,
        compacting=True,
        phases=(Phase(("kill_jvm", "kill_during_rereading", "failing_store", "stop_broker")),),
        decisive=("stop_broker",),
    ),
    # The job went on in a topic that was created again, before it knew.
    Round(
        1488676283,
        compacting=True,
        phases=(Phase(("recreate_topic", "failing_store", "failing_store", "restart_broker")),),
        decisive=("recreate_topic",),
    ),
    # The stream of the groups could not start again: the other one kept Spark's event queue from ever being empty.
    Round(
        27012065,
        compacting=False,
        phases=(
            Phase(("full_disk", "move_leader", "full_disk_of_broker", "pause_node", "poison", "slow_disk")),
            Phase(("rolling_upgrade", "unclean_election", "move_offsets_leader", "kill_node")),
        ),
        decisive=("unclean_election",),
        cluster=_OLDER,
    ),
)


def random_rounds(seed: int, kinds: Sequence[str]) -> Iterator[Round]:
    """Yield rounds for ever, with faults of these kinds: half of them on three brokers, if kinds are for those."""
    random = Random(seed)  # noqa: S311 - no secret
    among_brokers = [name for name in kinds if 3 in FAULTS[name].brokers]
    while True:
        if among_brokers and random.random() < 0.5:
            yield _cluster_round(random, among_brokers)
            continue
        compacting = random.random() < 0.4
        alone = [name for name in kinds if 1 in FAULTS[name].brokers]
        names = [name for name in alone if compacting or not FAULTS[name].needs_compaction]
        weights = [FAULTS[name].weight for name in names]
        if names:
            phases = tuple(
                _phase(random.choices(names, weights, k=random.choice(_FAULTS_PER_PHASE)))
                for _ in range(_PHASES_PER_ROUND)
            )
            yield Round(random.randrange(2**31), compacting, phases)


def _cluster_round(random: Random, kinds: Sequence[str]) -> Round:
    """Return a round in which each kind occurs about as often, and the cluster is upgraded once, if that is a kind."""
    others = [name for name in kinds if name != _UPGRADE]
    length = _PHASES_PER_CLUSTER * _FAULTS_PER_CLUSTER_PHASE
    bag = [name for _ in range(length // max(1, len(others)) + 1) for name in random.sample(others, len(others))]
    names = bag[:length] if others else []
    if _UPGRADE in kinds:
        names.insert(random.randrange(length // 2), _UPGRADE)
    phases = tuple(
        Phase(tuple(names[start : start + _FAULTS_PER_CLUSTER_PHASE]))
        for start in range(0, len(names), _FAULTS_PER_CLUSTER_PHASE)
    )
    return Round(
        random.randrange(2**31), compacting=False, phases=phases, cluster=_OLDER if _UPGRADE in kinds else KAFKA_VERSION
    )


def _phase(names: Sequence[str]) -> Phase:
    """Return a phase. What removes rows comes first, and once at most: it would remove what others have done wrong."""
    erasing = [name for name in names if FAULTS[name].erases]
    return Phase((*erasing[:1], *(name for name in names if not FAULTS[name].erases)))


@dataclass
class Results:
    """What came of the faults, by kind of fault."""

    tried: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    """Those of them that showed an effect."""
    survived: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    found: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    rounds: int = 0
    """How many were run to their end: a campaign that is continued begins with the next one."""

    @property
    def total(self) -> int:
        """The number of faults so far that showed an effect."""
        return sum(self.injected.values())

    def add(self, faults: Effects, findings: Sequence[Finding], seconds: Iterable[tuple[str, float]]) -> None:
        """Count the faults of a phase that was checked; `seconds` that were measured, by fault or what it is."""
        if any(finding.kind == BROKEN for finding in findings):
            return
        injected = Counter({name: sum(effects) for name, effects in faults.items()})
        self.tried.update({name: len(effects) for name, effects in faults.items()})
        self.injected.update(injected)
        self.found.update(finding.kind for finding in findings)
        if not findings:
            self.survived.update(injected)
        for name, one in seconds:
            self.seconds[name].append(one)

    def save(self, file: Path) -> None:
        """Write the results as JSON, for `load`."""
        file.write_text(json.dumps(vars(self)), "utf-8")

    def load(self, file: Path) -> None:
        """Add the results of another campaign."""
        values = json.loads(file.read_text("utf-8"))
        self.tried.update(values["tried"])
        self.injected.update(values["injected"])
        self.rounds += values["rounds"]
        self.survived.update(values["survived"])
        self.found.update(values["found"])
        self.failures += values["failures"]
        for name, seconds in values["seconds"].items():
            self.seconds[name] += seconds

    def table(self) -> str:
        """Return a line for each kind of fault, and the totals."""
        lines = [f"{'fault':30} {'tried':>6} {'effect':>7} {'survived':>9}   seconds: median, longest"]
        for name in sorted(self.tried.keys() | self.seconds.keys(), key=lambda name: (name not in self.tried, name)):
            seconds = self.seconds[name]
            shown = f"{median(seconds):6.1f} {max(seconds):6.1f}, {len(seconds)} times" if seconds else ""
            counts = f"{self.tried[name]:6} {self.injected[name]:7} {self.survived[name]:9}"
            lines.append(f"{name:30} {counts if name in self.tried else '':24}   {shown}")
        totals = ", ".join(f"{self.found[kind]} {kind}" for kind in _KINDS)
        tried, survived = (sum(of.values()) for of in (self.tried, self.survived))
        lines.append(f"{'total':30} {tried:6} {self.total:7} {survived:9}   {totals}")
        return "\n".join(lines)


def run_round(
    one: Round,
    directory: Path,
    results: Results,
    report: Callable[[str], None],
    *,
    until: float = float("inf"),
    most: int = 2**31,
) -> bool:
    """Run a round in a new directory; it ends at the first finding, at a time, or after `most` faults in all.

    Returns whether nothing was found; then the directory is removed.
    """
    shutil.rmtree(directory, ignore_errors=True)  # of a campaign that was killed in it
    with _harness(one, directory) as harness:
        for number, phase in enumerate(one.phases):
            if time.monotonic() > until or results.total >= most:
                break
            faults: Effects = {}
            started_at = time.monotonic()
            findings = _run_phase(harness, phase, faults, is_last=number + 1 == len(one.phases))
            results.add(faults, findings, harness.measured)
            measured = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in harness.measured)
            harness.measured.clear()
            without = [name for name, effects in faults.items() if not all(effects)]
            report(
                f"{results.total} faults: {', '.join(phase.faults)}; {measured or '-'}; "
                f"{time.monotonic() - started_at:.0f} s in all; {len(findings)} findings"
                + (f"; without effect: {', '.join(without)} {'; '.join(harness.shown)}" if without else "")
            )
            harness.shown.clear()
            if findings:
                done = one._replace(phases=one.phases[: number + 1])
                texts = "\n".join(f"  {kind}: {text}" for kind, text in findings[:20])
                results.failures.append(f"{done}\n{texts}")
                report(results.failures[-1])
                _keep(harness)
                return False
    shutil.rmtree(directory, ignore_errors=True)
    return True


def _harness(one: Round, directory: Path) -> FaultHarness:
    if one.cluster:
        return ClusterHarness(directory, one.seed, version=one.cluster)
    return FaultHarness(directory, one.seed, compacting=one.compacting, once=one.once)


def _run_phase(harness: FaultHarness, phase: Phase, faults: Effects, *, is_last: bool) -> Sequence[Finding]:
    try:
        for name in phase.faults:
            harness.ensure_running()
            harness.begin_fault(name)
            try:
                FAULTS[name].inject(harness)
            finally:
                faults.setdefault(name, []).extend(harness.after_fault(name))
        harness.settle()
        findings: Sequence[Finding] = check(harness)
        if is_last and not findings and isinstance(harness, ClusterHarness):
            findings = compare_with_fresh(harness)
    except (UnexpectedError, DidNotRecoverError) as error:
        findings = [Finding(_STUCK, str(error))]
    except Exception:  # noqa: BLE001 - of the harness itself, which a broker that is away may surprise: go on elsewhere
        findings = [Finding(BROKEN, traceback.format_exc())]
    return findings


def _keep(harness: FaultHarness) -> None:
    """Keep the warehouse beyond the end of its file system."""
    harness.job.close()
    shutil.copytree(harness.warehouse, harness.directory / "warehouse", dirs_exist_ok=True)
