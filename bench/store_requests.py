"""Requests to an object store: in an hour without changes, and in an hour with commits and rebalances.

The store is moto's S3 on loopback, which needs `moto_server` on the PATH or in `build/deploy-tools`; its log has a line
for each request. The start-up of the job does not count. In both parts there are streams groups whose members only send
heartbeats. In the second part, a thousand offsets are committed each second, and a group rebalances every five seconds.
"""

import os
import re
import shutil
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path

from bench.bench_harness import Harness, is_caught_up, process, repeating
from bench.memory import processor_seconds
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from tests.support import stores
from tests.support.waiting import wait_until

_GROUPS, _TOPIC, _PARTITIONS = 20, "stored", 10
_COMMITS, _COMMITTING_GROUPS = 1_000, 100
_EVERY = 5  # seconds between heartbeats, and between rebalances
_SETTLE_SECONDS, _START_SECONDS = 60.0, 180.0
_TOOLS = Path(__file__).parents[1] / "build" / "deploy-tools" / "bin"
_REQUEST = re.compile(rf'"(\w+) /{stores.BUCKET}[/?]?(\S*) HTTP')
_OF_A_TABLE = re.compile(r"(?:\w+/)?w/(\w+)")


def run(harness: Harness, minutes: float) -> None:
    """Print the requests of an hour, by method and by purpose."""
    moto = shutil.which("moto_server", path=os.pathsep.join((str(_TOOLS), os.environ["PATH"])))
    assert moto, "needs moto_server: .venv/bin/pip install 'moto[server]'"
    harness.client.create_topic(_TOPIC, _PARTITIONS)
    kind = topology(subtopology("0", source_topics=[_TOPIC]))
    members = [SimulatedMember(harness.client, f"stored-{number}", kind) for number in range(_GROUPS)]
    for member in members:
        member.join()
    settle(members)
    seconds, is_busy = count(1), threading.Event()

    def go_on() -> None:
        second = next(seconds)
        if is_busy.is_set():
            _commit(harness, second)
        if second % _EVERY == 0:
            for member in members:
                member.step()
            if is_busy.is_set():
                again = SimulatedMember(harness.client, "stored-again", kind)
                again.join()
                again.leave()

    with stores.s3(harness.directory, moto) as endpoint, repeating(go_on, 1.0):
        settings = [f"--conf={name}={value}" for name, value in stores.s3a_settings(endpoint).items()]
        command = harness.run_command(f"s3a://{stores.BUCKET}/w", *settings)
        log = harness.directory / "stored.log"
        with process(command, log, {**stores.S3_ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}) as job:
            assert wait_until(lambda: is_caught_up(log), _START_SECONDS), log.read_text("utf-8")
            time.sleep(_SETTLE_SECONDS)
            _count("idle", harness.directory / "s3.log", job, minutes)
            is_busy.set()
            _count("busy", harness.directory / "s3.log", job, minutes)


def _commit(harness: Harness, offset: int) -> None:
    offsets = {(_TOPIC, partition): offset for partition in range(_PARTITIONS)}
    for number in range(_COMMITS // _PARTITIONS):
        harness.client.commit_offsets(f"stored-commits-{number % _COMMITTING_GROUPS}", offsets)


def _count(name: str, log: Path, pid: int, minutes: float) -> None:
    start, used = log.stat().st_size, processor_seconds(pid)
    time.sleep(60 * minutes)
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode("utf-8", "replace").splitlines()
    used = processor_seconds(pid) - used
    found = [match.groups() for match in map(_REQUEST.search, lines) if match]
    print(
        f"{name}, {minutes:g} minutes as an hour: {len(found) * 60 / minutes:,.0f} requests, "
        f"{used / minutes * 60:,.0f} s of processor time"
    )
    for what, counted in {
        "kind": Counter("LIST" if method == "GET" and "list-type" in path else method for method, path in found),
        "table": Counter(_table(path) for _, path in found),
    }.items():
        most = ", ".join(f"{one} {times * 60 / minutes:,.0f}" for one, times in counted.most_common(15))
        print(f"  by {what}: {most}")


def _table(path: str) -> str:
    where = path.rsplit("prefix=", maxsplit=1)[-1].replace("%2F", "/") if "list-type" in path else path
    match = _OF_A_TABLE.search(where)
    return match[1] if match else "other"
