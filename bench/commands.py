"""The start-up of commands: `--help` against an empty program, `list` against an import of its table libraries."""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from bench.rounds import print_table
from tests.support.sample_groups import write_sample

_COMMAND = ("-c", "from streaming_app.cli.main import main; main()")
_PAIRS = {
    "--help": ("-c pass", 5),
    "list": ("-c import deltalake, pyarrow", 3),
}
"""By command: the program to compare with, and the maximum ratio of their processor times."""


class Cost(NamedTuple):
    """The cost of a process: processor seconds in user and system mode, and seconds on the clock."""

    processor: float
    wall: float


def run(rounds: int = 15) -> None:
    """Print the medians of both programs of each pair, started in turns, and their ratios."""
    with tempfile.TemporaryDirectory() as directory:
        warehouse = write_sample(Path(directory) / "w", datetime.now(timezone.utc), more=100, hostile=False)
        programs: dict[str, Sequence[str]] = {}
        for command, (bare, _) in _PAIRS.items():
            programs[bare] = bare.split(" ", 1)
            programs[command] = [*_COMMAND, command, *(() if command == "--help" else ("--warehouse", str(warehouse)))]
        for program in programs.values():  # first run: fills file caches and compiles modules
            cost_of(program)
        costs: dict[str, list[Cost]] = {name: [] for name in programs}
        for _ in range(rounds):
            for name, program in programs.items():
                costs[name].append(cost_of(program))
    medians = {name: Cost(*map(statistics.median, zip(*each, strict=True))) for name, each in costs.items()}
    rows = []
    for command, (bare, most) in _PAIRS.items():
        base, own = medians[bare], medians[command]
        ratios = f"{own.processor / base.processor:.1f} and {own.wall / base.wall:.1f}"
        rows.append((f"python {bare}", f"{base.processor:.3f} s", f"{base.wall:.3f} s", "", ""))
        rows.append((f"streams-groups {command}", f"{own.processor:.3f} s", f"{own.wall:.3f} s", ratios, str(most)))
    title = f"Start of commands, medians of {rounds} rounds in turns"
    print_table(title, ("processor", "wall", "times the bare one", "at most"), rows)


def cost_of(arguments: Sequence[str]) -> Cost:
    """Run Python with these arguments, without its output. Raises AssertionError if it fails."""
    begin = time.monotonic()
    with Path(os.devnull).open("wb") as nowhere:
        actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)]
        pid = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
    assert status == 0, f"{arguments}: status {status}"
    return Cost(usage.ru_utime + usage.ru_stime, time.monotonic() - begin)
