"""Faults on a live job: what survives them.

    python -m tests.long.faults [--faults 1000] [--seed 1] [--kinds kill_job,full_disk] [--minutes 8] [--regressions]
    python -m tests.long.faults --brokers 3 ...               only those that may happen to a cluster, on clusters
    python -m tests.long.faults --add DIRECTORY DIRECTORY     prints the sums of campaigns

Each round has a broker, groups and a job of its own, and each phase some faults, after which tables, brokers and log
are compared. A round ends at the first finding, which is printed with its seed; its directory is kept. What is said at
the end can be repeated: `Round(...)` goes into `REGRESSIONS` of `campaign.py`. A campaign that ended early goes on with
the next round if it is started again with the same seed, kinds and `--directory`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import traceback
from functools import partial
from itertools import chain, islice
from pathlib import Path

from tests.long.faults.campaign import REGRESSIONS, Results, random_rounds, run_round
from tests.long.faults.faults import FAULTS
from tests.support.jvm_archive import broker_archive, make_archives
from tests.support.jvm_options import start_jvms_fast

_RESULTS = "results.json"


def main() -> int:
    """Run the campaign; return 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=1_000, help="how many, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(FAULTS), help="separated by commas; all of them by default")
    parser.add_argument("--brokers", type=int, choices=(1, 3), help="of every round; both by default")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after this time")
    parser.add_argument("--regressions", action="store_true", help="only the rounds that found something before")
    parser.add_argument("--directory", type=Path, default=None, help="for the rounds; kept where something was found")
    parser.add_argument("--add", type=Path, nargs="+", help="only print the sums of campaigns with these directories")
    options = parser.parse_args()
    results = Results()
    if options.add:
        for one in options.add:
            results.load(one / _RESULTS)
        print(results.table())
        return bool(results.failures)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    directory = Path(options.directory or tempfile.mkdtemp(prefix="streams-groups-faults-"))
    directory.mkdir(parents=True, exist_ok=True)
    make_archives()
    start_jvms_fast(broker_archive())
    if (directory / _RESULTS).exists():
        results.load(directory / _RESULTS)
        _print(f"continuing after {results.rounds} rounds and {results.total} faults")
    until = time.monotonic() + 60 * options.minutes
    report = partial(_report, results, directory / _RESULTS)
    try:
        rounds = iter(()) if options.regressions else random_rounds(options.seed, options.kinds.split(","))
        wanted = (one for one in chain(REGRESSIONS, rounds) if options.brokers in {None, 3 if one.cluster else 1})
        for number, one in islice(enumerate(wanted), results.rounds, None):
            if time.monotonic() > until or results.total >= options.faults:
                break
            place = directory / f"round-{number}"
            try:
                run_round(one, place, results, report, until=until, most=options.faults)
                results.rounds += time.monotonic() < until
            except Exception:  # noqa: BLE001 - a broker that did not start: the next round has another one
                _print(traceback.format_exc())
                results.rounds += 1
            results.save(directory / _RESULTS)
    finally:
        _print(results.table())
    for failure in results.failures:
        _print(failure)
    return bool(results.failures)


def _report(results: Results, file: Path, line: str) -> None:
    results.save(file)  # also of a campaign that is killed
    _print(line)


def _print(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
