"""Attacks of a hostile tenant on the whole job, next to honest groups: what they cost the others.

    python -m tests.long.hostile [ATTACK ...] [--probes 3] [--directory DIR]
    python -m tests.long.hostile fuzz [--seconds 3600] [--seed 1]

Each attack has a broker and a job of its own. Printed for each: whether the job lived, the seconds until an honest
group's row and until an honest alert (which has a `for` of two seconds), and the most memory of the job and all that it
started, each against the same without the attack.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.long.hostile.attacks import ATTACKS
from tests.long.hostile.campaign import HEADER, run_attack
from tests.long.hostile.fuzz import fuzz
from tests.support.jvm_archive import broker_archive, make_archives
from tests.support.jvm_options import start_jvms_fast


def main() -> int:
    """Play the attacks; return how many were not withstood."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)}; default all")
    parser.add_argument("--probes", type=int, default=3, help="during each attack")
    parser.add_argument("--directory", type=Path, default=None, help="for brokers, jobs and warehouses")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of `fuzz`: random requests")
    parser.add_argument("--seed", type=int, default=1, help="of `fuzz`")
    options = parser.parse_args()
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    directory = Path(options.directory or tempfile.mkdtemp(prefix="streams-groups-hostile-"))
    make_archives()
    start_jvms_fast(broker_archive())
    if options.attacks == ["fuzz"]:
        return fuzz(directory / f"fuzz-{options.seed}-{time.time():.0f}", seconds=options.seconds, seed=options.seed)
    print(HEADER, flush=True)
    lost = 0
    for name in options.attacks or ATTACKS:
        try:
            result = run_attack(name, directory / f"{name}-{time.time():.0f}", probes=options.probes)
        except Exception:  # noqa: BLE001 - the next attack has a bed of its own
            print(f"| {name} | could not be played: {traceback.format_exc()}", flush=True)
            lost += 1
            continue
        lost += not result.is_withstood
        print(result.row(), flush=True)
    return lost


if __name__ == "__main__":
    sys.exit(main())
