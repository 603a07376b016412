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

from tests.faults.checks import DIFFERENCE, DOUBLE, LOSS, Finding, check
from tests.faults.faults import FAULTS
from tests.faults.harness import DidNotRecoverError, FaultHarness, UnexpectedError

_PHASES_PER_ROUND = 8
_FAULTS_PER_PHASE = (2, 3, 4)
_STUCK = "did not recover"
BROKEN = "error of the campaign"
_KINDS = (DOUBLE, LOSS, DIFFERENCE, _STUCK)


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
)


def random_rounds(seed: int, kinds: Sequence[str]) -> Iterator[Round]:
    """Yield rounds for ever, with faults of these kinds."""
    random = Random(seed)  # noqa: S311 - no secret
    while True:
        compacting = random.random() < 0.4
        names = [name for name in kinds if compacting or not FAULTS[name].needs_compaction]
        weights = [FAULTS[name].weight for name in names]
        if names:
            phases = tuple(
                _phase(random.choices(names, weights, k=random.choice(_FAULTS_PER_PHASE)))
                for _ in range(_PHASES_PER_ROUND)
            )
            yield Round(random.randrange(2**31), compacting, phases)


def _phase(names: Sequence[str]) -> Phase:
    """Return a phase. What removes rows comes first, and once at most: it would remove what others have done wrong."""
    erasing = [name for name in names if FAULTS[name].erases]
    return Phase((*erasing[:1], *(name for name in names if not FAULTS[name].erases)))


@dataclass
class Results:
    """What came of the faults, by kind of fault."""

    tried: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    found: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The number of faults so far."""
        return sum(self.tried.values())

    def add(self, faults: Counter[str], findings: Sequence[Finding], seconds: Iterable[tuple[str, float]]) -> None:
        """Count the faults of a phase that was checked; `seconds` until the job had caught up, by fault."""
        if any(finding.kind == BROKEN for finding in findings):
            return
        self.tried.update(faults)
        self.found.update(finding.kind for finding in findings)
        if not findings:
            self.survived.update(faults)
        for name, one in seconds:
            self.seconds[name].append(one)

    def save(self, file: Path) -> None:
        """Write the results as JSON, for `load`."""
        file.write_text(json.dumps(vars(self)), "utf-8")

    def load(self, file: Path) -> None:
        """Add the results of another campaign."""
        values = json.loads(file.read_text("utf-8"))
        self.tried.update(values["tried"])
        self.survived.update(values["survived"])
        self.found.update(values["found"])
        self.failures += values["failures"]
        for name, seconds in values["seconds"].items():
            self.seconds[name] += seconds

    def table(self) -> str:
        """Return a line for each kind of fault, and the totals."""
        lines = [f"{'fault':24} {'tried':>6} {'survived':>9}   seconds to caught up: median, longest"]
        for name, tried in sorted(self.tried.items()):
            seconds = self.seconds[name]
            shown = f"{median(seconds):6.1f} {max(seconds):6.1f}" if seconds else ""
            lines.append(f"{name:24} {tried:6} {self.survived[name]:9}   {shown}")
        totals = ", ".join(f"{self.found[kind]} {kind}" for kind in _KINDS)
        lines.append(f"{'total':24} {self.total:6} {sum(self.survived.values()):9}   {totals}")
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
    with FaultHarness(directory, one.seed, compacting=one.compacting) as harness:
        for number, phase in enumerate(one.phases):
            if time.monotonic() > until or results.total >= most:
                break
            faults: Counter[str] = Counter()
            started_at = time.monotonic()
            findings = _run_phase(harness, phase, faults)
            results.add(faults, findings, harness.caught_up_seconds)
            caught_up = ", ".join(f"{seconds:.0f}" for _, seconds in harness.caught_up_seconds) or "-"
            harness.caught_up_seconds.clear()
            report(
                f"{results.total} faults: {', '.join(phase.faults)}; caught up after {caught_up} s; "
                f"{time.monotonic() - started_at:.0f} s in all; {len(findings)} findings"
            )
            if findings:
                done = Round(one.seed, one.compacting, one.phases[: number + 1])
                texts = "\n".join(f"  {kind}: {text}" for kind, text in findings[:20])
                results.failures.append(f"{done}\n{texts}")
                report(results.failures[-1])
                _keep(harness)
                return False
    shutil.rmtree(directory, ignore_errors=True)
    return True


def _run_phase(harness: FaultHarness, phase: Phase, faults: Counter[str]) -> Sequence[Finding]:
    try:
        for name in phase.faults:
            harness.ensure_running()
            faults[name] += 1  # also if it is not survived
            number = FAULTS[name].inject(harness)
            faults[name] += 0 if number is None else number - 1
            harness.after_fault(name)
        harness.settle()
        findings: Sequence[Finding] = check(harness)
    except (UnexpectedError, DidNotRecoverError) as error:
        findings = [Finding(_STUCK, str(error))]
    except Exception:  # noqa: BLE001 - of the harness itself, which a broker that is away may surprise: go on elsewhere
        findings = [Finding(BROKEN, traceback.format_exc())]
    return findings


def _keep(harness: FaultHarness) -> None:
    """Keep the warehouse beyond the end of its file system."""
    harness.job.close()
    shutil.copytree(harness.warehouse, harness.directory / "warehouse", dirs_exist_ok=True)
