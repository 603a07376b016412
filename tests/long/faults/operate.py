"""Random operations on the streams groups of a real broker; the fold of its log is compared with its descriptions.

    python -m tests.long.faults.operate [--operations 10000] [--seed 1]

This is the long form: it starts its own broker, which is restarted and killed from time to time, and whose log is
compacted continuously. `test_operations.py` is the short form. After every `--compare-every` operations the new records
are folded in batches of random size, and every group is compared. Faults of a job that reads the log are those of
`python -m tests.long.faults`.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from tests.long.faults.operated_groups import OperatedGroups, compare_rows
from tests.support.offsets_log import FoldedLog, LogReader

_COMPACTING = {
    "log.roll.ms": "3000",  # the newest segment is never compacted
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.delete.retention.ms": "1000",
}


def run(options: argparse.Namespace) -> None:
    """Run the operations, and print every difference as it is found."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-groups-operations-")))
        broker = stack.enter_context(LocalBroker(directory, properties=_COMPACTING))
        client = stack.enter_context(StreamsGroupClient(broker.bootstrap_server))
        operated = OperatedGroups(client, broker.bootstrap_server, options.seed)
        stack.callback(operated.close)
        started_at, found = time.monotonic(), 0
        for number in range(1, options.operations + 1):
            operated.step()
            if number % options.restart_every == 0:
                (broker.kill if number // options.restart_every % 2 else broker.stop)()
                broker.start()
                operated.reader.reopen()
            if number % options.compare_every == 0:
                for difference in (*map(str, operated.compare()), *operated.gaps()):
                    found += 1
                    print(f"after {number}: {difference}", flush=True)
            if number % 500 == 0:
                seconds = time.monotonic() - started_at
                print(f"{number:,} operations, {seconds:.0f} s, {found} differences", flush=True)
        _print_summary(operated, client, broker.bootstrap_server)
        print(f"{found} differences in {options.operations:,} operations")


def _print_summary(operated: OperatedGroups, client: StreamsGroupClient, server: str) -> None:
    """Compare the log as it is after compaction, and print statistics."""
    with LogReader(server) as reader:
        folded = FoldedLog()
        records = reader.read()
        folded.add(records)
    found = [str(difference) for difference in compare_rows(folded.rows, client.describe(operated.groups))]
    print(f"differences when folded in a single batch: {operated.compare_single_batch() or 'none'}")
    print(f"{len(records):,} of {len(operated.log):,} records remain after compaction; their differences: {found}")
    seconds = {name: round(spent, 1) for name, spent in operated.seconds.items()}
    print(f"operations: {dict(operated.done)}\nseconds: {seconds}\nrejected: {dict(operated.rejected)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compare-every", type=int, default=20, help="operations between comparisons")
    parser.add_argument("--restart-every", type=int, default=1_000, help="operations between restarts of the broker")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
