"""Faults of a live job, and attacks on it: what it survives.

    python -m tests.long.campaign [--faults 1000] [--seed 1] [--kinds kill_job,full_disk] [--regressions]
    python -m tests.long.campaign --brokers 3 ...       only faults that may happen to a cluster, on clusters
    python -m tests.long.campaign --attacks [ATTACK ...]    attacks of a hostile tenant next to honest groups

Each round has brokers, groups and a job of its own, and each phase some faults or an attack, after which tables,
brokers and log are compared. A round ends at the first finding, which is printed with its seed; its directory is kept.
What is said at the end can be repeated: `Round(...)` goes into `REGRESSIONS` of `rounds.py`. The rounds of a seed are
always the same: `--first 12` goes on where a campaign has ended after twelve.
"""

import argparse
import logging
import sys
import tempfile
import time
import traceback
from itertools import chain, islice
from pathlib import Path

from tests.long.campaign.rounds import REGRESSIONS, Results, attack_rounds, random_rounds, run_round
from tests.long.faults.faults import FAULTS
from tests.long.hostile.attacks import ATTACKS
from tests.support.jvm_archive import broker_archive, make_archives
from tests.support.jvm_options import start_jvms_fast


def main() -> bool:
    """Run the campaign; return whether something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=1_000, help="how many, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(FAULTS), help="separated by commas; all of them by default")
    parser.add_argument("--brokers", type=int, choices=(1, 3), help="of every round; both by default")
    parser.add_argument("--attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)}; all by default")
    parser.add_argument("--first", type=int, default=0, help="the number of the first round")
    parser.add_argument("--regressions", action="store_true", help="only the rounds that found something before")
    options = parser.parse_args()
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    directory = Path(tempfile.mkdtemp(prefix="streams-groups-campaign-"))
    make_archives()
    start_jvms_fast(broker_archive())
    if options.attacks is not None:
        rounds = attack_rounds(options.attacks or list(ATTACKS))
    else:
        more = iter(()) if options.regressions else random_rounds(options.seed, options.kinds.split(","))
        every = chain(REGRESSIONS, more)
        rounds = (one for one in every if options.brokers in {None, 3 if one.cluster else 1})
    results = Results()
    try:
        for number, one in islice(enumerate(rounds), options.first, None):
            if results.total >= options.faults:
                break
            _print(f"round {number}")
            try:
                run_round(one, directory / f"round-{number}", results, _print, most=options.faults)
            except Exception:  # noqa: BLE001 - a broker that did not start: the next round has another one
                _print(traceback.format_exc())
    finally:
        _print(results.table())
    for failure in results.failures:
        _print(failure)
    return bool(results.failures)


def _print(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
