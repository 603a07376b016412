"""Random histories of streams groups on a live broker, folded from the log and compared with what the broker says.

    python -m tests.history.driver [--operations 10000] [--seed 1] [--job] [--keep-log]

That is the long form, with a broker of its own, which is restarted and killed now and then, and whose log is compacted
all the while, unless `--keep-log`. `test_history.py` has the short one. At each rest the new records are folded in
batches cut anywhere, and every group is compared. With `--job` the job itself runs beside, is ended, killed and started
again at random, and its tables are compared at each rest, too; with `--keep-log` event by event.
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

from streaming_app.local.broker import LocalBroker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.verify.compare import differences
from tests.history.history import History
from tests.history.job import Job, Trouble
from tests.history.log import Folded, LogReader
from tests.history.tables import disagreements

_COMPACTING = {
    "log.roll.ms": "3000",  # the newest segment is never compacted
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.delete.retention.ms": "1000",
}


def play(chosen: argparse.Namespace) -> None:
    """Play, and print every difference as it is found."""
    with ExitStack() as held:
        directory = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="streams-groups-history-")))
        broker = held.enter_context(LocalBroker(directory, properties={} if chosen.keep_log else _COMPACTING))
        client = held.enter_context(StreamsGroupClient(broker.bootstrap_server))
        history = History(client, broker.bootstrap_server, chosen.seed)
        held.callback(history.close)
        job = Job(broker.bootstrap_server, directory)
        held.callback(job.close)
        trouble = Trouble(job, random.Random(chosen.seed), chosen.end_job_every)  # noqa: S311 - no secret
        started, found = time.monotonic(), 0
        for number in range(1, chosen.operations + 1):
            history.step()
            wrong = trouble.step() if chosen.job and number > chosen.rest_every else None
            if number % chosen.restart_every == 0:
                (broker.kill if number // chosen.restart_every % 2 else broker.stop)()
                broker.start()
                history.reader.reopen()
            at_rest = number % chosen.rest_every == 0
            for difference in filter(None, (wrong, *(_rest(history, job, client, chosen) if at_rest else ()))):
                found += 1
                print(f"after {number}: {difference}", flush=True)
            if number % 500 == 0:
                seconds = time.monotonic() - started
                print(f"{number:,} operations, {seconds:.0f} s, {trouble.ends}, {found} differences", flush=True)
        _tell(history, client, broker.bootstrap_server)
        print(f"{found} differences in {chosen.operations:,} operations; the job's ends: {trouble.ends}")


def _rest(history: History, job: Job, client: StreamsGroupClient, chosen: argparse.Namespace) -> Iterator[str]:
    yield from map(str, history.rest())
    yield from history.gaps()
    if job.running:
        yield from disagreements(job, client, history, exactly=chosen.keep_log)


def _tell(history: History, client: StreamsGroupClient, server: str) -> None:
    """Print what else there is to say at the end."""
    with LogReader(server) as anew:
        whole = Folded()
        left = anew.read()
        whole.add(left)
    found = [
        str(one)
        for told in client.describe(history.groups)
        for one in differences(told["group_id"], whole.rows.get(told["group_id"]), told)
    ]
    print(f"folded in one batch instead: {history.uneven() or 'the same'}")
    print(f"{len(left):,} of {len(history.log):,} records left after compaction; differences from those: {found}")
    seconds = {name: round(spent, 1) for name, spent in history.seconds.items()}
    print(f"operations: {dict(history.done)}\nseconds: {seconds}\nrefused: {dict(history.refused)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rest-every", type=int, default=20)
    parser.add_argument("--restart-every", type=int, default=1_000, help="operations until the broker is, by turns")
    parser.add_argument("--job", action="store_true", help="let the job run beside")
    parser.add_argument("--end-job-every", type=int, default=60, help="operations until it is ended, on average")
    parser.add_argument("--keep-log", action="store_true", help="without compaction, so that events can be compared")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    play(parser.parse_args())


if __name__ == "__main__":
    main()
