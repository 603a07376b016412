"""Plays one attack on a bed of its own, and says what it cost the others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kafka.errors import KafkaError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt
from urllib3.exceptions import HTTPError

from bench.memory import format_megabytes
from tests.long.hostile.attacks import ATTACKS
from tests.long.hostile.bed import STUCK_FOR_SECONDS, Bed, Probe
from tests.long.hostile.page_attacks import AttackSucceededError
from tests.support.waiting import MINUTES, wait_until

MOST_ROW_SECONDS, MOST_ALERT_SECONDS, MOST_MEMORY = 10.0, STUCK_FOR_SECONDS + 10.0, 1.5
"""What is promised: seconds until a row and until an alert, and memory relative to that without an attack."""
MOST_VIEWER_SECONDS = 10.0
_CALM_PROBES = 2
_ATTEMPTS = 3
_PLAY_SECONDS, _SETTLE_SECONDS = 150.0, 240.0
HEADER = (
    "| attack | withstood | alive | row: calm, worst | alert: calm, worst | memory | caught up after | series lost |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


class Measured(NamedTuple):
    """Probes, and the most bytes of the job meanwhile, in `sum` and by kind of process."""

    probes: Sequence[Probe]
    memory: Counter[str]

    def worst(self, what: str) -> float | None:
        """Return the longest `row` or `alert`; None if one never came."""
        seconds = [getattr(one, what) for one in self.probes]
        return None if None in seconds else max(seconds)


@dataclass
class Result:
    """What came of one attack."""

    name: str
    calm: Measured
    attacked: Measured
    is_alive: bool
    caught_up_seconds: float | None
    """From the end of the attack until the job had processed everything; None: not in four minutes."""
    without_series: list[str] = field(default_factory=list)
    """Honest groups that have no series of their own any more."""
    errors: list[str] = field(default_factory=list)
    """Of the attack itself, which could not be played."""
    viewer: Mapping[str, float] = field(default_factory=dict)
    """The most seconds until the page and the metrics answered an honest viewer."""
    succeeded: list[str] = field(default_factory=list)
    """What the attacker got and is not to get."""

    @property
    def has_succeeded(self) -> bool:
        """Whether the attacker got what he is not to get."""
        return bool(self.succeeded)

    @property
    def memory(self) -> float:
        """The most memory relative to that without an attack."""
        return self.attacked.memory["sum"] / max(1.0, self.calm.memory["sum"])

    @property
    def is_withstood(self) -> bool:
        """Whether what is promised held."""
        row, alert = self.attacked.worst("row"), self.attacked.worst("alert")
        return (
            self.is_alive
            and self.caught_up_seconds is not None
            and (row is not None and row <= MOST_ROW_SECONDS)
            and (alert is not None and alert <= MOST_ALERT_SECONDS)
            and self.memory <= MOST_MEMORY
            and not self.without_series
            and max(self.viewer.values(), default=0.0) <= MOST_VIEWER_SECONDS
            and not self.has_succeeded
        )

    def row(self) -> str:
        """Return the line of the table."""
        calm, attacked = self.calm, self.attacked
        cells = [
            self.name,
            "yes" if self.is_withstood else "**no**",
            "yes" if self.is_alive else "**no**",
            *(f"{_seconds(calm.worst(one))}, {_seconds(attacked.worst(one))}" for one in ("row", "alert")),
            f"{calm.memory['sum'] / 1e6:,.0f} MB, x {self.memory:.2f}",
            _seconds(self.caught_up_seconds),
            f"{len(self.without_series)}",
        ]
        memory = f"memory: {format_megabytes(calm.memory)}; attacked: {format_megabytes(attacked.memory)}"
        viewer = f"most seconds of a viewer: { ({name: round(most, 1) for name, most in self.viewer.items()}) }"
        return "\n  ".join((f"| {' | '.join(cells)} |", memory, viewer, *self.errors, *self.succeeded))


def run_attack(name: str, directory: Path, *, probes: int) -> Result:
    """Play an attack on a bed of its own, with so many probes meanwhile."""
    directory.mkdir(parents=True)
    with Bed(directory, probes=1 + _CALM_PROBES + probes) as bed:
        bed.probe()  # what is slow only once
        with bed.memory() as memory, bed.viewer():
            calm_probes = [bed.probe() for _ in range(_CALM_PROBES)]
            calm = Measured(calm_probes, Counter(memory))
        return play(bed, name, calm, probes)


def play(bed: Bed, name: str, calm: Measured, probes: int) -> Result:
    """Play an attack on a bed that runs, with so many probes meanwhile."""
    errors: list[str] = []
    succeeded: list[str] = []

    def attack() -> None:
        again = retry_if_exception_type((KafkaError, OSError, HTTPError))  # a server has ended the connection
        try:
            Retrying(retry=again, stop=stop_after_attempt(_ATTEMPTS), reraise=True)(ATTACKS[name].play, bed)
        except AttackSucceededError as error:
            succeeded.append(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the attack was not played
            errors.append(f"the attack ended: {type(error).__name__}: {str(error)[:200]}")

    with bed.memory() as memory, bed.viewer() as viewer:
        thread = threading.Thread(target=attack, daemon=True)
        thread.start()
        time.sleep(1)  # noqa: TID251 - the first probe finds an attack that goes on
        found = [bed.probe() for _ in range(probes) if bed.is_alive]
        thread.join(_PLAY_SECONDS)
        bed.ending.set()
        thread.join(MINUTES)
        ended = time.monotonic()
        caught_up = wait_until(lambda: not bed.is_alive or bed.is_caught_up(), _SETTLE_SECONDS, interval=0.5)
        took = time.monotonic() - ended if caught_up and bed.is_alive else None
        lost = bed.without_series() if bed.is_alive else bed.honest
        return Result(
            name,
            calm,
            Measured(found, Counter(memory)),
            bed.is_alive,
            took,
            lost,
            errors,
            dict(viewer),
            succeeded,
        )


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"
