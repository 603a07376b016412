"""Random operations on the streams groups of a real broker; the fold of its log is compared with its descriptions.

    python -m tests.history.driver [--operations 10000] [--seed 1] [--job] [--keep-log]

This is the long form: it starts its own broker, which is restarted and killed from time to time, and whose log is
compacted continuously, unless `--keep-log`. `test_history.py` is the short form. After every `--compare-every`
operations the new records are folded in batches of random size, and every group is compared. With `--job` the job runs
at the same time, is terminated, killed and started again at random, and its tables are compared as well; with
`--keep-log` event by event.
"""

from __future__ import annotations

import argparse
import logging
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from tests.history.history import History, compare_rows
from tests.history.job import JobProcess, RandomRestarts
from tests.history.job_tables import find_differences
from tests.history.log import FoldedLog, LogReader

_COMPACTING = {
    "log.roll.ms": "3000",  # the newest segment is never compacted
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.delete.retention.ms": "1000",
}


def run(options: argparse.Namespace) -> None:
    """Run the operations, and print every difference as it is found."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streams-groups-history-")))
        broker = stack.enter_context(LocalBroker(directory, properties={} if options.keep_log else _COMPACTING))
        client = stack.enter_context(StreamsGroupClient(broker.bootstrap_server))
        history = History(client, broker.bootstrap_server, options.seed)
        stack.callback(history.close)
        job = JobProcess(broker.bootstrap_server, directory)
        stack.callback(job.close)
        restarts = RandomRestarts(job, random.Random(options.seed), options.stop_job_every)  # noqa: S311 - no secret
        started_at, found = time.monotonic(), 0
        for number in range(1, options.operations + 1):
            history.step()
            error = restarts.step() if options.job and number > options.compare_every else None
            if number % options.restart_every == 0:
                (broker.kill if number // options.restart_every % 2 else broker.stop)()
                broker.start()
                history.reader.reopen()
            is_due = number % options.compare_every == 0
            for difference in filter(None, (error, *(_compare(history, job, client, options) if is_due else ()))):
                found += 1
                print(f"after {number}: {difference}", flush=True)
            if number % 500 == 0:
                seconds = time.monotonic() - started_at
                print(f"{number:,} operations, {seconds:.0f} s, {restarts.stops}, {found} differences", flush=True)
        _print_summary(history, client, broker.bootstrap_server)
        print(f"{found} differences in {options.operations:,} operations; stops of the job: {restarts.stops}")


def _compare(
    history: History, job: JobProcess, client: StreamsGroupClient, options: argparse.Namespace
) -> Iterator[str]:
    yield from map(str, history.compare())
    yield from history.gaps()
    if job.running:
        yield from find_differences(job, client, history, exactly=options.keep_log)


def _print_summary(history: History, client: StreamsGroupClient, server: str) -> None:
    """Compare the log as it is after compaction, and print statistics."""
    with LogReader(server) as reader:
        folded = FoldedLog()
        records = reader.read()
        folded.add(records)
    found = [str(difference) for difference in compare_rows(folded.rows, client.describe(history.groups))]
    print(f"differences when folded in a single batch: {history.compare_single_batch() or 'none'}")
    print(f"{len(records):,} of {len(history.log):,} records remain after compaction; their differences: {found}")
    seconds = {name: round(spent, 1) for name, spent in history.seconds.items()}
    print(f"operations: {dict(history.done)}\nseconds: {seconds}\nrejected: {dict(history.rejected)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compare-every", type=int, default=20, help="operations between comparisons")
    parser.add_argument("--restart-every", type=int, default=1_000, help="operations between restarts of the broker")
    parser.add_argument("--job", action="store_true", help="run the job at the same time")
    parser.add_argument(
        "--stop-job-every", type=int, default=60, help="operations between stops of the job, on average"
    )
    parser.add_argument("--keep-log", action="store_true", help="disable compaction, so that events can be compared")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
