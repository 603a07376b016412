"""Rounds of phases of faults or attacks: after each phase all is checked, and findings are reported with the seed."""

import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from streaming_app.jvm.jars import KAFKA_VERSION
from tests.long.bed import Bed, DidNotRecoverError, UnexpectedError
from tests.long.campaign.checks import Holds, check
from tests.long.faults.bed import ClusterBed, FaultBed
from tests.long.faults.faults import FAULTS
from tests.long.hostile.attacks import ATTACKS
from tests.long.hostile.bed import AttackBed

_PHASES_PER_ROUND = 8
_FAULTS_PER_PHASE = (2, 3, 4)
_OLDER = "4.2.1"  # of a cluster that is upgraded: the release that began to write whether a group is ready
_UPGRADE = "rolling_upgrade"
_STUCK = "did not recover"
BROKEN = "error of the campaign"


Phase = tuple[str, ...]
"""The faults, or the attacks, between two checks."""


class Round(NamedTuple):
    """Phases on one broker and warehouse. The seed decides everything else."""

    seed: int
    compacting: bool
    phases: tuple[Phase, ...]
    decisive: tuple[str, ...] = ()
    """Those of the faults that once left something wrong: a test tries them again, without the others."""
    cluster: str = ""
    """The release of three brokers at first; empty for one broker."""
    once: bool = False
    """A fault that may be repeated happens once, as each start of the job takes long: for a test."""


# Rounds in which a fault once left a difference, a double or a loss.
REGRESSIONS: tuple[Round, ...] = (
    # A batch took 13 s, and tombstones were removed while it waited for the brokers.
    Round(
        576166047,
        compacting=True,
        phases=(("kill_jvm", "kill_during_rereading", "failing_store", "stop_broker"),),
        decisive=("stop_broker",),
    ),
    # The stream of the groups could not start again: the other one kept Spark's event queue from ever being empty.
    Round(
        27012065,
        compacting=False,
        phases=(
            ("full_disk", "move_leader", "pause_node", "poison"),
            ("rolling_upgrade", "unclean_election", "move_leader", "kill_node"),
        ),
        decisive=("unclean_election",),
        cluster=_OLDER,
    ),
)


def random_rounds(seed: int, kinds: Sequence[str]) -> Iterator[Round]:
    """Yield rounds for ever, with faults of these kinds: half of them on three brokers, if kinds are for those."""
    random = Random(seed)  # noqa: S311 - no secret
    numbers = [number for number in (1, 3) if any(number in FAULTS[name].brokers for name in kinds)]
    while True:
        brokers = random.choice(numbers)
        compacting = brokers == 1 and random.random() < 0.4
        names = [name for name in kinds if brokers in FAULTS[name].brokers]
        names = [name for name in names if compacting or not FAULTS[name].needs_compaction]
        if not names:
            continue
        weights = [FAULTS[name].weight for name in names]
        phases = tuple(
            _phase(random.choices(names, weights, k=random.choice(_FAULTS_PER_PHASE))) for _ in range(_PHASES_PER_ROUND)
        )
        is_upgraded = any(_UPGRADE in phase for phase in phases)
        version = _OLDER if is_upgraded else KAFKA_VERSION
        yield Round(random.randrange(2**31), compacting, phases, cluster=version if brokers == 3 else "")


def _phase(names: Sequence[str]) -> Phase:
    """Return a phase. What removes rows comes first, and once at most: it would remove what others have done wrong."""
    erasing = [name for name in names if FAULTS[name].erases]
    return (*erasing[:1], *(name for name in names if not FAULTS[name].erases))


def attack_rounds(names: Sequence[str]) -> Iterator[Round]:
    return (Round(0, compacting=False, phases=((name,),)) for name in names)


@dataclass
class Results:
    """What came of the faults and attacks, by kind."""

    tried: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    """Those of them that showed an effect."""
    failures: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The number so far that showed an effect."""
        return sum(self.injected.values())

    def add(self, effects: dict[str, list[bool]], findings: Sequence[Holds]) -> None:
        """Count what was played in a phase that was checked: whether each showed its effect."""
        if any(finding.kind == BROKEN for finding in findings):
            return
        self.tried.update({name: len(shown) for name, shown in effects.items()})
        self.injected.update({name: sum(shown) for name, shown in effects.items()})

    def table(self) -> str:
        counts = [("kind", "tried", "effect"), *((name, self.tried[name], self.injected[name]) for name in self.tried)]
        counts.append(("total", self.tried.total(), self.total))
        return "\n".join(f"{name:30} {tried:>6} {injected:>7}" for name, tried, injected in counts)


def run_round(
    one: Round, directory: Path, results: Results, report: Callable[[str], None], *, most: int = 2**31
) -> bool:
    """Run a round in a new directory; it ends at the first finding, or after `most` faults in all.

    Returns whether nothing was found; then the directory is removed.
    """
    shutil.rmtree(directory, ignore_errors=True)  # of a campaign that was killed in it
    directory.mkdir(parents=True)
    with _bed(one, directory) as bed:
        for number, phase in enumerate(one.phases):
            if results.total >= most:
                break
            effects: dict[str, list[bool]] = {}
            started_at = time.monotonic()
            findings = _run_phase(bed, phase, effects)
            results.add(effects, findings)
            without = [name for name, shown in effects.items() if not all(shown)]
            report(
                f"{results.total} played: {', '.join(phase)}; {'; '.join(bed.shown) or '-'}; "
                f"{time.monotonic() - started_at:.0f} s in all; {len(findings)} findings"
                + (f"; without effect: {', '.join(without)}" if without else "")
            )
            bed.shown.clear()
            if findings:
                done = one._replace(phases=one.phases[: number + 1])
                texts = "\n".join(f"  {kind}: {text}" for kind, text in findings[:20])
                results.failures.append(f"{done}\n{texts}")
                report(results.failures[-1])
                _keep(bed)
                return False
    shutil.rmtree(directory, ignore_errors=True)
    return True


def _bed(one: Round, directory: Path) -> Bed:
    if one.phases[0][0] in ATTACKS:
        return AttackBed(directory)
    if one.cluster:
        return ClusterBed(directory, one.seed, version=one.cluster)
    return FaultBed(directory, one.seed, compacting=one.compacting, once=one.once)


def _run_phase(bed: Bed, phase: Phase, effects: dict[str, list[bool]]) -> Sequence[Holds]:
    try:
        for name in phase:
            bed.ensure_running()
            bed.begin(name)
            try:
                if isinstance(bed, AttackBed):
                    bed.withstand(name, ATTACKS[name])
                else:
                    FAULTS[name].inject(bed)
            finally:
                effects.setdefault(name, []).extend(bed.take_effects())
        bed.settle()
        return check(bed)
    except (UnexpectedError, DidNotRecoverError) as error:
        return [Holds(_STUCK, str(error))]
    except Exception:  # noqa: BLE001 - of the bed itself, which a broker that is away may surprise: go on elsewhere
        return [Holds(BROKEN, traceback.format_exc())]


def _keep(bed: Bed) -> None:
    """Keep the warehouse beyond the end of its file system."""
    bed.job.close()
    shutil.copytree(bed.warehouse, bed.directory / "warehouse", dirs_exist_ok=True)
